"""A client asks for the command that was handed back to it, as long as the daemon knows its result."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import clients
import pexpect
import pytest
from daemons import Daemon, Raw, connections, running, served, settled, stopped
from system import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import TTY, DaemonUnavailable, NotRunning, RemoteSession, SessionClosed, aconnect, connect
from shellsession.daemon.protocol.wire import encode

sh = clients.sh
SOON = 0.3


def asks_here(other: RemoteSession) -> None:
    """Another client has a command that waits for input."""
    assert other.run("read x; echo got $x; read y", stdin=TTY).outcome == "input"


def test_what_was_handed_back_by_a_daemon_that_has_ended_is_not_asked_for_in_the_next(tmp_path: Path) -> None:
    with running(tmp_path / "daemon") as daemon, connect("lost", daemon.socket, False, cwd="/") as client:
        assert client.run("sleep 1000", timeout=SOON, on_timeout="yield").outcome == "running"
        daemon.stop(signal.SIGKILL)
        with running(tmp_path / "daemon"), connect("lost", daemon.socket, False, cwd="/") as other:
            with pytest.raises(DaemonUnavailable):
                client.run("true")
            assert client.run("true").exit_code == 0
            asks_here(other)
            assert client.send("hi\n").stdout == "got hi\n"


def test_a_twin_that_finds_another_daemon_forgets_what_the_last_one_handed_back(tmp_path: Path) -> None:
    async def main(socket: str) -> None:
        async with await aconnect("lost", socket, False, cwd="/") as session:
            assert (await session.run("sleep 1000", timeout=SOON, on_timeout="yield")).outcome == "running"
            daemon.stop(signal.SIGKILL)
            with running(tmp_path / "daemon"), connect("lost", socket, False, cwd="/") as other:
                with pytest.raises(DaemonUnavailable):
                    _ = session.state
                assert session.state == "new"  # the session is opened by who only looks, without a coroutine
                await asyncio.to_thread(asks_here, other)
                assert (await session.send("hi\n")).stdout == "got hi\n"

    with running(tmp_path / "daemon") as daemon:
        asyncio.run(main(daemon.socket))


@pytest.mark.parametrize("question", ["cwd", "size", "idle"])
def test_a_closed_session_asks_nothing_of_who_has_its_name_now(daemon: Daemon, question: str) -> None:
    async def main() -> None:
        session = await aconnect("closed", daemon.socket, False, cwd="/")
        await session.close()
        with connect("closed", daemon.socket, False, cwd="/tmp") as other:  # somebody else's, of the same name
            with pytest.raises(SessionClosed):
                getattr(session, question)
            assert session.closed
            with pytest.raises(SessionClosed):
                await session.run("echo in somebody else's")
            await asyncio.to_thread(other.close)

    asyncio.run(main())


@pytest.mark.parametrize(("first", "second"), [({"timeout": SOON}, {}), ({"timeout": 1000}, {"timeout": SOON})])
def test_a_client_has_its_own_time_limit_or_else_that_of_the_session(
    daemon: Daemon, first: dict[str, Any], second: dict[str, Any]
) -> None:
    with connect("patient", daemon.socket, False, cwd="/", **first) as opened:
        with connect("patient", daemon.socket, False, **second) as later:
            assert later.run("sleep 1000").outcome == "timed_out"
            assert later.run("echo asks; read x", stdin=TTY, timeout=PATIENCE).outcome == "input"
            with pytest.raises(pexpect.TIMEOUT):
                later.expect("never")
            later.interrupt()
            later.run("sleep 1000", on_timeout="yield", timeout=0.01)
            assert later.wait().outcome == "running"
        opened.close()


def test_what_is_no_longer_known_of_a_command_is_said_once(daemon: Daemon, sh: RemoteSession) -> None:
    sh.run("sleep 1000", timeout=SOON, on_timeout="yield")
    with connect(sh.agent, daemon.socket, False) as other:
        assert other.interrupt().outcome == "interrupted"
        assert sh.run("true").exit_code == 0
        for _ in range(17):  # more than the ends that are kept
            other.run("sleep 1000", timeout=0.02, on_timeout="yield")
            other.interrupt()
        asks_here(other)
        with pytest.raises(NotRunning, match=r"wait\(\) returns"):
            sh.send("hi\n")
        with pytest.raises(NotRunning, match="no longer kept"):
            sh.wait(1)
        assert sh.send("hi\n").stdout == "got hi\n"


def test_what_came_while_the_answer_was_on_its_way_to_nobody_is_reported_too(
    daemon: Daemon, sh: RemoteSession, place: Path
) -> None:
    """The client had gone when it was handed the command back, which ended before it came again for the answer."""
    sh.open()
    with Raw(daemon.socket) as lost, Raw(daemon.socket) as other:
        run = lost.header("run", agent=sh.agent, timeout=0.3, on_timeout="yield")
        with stopped(daemon.pid):  # it finds that the client has gone before the command is handed back
            lost.socket.sendall(encode(run, b"echo one; until [ -e open ]; do sleep 0.05; done; echo two; (exit 7)"))
            lost.close()
        wait_until(lambda: sh.state == "running", "the command")
        wait_until(lambda: served(other) == 1, "the handing back")  # that question alone
    (place / "open").touch()
    wait_until(lambda: sh.state == "idle", "its end")
    with Raw(daemon.socket) as back:
        back.socket.sendall(encode(run, b""))
        first = back.receive().parts[0]  # "one" if bash was quick
        end = back.ask("wait", agent=sh.agent, timeout=PATIENCE, command=run["id"])
        assert (first + end.parts[0], end.header["result"]["exit_code"]) == (b"one\ntwo\n", 7)


def test_an_end_whose_first_client_has_gone_is_reported_once_by_who_interrupted(
    daemon: Daemon, sh: RemoteSession
) -> None:
    """Both are to be told; one is there, and so nobody else is told after it."""
    sh.open()
    seconds = unique_seconds()
    with Raw(daemon.socket) as lost, Raw(daemon.socket) as other:
        lost.say("run", f"echo one; sleep {seconds}".encode(), agent=sh.agent, timeout=PATIENCE)
        wait_until(lambda: with_argument(seconds), "the command")
        there = settled(lambda: connections(other), lambda: other.ask("stats"))  # those of earlier tests may be leaving
        lost.close()
        wait_until(lambda: connections(other) == there - 1, "its leaving")
    assert sh.interrupt().stdout == "one\n"
    with pytest.raises(NotRunning):
        sh.poll()


@pytest.mark.parametrize("verb", ["run", "wait"])
def test_who_gives_up_gets_what_nobody_got_before(daemon: Daemon, sh: RemoteSession, place: Path, verb: str) -> None:
    """Also the piece with which the command was handed back to a client that had gone."""
    sh.open()
    with Raw(daemon.socket) as lost, Raw(daemon.socket) as other, Raw(daemon.socket) as third:
        command = f"echo one; until [ -e open ]; do sleep 0.05; done; echo two; sleep {(seconds := unique_seconds())}"
        with stopped(daemon.pid):  # it finds that the client has gone before the command is handed back
            request = run = lost.say("run", command.encode(), agent=sh.agent, timeout=0.3, on_timeout="yield")
            lost.close()
        wait_until(lambda: sh.state == "running", "the command")
        wait_until(lambda: served(other) == 1, "the handing back")  # that question alone
        (place / "open").touch()
        wait_until(lambda: with_argument(seconds), "what it prints")
        if verb == "wait":
            request = third.say("wait", agent=sh.agent, timeout=PATIENCE)
            wait_until(lambda: served(other) == 2, "the waiting")
        end = other.ask("cancel", request=request)
        assert (end.parts[0], end.header["result"]["outcome"]) == (b"one\ntwo\n", "interrupted")
        named = other.ask("wait", agent=sh.agent, command=run)
        assert (named.parts[0], named.header["result"]["exit_code"]) == (b"", 130)


@pytest.mark.parametrize("asked", ["by nobody", "again", "by another"])
def test_a_shells_end_of_which_nobody_was_notified_is_announced_by_the_next_command(
    daemon: Daemon, sh: RemoteSession, place: Path, asked: str
) -> None:
    """It ended with a command whose client had gone."""
    sh.run("X=1")
    with Raw(daemon.socket) as lost, Raw(daemon.socket) as other:
        run = lost.header("run", agent=sh.agent, timeout=PATIENCE)
        lost.socket.sendall(encode(run, b"until [ -e open ]; do sleep 0.05; done; exit 3"))
        wait_until(lambda: sh.state == "running", "the command")
        there = settled(lambda: connections(other), lambda: other.ask("stats"))  # those of earlier tests may be leaving
        lost.close()
        wait_until(lambda: connections(other) == there - 1, "its leaving")
        (place / "open").touch()
        wait_until(lambda: served(other) == 1, "the shell's end")
        if asked == "again":
            other.socket.sendall(encode(run, b""))
            assert other.receive().header["result"]["exit_code"] == 3
        if asked == "by another":
            assert not sh.wait().state_kept
    first = sh.run("echo $X")
    assert (first.ran, first.state_kept) == ((False, False) if asked == "by nobody" else (True, True))
    assert sh.run("echo on").stdout == "on\n"


@pytest.mark.parametrize("end", ["echo one", "exit 3"])
def test_an_end_that_two_waited_for_who_have_both_gone_is_reported_to_who_comes_next(
    daemon: Daemon, sh: RemoteSession, place: Path, end: str
) -> None:
    sh.open()
    with Raw(daemon.socket) as lost, Raw(daemon.socket) as lost_too, Raw(daemon.socket) as other:
        command = f"until [ -e open ]; do sleep 0.05; done; {end}".encode()
        lost.say("run", command, agent=sh.agent, timeout=PATIENCE)
        wait_until(lambda: sh.state == "running", "the command")
        lost_too.say("wait", agent=sh.agent, timeout=PATIENCE)
        wait_until(lambda: served(other) == 3, "who waits with it")
        there = settled(lambda: connections(other), lambda: other.ask("stats"))  # those of earlier tests may be leaving
        lost.close()
        lost_too.close()
        wait_until(lambda: connections(other) == there - 2, "their leaving")
        (place / "open").touch()
        wait_until(lambda: served(other) == 1, "its end")
    if end == "exit 3":
        assert not sh.run("true").ran
    else:
        assert sh.wait(PATIENCE).stdout == "one\n"


def test_who_interrupts_a_restart_and_leaves_takes_nothing_from_the_command_behind_it(
    daemon: Daemon, place: Path
) -> None:
    """It ends the startup command; that is nothing for the client whose command was waiting for its turn."""
    go = place / "go"
    go.touch()
    startup = f"until [ -e {go} ]; do sleep 0.05; done; echo of the startup"
    with connect("restarted", daemon.socket, cwd=place, startup=[startup]) as sh, Raw(daemon.socket) as other:
        sh.run("true")
        go.unlink()
        other.say("restart", agent=sh.agent)
        wait_until(lambda: sh.state == "running", "the startup command")
        run = other.say("run", b"echo mine", agent=sh.agent, timeout=PATIENCE)
        with Raw(daemon.socket) as lost:
            lost.say("interrupt", agent=sh.agent)
        assert other.receive().header["error"]["code"] == "startup_failed"  # a start that was interrupted is none
        go.touch()
        answer = other.receive()
        assert (answer.header["id"], answer.header["result"]["outcome"], answer.parts[0]) == (run, "exited", b"mine\n")
        sh.close()


def test_unread_input_is_reported_also_where_its_client_has_missed_a_piece(
    raw: Raw, daemon: Daemon, sh: RemoteSession, tmp_path: Path
) -> None:
    """A terminal was closed in the moment in which its command was handed back."""
    text = f"cd {tmp_path}; until [ -e asks ]; do sleep 0.05; done; read x; until [ -e ends ]; do sleep 0.05; done"
    with Raw(daemon.socket) as left:
        left.say("run", text.encode(), agent=sh.agent, stdin="tty", on_timeout="yield")
        wait_until(lambda: sh.state == "running", "its beginning")
        before = connections(raw)
    wait_until(lambda: connections(raw) < before, "that it is seen to have left")
    (tmp_path / "asks").touch()
    assert "error" not in raw.ask("type", b"line\nkeys", agent=sh.agent).header
    (tmp_path / "ends").touch()
    wait_until(lambda: sh.state == "idle", "its end")
    polled = raw.ask("poll", agent=sh.agent).header
    assert (polled["result"]["outcome"], polled["unread"]) == ("exited", "keys")


@pytest.mark.parametrize("printed", [10, 100_000])
def test_unread_input_is_reported_to_who_gets_the_end_from_another_clients_wait(
    raw: Raw, daemon: Daemon, sh: RemoteSession, tmp_path: Path, printed: int
) -> None:
    """However much was printed: an idle session does not hold what is large."""
    text = f"read x; until [ -e {tmp_path}/ends ]; do sleep 0.05; done; head -c {printed} /dev/zero"
    assert raw.run(sh.agent, text, stdin="tty")["outcome"] == "input"
    assert "error" not in raw.ask("type", b"line\nkeys", agent=sh.agent).header
    with Raw(daemon.socket) as stays, Raw(daemon.socket) as looks:
        stays.say("wait", agent=sh.agent, timeout=PATIENCE)
        wait_until(lambda: served(looks) == 2, "that one waits")
        raw.say("wait", agent=sh.agent, timeout=PATIENCE)
        wait_until(lambda: served(looks) == 3, "that both wait")
        (tmp_path / "ends").touch()
        told = stays.receive().header, raw.receive().header
    assert [(one["result"]["outcome"], one.get("unread")) for one in told] == [("exited", "keys")] * 2
