"""``Daemon`` and ``AsyncDaemon``: what happens in the sessions, for watchers that are fast, slow, or gone."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

import pytest
from daemons import Daemon as Served, Proxy, Raw, running, served, serving
from system import PATIENCE, wait_until

from shellsession import AsyncDaemon, Daemon, DaemonUnavailable, InvalidRequest, NoSuchAgent, connect
from shellsession.daemon.server import board
from shellsession.watching import (
    AgentClosed,
    AgentOpened,
    CommandBegan,
    CommandEnded,
    CommandOutput,
    Event,
    EventsMissed,
)

T = TypeVar("T")


def until(events: Iterator[Event], is_last: Callable[[Event], bool]) -> list[Event]:
    """The events up to the first one of which this is true."""
    found = list[Event]()
    for event in events:
        found.append(event)
        if is_last(event):
            break
    return found


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def ended(event: Event) -> bool:
    return isinstance(event, CommandEnded)


def test_watcher_gets_state_then_each_event(daemon: Served) -> None:
    watcher = Daemon(daemon.socket)
    with connect("first", daemon.socket) as first:
        first.run("echo here")
        events = watcher.watch()
        assert AgentOpened("first") in until(events, lambda event: event == AgentOpened("first"))
        with connect("second", daemon.socket) as second:
            second.run("printf out; printf err >&2; (exit 3)")
            found = until(events, ended)
            second.close()
        found += until(events, lambda event: isinstance(event, AgentClosed))
        *others, end, closed = [event for event in found if event.agent == "second"]  # type: ignore[union-attr]
        assert others[:2] == [AgentOpened("second"), CommandBegan("second", "printf out; printf err >&2; (exit 3)")]
        assert sorted((one.stream, one.text) for one in others[2:] if isinstance(one, CommandOutput)) == [
            ("stderr", "err"),
            ("stdout", "out"),
        ]
        assert isinstance(end, CommandEnded)
        assert (end.outcome, end.exit_code) == ("exited", 3)
        assert closed == AgentClosed("second")
        first.close()


@pytest.mark.parametrize(("agent", "most"), [(None, 1 << 12), ("wide", 1 << 16)])
def test_watcher_gets_the_end_of_much_output_and_the_size_of_the_rest(
    daemon: Served, agent: str | None, most: int
) -> None:
    with connect("wide", daemon.socket) as session:
        session.run("true")
        events = Daemon(daemon.socket).watch(agent)
        until(events, lambda event: event == AgentOpened("wide"))
        session.run("head -c 300000 /dev/zero | tr '\\0' x; printf end", tty=False)
        found = until(events, ended)
        printed = [event for event in found if isinstance(event, CommandOutput)]
        assert sum(len(event.data) + event.omitted for event in printed) == 300_003
        assert max(len(event.data) for event in printed) == most
        assert printed[-1].text.endswith("xend")
        session.close()


def test_end_has_the_reason_and_duration_of_the_result(daemon: Served) -> None:
    with connect("late", daemon.socket) as session:
        session.run("true")
        events = Daemon(daemon.socket).watch("late")
        next(events)
        result = session.run("sleep 99", timeout=0.2)
        (end,) = [event for event in until(events, ended) if isinstance(event, CommandEnded)]
        assert (end.outcome, end.exit_code) == (result.outcome, result.exit_code)
        assert end.reason == result.reason
        assert "time limit" in end.reason
        assert end.duration == pytest.approx(result.duration, abs=0.001)
        assert end.duration >= 0.2
        session.close()


def test_watcher_of_one_agent_gets_no_others(daemon: Served) -> None:
    with connect("one", daemon.socket) as one, connect("other", daemon.socket) as other:
        other.run("true")
        one.run("sleep 100", timeout=0.1, on_timeout="yield")
        events = Daemon(daemon.socket).watch("one")
        assert [next(events), next(events)] == [AgentOpened("one"), CommandBegan("one", "sleep 100")]
        other.run("echo x")
        one.interrupt()
        end = next(events)
        assert isinstance(end, CommandEnded)
        assert (end.agent, end.outcome) == ("one", "interrupted")
        one.close()
        other.close()


def test_asyncio_watches_lists_and_kills_alike(daemon: Served) -> None:
    async def watch() -> list[str]:
        async with AsyncDaemon(daemon.socket) as watcher, aclosing(watcher.watch("task")) as events:  # type: ignore[type-var]
            session = await asyncio.to_thread(connect, "task", daemon.socket)
            found = [await anext(events)]
            await asyncio.to_thread(session.run, "echo x")
            found += [await anext(events) for _ in range(3)]
            assert [one.agent for one in await watcher.list() if one.agent == "task"] == ["task"]
            await watcher.kill("task")
            found.append(await anext(events))
            with pytest.raises(NoSuchAgent):
                await watcher.kill("task")
            session.disconnect()
            return kinds(found)

    expected = ["AgentOpened", "CommandBegan", "CommandOutput", "CommandEnded", "AgentClosed"]
    assert asyncio.run(watch()) == expected


def test_slow_watcher_misses_counted_events_and_delays_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "_KEPT", 1 << 17)
    path, size = str(tmp_path / "socket"), 10_000_000
    with serving(path), connect("flood", path, start=False) as session:
        session.run("true")
        events = Daemon(path).watch("flood")
        next(events)
        for _ in range(6):  # each for more time than events are collected
            session.run(f"head -c {size} /dev/zero; sleep 0.3", tty=False)
        found = until(events, lambda event: isinstance(event, EventsMissed))
        missed = found[-1]
        assert isinstance(missed, EventsMissed)
        session.run("echo last")
        found += until(events, lambda event: isinstance(event, CommandOutput) and event.text == "last\n")
        printed = [event for event in found if isinstance(event, CommandOutput)]
        assert sum(len(one.data) + one.omitted for one in printed) + (missed.bytes or 0) == 6 * size + len("last\n")
        assert missed.events is not None
        assert missed.events > 0


def test_watcher_that_was_away_for_long_gets_the_state_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "_LINGER", 0.0)
    path = str(tmp_path / "socket")
    with serving(path) as server, connect("a1", path, start=False) as session:
        session.run("true")
        events = Daemon(path).watch()
        assert next(events) == AgentOpened("a1")
        session.run("true")
        wait_until(lambda: not server.sessions.board.is_watched, "the end of the collection")
        assert [next(events), next(events)] == [EventsMissed(None, None), AgentOpened("a1")]


def test_killed_watcher_leaves_the_daemon_as_it_was(daemon: Served) -> None:
    program = (
        f"from shellsession import Daemon\nfor event in Daemon({daemon.socket!r}).watch(): print(event, flush=True)"
    )
    with connect("a1", daemon.socket) as session:
        session.run("true")
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as watcher:
            assert watcher.stdout is not None
            assert "AgentOpened" in watcher.stdout.readline()
            watcher.send_signal(signal.SIGKILL)
        with Raw(daemon.socket) as raw:
            raw.say("follow", known=[1, 10**9])
        assert session.run("echo on").stdout == "on\n"
        events = Daemon(daemon.socket).watch("a1")
        next(events)
        session.run("echo seen")
        assert kinds(until(events, ended)) == ["CommandBegan", "CommandOutput", "CommandEnded"]
        session.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_watch_ends_with_the_daemon_and_not_with_its_successor(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path / "daemon") as first:
        watcher = Daemon(first.socket)
        with connect("a1", first.socket) as session:
            session.run("true")
            events = watcher.watch()
            next(events)
            first.stop(number)
    with running(tmp_path / "daemon") as second, connect("b1", second.socket) as session:
        with pytest.raises(DaemonUnavailable, match="that was watched has ended"):
            until(events, lambda _: False)
        session.run("true")
        assert next(watcher.watch()) == AgentOpened("b1")
        assert [one.agent for one in watcher.list()] == ["b1"]


def test_daemon_that_is_not_there_is_not_started(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    for ask in (Daemon(path).list, lambda: next(Daemon(path).watch()), lambda: Daemon(path).kill("a1")):
        with pytest.raises(DaemonUnavailable, match="no daemon listens"):
            ask()
    with pytest.raises(InvalidRequest, match="agent must be a name"):
        Daemon(path).watch(1)  # type: ignore[arg-type]


def test_watch_of_own_session_is_refused(daemon: Served) -> None:
    program = f"from shellsession import Daemon; next(Daemon({daemon.socket!r}).watch('inner'))"
    with connect("inner", daemon.socket) as session:
        done = session.run([sys.executable, "-c", program])
        assert "follow was asked for inside its own session" in done.stderr
        assert session.run([sys.executable, "-c", program.replace("'inner'", "")]).ok
        session.close()


def test_lost_connection_loses_no_event(daemon: Served, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with (
        Proxy(path, daemon.socket) as proxy,
        Raw(daemon.socket) as raw,
        connect("cut", daemon.socket) as session,
        ThreadPoolExecutor() as pool,
    ):
        session.run("true")
        events = Daemon(path).watch("cut")
        next(events)
        for number in range(3):
            found = pool.submit(until, events, ended)
            wait_until(lambda: served(raw) == 2, "its question")
            proxy.mute = number == 1  # the answer is on its way when the connection breaks
            session.run(f"echo {number}")
            if proxy.mute:
                wait_until(lambda: b"cut" in proxy.swallowed, "the answer")
                proxy.mute = False
            proxy.cut()
            printed = [event for event in found.result(PATIENCE) if isinstance(event, CommandOutput)]
            assert [event.text for event in printed] == [f"{number}\n"]
        session.close()


def test_daemon_elsewhere_is_watched_over_its_bridge(daemon: Served) -> None:
    program = str(Path(sys.executable).with_name("shellsession"))
    with connect("far", daemon.socket) as session, Daemon(daemon.socket, via=["env"], remote=program) as watcher:
        session.run("true")
        events = watcher.watch("far")
        assert next(events) == AgentOpened("far")
        session.run("echo x")
        assert kinds(until(events, ended)) == ["CommandBegan", "CommandOutput", "CommandEnded"]
        assert "far" in [one.agent for one in watcher.list()]
        watcher.kill("far")
        assert next(events) == AgentClosed("far")
