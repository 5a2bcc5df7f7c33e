"""One agent's session with several clients: those that watch it, and the one that holds it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import clients
import pytest
from clients import hand_back
from daemons import Daemon, Raw, connections, refused, seen, served, serving
from system import PATIENCE, wait_until

from shellsession import NotRunning, RemoteSession, SessionBusy, connect
from shellsession.daemon.protocol.wire import Message, encode
from shellsession.daemon.server import server
from shellsession.daemon.server.connection import IN_FLIGHT

sh = clients.sh


# -- who looks on


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
    hand_back(sh, "echo 1; until [ -e go ]; do sleep 0.05; done; echo 2; sleep 100", "1")
    Path(sh.cwd, "go").touch()
    sh.wait(PATIENCE, until="2")
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
    assert told == [("closed", b""), ("command", b"echo afresh"), ("output", b"afresh\n"), ("result", b"")]


def test_who_comes_later_sees_what_runs(raw: Raw, sh: RemoteSession) -> None:
    sh.run("sleep 100", timeout=0.05, on_timeout="yield")
    assert raw.ask("watch", agent=sh.agent).header["value"] == "sleep 100"
    sh.interrupt()
    assert texts(seen(raw)) == [("result", b"")]


def test_what_waits_for_its_turn_is_seen_when_it_begins(raw: Raw, sh: RemoteSession) -> None:
    raw.ask("watch", agent=sh.agent)
    with ThreadPoolExecutor(2) as threads:
        threads.submit(sh.run, "until [ -e open ]; do sleep 0.05; done")
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


def test_a_watcher_who_is_behind_is_served(raw: Raw, sh: RemoteSession) -> None:
    """What it asks for is perhaps the end of what it cannot follow."""
    raw.ask("watch", agent=sh.agent)
    with ThreadPoolExecutor(1) as threads:
        flood = threads.submit(sh.run, "head -c 20000000 /dev/zero; touch on; sleep 100")
        wait_until(Path(sh.cwd, "on").exists, "the flood")
        raw.say("interrupt", agent=sh.agent)
        assert flood.result(PATIENCE).outcome == "interrupted"


def test_a_person_misses_nothing_of_his_own_command(raw: Raw, sh: RemoteSession) -> None:
    """It stands still where his terminal cannot follow."""
    raw.ask("watch", agent=sh.agent)
    raw.ask("hold", agent=sh.agent, holder="me")
    raw.say("run", b"touch on; head -c 20000000 /dev/zero; touch off", agent=sh.agent, holder="me")
    wait_until(Path(sh.cwd, "on").exists, "the command")
    events = seen(raw, "output")
    assert not Path(sh.cwd, "off").exists()
    events += seen(raw)
    assert {message.header["event"] for message in events} == {"command", "output", "result"}
    assert sum(len(part) for message in events for part in message.parts[:1]) == 20_000_000 + len(events[0].parts[0])


def test_who_looks_on_and_does_not_read_is_ended(daemon: Daemon, sh: RemoteSession) -> None:
    """What is run is not dropped, as output is, and would pile up."""
    with Raw(daemon.socket) as idler, Raw(daemon.socket) as other:
        idler.ask("watch", agent=sh.agent)
        before = other.ask("stats").header["value"]["connections"]
        for _ in range(25):
            sh.run(": " + "x" * 1_000_000)
        wait_until(lambda: other.ask("stats").header["value"]["connections"] < before, "his end")


def test_a_long_command_that_runs_is_shown_in_short(raw: Raw, sh: RemoteSession) -> None:
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
    """But for who is to hold it next."""
    with Raw(daemon.socket) as other:
        raw.ask("hold", agent=sh.agent, holder="me", others="refuse")
        for verb in (lambda: sh.run("echo never"), lambda: sh.send("never"), lambda: sh.type("never")):
            with pytest.raises(SessionBusy, match="holds"):
                verb()
        other.say("hold", agent=sh.agent, holder="you")
        raw.close()
        assert "error" not in other.receive().header
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


def test_a_client_that_comes_back_for_its_turn_is_served(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_GRACE", PATIENCE)
    os.mkfifo(place / "go")
    path = str(tmp_path / "socket")
    with serving(path), Raw(path) as first, Raw(path) as again:
        first.open("a", place)
        first.say("run", b"read <go; echo done", agent="a")
        wait_until(lambda: again.agents()[0]["state"] == "running", "the first command")
        with Raw(path) as second:
            header = second.header("run", agent="a")
            second.socket.sendall(encode(header, b"echo ran >>times; echo mine"))
            second.ask("info", agent="a")
        (place / "go").write_text("\n")
        assert first.receive().parts[0] == b"done\n"
        again.socket.sendall(encode(header, b"echo ran >>times; echo mine"))
        assert again.receive().parts[0] == b"mine\n"
    assert (place / "times").read_text() == "ran\n"


def test_a_client_has_its_time_to_come_back_each_time_that_it_is_cut(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_GRACE", 0.0)
    path, absences = str(tmp_path / "socket"), list[Any]()
    with serving(path) as heart, Raw(path) as first, Raw(path) as last:
        at_its_end = heart._abandon_if_absent
        monkeypatch.setattr(heart, "_abandon_if_absent", lambda *absence: absences.append(absence))
        first.open("a", place)
        first.say("run", b"until [ -e go ]; do sleep 0.05; done", agent="a")
        header = last.header("run", agent="a")
        request = encode(header, b"echo mine")

        for number in (1, 2):  # he comes, and is cut
            with Raw(path) as client:
                client.socket.sendall(request)
                client.ask("info", agent="a")
            wait_until(lambda number=number: len(absences) == number, "the cut")  # type: ignore[misc]
        at_its_end(*absences[0])
        last.socket.sendall(request)
        (place / "go").touch()
        assert last.receive().parts == (b"mine\n", b"")


def test_a_request_that_was_not_taken_when_its_client_was_cut_is_answered_where_it_comes_again(
    daemon: Daemon, sh: RemoteSession, place: Path
) -> None:
    with Raw(daemon.socket) as first, Raw(daemon.socket) as again:
        requests = [encode(first.header("run", agent=sh.agent), b"until [ -e go ]; do sleep 0.05; done")]
        requests += [encode(first.header("run", agent=sh.agent), b"true") for _ in range(IN_FLIGHT + 3)]
        requests += [encode(first.header("run", agent=sh.agent), b"echo last >>ran")]
        first.socket.sendall(b"".join(requests))
        wait_until(lambda: served(again) > IN_FLIGHT, "as many as are served at a time")
        first.close()
        again.socket.sendall(requests[-1])
        assert served(again) > IN_FLIGHT + 1  # it was taken here first
        (place / "go").touch()
        assert again.receive().header["result"]["outcome"] == "exited"
    assert (place / "ran").read_text() == "last\n"


def test_who_was_refused_hears_nothing_more_of_it(raw: Raw, daemon: Daemon, sh: RemoteSession) -> None:
    raw.ask("hold", agent=sh.agent, holder="me", others="refuse")
    with Raw(daemon.socket) as other:
        refusals = [other.ask("run", b"true", agent=sh.agent, tell=True).header["error"]["code"] for _ in range(2)]
        raw.close()
        wait_until(lambda: not refused(sh), "the end of the hold")
        reply = other.ask("run", b"sleep 1.2", agent=sh.agent)  # a second later others are told what they wait for
    assert (refusals, reply.header["result"]["outcome"]) == (["busy"] * 2, "exited")


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


def test_a_hold_ends_with_the_connection_that_took_it_last(raw: Raw, daemon: Daemon, sh: RemoteSession) -> None:
    with Raw(daemon.socket) as first:
        first.ask("hold", agent=sh.agent, holder="me", others="refuse")
        raw.ask("hold", agent=sh.agent, holder="me", others="refuse")
        clients = connections(raw)
    wait_until(lambda: connections(raw) < clients, "the end of the first")
    assert refused(sh)


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
