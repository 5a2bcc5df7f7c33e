"""What a daemon in trouble reports to its clients and in its log, without private data."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import endings
import pytest
from daemons import Daemon, Raw, answers, looks_into_it, running, serving, stopped
from endings import nothing_is_left, session
from system import PATIENCE, stat_fields, wait_until

from shellsession import DaemonUnavailable, LimitReached, connect
from shellsession.cli.attach import AgentConnection
from shellsession.cli.main import main
from shellsession.daemon.client.admin import shutdown, stats
from shellsession.daemon.client.transport import SocketChannel
from shellsession.daemon.protocol.wire import encode
from shellsession.daemon.server import server
from shellsession.daemon.server.connection import Connection as ServedConnection

runtime, hasty = endings.runtime, endings.hasty


@looks_into_it
def test_where_no_descriptor_is_left_clients_are_notified_at_once(hasty: Daemon, runtime: Path) -> None:
    """And are served again as soon as there are some."""
    with ExitStack() as clients, session(hasty) as sh:
        sh.run("X=1")
        used = max(map(int, os.listdir(f"/proc/{hasty.pid}/fd")))
        soft, hard = resource.prlimit(hasty.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(hasty.pid, resource.RLIMIT_NOFILE, (used + 20, hard))

        def is_let_in() -> bool:
            return "incarnation" in clients.enter_context(Raw(hasty.socket)).hello

        let_in = [is_let_in() for _ in range(40)]
        assert let_in == sorted(let_in, reverse=True)
        assert 0 < sum(let_in) < 30
        assert hasty.said.count("turned away") == 1  # and not for each of them
        with pytest.raises(LimitReached, match="descriptors"):
            session(hasty, "b")
        assert sh.run("echo $X").stdout == "1\n"
        clients.pop_all().close()
        wait_until(is_let_in, "room")
        resource.prlimit(hasty.pid, resource.RLIMIT_NOFILE, (soft, hard))
        with session(hasty, "b") as other:
            assert other.run("echo served").stdout == "served\n"
    assert hasty.stop() == 0
    assert nothing_is_left(hasty, runtime)


def test_without_even_a_spare_descriptor_it_rests_between_two_looks(hasty: Daemon) -> None:
    soft, hard = resource.prlimit(hasty.pid, resource.RLIMIT_NOFILE)
    with Raw(hasty.socket) as raw, socket.socket(socket.AF_UNIX) as waiting:
        resource.prlimit(hasty.pid, resource.RLIMIT_NOFILE, (3, hard))
        waiting.connect(hasty.socket)
        wait_until(lambda: "turned away" in hasty.said, "its trouble")
        for _ in range(10):
            wait_until(lambda: stat_fields(hasty.pid)[0] == "S", "its rest")
            assert raw.ask("stats").header["value"]["connections"] == 1
        resource.prlimit(hasty.pid, resource.RLIMIT_NOFILE, (soft, hard))
        waiting.settimeout(PATIENCE)
        assert b"incarnation" in waiting.recv(1 << 16)


def keep_busy(raw: Raw, way: str) -> None:
    """That client waits for an answer, or is told what happens, or is in the middle of what it says."""
    if way == "run":
        raw.say(way, b"until [ -e go ]; do sleep 0.01; done", agent="a1")
    elif way == "list":
        raw.socket.sendall(encode(raw.header(way))[:-1])
    else:
        raw.ask(way, agent="a2", holder="me")


def test_so_many_clients_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is connected is served as ever, and who leaves makes room."""
    ways = ("list", "run", "watch", "hold")
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", len(ways) + 1)
    path = str(tmp_path / "socket")
    with serving(path), ExitStack() as clients:
        last = clients.enter_context(Raw(path))
        raws = {way: clients.enter_context(Raw(path)) for way in ways}
        for agent in ("a1", "a2"):
            last.open(agent, tmp_path)
        for way, raw in raws.items():
            keep_busy(raw, way)
        keep_busy(last, "watch")
        with Raw(path) as late:
            assert late.hello["error"]["code"] == "limit_reached"
            with pytest.raises(EOFError):
                late.receive()
        with pytest.raises(LimitReached, match="5 clients are connected"):
            connect("a1", path)
        (tmp_path / "go").touch()
        assert raws["run"].receive().header["result"]["outcome"] == "exited"
        raws["list"].socket.sendall(b"\n")
        assert "error" not in raws["list"].receive().header
        clients.pop_all().close()
        wait_until(lambda: answers(path), "room")


def test_who_comes_gets_the_place_of_who_has_been_idle_for_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has a session open and asks nothing of it keeps nobody out, nor does that one notice: it comes back."""
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 3)
    path = str(tmp_path / "socket")
    with serving(path), Raw(path) as first, Raw(path) as second, connect("a1", path, False) as sh:
        sh.run("X=1")
        first.ask("list")
        with Raw(path), Raw(path), Raw(path) as late:
            for gone in (second, first):
                with pytest.raises(EOFError):
                    gone.receive()
            assert late.ask("stats").header["value"]["connections"] == 3
            assert sh.run("echo $X").stdout == "1\n"


def test_a_flood_of_idle_clients_costs_the_same_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked at once, when room is needed: not all that are there for each that comes."""
    asked: list[ServedConnection] = []

    def is_idle(connection: ServedConnection) -> bool:
        asked.append(connection)
        return bool(found(connection))

    found = vars(ServedConnection)["is_idle"].fget
    monkeypatch.setattr(ServedConnection, "is_idle", property(is_idle))
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 10)
    with serving(str(tmp_path / "socket")), ExitStack() as clients:
        for _ in range(30):
            clients.enter_context(Raw(str(tmp_path / "socket")))
    assert len(asked) == len(set(asked)) == 20


def test_who_asks_again_over_another_connection_is_not_idle_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is, where it is still there."""
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 3)
    path = str(tmp_path / "socket")
    with serving(path), Raw(path) as first, Raw(path) as second:
        first.open("a1", tmp_path)
        request, part = first.header("run", agent="a1"), b"until [ -e go ]; do sleep 0.01; done"
        for raw in (first, second):
            raw.socket.sendall(encode(request, part))
        with Raw(path), Raw(path):
            with pytest.raises(EOFError):
                first.receive()
            (tmp_path / "go").touch()
            assert second.receive().header["result"]["outcome"] == "exited"


def attach(path: str) -> None:
    """Connect as ``shellsession attach`` does."""
    AgentConnection("a1", path).close()


def test_a_daemon_that_stands_still_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Started by a client, so that it is not the process that listened first; it is named all the same."""
    path = str(tmp_path / "run" / "socket")
    connect("a1", path).disconnect()
    pid = stats(path)["pid"]
    try:
        with stopped(pid), monkeypatch.context() as patch:
            patch.setattr(SocketChannel, "patience", 0.3)
            for ask in (lambda: connect("a1", path), lambda: stats(path), lambda: attach(path)):
                with pytest.raises(DaemonUnavailable, match=rf"\(pid {pid}\) .* stopped \(SIGSTOP\)"):
                    ask()
            assert main(["status", "--socket", path]) == 125
            assert "kill -CONT" in capsys.readouterr().err
    finally:
        shutdown(path)
    assert main(["status", "--socket", path]) == 3


def test_its_own_log_tells_of_each_request_and_not_what_it_was_about(tmp_path: Path) -> None:
    with running(tmp_path / "daemon", "--log-level", "debug") as daemon, Raw(daemon.socket) as raw:
        raw.open("a\n1", tmp_path)
        raw.ask("run", b"echo private >&2; exit 3", agent="a\n1")
        last = raw.ask("poll", agent="nobody").header["id"]
        told = [json.loads(line)["message"] for line in daemon.said.splitlines() if "connection" in line]
    assert "private" not in daemon.said
    number = last.split(".")[1]
    assert [line.partition(f"connection {number}: ")[2].replace(last.rpartition(".")[0], "ID") for line in told] == [
        "open of agent 'a\\n1' (ID.1): done",
        "run of agent 'a\\n1' (ID.2): shell_exited",
        "poll of agent 'nobody' (ID.3): no_such_agent",
    ]


def test_a_client_that_died_is_not_said_to_be_in_a_sandbox(hasty: Daemon) -> None:
    with stopped(hasty.pid):
        script = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        subprocess.run([sys.executable, "-c", script, hasty.socket], check=True)
    with Raw(hasty.socket) as raw:
        raw.ask("list")
    assert "refused" not in hasty.said
