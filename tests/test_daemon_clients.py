"""Clients that die, that are slow, that change their minds: their commands are theirs, and everybody else is served."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemons import Daemon, Raw, refused, settled
from support import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import (
    TTY,
    InvalidRequest,
    Limits,
    NotRunning,
    RemoteSession,
    Result,
    SessionBusy,
    ShellSessionError,
    connect,
)
from shellsession.daemon.wire import PARTS_MAX, encode


@pytest.fixture
def sh(remote: RemoteSession) -> RemoteSession:
    return remote


MIB = 1 << 20


def resident(daemon: Daemon) -> int:
    """Bytes of memory that the daemon has."""
    status = Path(f"/proc/{daemon.pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@contextmanager
def client_in(daemon: Daemon, agent: str, command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that runs a command in that agent's session."""
    script = f"from shellsession import connect\nconnect({agent!r}, {daemon.socket!r}).run({command!r})"
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL, cwd="/") as process:
        try:
            yield process
        finally:
            process.kill()


def begin(place: Path) -> str:
    return "echo one; echo >begun; until [ -e open ]; do sleep 0.05; done; echo two; echo >done"


def test_what_no_message_can_bring_is_refused_before_it_is_run(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    too_much = Limits(max_output=PARTS_MAX // 2 + 1)
    with pytest.raises(InvalidRequest, match="over the daemon at most 134217728 bytes: name a spill"):
        sh.run("touch ran", limits=too_much)
    with pytest.raises(InvalidRequest, match="over the daemon at most 134217728 bytes: name a spill"):
        connect("opened", daemon.socket, False, limits=too_much)
    with pytest.raises(InvalidRequest, match="True or False"):
        connect("opened", daemon.socket, False, tty=1)
    with pytest.raises(InvalidRequest, match="over the daemon at most 268435456: put it into a file"):
        sh.run("touch ran; cat", stdin=bytes(PARTS_MAX))
    assert not (place / "ran").exists()
    assert sh.run("true", limits=Limits(max_output=PARTS_MAX // 2)).exit_code == 0


# -- who dies


def test_the_command_of_a_client_that_died_goes_on_and_another_waits_for_it(
    daemon: Daemon, sh: RemoteSession, place: Path
) -> None:
    with client_in(daemon, sh.agent, begin(place)) as client, ThreadPoolExecutor(1) as threads:
        wait_until((place / "begun").exists, "the command")
        client.kill()
        client.wait(PATIENCE)
        assert (sh.state, sh.command) == ("running", begin(place))
        result = threads.submit(sh.wait)
        (place / "open").touch()
        assert (result.result(PATIENCE).outcome, result.result().stdout) == ("exited", "one\ntwo\n")
    assert (place / "done").exists()
    assert sh.run("echo free").stdout == "free\n"


def test_the_end_of_a_dead_clients_command_may_be_heard_later(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    """Or never: who runs the next command just runs it."""
    with client_in(daemon, sh.agent, begin(place)) as client:
        wait_until((place / "begun").exists, "the command")
        client.kill()
        client.wait(PATIENCE)
    (place / "open").touch()
    wait_until(lambda: sh.state == "idle", "the end of the command")
    assert sh.run("echo free").stdout == "free\n"
    with pytest.raises(NotRunning):
        sh.poll()


def test_the_command_of_a_client_that_died_is_interrupted_by_another(
    daemon: Daemon, sh: RemoteSession, place: Path
) -> None:
    seconds = unique_seconds()
    sh.run("X=1")
    with client_in(daemon, sh.agent, f"echo one; sleep {seconds}") as client:
        wait_until(lambda: with_argument(seconds), "the command")
        client.kill()
        client.wait(PATIENCE)
        result = sh.interrupt()
    assert (result.outcome, result.stdout) == ("interrupted", "one\n")
    assert with_argument(seconds) == []
    assert sh.run("echo $X").stdout == "1\n"


def test_a_handed_back_command_is_any_clients(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    with connect(sh.agent, daemon.socket, False) as other:
        assert other.run(begin(place), timeout=0.05, on_timeout="yield").outcome == "running"
    (place / "open").touch()
    assert sh.wait().stdout == "two\n"


# -- live output


def test_each_client_waits_for_the_command_that_it_was_handed_back(
    daemon: Daemon, sh: RemoteSession, place: Path
) -> None:
    mine = sh.run("echo mine; sleep 99", timeout=0.05, on_timeout="yield")
    assert mine.runs_on
    with connect(sh.agent, daemon.socket, False) as other:
        assert other.interrupt().outcome == "interrupted"
        assert other.run("echo theirs; read word; echo got $word", timeout=PATIENCE, stdin=TTY).outcome == "input"
        with pytest.raises(NotRunning):
            sh.send("mine\n")
        ended = sh.wait(PATIENCE)
        assert (ended.outcome, ended.stdout) == ("interrupted", "")
        assert sh.poll().runs_on  # nothing is its own any more: whichever runs
        assert other.send("theirs\n").stdout.endswith("got theirs\n")
        ended = sh.wait(PATIENCE)
        assert (ended.outcome, ended.exit_code) == ("exited", 0)
        with pytest.raises(NotRunning):
            sh.wait(PATIENCE)


def test_a_command_that_ended_by_itself_is_not_anothers(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    sh.run("until [ -e open ]; do sleep 0.05; done; (exit 7)", timeout=0.05, on_timeout="yield")
    with connect(sh.agent, daemon.socket, False) as other:
        (place / "open").touch()
        wait_until(lambda: other.state != "running" or other.idle, "its end")
        assert other.run("echo theirs; sleep 99", timeout=0.05, on_timeout="yield").runs_on
        assert sh.wait(PATIENCE).exit_code == 7
        other.interrupt()


@pytest.mark.parametrize("then", ["another runs", "several run", "another restarts"])
def test_an_end_that_nobody_waited_for_is_kept_whole_for_who_has_the_command(
    daemon: Daemon, sh: RemoteSession, place: Path, then: str
) -> None:
    assert sh.run(begin(place) + "; (exit 7)", timeout=0.3, on_timeout="yield").stdout == "one\n"
    with connect(sh.agent, daemon.socket, False) as other:
        (place / "open").touch()
        wait_until(lambda: other.state == "idle", "its end")
        if then == "another restarts":
            other.restart()
        else:
            for _ in range(1 if then == "another runs" else 40):
                assert other.run("echo theirs").stdout == "theirs\n"
        with pytest.raises(NotRunning):
            other.wait(PATIENCE)
    ended = sh.wait(PATIENCE)
    assert (ended.stdout, ended.stdout_omitted, ended.exit_code) == ("two\n", 0, 7)
    with pytest.raises(NotRunning):
        sh.wait(PATIENCE)


def test_what_is_kept_of_ends_is_bounded(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    """Of the last one with its output, of some before it without, of the rest nothing."""
    clients = [connect(sh.agent, daemon.socket, False) for _ in range(18)]
    for number, client in enumerate(clients):
        text = f"until [ -e go{number} ]; do sleep 0.05; done; echo {number}; (exit {number})"
        assert client.run(text, timeout=0.02, on_timeout="yield").runs_on
        (place / f"go{number}").touch()
        wait_until(lambda: sh.state == "idle", "its end")
    sh.run("true")
    told = []
    for client in reversed(clients[2:]):
        ended = client.wait(PATIENCE)
        told.append((ended.exit_code, ended.stdout, ended.stdout_omitted))
        client.disconnect()
    assert told == [(17, "17\n", 0), *((number, "", len(f"{number}\n")) for number in range(16, 1, -1))]
    for client in clients[:2]:
        with pytest.raises(NotRunning, match="no longer known"):
            client.wait(PATIENCE)
        client.disconnect()


def test_who_runs_the_next_command_at_once_takes_nobodys_end(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    """As soon as it has ended, and is only just being found to have."""
    with connect(sh.agent, daemon.socket, False) as other:
        for number in range(20):
            first = sh.run(f"until [ -e go{number} ]; do :; done; (exit 3)", timeout=0.02, on_timeout="yield")
            assert first.outcome == "running"
            (place / f"go{number}").touch()
            while refused(other):
                pass
            assert sh.wait().exit_code == 3


def test_a_command_that_a_restart_ended_is_told_to_who_has_it(daemon: Daemon, sh: RemoteSession) -> None:
    sh.run("sleep 99", timeout=0.05, on_timeout="yield")
    with connect(sh.agent, daemon.socket, False) as other:
        other.restart()
    assert sh.wait(PATIENCE).outcome == "shell_exited"


def test_the_end_of_a_handed_back_command_is_noticed_by_itself(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    """Who asked for it may be dead: the session is free, its line is in the log, and its result there for who waits."""
    assert sh.run(begin(place), timeout=0.1, on_timeout="yield").outcome == "running"
    (place / "open").touch()
    wait_until(lambda: sh.state == "idle", "its end")
    logged = wait_until(lambda: daemon.logged(sh.agent), "its line in the log")
    assert [(line["outcome"], line["stdout"]) for line in logged] == [("exited", len("one\ntwo\n"))]
    result = sh.wait()
    assert (result.stdout, result.exit_code, result.outcome) == ("two\n", 0, "exited")
    (place / "open").unlink()
    sh.run(begin(place), timeout=0.1, on_timeout="yield")
    (place / "open").touch()
    wait_until(lambda: sh.state == "idle", "its end")
    assert sh.run("echo free").stdout == "free\n"
    assert [line["command"] for line in wait_until(lambda: daemon.logged(sh.agent)[2:], "the log")] == ["echo free"]


@pytest.mark.parametrize("end", ["kill -9 $$", "exit 3"])
def test_a_shell_that_ends_after_it_was_handed_back_is_noticed(sh: RemoteSession, place: Path, end: str) -> None:
    sh.run(f"until [ -e open ]; do sleep 0.05; done; {end}", timeout=0.1, on_timeout="yield")
    (place / "open").touch()
    wait_until(lambda: sh.state == "new", "its end")
    assert sh.wait().outcome == "shell_exited"


def test_live_output_comes_in_order(sh: RemoteSession) -> None:
    heard: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    command = "for ((i = 0; i < 3000; i++)); do echo $i; ((i % 7)) || echo $i >&2; done"
    result = sh.run(command, on_output=lambda stream, data: heard[stream].append(data))
    assert (b"".join(heard["stdout"]), b"".join(heard["stderr"])) == (result.stdout_bytes, result.stderr_bytes)
    assert result.stdout.splitlines() == list(map(str, range(3000)))


def test_live_output_goes_on_after_the_command_was_handed_back(sh: RemoteSession, place: Path) -> None:
    heard: list[bytes] = []
    command = (
        "echo 1; echo >begun; until [ -e open ]; do sleep 0.05; done; for i in 2 3 4; do echo $i; sleep 0.05; done"
    )
    first = sh.run(command, timeout=0.1, on_timeout="yield", on_output=lambda _, data: heard.append(data))
    assert (first.outcome, first.stdout, heard) == ("running", "1\n", [b"1\n"])
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(sh.wait)
        (place / "open").touch()
        assert result.result(PATIENCE).stdout == "2\n3\n4\n"
    assert b"".join(heard) == b"1\n2\n3\n4\n"


def test_a_command_that_is_refused_takes_nothing_from_the_one_that_runs(sh: RemoteSession) -> None:
    """As with Session: its output is still heard live, and what ``expect`` has found is still there."""
    heard: list[bytes] = []
    text = "echo first; read x; echo got $x"
    assert sh.run(text, stdin=TTY, on_output=lambda _, data: heard.append(data)).outcome == "input"
    sh.expect("first")
    with pytest.raises(SessionBusy):
        sh.run("echo never")
    assert sh.after == "first"
    assert sh.send("it\n").exit_code == 0
    assert b"".join(heard) == b"first\ngot it\n"


def test_live_output_comes_while_the_command_runs(sh: RemoteSession, place: Path) -> None:
    heard: list[bytes] = []
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(sh.run, begin(place), on_output=lambda _, data: heard.append(data))
        wait_until(lambda: heard == [b"one\n"], "the first line")
        (place / "open").touch()
        result.result(PATIENCE)
    assert heard == [b"one\n", b"two\n"]


# -- who is slow


def test_a_slow_client_slows_its_command_and_nothing_else(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    size = 80 * MIB
    with Raw(daemon.socket) as slow:
        slow.open("slow", place)
        assert slow.run("slow", "true")["exit_code"] == 0
        before = resident(daemon)
        slow.say("run", f"head -c {size} /dev/zero; echo >done".encode(), agent="slow", live=True, timeout=None)
        settled(lambda: resident(daemon) >> 20, lambda: sh.run("true"))
        assert resident(daemon) - before < 32 * MIB
        assert not (place / "done").exists()
        came = 0
        while "event" in (message := slow.receive()).header:
            came += len(message.parts[0])
        assert (came, message.header["result"]["outcome"]) == (size, "exited")
        assert resident(daemon) - before < 32 * MIB


def test_a_client_that_takes_nothing_keeps_the_session_no_longer_than_its_command(
    daemon: Daemon, sh: RemoteSession
) -> None:
    sh.open()
    with Raw(daemon.socket) as slow:
        slow.say("run", b"yes", agent=sh.agent, live=True, timeout=0.5)
        wait_until(lambda: sh.state == "running", "the command")
        assert sh.run("echo next", timeout=10).stdout == "next\n"
        came = 0
        while "event" in (message := slow.receive()).header:
            assert message.header["at"] == came
            came += len(message.parts[0])
        assert message.header["result"]["outcome"] == "timed_out"
        assert came


def test_output_that_nobody_wants_live_costs_no_memory(daemon: Daemon, sh: RemoteSession) -> None:
    sh.run("true")
    before = resident(daemon)
    result = sh.run(f"head -c {80 * MIB} /dev/zero")
    assert len(result.stdout_bytes) + result.stdout_omitted == 80 * MIB
    assert resident(daemon) - before < 32 * MIB


def test_answers_that_nobody_takes_are_not_piled_up(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    """The ledger may keep 64 MiB of them; what is asked for here is 300."""
    with Raw(daemon.socket) as slow:
        slow.open("piled", place)
        text = b"sleep 100 #" + b"x" * 200_000
        slow.ask("run", text, agent="piled", timeout=0.05, on_timeout="yield")
        before = resident(daemon)
        requests = [slow.header("info", agent="piled") for _ in range(1500)]
        with ThreadPoolExecutor(1) as sender:
            sending = sender.submit(slow.socket.sendall, b"".join(map(encode, requests)))
            settled(lambda: resident(daemon) >> 20, lambda: sh.run("true"))
            grown = resident(daemon) - before
            replies = [slow.receive().header["id"] for _ in requests]
            sending.result()
        slow.ask("close", agent="piled")
    assert replies == [request["id"] for request in requests]
    assert grown < 128 * MIB


@pytest.mark.parametrize("verb", ["fly", "poll", "stats"])
def test_a_flood_of_requests_is_answered_one_by_one(raw: Raw, sh: RemoteSession, verb: str) -> None:
    """Whether each is refused at once, or answered at once, or later."""
    agent = {"agent": sh.agent} if verb == "poll" else {}
    requests = [raw.header(verb, **agent) for _ in range(5000)]
    with ThreadPoolExecutor(1) as sender:
        sender.submit(raw.socket.sendall, b"".join(map(encode, requests)))
        replies = [raw.receive().header for _ in requests]
    assert {reply["id"] for reply in replies} == {request["id"] for request in requests}
    assert sh.run("echo served").stdout == "served\n"


def test_a_command_of_who_does_not_read_the_last_answer_waits_until_he_does(
    daemon: Daemon, sh: RemoteSession, place: Path
) -> None:
    limits = {"max_output": 16 * MIB, "spill": None, "spill_max": 0, "on_overflow": "truncate"}
    with Raw(daemon.socket) as idle:
        idle.say("run", f"echo >{place}/first; head -c {8 * MIB} /dev/zero".encode(), agent=sh.agent, limits=limits)
        idle.say("run", f"echo >{place}/second".encode(), agent=sh.agent)
        wait_until((place / "first").exists, "the first")
        assert sh.run(f"ls -1 {place}").stdout == "first\n"  # behind both of them
        assert len(idle.receive().parts[0]) == 8 * MIB
        assert idle.receive().header["result"]["exit_code"] == 0
        assert sh.run(f"ls -1 {place}").stdout == "first\nsecond\n"


def test_a_command_that_prints_without_end_delays_nobody(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    with connect("endless", daemon.socket, False, cwd=place) as endless, ThreadPoolExecutor(1) as threads:
        result = threads.submit(endless.run, "yes", timeout=None)
        wait_until(lambda: endless.state == "running", "the command")
        for number in range(50):
            assert sh.run(f"echo {number}").stdout == f"{number}\n"
        assert not result.done()
        endless.interrupt()
        assert result.result(PATIENCE).outcome == "interrupted"
        endless.close()


# -- who changes his mind


def test_a_stream_that_is_left_with_its_result_has_nothing_cancelled(daemon: Daemon, sh: RemoteSession) -> None:
    def asked() -> int:
        return int(other.ask("stats").header["value"]["requests"])

    with Raw(daemon.socket) as other:
        before = asked()
        for piece in sh.stream("true"):
            if isinstance(piece, Result):
                break
        assert asked() == before + 2  # the command, and that question


def test_a_request_is_cancelled(daemon: Daemon, sh: RemoteSession) -> None:
    seconds = unique_seconds()
    sh.run("X=1")
    with Raw(daemon.socket) as raw, Raw(daemon.socket) as other:
        request = raw.say("run", f"sleep {seconds}".encode(), agent=sh.agent)
        wait_until(lambda: with_argument(seconds), "the command")
        assert other.ask("cancel", request=request).header["value"] is True
        reply = raw.receive().header
        assert (reply["id"], reply["error"]["code"]) == (request, ShellSessionError.code)
        assert with_argument(seconds) == []
        assert other.ask("cancel", request=request).header["value"] is False
    assert sh.run("echo $X").stdout == "1\n"


def test_a_command_that_was_handed_back_to_who_had_given_up_is_ended(daemon: Daemon, sh: RemoteSession) -> None:
    """He asks for it to be cancelled while the answer is on its way: nobody else knows of that command."""
    seconds = unique_seconds()
    sh.run("X=1")
    with Raw(daemon.socket) as raw:
        reply = raw.ask("run", f"sleep {seconds}".encode(), agent=sh.agent, timeout=0.05, on_timeout="yield").header
        assert reply["result"]["outcome"] == "running"
        end = raw.ask("cancel", request=reply["id"]).header
        assert (end["value"], end["result"]["outcome"]) == (True, "interrupted")
        assert with_argument(seconds) == []
        assert raw.ask("cancel", request=reply["id"]).header["value"] is False
    assert sh.run("echo $X").stdout == "1\n"


def test_a_request_that_waits_for_its_turn_is_cancelled(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    with Raw(daemon.socket) as raw, Raw(daemon.socket) as other:
        first = raw.say("run", begin(place).encode(), agent=sh.agent)
        wait_until((place / "begun").exists, "the command")
        second = raw.say("run", b"touch never", agent=sh.agent)
        wait_until(lambda: other.ask("cancel", request=second).header["value"], "the cancelling")
        assert raw.receive().header["id"] == second
        (place / "open").touch()
        reply = raw.receive().header
        assert (reply["id"], reply["result"]["outcome"]) == (first, "exited")
    assert not (place / "never").exists()
