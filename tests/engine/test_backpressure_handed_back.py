"""An async ``on_output`` of a handed-back command: the end comes once all output was taken."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import takers
from system import unique_seconds, until, with_argument
from takers import Taker, in_a_loop

from shellsession import TTY, AsyncSession, NotRunning, Result

factory = takers.factory


@in_a_loop
async def test_a_handed_back_command_is_paused_and_read_on(place: Path) -> None:
    take = Taker()
    async with AsyncSession(cwd=place) as session:
        os.mkfifo(place / "go")
        text = "read x <go; head -c 5000000 /dev/zero; : >done; sleep 100"
        handed = await session.run(text, tty=False, on_output=take, on_timeout="yield", timeout=0.05)
        assert handed.outcome == "running"
        (place / "go").write_text("go\n")
        await until(lambda: take.taken)
        assert not (place / "done").exists()
        take.gate.set()
        await until((place / "done").exists)
        await until(lambda: take.taken == 5_000_000)
        await session.interrupt()


@pytest.mark.parametrize("ends", ["cancelled", "failing"])
def test_a_command_whose_hand_back_nobody_hears_of_is_ended(place: Path, ends: str) -> None:
    @in_a_loop
    async def test(place: Path) -> None:
        take, seconds = Taker(), unique_seconds()

        async def fail(stream: str, data: bytes) -> None:
            await take(stream, data)
            raise LookupError("mine")

        async with AsyncSession(cwd=place) as session:
            text = f"X=1; echo a; bash -c 'read x' {seconds}"
            on_output = take if ends == "cancelled" else fail
            run = asyncio.create_task(session.run(text, stdin=TTY, on_output=on_output))
            await until(lambda: session.engine.handed_back)  # handed back, and `run` waits for the callback
            if ends == "cancelled":
                run.cancel()
            else:
                take.gate.set()
            with pytest.raises(asyncio.CancelledError if ends == "cancelled" else LookupError):
                await run
            assert with_argument(seconds) == []
            assert (await session.run("echo $X")).stdout == "1\n"

    test(place)


async def wait(session: AsyncSession) -> Result:
    return await session.wait()


async def poll(session: AsyncSession) -> Result:
    while (result := await session.poll()).runs_on:  # noqa: ASYNC110 - an event of another process
        await asyncio.sleep(0)
    return result


async def send(session: AsyncSession) -> Result:
    return await session.send("\n")


async def interrupt(session: AsyncSession) -> Result:
    return await session.interrupt()


@pytest.mark.parametrize("last", ["taken", "refused", "cancelled"])
@pytest.mark.parametrize("verb", [wait, poll, send, interrupt])
def test_the_end_of_a_handed_back_command_is_reported_once_all_is_taken(
    place: Path, verb: Callable[[AsyncSession], Coroutine[Any, Any, Result]], last: str
) -> None:
    @in_a_loop
    async def test(place: Path) -> None:
        gate, heard = asyncio.Event(), list[bytes]()

        async def take(_: str, data: bytes) -> None:
            await gate.wait()
            if last == "refused":
                raise LookupError("mine")
            heard.append(data)

        text = f"read x; echo a; {'read x; read x' if verb is interrupt else ':'}"
        async with AsyncSession(cwd=place) as session:
            assert (await session.run(text, stdin=TTY, on_output=take)).outcome == "input"
            if verb is not send:
                await session.type("\n")
            if verb is interrupt:
                await until(lambda: session.engine.callback_tasks)
            asked = asyncio.create_task(verb(session))
            await until(lambda: session.engine.last and session.engine.last.delivery.result)
            assert not asked.done()  # what was printed is still to be taken
            if last == "cancelled":
                asked.cancel()
            else:
                gate.set()
            await asyncio.wait([asked])
            assert (heard != [], asked.cancelled()) == (last == "taken", last == "cancelled")
            if last != "cancelled":
                assert isinstance(asked.exception(), LookupError if last == "refused" else type(None))
            await until(lambda: not session.engine.callback_tasks)
            with pytest.raises(NotRunning):
                await session.poll()
            assert (await session.run("echo on")).stdout == "on\n"

    test(place)


def test_the_end_in_another_loop_is_reported_once_all_is_taken(place: Path) -> None:
    session, heard = AsyncSession(cwd=place), list[bytes]()

    async def take(_: str, data: bytes) -> None:
        await asyncio.sleep(0.01)
        heard.append(data)

    async def ends() -> Result:
        await session.type("\n")
        try:
            return await session.wait()
        finally:
            await session.close()

    assert asyncio.run(session.run("echo a; read x; echo b", stdin=TTY, on_output=take)).outcome == "input"
    assert asyncio.run(ends()).exit_code == 0
    assert b"".join(heard) == b"a\nb\n"


@in_a_loop
async def test_who_takes_between_two_verbs_what_a_callback_has_put_hears_of_the_end(place: Path) -> None:
    """One task does both: a verb that waited for the callback would wait for itself."""
    queue, taken, told = asyncio.Queue[bytes](1), list[bytes](), ""
    go = (place / "go").touch

    async with AsyncSession(cwd=place) as session:
        text = "until [ -e go ]; do sleep 0.01; done; echo a; sleep 0.1; echo b; sleep 0.1; echo c"
        result = await session.run(text, timeout=0.1, on_timeout="yield", on_output=lambda _, data: queue.put(data))
        go()
        while result.runs_on:
            result = await session.wait(0.3)
            told += result.stdout
            while not queue.empty():
                taken.append(queue.get_nowait())
                await asyncio.sleep(0)
        assert (result.exit_code, told) == (0, "a\nb\nc\n")
    assert b"".join(taken) == b"a\nb\nc\n"


@in_a_loop
async def test_the_end_of_the_session_frees_who_waits_for_a_callback(place: Path) -> None:
    async def take(_: str, __: bytes) -> None:
        await asyncio.Event().wait()

    session = AsyncSession(cwd=place)
    assert (await session.run("read x; echo a", stdin=TTY, on_output=take)).outcome == "input"
    await session.type("\n")
    await until(lambda: session.engine.callback_tasks)
    waits = asyncio.create_task(session.wait(None))
    await until(lambda: session.engine.last and session.engine.last.delivery.result)
    await session.close()
    assert (await waits).stdout == "a\n"


@in_a_loop
async def test_a_cancelled_callback_cancels_nobody_else(place: Path) -> None:
    tasks: list[asyncio.Task[object] | None] = []

    async def take(_: str, __: bytes) -> None:
        tasks.append(asyncio.current_task())
        await asyncio.Event().wait()

    async with AsyncSession(cwd=place) as session:
        handed = await session.run("read x; echo a; read x; exit 3", stdin=TTY, on_output=take)
        assert handed.outcome == "input"
        await session.type("\n")
        await until(lambda: tasks)
        assert tasks[0]
        tasks[0].cancel()
        await asyncio.wait([tasks[0]])
        ended = await session.send("\n")
        while ended.runs_on:
            ended = await session.wait()
        assert ended.exit_code == 3
