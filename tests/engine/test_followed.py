"""Iterating over a command's output returns all of it, whatever other callers have read."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon
from system import PATIENCE, in_thread, unique_seconds, until, wait_until

from shellsession import (
    AsyncSession,
    InvalidRequest,
    Limits,
    NotRunning,
    Result,
    Session,
    SessionBusy,
    aconnect,
    connect,
)
from shellsession.engine.verbs import collect

LIMITS = Limits(max_output=100_000)
SIZE = 5_000_000
FLOOD = f"echo begun; read x <go; head -c {SIZE} /dev/zero; : >done; (exit 4)"


def test_what_an_onlooker_has_read_is_there_at_once(sh: Session, place: Path) -> None:
    sh.run("mkfifo go")
    pieces = sh.stream("echo one; read x <go; echo two; sleep 1000")
    assert next(pieces) == ("stdout", b"one\n")
    (place / "go").write_text("\n")
    wait_until(lambda: "two" in sh.poll().stdout, "what the onlooker reads")
    assert next(pieces) == ("stdout", b"two\n")
    ended = sh.interrupt()
    assert list(pieces) == [ended]


def test_no_more_is_read_for_an_onlooker_than_may_wait(sh: Session, place: Path) -> None:
    sh.run("mkfifo go")
    pieces = sh.stream(FLOOD, tty=False, limits=LIMITS)
    assert next(pieces) == ("stdout", b"begun\n")
    (place / "go").write_text("\n")
    looked = sh.wait(PATIENCE)
    while not looked.stdout_bytes:
        looked = sh.wait(PATIENCE)
    assert looked.runs_on  # it stands still until somebody takes that
    held = sh.engine.last
    assert held
    assert held.pieces
    waiting = sum(len(data) for _, data in held.pieces)
    assert sh.poll().stdout_bytes == b""
    assert sum(len(data) for _, data in held.pieces) == waiting < SIZE
    *rest, last = pieces
    assert sum(len(item[1]) for item in rest if not isinstance(item, Result)) == SIZE
    assert isinstance(last, Result)
    assert (last.outcome, last.exit_code) == ("exited", 4)
    assert (place / "done").exists()


def test_the_time_limit_holds_though_others_read_all_the_time(sh: Session) -> None:
    pieces = sh.stream("while :; do echo more; sleep 0.01; done", timeout=0.2)
    begun = time.monotonic()
    for item in pieces:
        if isinstance(item, Result):
            assert item.outcome == "timed_out"
            break
        wait_until(lambda: sh.state != "running" or sh.poll().stdout, "what the onlooker reads")
        assert time.monotonic() < begun + PATIENCE
    assert sh.state == "idle"


def test_one_that_is_just_being_ended_by_another_has_its_result(sh: Session) -> None:
    pieces = sh.stream(f"trap '' INT; echo begun; sleep {unique_seconds()}")
    assert next(pieces) == ("stdout", b"begun\n")
    thread, ended = in_thread(sh.interrupt)
    wait_until(lambda: sh.engine.handed_back is None, "the other thread at it")
    assert list(pieces)[-1].outcome == "interrupted"  # type: ignore[union-attr]
    thread.join(PATIENCE)
    assert ended[0].outcome == "interrupted"


@pytest.mark.parametrize("text", ["echo begun; sleep 100", "yes"])
def test_one_that_another_thread_interrupts_is_reported_to_both(sh: Session, place: Path, text: str) -> None:
    """The other one was not told, and ended the command that came next."""
    os.mkfifo(go := place / "go")
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            pieces = sh.stream(text, tty=False)
            next(pieces)
            interrupting = pool.submit(sh.interrupt)
            last = list(pieces)[-1]
            after = sh.run(f"read x <{go}; echo on", timeout=0.05, on_timeout="yield")
            assert interrupting.result(PATIENCE) == last
            assert isinstance(last, Result)
            go.write_text("\n")
            assert (last.outcome, after.outcome, sh.wait().stdout) == ("interrupted", "running", "on\n")


def test_one_that_another_task_interrupts_is_reported_to_both(place: Path) -> None:
    os.mkfifo(go := place / "go")

    async def main() -> None:
        async with AsyncSession() as sh:
            for _ in range(3):
                pieces = sh.stream("echo begun; sleep 100")
                await anext(pieces)
                interrupting = asyncio.create_task(sh.interrupt())
                last = [item async for item in pieces][-1]
                after = await sh.run(f"read x <{go}; echo on", timeout=0.05, on_timeout="yield")
                assert await interrupting == last
                assert isinstance(last, Result)
                go.write_text("\n")
                assert (last.outcome, after.outcome, (await sh.wait()).stdout) == ("interrupted", "running", "on\n")

    asyncio.run(main())


@pytest.mark.parametrize("end", [Session.restart, Session.close])
def test_one_whose_session_ends_between_two_pieces_has_its_result(sh: Session, end: Callable[[Session], None]) -> None:
    pieces = sh.stream(f"echo a; sleep {unique_seconds()}")
    assert next(pieces) == ("stdout", b"a\n")
    end(sh)
    (last,) = pieces
    assert isinstance(last, Result)
    assert (last.outcome, last.state_kept, last.stdout) == ("shell_exited", False, "a\n")
    assert re.fullmatch("the session was (restart|clos)ed meanwhile", last.reason)
    assert last.killed


@pytest.mark.parametrize("end", [AsyncSession.restart, AsyncSession.close])
def test_an_asyncio_one_whose_session_ends_between_two_pieces_has_its_result(end: Callable[..., Any]) -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            pieces = session.stream(f"echo a; sleep {unique_seconds()}")
            assert await anext(pieces) == ("stdout", b"a\n")
            await end(session)
            (last,) = [piece async for piece in pieces]
            assert isinstance(last, Result)
            assert (last.outcome, last.state_kept, last.stdout) == ("shell_exited", False, "a\n")

    asyncio.run(main())


@pytest.mark.parametrize("wait", [0.001, PATIENCE], ids=["a-glance", "long"])
def test_an_asyncio_one_gets_all_of_it_too(place: Path, wait: float) -> None:
    async def main() -> None:
        async with AsyncSession(cwd=place, timeout=20) as sh:
            await sh.run("mkfifo go")
            pieces = sh.stream(FLOOD, tty=False, limits=LIMITS)
            assert await anext(pieces) == ("stdout", b"begun\n")
            (place / "go").write_text("\n")
            looking = True

            async def look() -> None:
                with suppress(NotRunning):
                    while looking:
                        await sh.wait(wait)

            onlooker = asyncio.create_task(look())
            await until(lambda: sh.engine.handed_back and sh.engine.handed_back.pieces)
            items = [item async for item in pieces]
            looking = False
            await onlooker
            assert sum(len(item[1]) for item in items if not isinstance(item, Result)) == SIZE
            assert isinstance(items[-1], Result)
            await until((place / "done").exists)

    asyncio.run(main())


def test_endless_news_are_no_reason_to_forget_the_time(sh: Session) -> None:
    sh.run("echo begun; sleep 1000", timeout=0.05, on_timeout="yield")
    call = sh.engine.handed_back
    assert call
    call.following = call.has_output = True
    for limit, what in ((9.0, collect.TIMED_OUT), (11.0, collect.OUTPUT), (None, collect.OUTPUT)):
        assert collect.happened(call, limit, now=10.0) == what


@pytest.mark.parametrize("text", ["yes", f"trap 'head -c {SIZE // 2} /dev/zero; exit' INT; sleep 1000"])
def test_what_comes_while_it_is_being_ended_is_handed_out_too(sh: Session, text: str) -> None:
    *pieces, result = sh.stream(text, timeout=0.2, tty=False, limits=Limits(max_output=4096))
    assert isinstance(result, Result)
    assert result.outcome == "timed_out"
    assert sum(len(data) for _, data in pieces) == len(result.stdout_bytes) + result.stdout_omitted  # type: ignore[misc]


def test_what_cannot_be_run_is_refused_at_once(sh: Session) -> None:
    for session in (sh, AsyncSession()):
        with pytest.raises(InvalidRequest):
            session.stream("a\0b")


def test_a_stream_of_the_daemon_that_was_left_keeps_nobody_waiting(daemon: Daemon, place: Path) -> None:
    async def main() -> None:
        async with aconnect("left", daemon.socket, cwd=place) as session:
            async for piece in session.stream("echo a; sleep 1000"):
                assert piece == ("stdout", b"a\n")
                break
            assert (await session.run("echo on")).stdout == "on\n"

    asyncio.run(main())


def test_two_streams_of_the_daemon_are_distinguished(daemon: Daemon, place: Path) -> None:
    with connect("two", daemon.socket, cwd=place) as session:
        first, second = session.stream("echo a"), session.stream("echo b; sleep 1000")
        assert next(first) == ("stdout", b"a\n")
        assert next(second) == ("stdout", b"b\n")
        assert isinstance(list(first)[-1], Result)
        with pytest.raises(SessionBusy):
            session.run("echo never")
        second.close()
        assert session.run("echo on").stdout == "on\n"
