"""A task that is cancelled at any moment, or repeatedly: its command ends, and its shell lives."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon
from loops import seen, session
from system import PATIENCE, stat_fields, unique_seconds, until, with_argument

from shellsession import TTY, AsyncSession, NotRunning, Session, aconnect
from shellsession.engine.io.loop import LoopWaiter
from shellsession.engine.verbs import interrupt


def test_cancelling_interrupts_the_command_and_keeps_the_shell(place: Path) -> None:
    async def main() -> None:
        seconds = unique_seconds()
        async with session(place) as sh:
            await sh.run("X=1")
            shell = sh.pid
            task = asyncio.create_task(sh.run(f"Y=2; sleep {seconds}; echo never"))
            await seen(seconds)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert with_argument(seconds) == []
            assert (await sh.run("echo $X$Y")).stdout == "12\n"
            assert sh.pid == shell

    asyncio.run(main())


def test_nothing_came_of_a_command_that_never_ran(sh: Session) -> None:
    """As one whose call was cancelled before its turn came."""
    command = b"echo never"
    assert (sh.engine.came_of(command), sh.engine.came_of()) == (None, None)
    sh.run("echo another")
    assert sh.engine.came_of(command) is None


def test_a_timeout_of_asyncio_interrupts_too(place: Path) -> None:
    async def main() -> None:
        async with session(place) as sh:
            await sh.run("X=1")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(sh.run("sleep 100"), 0.15)
            assert (await sh.run("echo $X")).stdout == "1\n"

    asyncio.run(main())


def test_cancelling_a_wait_ends_the_command_that_was_waited_for(place: Path) -> None:
    async def main() -> None:
        seconds = unique_seconds()
        async with session(place) as sh:
            await sh.run(f"sleep {seconds}", timeout=0.1, on_timeout="yield")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(sh.wait(), 0.1)
            assert with_argument(seconds) == []
            assert (await sh.run("echo free")).stdout == "free\n"

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["here", "in the daemon"])
@pytest.mark.parametrize("verb", ["wait", "send", "expect"])
def test_what_a_cancelled_verb_has_ended_is_not_reported_by_a_later_one(daemon: Daemon, kind: str, verb: str) -> None:
    verbs: dict[str, Callable[[Any], Any]] = {
        "wait": lambda sh: sh.wait(),
        "send": lambda sh: sh.send("again\n"),
        "expect": lambda sh: sh.expect("never"),
    }

    async def main() -> None:
        here = AsyncSession(cwd="/")
        async with here if kind == "here" else aconnect(verb, daemon.socket, False, cwd="/") as sh:
            asked = await sh.run(f"read x; sleep {unique_seconds()}", stdin=TTY)
            assert asked.outcome == "input"
            if verb != "send":
                await sh.type("x\n")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(verbs[verb](sh), 0.1)
            for command in (None, "echo free"):
                assert command is None or (await sh.run(command)).stdout == "free\n"
                with pytest.raises(NotRunning, match="there is no running command to wait for"):
                    await sh.poll()

    asyncio.run(main())


def test_cancelling_while_waiting_for_a_turn_harms_nobody(place: Path) -> None:
    async def main() -> None:
        seconds = unique_seconds()
        async with session(place) as sh:
            first = asyncio.create_task(sh.run(f"mkfifo go; bash -c 'read x <go' {seconds}; echo first"))
            await seen(seconds)
            second = asyncio.create_task(sh.run("touch second"))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            (place / "go").write_text("\n")
            assert (await first).stdout == "first\n"
            assert (await sh.run("ls")).stdout == "go\n"

    asyncio.run(main())


def test_cancelling_at_any_moment_leaves_a_shell_that_answers(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "_READING", PATIENCE)  # bash has its turn on a busy machine, too
    monkeypatch.setattr(interrupt, "_ROUNDS", ((signal.SIGINT, PATIENCE),))

    async def main() -> None:
        async with session(place) as sh:
            await sh.run("X=1")
            for steps in range(40):
                task = asyncio.create_task(sh.run(f"echo {steps}; /bin/true; echo done"))
                for _ in range(steps % 8):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert (await sh.run("echo mine $X")).stdout == "mine 1\n"

    asyncio.run(main())


def test_a_task_that_is_cancelled_again_and_again_keeps_its_shell() -> None:
    """As anyio does it: at each turn of the loop, until the task has left its scope."""

    async def main() -> None:
        async with AsyncSession() as session:
            await session.run("kept=1")
            begun = asyncio.Event()
            command = "trap '' INT; echo begun; sleep 1000; sleep 1000"
            task = asyncio.create_task(session.run(command, on_output=lambda *_: begun.set()))
            await begun.wait()
            told = []
            while not task.done():
                told.append(task.cancel())
                await asyncio.sleep(0)
            assert len(told) > 10
            assert task.cancelled()
            assert (await session.run("echo $kept")).stdout == "1\n"

    asyncio.run(main())


@pytest.mark.parametrize("awaited", [False, True], ids=["called", "awaited"])
@pytest.mark.parametrize("often", [1, 10])
def test_cancelling_while_the_command_of_a_callback_that_raised_is_ended_keeps_the_shell(
    place: Path, awaited: bool, often: int
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    async def fails_later(*_: object) -> None:
        fails()

    async def main() -> None:
        async with session(place) as sh:
            await sh.run("kept=1")
            command = "echo found; bash -c \"trap '' INT; sleep 1000; sleep 1000\""  # which takes a while to end
            task = asyncio.create_task(sh.run(command, on_output=fails_later if awaited else fails))
            await until(lambda: sh.engine.last is not None and sh.engine.last.ending is not None)
            for _ in range(often):
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await sh.run("echo $kept")).stdout == "1\n"

    asyncio.run(main())


def test_a_cancelled_close_leaves_nothing(place: Path) -> None:
    async def main() -> None:
        session = AsyncSession(cwd=place)
        await session.run("trap 'sleep 0.2' EXIT")
        pid = session.pid
        before = set(os.listdir("/proc/self/fd"))
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert (session.pid, session.closed) == (None, True)
        assert pid is not None
        assert stat_fields(pid) == []
        assert len(before - set(os.listdir("/proc/self/fd"))) >= 8

    asyncio.run(main())


@pytest.mark.parametrize("steps", range(5))
def test_who_is_notified_of_anothers_end_and_cancelled_at_once_is_cancelled(steps: int) -> None:
    """However far the news has come: asyncio.wait_for lost it before Python 3.12."""

    async def main() -> None:
        waiter = LoopWaiter()
        task = asyncio.create_task(waiter.wait(time.monotonic() + PATIENCE))
        for _ in range(3):
            await asyncio.sleep(0)
        waiter.notify(None)
        for _ in range(steps):
            await asyncio.sleep(0)
        was_waiting = task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() == was_waiting

    asyncio.run(main())
