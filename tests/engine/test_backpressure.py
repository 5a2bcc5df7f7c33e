"""An async ``on_output`` that is slow slows down the command, and memory stays bounded."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import takers
from system import stat_fields, unique_seconds, until, with_argument
from takers import Taker, in_a_loop

from shellsession import AsyncSession, SessionBusy

factory = takers.factory


def sleeps(argument: str) -> bool:
    """Is the process with this argument blocked?"""
    return any(stat_fields(pid)[:1] == ["S"] for pid in with_argument(argument))


@in_a_loop
async def test_who_takes_output_slowly_slows_the_command(place: Path) -> None:
    take, size = Taker(), 50_000_000
    async with AsyncSession(cwd=place) as session:
        run = asyncio.create_task(session.run(f"head -c {size} /dev/zero; : >done", tty=False, on_output=take))
        await until(lambda: take.taken and sleeps(str(size)))
        before = take.taken
        for _ in range(100):
            await asyncio.sleep(0)
        assert (take.taken, run.done(), (place / "done").exists()) == (before, False, False)
        await until(lambda: sleeps(str(size)))
        take.gate.set()
        result = await run
        assert take.taken == size == len(result.stdout_bytes) + result.stdout_omitted


@in_a_loop
async def test_a_paused_command_still_has_its_time_limit(place: Path) -> None:
    take, seconds = Taker(), unique_seconds()
    async with AsyncSession(cwd=place) as session:
        run = asyncio.create_task(session.run(f"yes; sleep {seconds}", timeout=0.2, on_output=take))
        await until(lambda: session.engine.last and session.engine.last.delivery.result)
        assert not run.done()  # what was printed is still to be taken
        take.gate.set()
        assert (await run).outcome == "timed_out"
        assert (await session.run("echo free")).stdout == "free\n"


@in_a_loop
async def test_a_pause_is_no_silence(place: Path) -> None:
    os.mkfifo(go := place / "go")

    async def take(_: str, data: bytes) -> None:
        if data == b"a\n":
            go.write_text("\n")
            await until(session.engine.live().idle)  # all is printed, and the silence longer than its limit
            await asyncio.sleep(0.3)

    async with AsyncSession(cwd=place) as session:
        result = await session.run("echo a; read x <go; echo b", idle_timeout=0.2, on_output=take)
        assert (result.stdout, result.outcome) == ("a\nb\n", "exited")


@in_a_loop
async def test_a_failing_coroutine_is_reported_like_any_callback(place: Path) -> None:
    async def fail(_: str, __: bytes) -> None:
        await asyncio.sleep(0)
        raise LookupError("mine")

    async with AsyncSession(cwd=place) as session:
        with pytest.raises(LookupError):
            await session.run("X=1; echo a; sleep 100", on_output=fail)
        assert (await session.run("echo $X")).stdout == "1\n"
        with pytest.raises(LookupError):
            await session.run("echo quick", on_output=fail)
        assert (await session.run("echo $X")).stdout == "1\n"


@in_a_loop
async def test_cancelling_ends_the_command_though_nobody_takes_its_output(place: Path) -> None:
    take, seconds = Taker(), unique_seconds()
    async with AsyncSession(cwd=place) as session:
        run = asyncio.create_task(session.run(f"echo a; sleep {seconds}", on_output=take))
        await until(lambda: take.taken)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert with_argument(seconds) == []
        assert (await session.run("echo free")).stdout == "free\n"


@in_a_loop
async def test_a_callback_cannot_use_the_session_whose_command_waits_for_it(place: Path) -> None:
    async with AsyncSession(cwd=place) as session:

        async def take(_: str, __: bytes) -> None:
            await session.run("echo never")

        with pytest.raises(SessionBusy):
            await session.run("X=1; echo a; sleep 100", on_output=take)
        assert (await session.run("echo $X")).stdout == "1\n"


@in_a_loop
async def test_nothing_is_kept_of_callbacks_that_have_returned(place: Path) -> None:
    taken = list[bytes]()

    async def take(_: str, data: bytes) -> None:
        taken.append(data)

    async with AsyncSession(cwd=place) as session:
        for _ in range(3):
            await session.run("echo a; sleep 0.01; echo b", on_output=take)
        assert b"".join(taken) == b"a\nb\n" * 3
        assert not session.engine.callback_tasks
