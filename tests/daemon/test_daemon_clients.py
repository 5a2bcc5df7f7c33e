"""Clients that die, listen or cancel affect only their own commands."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import clients
import pytest
from clients import begin, hand_back
from daemons import Daemon, Raw, connections, served, settled
from system import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import (
    TTY,
    InvalidRequest,
    Limits,
    NotRunning,
    RemoteSession,
    Result,
    SessionBusy,
    ShellSessionError,
    aconnect,
    connect,
)
from shellsession.daemon.protocol.wire import PARTS_MAX

sh = clients.sh


@contextmanager
def client_in(daemon: Daemon, agent: str, command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that runs a command in that agent's session."""
    script = f"from shellsession import connect\nconnect({agent!r}, {daemon.socket!r}).run({command!r})"
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL, cwd="/") as process:
        try:
            yield process
        finally:
            process.kill()


def test_what_no_message_can_bring_is_refused_before_it_is_run(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    too_much = Limits(max_output=PARTS_MAX // 2 + 1)
    with pytest.raises(InvalidRequest, match="over the daemon at most 134217728 bytes are possible: name a spill"):
        sh.run("touch ran", limits=too_much)
    with pytest.raises(InvalidRequest, match="over the daemon at most 134217728 bytes are possible: name a spill"):
        connect("opened", daemon.socket, False, limits=too_much)
    with pytest.raises(InvalidRequest, match="True or False"):
        connect("opened", daemon.socket, False, tty=1)  # type: ignore[arg-type]  # refused for that
    with pytest.raises(InvalidRequest, match="over the daemon at most 268435456 are possible: write them to a file"):
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


def test_the_end_of_a_dead_clients_command_may_be_received_later(
    daemon: Daemon, sh: RemoteSession, place: Path
) -> None:
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


# -- live output


def test_live_output_comes_in_order(sh: RemoteSession) -> None:
    heard: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    command = "for ((i = 0; i < 3000; i++)); do echo $i; ((i % 7)) || echo $i >&2; done"
    result = sh.run(command, on_output=lambda stream, data: heard[stream].append(data))
    assert (b"".join(heard["stdout"]), b"".join(heard["stderr"])) == (result.stdout_bytes, result.stderr_bytes)
    assert result.stdout.splitlines() == list(map(str, range(3000)))


def test_live_output_goes_on_after_the_command_was_handed_back(sh: RemoteSession, place: Path) -> None:
    heard: list[bytes] = []
    command = "echo 1; until [ -e open ]; do sleep 0.05; done; sleep 0.5; for i in 2 3 4; do echo $i; sleep 0.05; done"
    assert hand_back(sh, command, "1", on_output=lambda _, data: heard.append(data)) == "1\n"
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


def test_verbs_that_overlap_leave_one_connection_behind(daemon: Daemon, sh: RemoteSession, raw: Raw) -> None:
    there = settled(lambda: connections(raw), lambda: raw.ask("stats"))  # those of earlier tests may be leaving

    async def main() -> None:
        async with aconnect(sh.agent, daemon.socket, False) as session:
            assert all(result.ok for result in await asyncio.gather(*(session.run("true") for _ in range(8))))
            await asyncio.to_thread(wait_until, lambda: connections(raw) <= there + 1, "that the others leave")
            assert (await session.run("true")).ok

    asyncio.run(main())


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


@pytest.mark.parametrize("handed_back", [False, True], ids=["in it", "handed back"])
@pytest.mark.parametrize("reads", [False, True])
def test_of_a_shell_that_this_costs_the_next_command_is_reported_unless_who_cancels_is(
    daemon: Daemon, sh: RemoteSession, place: Path, reads: bool, handed_back: bool
) -> None:
    text = f"trap 'kill -9 $$' INT; touch {place}/begun; sleep 1000"
    options = {"timeout": 0.2, "on_timeout": "yield"} if handed_back else {}
    with Raw(daemon.socket) as raw, Raw(daemon.socket) as other:
        request = raw.say("run", text.encode(), agent=sh.agent, **options)
        wait_until((place / "begun").exists, "the command")
        if handed_back:
            assert raw.receive().header["result"]["outcome"] == "running"
        assert other.ask("cancel", request=request, reads=reads).header["result"]["state_kept"] is False
    told = sh.run("echo on")
    assert (told.outcome, told.ran) == (("exited", True) if reads else ("shell_exited", False))
    assert sh.run("echo on").stdout == "on\n"


# Verbs by which a command is handed back once more, and their requests.
HANDED_BACK: dict[str, tuple[tuple[bytes, ...], dict[str, object]]] = {
    "wait": ((), {"timeout": 0.05}),
    "send": ((b"x",), {"timeout": 0.05}),
    "glimpse": ((), {"timeout": 0.05}),
}


def handed_back(raw: Raw, agent: str, verb: str, seconds: str) -> str:
    """A command runs, and has been handed back by that verb; its request."""
    run = {"agent": agent, "stdin": "tty", "timeout": 0.05, "on_timeout": "yield"}
    reply = raw.ask("run", f"stty -echo; sleep {seconds}".encode(), **run).header
    if verb != "run":
        parts, fields = HANDED_BACK[verb]
        reply = raw.ask(verb, *parts, agent=agent, **fields).header
    assert reply.get("value") is False or reply["result"]["outcome"] == "running"
    return str(reply["id"])


@pytest.mark.parametrize("verb", ["run", *HANDED_BACK])
def test_a_command_that_was_handed_back_to_who_had_given_up_is_ended(
    daemon: Daemon, sh: RemoteSession, verb: str
) -> None:
    """He asks for it to be cancelled while the answer is on its way: nobody else knows of that command."""
    seconds = unique_seconds()
    sh.run("X=1")
    with Raw(daemon.socket) as raw:
        request = handed_back(raw, sh.agent, verb, seconds)
        end = raw.ask("cancel", request=request).header
        assert (end["value"], end["result"]["outcome"]) == (True, "interrupted")
        assert with_argument(seconds) == []
        assert raw.ask("cancel", request=request).header["value"] is False
    assert sh.run("echo $X").stdout == "1\n"
    wait_until(lambda: len(daemon.logged(sh.agent)) == 3, "the log")
    assert daemon.logged(sh.agent)[1]["outcome"] == "interrupted"


@pytest.mark.sampled
@pytest.mark.parametrize("verb", ["run", *HANDED_BACK])
@pytest.mark.parametrize("since", HANDED_BACK)
def test_who_had_given_up_does_not_end_what_was_handed_to_another_client_since(
    daemon: Daemon, sh: RemoteSession, verb: str, since: str
) -> None:
    with Raw(daemon.socket) as raw, Raw(daemon.socket) as another:
        request = handed_back(raw, sh.agent, verb, unique_seconds())
        parts, fields = HANDED_BACK[since]
        last = another.ask(since, *parts, agent=sh.agent, **fields).header["id"]
        assert raw.ask("cancel", request=request).header["value"] is False
        assert sh.state == "running"
        assert another.ask("cancel", request=last).header["value"] is True


@pytest.mark.parametrize("verb", ["run", *HANDED_BACK])
def test_who_had_given_up_does_not_end_what_another_client_stays_with(
    daemon: Daemon, sh: RemoteSession, verb: str
) -> None:
    with Raw(daemon.socket) as raw, Raw(daemon.socket) as another:
        wait_until(lambda: served(raw) == 1, "the end of what other tests have left")
        request = handed_back(raw, sh.agent, verb, unique_seconds())
        another.say("wait", agent=sh.agent, timeout=None)
        wait_until(lambda: served(raw) == 2, "that he stays")
        assert raw.ask("cancel", request=request).header["value"] is False
        assert sh.state == "running"
        assert sh.interrupt().outcome == "interrupted"
        assert another.receive().header["result"]["outcome"] == "interrupted"


@pytest.mark.parametrize("told", [True, False])
def test_who_gives_up_waiting_beside_another_client_ends_nothing(daemon: Daemon, sh: RemoteSession, told: bool) -> None:
    """As in a session of the same process, also where he was told meanwhile that it runs on."""
    with Raw(daemon.socket) as raw, Raw(daemon.socket) as another:
        wait_until(lambda: served(raw) == 1, "the end of what other tests have left")
        handed_back(another, sh.agent, "run", unique_seconds())
        another.say("wait", agent=sh.agent, timeout=None)
        wait_until(lambda: served(raw) == 2, "that he stays")
        if told:
            reply = raw.ask("wait", agent=sh.agent, timeout=0.05).header
            assert reply["result"]["outcome"] == "running"
            assert raw.ask("cancel", request=reply["id"]).header["value"] is False
        else:
            request = raw.say("wait", agent=sh.agent, timeout=None)
            cancelling = raw.say("cancel", request=request)
            replies = {reply.header["id"]: reply.header for reply in (raw.receive(), raw.receive())}
            assert "error" in replies[request]
            assert "result" not in replies[cancelling]
        assert sh.state == "running"
        assert sh.interrupt().outcome == "interrupted"
        assert another.receive().header["result"]["outcome"] == "interrupted"


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
