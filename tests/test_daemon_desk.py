"""Around one agent's session: who looks on, and who holds it for himself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from daemons import Daemon, Raw
from support import PATIENCE, wait_until

from shellsession import NotRunning, RemoteSession, SessionBusy, connect
from shellsession.daemon.wire import Message, encode


@pytest.fixture
def sh(daemon: Daemon, request: pytest.FixtureRequest, place: Path) -> Iterator[RemoteSession]:
    env = {"PATH": "/usr/bin:/bin", "API_TOKEN": "opensesame"}
    with connect(request.node.name, daemon.socket, False, cwd=place, env=env, timeout=None) as session:
        yield session
        session.close()


@pytest.fixture
def raw(daemon: Daemon) -> Iterator[Raw]:
    with Raw(daemon.socket) as raw:
        yield raw


# -- who looks on


def seen(raw: Raw, last: str = "result", times: int = 1) -> list[Message]:
    """The events that come until so many of that name."""
    events: list[Message] = []
    while times:
        events.append(raw.receive())
        times -= events[-1].header["event"] == last
    return events


def texts(events: list[Message]) -> list[tuple[str, bytes]]:
    """Events by name, with what they bring; pieces of output put together."""
    told: list[tuple[str, bytes]] = []
    for message in events:
        name, text = str(message.header["event"]), b"".join(message.parts)
        if told and name == told[-1][0] == "output":
            told[-1] = name, told[-1][1] + text
        else:
            told.append((name, text))
    return told


def test_who_looks_on_sees_what_is_run_and_printed(raw: Raw, daemon: Daemon, sh: RemoteSession) -> None:
    with Raw(daemon.socket) as second, connect("unwatched", daemon.socket, False, cwd="/") as other:
        for watcher in (raw, second):
            assert watcher.ask("watch", agent=sh.agent).header["value"] == ""
        other.run("echo elsewhere")
        sh.run("echo out; echo err >&2; (exit 3)")
        first, again = seen(raw), seen(second)
        other.close()
    assert {message.header["agent"] for message in first} == {sh.agent}
    assert first[0].parts == (b"echo out; echo err >&2; (exit 3)",)
    pieces = {(message.header["stream"], *message.parts) for message in first[1:-1]}
    assert pieces == {("stdout", b"out\n"), ("stderr", b"err\n")}
    assert (first[-1].header["exit_code"], first[-1].header["outcome"]) == (3, "exited")
    assert again == first


def test_who_looks_on_sees_a_command_that_was_handed_back(raw: Raw, sh: RemoteSession) -> None:
    raw.ask("watch", agent=sh.agent)
    sh.run("echo 1; sleep 0.2; echo 2; sleep 100", timeout=0.05, on_timeout="yield")
    sh.wait(0.4)
    sh.interrupt()
    told = texts(seen(raw))
    assert [name for name, _ in told] == ["command", "output", "result"]
    assert told[1] == ("output", b"1\n2\n")


def test_who_looks_on_sees_the_next_session_of_the_agent_too(raw: Raw, daemon: Daemon, sh: RemoteSession) -> None:
    raw.ask("watch", agent=sh.agent)
    sh.close()
    with connect(sh.agent, daemon.socket, False, cwd="/") as again:
        again.run("echo afresh")
        told = texts(seen(raw))
        again.close()
    assert told == [("command", b"echo afresh"), ("output", b"afresh\n"), ("result", b"")]


def test_who_comes_later_is_told_what_runs(raw: Raw, sh: RemoteSession) -> None:
    sh.run("sleep 100", timeout=0.05, on_timeout="yield")
    assert raw.ask("watch", agent=sh.agent).header["value"] == "sleep 100"
    sh.interrupt()
    assert texts(seen(raw)) == [("result", b"")]


def test_what_waits_for_its_turn_is_seen_when_it_begins(raw: Raw, sh: RemoteSession) -> None:
    raw.ask("watch", agent=sh.agent)
    with ThreadPoolExecutor(2) as threads:
        threads.submit(sh.run, "until [ -e open ]; do sleep 0.01; done")
        wait_until(lambda: sh.state == "running", "the command")
        second = threads.submit(sh.run, "echo second")
        Path(sh.cwd, "open").touch()
        second.result(PATIENCE)
    assert [name for name, _ in texts(seen(raw, times=2))] == ["command", "result", "command", "output", "result"]


def test_what_is_refused_is_seen_as_that(raw: Raw, sh: RemoteSession) -> None:
    sh.run("sleep 100", timeout=0.05, on_timeout="yield")
    raw.ask("watch", agent=sh.agent)
    with pytest.raises(SessionBusy):
        sh.run("echo never")
    sh.interrupt()
    assert [name for name, _ in texts(seen(raw))] == ["refused", "result"]


def test_who_looks_on_slowly_misses_output_and_nothing_else(raw: Raw, sh: RemoteSession) -> None:
    """And he slows nobody down."""
    raw.ask("watch", agent=sh.agent)
    size = 50_000_000
    assert sh.run(f"head -c {size} /dev/zero").exit_code == 0
    assert sh.run("echo after").exit_code == 0
    events = seen(raw, times=2)
    names = [message.header["event"] for message in events]
    assert [name for name in names if name in ("command", "result")] == ["command", "result"] * 2
    missed = sum(message.header["bytes"] for message in events if message.header["event"] == "missed")
    came = sum(len(part) for message in events for part in message.parts if message.header["event"] == "output")
    assert missed > 0
    assert came + missed == size + len("after\n")


def test_who_looks_on_and_does_not_read_is_ended(daemon: Daemon, sh: RemoteSession) -> None:
    """What is run is not dropped, as output is, and would pile up."""
    with Raw(daemon.socket) as idler, Raw(daemon.socket) as other:
        idler.ask("watch", agent=sh.agent)
        before = other.ask("stats").header["value"]["connections"]
        for _ in range(25):
            sh.run(": " + "x" * 1_000_000)
        wait_until(lambda: other.ask("stats").header["value"]["connections"] < before, "his end")


def test_a_long_command_that_runs_is_told_in_short(raw: Raw, sh: RemoteSession) -> None:
    sh.run(": " + "x" * (1 << 20) + "; sleep 100", timeout=0.05, on_timeout="yield")
    assert raw.ask("watch", agent=sh.agent).header["value"].startswith(": xxx")
    sh.interrupt()


# -- who holds it


def test_who_holds_a_session_has_it_alone(raw: Raw, daemon: Daemon, sh: RemoteSession) -> None:
    """Others wait, and who looks on is not disturbed."""
    assert "error" not in raw.ask("hold", agent=sh.agent, holder="me").header
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(sh.run, "echo $X")
        with connect(sh.agent, daemon.socket, False) as other:
            assert (other.state, other.jobs()) == ("new", [])
        result = raw.ask("run", b"X=mine; echo $X", agent=sh.agent, holder="me")
        assert result.parts[0] == b"mine\n"
        assert not waiting.done()
        raw.close()
        assert waiting.result(PATIENCE).stdout == "mine\n"


def test_who_holds_a_session_may_have_others_refused(raw: Raw, daemon: Daemon, sh: RemoteSession) -> None:
    with Raw(daemon.socket) as other:
        raw.ask("hold", agent=sh.agent, holder="me", others="refuse")
        for verb in (lambda: sh.run("echo never"), lambda: sh.send("never"), lambda: sh.type("never")):
            with pytest.raises(SessionBusy, match="holds"):
                verb()
        assert other.ask("hold", agent=sh.agent, holder="you").header["error"]["code"] == "busy"
        raw.close()
        wait_until(lambda: not refused(sh), "the end of the hold")


@pytest.mark.parametrize("others", ["wait", "refuse"])
def test_who_ends_something_does_not_wait_for_the_holder(raw: Raw, sh: RemoteSession, others: str) -> None:
    sh.run("kept=1")
    pid = sh.pid
    raw.ask("hold", agent=sh.agent, holder="me", others=others)
    for verb in (sh.interrupt, sh.wait, sh.poll):
        with pytest.raises(NotRunning):
            verb()
    sh.resize(100, 30)
    sh.restart()
    assert sh.pid != pid
    sh.close()


def test_a_command_whose_client_left_before_its_turn_is_not_run(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    os.mkfifo(place / "go")
    with Raw(daemon.socket) as first, Raw(daemon.socket) as third:
        first.say("run", b"read <go; echo done", agent=sh.agent)
        wait_until(lambda: sh.command, "the first command")
        known = third.ask("stats").header["value"]["connections"]
        with Raw(daemon.socket) as second:
            second.say("run", b"touch never", agent=sh.agent)
            second.ask("info", agent=sh.agent)  # served after the run was taken in
        wait_until(lambda: third.ask("stats").header["value"]["connections"] <= known, "the end of the second client")
        (place / "go").write_text("\n")
        assert first.receive().parts[0] == b"done\n"
    sh.run("true")  # in its turn: behind what is not run
    assert not (place / "never").exists()


def test_a_client_that_comes_back_for_its_turn_is_served(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    os.mkfifo(place / "go")
    with Raw(daemon.socket) as first, Raw(daemon.socket) as again:
        first.say("run", b"read <go; echo done", agent=sh.agent)
        wait_until(lambda: sh.command, "the first command")
        with Raw(daemon.socket) as second:
            header = second.header("run", agent=sh.agent)
            second.socket.sendall(encode(header, b"echo ran >>times; echo mine"))
            second.ask("info", agent=sh.agent)
        (place / "go").write_text("\n")
        assert first.receive().parts[0] == b"done\n"
        again.socket.sendall(encode(header, b"echo ran >>times; echo mine"))
        assert again.receive().parts[0] == b"mine\n"
    assert (place / "times").read_text() == "ran\n"


def refused(session: RemoteSession) -> bool:
    try:
        session.run("true")
    except SessionBusy:
        return True
    return False


def test_who_held_it_first_leaves_it_to_the_next(raw: Raw, daemon: Daemon, sh: RemoteSession) -> None:
    with Raw(daemon.socket) as next_one, ThreadPoolExecutor(1) as threads:
        raw.ask("hold", agent=sh.agent, holder="me")
        hold = threads.submit(next_one.ask, "hold", agent=sh.agent, holder="you", others="refuse")
        wait_until(lambda: hold.running(), "the wish")
        raw.close()
        assert "error" not in hold.result(PATIENCE).header
        assert refused(sh)
        next_one.close()
        wait_until(lambda: not refused(sh), "the end of the second hold")


def test_who_dies_while_he_waits_to_hold_it_does_not_get_it(raw: Raw, daemon: Daemon, sh: RemoteSession) -> None:
    raw.ask("hold", agent=sh.agent, holder="me")
    with Raw(daemon.socket) as ghost, Raw(daemon.socket) as other:
        before = other.ask("stats").header["value"]
        ghost.say("hold", agent=sh.agent, holder="ghost", others="refuse")
        wait_until(lambda: other.ask("stats").header["value"]["requests"] > before["requests"] + 1, "the wish")
        ghost.close()
        wait_until(lambda: other.ask("stats").header["value"]["connections"] < before["connections"], "his death")
    raw.close()
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(sh.run, "echo free").result(PATIENCE).stdout == "free\n"


# -- who waits for what another one runs


@pytest.mark.parametrize("late", [False, True], ids=["while it runs", "after its end"])
def test_the_result_of_a_client_that_died_is_there_for_who_waits(
    raw: Raw, daemon: Daemon, sh: RemoteSession, late: bool
) -> None:
    with Raw(daemon.socket) as dying:
        dying.say("run", b"echo early; until [ -e go ]; do sleep 0.01; done; echo late; (exit 4)", agent=sh.agent)
        wait_until(lambda: sh.state == "running", "the command")
    assert (sh.wait(0.05).outcome, sh.poll().outcome) == ("running", "running")
    Path(sh.cwd, "go").touch()
    if late:
        wait_until(lambda: sh.state == "idle", "its end")
    result = sh.wait()
    assert (result.stdout, result.exit_code, result.outcome) == ("early\nlate\n", 4, "exited")
    with pytest.raises(NotRunning):
        sh.wait()


def leave_behind(daemon: Daemon, sh: RemoteSession, verb: str, *parts: bytes, **fields: object) -> str:
    """A client asks for something, and dies when it is being served; its request."""
    with Raw(daemon.socket) as dying, Raw(daemon.socket) as other:
        before = other.ask("stats").header["value"]
        request = dying.say(verb, *parts, agent=sh.agent, **fields)
        wait_until(lambda: other.ask("stats").header["value"]["requests"] > before["requests"] + 1, "the request")
        dying.close()
        wait_until(lambda: other.ask("stats").header["value"]["connections"] < before["connections"], "his death")
    return request


WAITS = b"echo early; until [ -e go ]; do sleep 0.01; done; echo late; (exit 4)"


def test_who_died_while_he_waited_keeps_nobody_else_waiting(daemon: Daemon, sh: RemoteSession) -> None:
    assert sh.run(WAITS, timeout=0.1, on_timeout="yield").stdout == "early\n"
    leave_behind(daemon, sh, "wait", timeout=None)
    assert (sh.poll().outcome, sh.wait(0.05).outcome) == ("running", "running")
    Path(sh.cwd, "go").touch()
    result = sh.wait()
    assert (result.stdout, result.exit_code, result.outcome) == ("late\n", 4, "exited")


def test_what_the_dead_were_told_of_a_command_comes_with_its_next_result(daemon: Daemon, sh: RemoteSession) -> None:
    sh.open()
    leave_behind(daemon, sh, "run", WAITS, timeout=0.2, on_timeout="yield")
    with pytest.raises(SessionBusy):
        sh.run("echo never")  # as soon as that one is handed back
    result = sh.interrupt()
    assert (result.stdout, result.outcome) == ("early\n", "interrupted")
    with pytest.raises(NotRunning):
        sh.wait()


def test_what_nobody_heard_is_not_told_of_a_fresh_shell(daemon: Daemon, sh: RemoteSession) -> None:
    sh.open()
    leave_behind(daemon, sh, "run", WAITS)
    Path(sh.cwd, "go").touch()
    wait_until(lambda: sh.state == "idle", "its end")
    sh.restart()
    with pytest.raises(NotRunning):
        sh.wait()


def test_what_nobody_heard_is_not_told_for_what_was_run_after_it(daemon: Daemon, sh: RemoteSession) -> None:
    sh.open()
    with ThreadPoolExecutor(1) as threads:
        leave_behind(daemon, sh, "run", WAITS)
        wait_until(lambda: sh.state == "running", "the command")
        second = threads.submit(sh.run, "echo 2; rm go; sleep 0.3; until [ -e go ]; do sleep 0.01; done", timeout=0.2)
        Path(sh.cwd, "go").touch()
        assert second.result(PATIENCE).outcome == "timed_out"
    with pytest.raises(NotRunning):
        sh.wait()


def test_who_comes_back_for_his_result_has_it_alone(daemon: Daemon, sh: RemoteSession, raw: Raw) -> None:
    sh.open()
    request = leave_behind(daemon, sh, "run", b"until [ -e go ]; do sleep 0.01; done; echo late")
    Path(sh.cwd, "go").touch()
    wait_until(lambda: sh.state == "idle", "its end")
    again = {**raw.header("run", agent=sh.agent), "id": request}
    raw.socket.sendall(encode(again, b"until [ -e go ]; do sleep 0.01; done; echo late"))
    assert raw.receive().parts[0] == b"late\n"
    with pytest.raises(NotRunning):
        sh.wait()


def test_a_command_that_another_ended_while_its_client_took_its_output_is_logged_so(
    daemon: Daemon, sh: RemoteSession, raw: Raw
) -> None:
    sh.open()
    text = b"head -c 3000000 /dev/zero; sleep 100"
    raw.say("run", text, agent=sh.agent, tty=False, live=True, timeout=0.3, on_timeout="yield")
    wait_until(lambda: sh.state == "running", "the command")
    assert sh.wait(1.0).outcome == "running"  # its time is over, its client has not taken all
    assert sh.interrupt().outcome == "interrupted"
    while "event" in raw.receive().header:
        pass
    logged = wait_until(lambda: daemon.logged(sh.agent), "its line in the log")
    assert [line["outcome"] for line in logged] == ["interrupted"]
