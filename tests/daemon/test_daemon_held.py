"""A request that waits for a hold to end means the command that ran when it came, or fails if that is gone."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import clients
import endings
import pytest
from daemons import Daemon, Raw, serving
from system import PATIENCE, wait_until

from shellsession import NotRunning, RemoteSession, SessionBusy, SessionClosed, connect

sh, hasty = clients.sh, endings.hasty


def asks(raw: Raw, sh: RemoteSession, name: str) -> None:
    """Have its holder run what asks for that."""
    text = f'read -r {name}; echo "{name} is ${name}"'.encode()
    assert raw.run(sh.agent, text.decode(), holder="me", stdin="tty")["outcome"] == "input"


@pytest.mark.parametrize("verb", ["send", "type"])
@pytest.mark.parametrize("before", [True, False], ids=["for one that has ended", "for none"])
def test_what_waits_to_be_typed_is_for_no_later_command(hasty: Daemon, verb: str, before: bool) -> None:
    with Raw(hasty.socket) as raw, Raw(hasty.socket) as counting, connect("a", hasty.socket, False) as sh:
        raw.ask("hold", agent=sh.agent, holder="me")
        if before:
            asks(raw, sh, "first")
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(getattr(sh, verb), "SECRET\n")
            wait_until(lambda: counting.ask("stats").header["value"]["serving"] == 2, "what waits")
            if before:
                raw.ask("send", b"mine\n", agent=sh.agent, holder="me")
            asks(raw, sh, "second")
            raw.close()
            with pytest.raises(NotRunning, match="nothing was typed"):
                waiting.result(PATIENCE)
        assert sh.send("right\n").stdout == "second is right\n"


def test_what_waits_to_be_typed_is_for_the_command_that_is_there_still(hasty: Daemon) -> None:
    with Raw(hasty.socket) as raw, Raw(hasty.socket) as counting, connect("a", hasty.socket, False) as sh:
        raw.ask("hold", agent=sh.agent, holder="me")
        asks(raw, sh, "it")
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(sh.send, "this\n")
            wait_until(lambda: counting.ask("stats").header["value"]["serving"] == 2, "what waits")
            raw.close()
            assert waiting.result(PATIENCE).stdout == "it is this\n"


def test_who_waits_for_a_held_session_is_notified_of_its_end_at_once(
    raw: Raw, daemon: Daemon, sh: RemoteSession
) -> None:
    """And so is who looks on; the next session of that agent is held by nobody."""
    raw.ask("watch", agent=sh.agent)
    raw.ask("hold", agent=sh.agent, holder="me")
    with (
        Raw(daemon.socket) as second,
        Raw(daemon.socket) as counting,
        connect(sh.agent, daemon.socket, False) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        waiting = threads.submit(sh.run, "echo never")
        second.say("hold", agent=sh.agent, holder="you")
        wait_until(lambda: counting.ask("stats").header["value"]["serving"] == 3, "what waits")
        other.close()
        with pytest.raises(SessionClosed, match="closed meanwhile"):
            waiting.result(PATIENCE)
        assert second.receive().header["error"]["code"] == "closed"
        assert raw.receive().header["event"] == "closed"
    with connect(sh.agent, daemon.socket, False) as fresh:
        assert fresh.run("echo free").stdout == "free\n"
        fresh.close()


def test_its_holders_size_ends_with_the_hold_but_not_one_that_the_agent_asked_for(
    raw: Raw, daemon: Daemon, sh: RemoteSession
) -> None:
    def resize(rows: int, **holder: str) -> None:
        raw.ask("resize", agent=sh.agent, columns=10, rows=rows, **holder)

    with Raw(daemon.socket) as first:
        first.ask("hold", agent=sh.agent, holder="me")
        resize(1, holder="me")
        resize(2, holder="me")
        assert sh.size == (10, 2)
    wait_until(lambda: sh.size == (200, 50), "the end of the hold")
    resize(3, holder="me")  # it came too late
    assert sh.size == (200, 50)
    with Raw(daemon.socket) as second:
        second.ask("hold", agent=sh.agent, holder="you")
        resize(4, holder="you")
        sh.resize(10, 5)
    sh.run("true")  # waits for the end of the hold
    assert sh.size == (10, 5)


def test_nothing_of_a_closed_session_is_kept(tmp_path: Path) -> None:
    """It has its client's whole environment."""
    path = str(tmp_path / "socket")
    with serving(path) as server:
        kept: list[weakref.ref[object]] = []
        for _ in range(3):
            with connect("a", path, False) as sh:
                sh.run("sleep 100", timeout=0.01, on_timeout="yield")
                shared = server.sessions.of("a")
                kept += [weakref.ref(one) for one in (shared, shared.session, shared.session.engine)]
                del shared
                sh.close()
        wait_until(lambda: gc.collect() >= 0 and not any(one() for one in kept), "their end")


@pytest.mark.parametrize("limit", [{"patience": 0.3}, {"timeout": 0.3}], ids=["patience", "timeout"])
def test_a_command_whose_patience_ends_while_a_person_is_attached_is_refused(
    raw: Raw, sh: RemoteSession, limit: dict[str, float]
) -> None:
    raw.ask("hold", agent=sh.agent, holder="me")
    with pytest.raises(SessionBusy, match="a person holds this session"):
        sh.run("echo never", **limit)  # type: ignore[arg-type]
    with pytest.raises(SessionBusy, match="a person holds this session"):
        sh.send("never", timeout=0.3)


def test_a_session_that_a_client_gave_a_time_limit_has_that_patience(daemon: Daemon, raw: Raw) -> None:
    with connect("short", daemon.socket, False, timeout=0.3) as sh:
        sh.run("true")
        raw.ask("hold", agent="short", holder="me")
        for client in (sh, connect("short", daemon.socket, False)):
            with pytest.raises(SessionBusy, match="a person holds this session"):
                client.run("echo never")
        sh.close()
