"""Many agents in one daemon: each has its own session, and sees nothing of the others."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, Raw, looks_into_it, running
from system import PATIENCE, descendants, unique_seconds, wait_until

from shellsession import DaemonUnavailable, InvalidRequest, RemoteSession, ShellUnavailable, aconnect, connect
from shellsession.daemon.client.admin import stats

# What bash itself adds to an environment, and what programs without a person get.
BASH = {"PWD", "OLDPWD", "SHLVL", "_"}
AGENT = {"PAGER", "GIT_PAGER", "GH_PAGER", "MANPAGER", "SYSTEMD_PAGER", "GIT_TERMINAL_PROMPT"}
AGENT |= {"GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "EDITOR", "VISUAL", "DEBIAN_FRONTEND", "PYTHONUNBUFFERED"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One whose own environment would be seen."""
    env = {**os.environ, "OF_DAEMON": "unseen", "HOME": "/of/daemon"}
    with running(tmp_path_factory.mktemp("daemon"), env=env) as daemon:
        yield daemon


@pytest.fixture
def client(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[Callable[..., RemoteSession]]:
    """Opens sessions that are closed after the test."""
    opened: list[RemoteSession] = []

    def make(agent: str, **options: Any) -> RemoteSession:
        opened.append(connect(f"{request.node.name} {agent}", daemon.socket, False, **options))
        return opened[-1]

    yield make
    for session in opened:
        session.close()


Client = Callable[..., RemoteSession]


def variables(session: RemoteSession) -> dict[str, str]:
    lines = session.run("env -0").stdout_bytes.decode("utf-8", "surrogateescape").split("\0")
    return dict(line.split("=", 1) for line in lines if line)


def test_a_session_is_as_the_client_that_opens_it(client: Client, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("OF_CLIENT", "one\nline é \udcff")
    monkeypatch.setenv("BASH_FUNC_builtin%%", "() { :; }")  # no umask of others for that
    umask = os.umask(0o027)
    try:
        first = client("a")
        os.umask(0o077)
        monkeypatch.setenv("OF_CLIENT", "two")
        monkeypatch.chdir("/")
        second = client("a")
    finally:
        os.umask(umask)
    for session in (first, second):  # who comes later finds it as it is
        assert session.run("pwd; umask").stdout == f"{place}\n0027\n"
        assert variables(session)["OF_CLIENT"] == "one\nline é \udcff"
    first.restart()
    assert second.run("pwd; umask; echo $?").stdout == f"{place}\n0027\n0\n"
    first.close()
    assert client("a").run("pwd; echo $OF_CLIENT").stdout == "/\ntwo\n"  # a new one is of who opens that


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ({"env": {"PATH": "/usr/bin:/bin", "A": "b"}}, set()),
        ({"env": {"PATH": "/usr/bin:/bin", "A": "b"}, "extra_env": {"B": "c"}}, {"B"}),
    ],
    ids=["env", "extra_env"],
)
def test_an_environment_is_what_was_given_and_nothing_else(
    client: Client, options: dict[str, Any], added: set[str]
) -> None:
    assert variables(client("a", **options)).keys() - BASH == {"PATH", "A"} | added


@pytest.mark.parametrize(("agent_env", "added"), [(True, AGENT), (False, set[str]())])
def test_an_inherited_environment_is_the_clients(
    client: Client, monkeypatch: pytest.MonkeyPatch, agent_env: bool, added: set[str]
) -> None:
    kept = {"PATH": os.environ["PATH"], "OF_CLIENT": "seen"}
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in kept.items():
        monkeypatch.setenv(name, value)
    assert variables(client("a", agent_env=agent_env)).keys() - BASH == kept.keys() | added


@pytest.mark.parametrize("name", ["./mybash", "mybash", "{place}/mybash"])
def test_bash_is_the_one_that_the_client_means(
    client: Client, place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (place / "mybash").write_text('#!/bin/sh\nMINE=yes exec bash "$@"\n', encoding="ascii")
    (place / "mybash").chmod(0o755)
    monkeypatch.chdir(place)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    assert client("a", bash=name.format(place=place)).run("echo $MINE").stdout == "yes\n"


def test_a_bash_that_is_not_there_is_reported(client: Client) -> None:
    with pytest.raises(ShellUnavailable, match="no such bash"):
        client("a", bash="/no such bash").run("true")


@looks_into_it
def test_one_agents_secret_is_nowhere_else(daemon: Daemon, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "opensesame-" + unique_seconds()
    before = client("before")
    before.run("true")
    with monkeypatch.context() as patch:
        patch.setenv("TOKEN", secret)
        owner = client("owner")
    after = client("after")
    assert owner.run("echo $TOKEN").stdout == f"{secret}\n"
    for session in (before, after):
        assert secret not in session.run("env; set; export -p").stdout
    processes = {daemon.pid, *descendants(daemon.pid)} - {owner.pid}
    assert len(processes) >= 4  # the daemon, its watcher, two shells
    for pid in processes:
        for name in ("environ", "cmdline"):
            assert secret.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    assert secret not in json.dumps(list(map(str, daemon.logged(owner.agent)))) + daemon.said


def test_agents_do_not_see_each_other(client: Client) -> None:
    sessions = [client(name) for name in "abc"]
    for session in sessions:
        session.run(f"cd /; X={session.agent!r}; f() {{ echo $X; }}; alias g=f")
    assert [session.run("f").stdout for session in sessions] == [f"{session.agent}\n" for session in sessions]
    assert len({session.pid for session in sessions}) == 3


def test_nothing_that_runs_can_make_the_list_too_long(daemon: Daemon, client: Client) -> None:
    session = client("long")
    text = "sleep 100 #" + "x" * (3 << 19)
    session.run(text, timeout=0.05, on_timeout="yield")
    assert session.command == text
    with Raw(daemon.socket) as raw:
        (info,) = [info for info in raw.agents() if info["agent"] == session.agent]
    assert (info["state"], info["pid"]) == ("running", session.pid)
    assert text.startswith(info["command"][:1000])
    session.interrupt()
    session.run(text.replace("#", "& #"))
    assert session.jobs()[0].kill()


def test_a_session_is_awaited_or_entered(daemon: Daemon) -> None:
    async def main() -> None:
        async with aconnect("entered", daemon.socket, False, cwd="/") as entered:
            assert (await entered.run("word=kept")).ok
        async with await aconnect("entered", daemon.socket, False) as awaited:
            assert (await awaited.run("echo $word")).stdout == "kept\n"
        both = await asyncio.gather(*(aconnect("entered", daemon.socket, False) for _ in range(2)))
        await both[0].close()
        for session in both:
            session.disconnect()

    asyncio.run(main())
    asyncio.run(aconnect("entered", daemon.socket, False, cwd="/")).disconnect()


def test_an_agent_over_the_wire_has_a_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="must be a str, not"):
        connect(b"x", tmp_path / "socket", False)  # type: ignore[arg-type]


def test_no_daemon_is_started_where_none_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnavailable, match="no agent has a session there"):
        connect("a", tmp_path / "socket", False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a" * 257, "\udcff"], ids=["empty", "too long", "no text"])
def test_what_is_no_name_is_said_in_words(daemon: Daemon, name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"an agent's name is text \(Unicode\) of 1 to 256 characters"):
        connect(name, daemon.socket, False)


def test_a_forked_child_takes_nothing_of_its_parents_loop(daemon: Daemon) -> None:
    """It gives up its parent's connections, which stay the parent's, and waited for."""
    with asyncio.Runner() as parent:
        session = parent.run(aconnect("forked", daemon.socket, False, cwd="/", timeout=PATIENCE))
        assert parent.run(session.run("echo parent")).ok
        if (child := os.fork()) == 0:
            signal.alarm(int(PATIENCE))
            with suppress(BaseException):
                os._exit(0 if asyncio.run(session.run("echo child")).stdout == "child\n" else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert parent.run(asyncio.wait_for(session.run("echo parent"), PATIENCE)).stdout == "parent\n"
        parent.run(session.close())


def test_a_first_start_that_fails_keeps_the_session_for_who_waits_to_start_it(
    daemon: Daemon, client: Client, place: Path
) -> None:
    fails_once = f"if mkdir {place}/first; then until [ -e {place}/go ]; do sleep 0.01; done; exit; fi"
    first, second = client("a", startup=[fails_once]), client("a")
    with ThreadPoolExecutor(2) as threads:
        started = threads.submit(first.run, "true")
        wait_until((place / "first").exists, "its startup")
        queued = threads.submit(second.run, "X=kept")
        wait_until(lambda: stats(daemon.socket)["serving"] == 3, "both, and the question")
        (place / "go").touch()
        assert isinstance(started.exception(PATIENCE), ShellUnavailable)
        assert queued.result(PATIENCE).ok
    assert first.run("echo $X").stdout == "kept\n"


def test_a_first_command_that_was_begun_behind_anothers_restart_is_logged_to_its_end(
    daemon: Daemon, client: Client, place: Path
) -> None:
    starts = f"[ -e {place}/first ] || {{ touch {place}/first; sleep 1000; }}"
    first, second = client("a", startup=[starts]), client("a")
    command = f"until [ -e {place}/go ]; do sleep 0.01; done; (exit 7)"
    with ThreadPoolExecutor(1) as threads:
        begun = threads.submit(first.run, command, timeout=0.1, on_timeout="yield")
        wait_until((place / "first").exists, "its startup")
        second.restart()
        assert begun.result(PATIENCE).outcome == "running"
    (place / "go").touch()
    assert first.wait().exit_code == 7
    wait_until(lambda: daemon.logged(first.agent), "the log")
    assert [(line["command"], line["exit_code"]) for line in daemon.logged(first.agent)] == [(command, 7)]


def test_what_a_client_opens_a_session_with_has_no_time_limit(client: Client) -> None:
    """Its umask is no startup command, of which it would be told."""
    session = client("a", timeout=1e-9)
    for _ in range(50):
        session.restart()
    assert session.run("echo on", timeout=PATIENCE).stdout == "on\n"
