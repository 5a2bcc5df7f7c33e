"""Clients that wait for a command of another client, also after that client has gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import clients
import pytest
from clients import hand_back
from daemons import Daemon, Raw, connections, served, stopped
from system import PATIENCE, wait_until

from shellsession import TTY, InvalidRequest, NotRunning, RemoteSession, SessionBusy
from shellsession.daemon.protocol.wire import encode

sh = clients.sh


@pytest.mark.parametrize("late", [False, True], ids=["while it runs", "after its end"])
def test_the_result_of_a_client_that_died_is_there_for_who_waits(
    raw: Raw, daemon: Daemon, sh: RemoteSession, late: bool
) -> None:
    with Raw(daemon.socket) as dying:
        dying.say("run", b"echo early; until [ -e go ]; do sleep 0.05; done; echo late; (exit 4)", agent=sh.agent)
        wait_until(lambda: sh.state == "running", "the command")
    assert (sh.wait(0.05).outcome, sh.poll().outcome) == ("running", "running")
    Path(sh.cwd, "go").touch()
    if late:
        wait_until(lambda: sh.state == "idle", "its end")
    result = sh.wait()
    assert (result.stdout, result.exit_code, result.outcome) == ("early\nlate\n", 4, "exited")
    with pytest.raises(NotRunning):
        sh.wait()


def leave_behind(daemon: Daemon, sh: RemoteSession, verb: str, *parts: bytes, **fields: object) -> dict[str, Any]:
    """A client asks for something, and dies; its request."""
    with Raw(daemon.socket) as dying, Raw(daemon.socket) as other:
        before = connections(other)
        request = dying.header(verb, agent=sh.agent, **fields)
        with stopped(daemon.pid):  # his death is found before a command is handed back to him
            dying.socket.sendall(encode(request, *parts))
            dying.close()
        wait_until(lambda: connections(other) < before, "his death")
    return request


ASKS = "until [ -e go ]; do sleep 0.05; done; read x; echo got $x; head -n 20000 >all"


def stays(raw: Raw, sh: RemoteSession) -> str:
    """Somebody waits without end for the command; his request."""
    request = raw.say("wait", agent=sh.agent, timeout=None)
    wait_until(lambda: "waits on the command" in sh.poll().reason, "the other to be served")
    return request


def test_who_waits_keeps_nobody_from_typing(raw: Raw, sh: RemoteSession) -> None:
    assert sh.run(ASKS, timeout=0.05, on_timeout="yield", stdin=TTY).outcome == "running"
    request = stays(raw, sh)
    sh.type("yo")
    assert sh.send("u\n", 0.05).outcome == "running"
    Path(sh.cwd, "go").touch()
    reply = raw.receive()
    assert (reply.header["id"], reply.header["result"]["outcome"], reply.parts[0]) == (request, "input", b"got you\n")
    stays(raw, sh)
    many = "".join(f"{number}\n" for number in range(20_000))  # more than a terminal takes at a time
    sh.type(many)
    wait_until(lambda: sh.state == "idle", "its end")
    assert Path(sh.cwd, "all").read_text() == many


def test_input_for_which_the_terminal_has_no_room_yet_comes_later_while_somebody_waits(
    raw: Raw, sh: RemoteSession
) -> None:
    go, many = Path(sh.cwd, "go"), "".join(f"{number}\n" for number in range(20_000))
    later = "until [ -e go ]; do sleep 0.05; done; head -n 20000 >all"
    assert sh.run(later, timeout=0.05, on_timeout="yield", stdin=TTY).outcome == "running"
    stays(raw, sh)
    with ThreadPoolExecutor(1) as threads:
        typed = threads.submit(sh.type, many)
        go.touch()
        typed.result(PATIENCE)
    wait_until(lambda: sh.state == "idle", "its end")
    assert go.with_name("all").read_text() == many


def test_what_cannot_be_typed_is_refused_while_somebody_waits(raw: Raw, sh: RemoteSession) -> None:
    sh.run("sleep 100", timeout=0.05, on_timeout="yield")
    stays(raw, sh)
    with pytest.raises(InvalidRequest, match="terminal"):
        sh.send("x")
    sh.interrupt()


def test_what_is_typed_for_a_command_that_is_not_handed_back_waits_until_it_is(raw: Raw, sh: RemoteSession) -> None:
    sh.open()
    raw.say("run", b"until [ -e go ]; do sleep 0.05; done; read x; echo got $x", agent=sh.agent, stdin="tty")
    wait_until(lambda: sh.state == "running", "the command")
    with ThreadPoolExecutor(1) as threads:
        sent = threads.submit(sh.send, "it\n")
        Path(sh.cwd, "go").touch()
        assert raw.receive().header["result"]["outcome"] == "input"
        assert sent.result(PATIENCE).stdout.endswith("got it\n")


# What a client asks for that may last for ever, by what another one does that keeps it waiting.
Wanted = dict[str, tuple[tuple[bytes, ...], dict[str, object]]]


STAYING: Wanted = {
    "wait": ((), {"timeout": None}),
    "send": ((b"x",), {"timeout": None}),
    "glimpse": ((), {"timeout": None}),
    "run": ((b"touch never",), {}),
}


ENDLESS: dict[str, Wanted] = {
    "handed back": {verb: STAYING[verb] for verb in ("wait", "send", "glimpse")},
    "stays": STAYING,
    "runs": {"run": ((b"touch never",), {}), "type": ((b"x",), {})},
    "held": {"run": ((b"touch never",), {}), "send": ((b"x",), {"timeout": None}), "hold": ((), {"holder": "ghost"})},
}


@pytest.mark.parametrize("state", ENDLESS)
def test_what_the_dead_wait_for_is_not_kept(daemon: Daemon, sh: RemoteSession, raw: Raw, state: str) -> None:
    """And what runs is not touched."""
    sh.open()
    wait_until(lambda: served(raw) == 1, "the end of what other tests have left")
    if state == "held":
        raw.ask("hold", agent=sh.agent, holder="me")
    elif state == "runs":
        raw.say("run", WAITS, agent=sh.agent)
        wait_until(lambda: sh.command, "the command")
    else:
        sh.run(WAITS, timeout=0.2, on_timeout="yield", stdin=TTY)
        if state == "stays":
            stays(raw, sh)
    with Raw(daemon.socket) as other:
        before = served(other)
        asked = ENDLESS[state].items()
        left = [(leave_behind(daemon, sh, verb, *parts, **fields), parts) for verb, (parts, fields) in asked]
        wait_until(lambda: served(other) == before, "their end")
        for request, parts in left:
            other.socket.sendall(encode(request, *parts))
            reply = other.receive().header
            assert reply["id"] == request["id"]
            answered = "value" in reply or reply.get("result", {}).get("outcome") == "running"
            assert answered or refusal(reply) == "busy", (request, reply)
    if state == "held":
        assert raw.ask("run", b"echo fine", agent=sh.agent, holder="me").parts[0] == b"fine\n"
    else:
        Path(sh.cwd, "go").touch()
        result = sh.wait() if state == "handed back" else None
        last = raw.receive() if result is None else None
        assert (result.stdout if result else last.parts[0].decode() if last else "").endswith("late\n")
    assert not Path(sh.cwd, "never").exists()


def refusal(reply: dict[str, Any]) -> str:
    return str(reply.get("error", {}).get("code"))


WAITS = b"echo early; until [ -e go ]; do sleep 0.05; done; echo late; (exit 4)"


def test_who_died_while_he_waited_keeps_nobody_else_waiting(daemon: Daemon, sh: RemoteSession) -> None:
    hand_back(sh, WAITS, "early")
    leave_behind(daemon, sh, "wait", timeout=None)
    assert (sh.poll().outcome, sh.wait(0.05).outcome) == ("running", "running")
    Path(sh.cwd, "go").touch()
    result = sh.wait()
    assert (result.stdout, result.exit_code, result.outcome) == ("late\n", 4, "exited")


def test_what_dead_clients_received_of_a_command_comes_with_its_next_result(daemon: Daemon, sh: RemoteSession) -> None:
    sh.open()
    leave_behind(daemon, sh, "run", WAITS, timeout=0.2, on_timeout="yield")
    with pytest.raises(SessionBusy):
        sh.run("echo never")  # as soon as that one is handed back
    result = sh.interrupt()
    assert (result.stdout, result.outcome) == ("early\n", "interrupted")
    with pytest.raises(NotRunning):
        sh.wait()


def test_what_nobody_received_is_not_reported_of_a_fresh_shell(daemon: Daemon, sh: RemoteSession) -> None:
    sh.open()
    leave_behind(daemon, sh, "run", WAITS)
    Path(sh.cwd, "go").touch()
    wait_until(lambda: sh.state == "idle", "its end")
    sh.restart()
    with pytest.raises(NotRunning):
        sh.wait()


def test_what_nobody_received_is_not_reported_for_what_was_run_after_it(daemon: Daemon, sh: RemoteSession) -> None:
    sh.open()
    with ThreadPoolExecutor(1) as threads:
        leave_behind(daemon, sh, "run", WAITS)
        wait_until(lambda: sh.state == "running", "the command")
        second = threads.submit(sh.run, "echo 2; sleep 100", timeout=0.2, patience=PATIENCE)
        Path(sh.cwd, "go").touch()
        assert second.result(PATIENCE).outcome == "timed_out"
    with pytest.raises(NotRunning):
        sh.wait()


def test_what_nobody_received_is_not_reported_of_what_runs_after_it(
    daemon: Daemon, sh: RemoteSession, raw: Raw
) -> None:
    sh.open()
    leave_behind(daemon, sh, "run", WAITS)
    Path(sh.cwd, "go").touch()
    wait_until(lambda: sh.state == "idle", "its end")
    raw.say("run", b"until [ -e on ]; do sleep 0.05; done; echo next", agent=sh.agent)
    wait_until(lambda: sh.state == "running", "the next command")
    assert sh.wait(0.05).outcome == "running"
    Path(sh.cwd, "on").touch()
    assert raw.receive().parts[0] == b"next\n"


def test_an_end_that_nobody_received_comes_whole_to_who_was_handed_back_the_command(
    daemon: Daemon, sh: RemoteSession
) -> None:
    hand_back(sh, WAITS, "early")
    with Raw(daemon.socket) as other:
        leave_behind(daemon, sh, "wait", timeout=None)
        Path(sh.cwd, "go").touch()  # before it is known that he has left for good
        wait_until(lambda: served(other) == 1, "its end")
    result = sh.wait()
    assert (result.stdout, result.exit_code, result.outcome) == ("late\n", 4, "exited")
    with pytest.raises(NotRunning):
        sh.wait()


def test_who_comes_back_for_his_result_has_it_alone(daemon: Daemon, sh: RemoteSession, raw: Raw) -> None:
    sh.open()
    request = leave_behind(daemon, sh, "run", b"until [ -e go ]; do sleep 0.05; done; echo late")
    Path(sh.cwd, "go").touch()
    wait_until(lambda: sh.state == "idle", "its end")
    raw.socket.sendall(encode(request, b"until [ -e go ]; do sleep 0.05; done; echo late"))
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


def test_a_pattern_that_backtracks_without_end_holds_up_no_agent(daemon: Daemon, sh: RemoteSession) -> None:
    hand_back(sh, "echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab; sleep 1000")
    result = sh.wait(PATIENCE, until="(a+)+c")
    assert result.outcome == "running"
    assert result.reason == "the search for '(a+)+c' takes too long: simplify the pattern"
    result = sh.wait(PATIENCE, until="a+b")
    assert (result.matched, result.reason) == (True, "the output matches 'a+b'")
    assert sh.interrupt().outcome == "interrupted"
