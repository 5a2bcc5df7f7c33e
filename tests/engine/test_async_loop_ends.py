"""A loop that ends just after a command was cancelled, as with asyncio.run: another loop can use the session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from loops import seen, session
from system import PATIENCE, stat_fields, unique_seconds, until, with_argument

from shellsession import TTY, AsyncSession, NotRunning

Verb = Callable[[AsyncSession], Awaitable[Any]]


@asynccontextmanager
async def begun(sh: AsyncSession, verb: Verb, seconds: str) -> AsyncIterator[asyncio.Task[Any]]:
    """A task in that verb of a session whose command has begun."""
    async with asyncio.timeout(PATIENCE):
        task = asyncio.ensure_future(verb(sh))
        await seen(seconds)
        yield task


async def in_a_terminal(sh: AsyncSession, command: str) -> None:
    """Has it handed back, running."""
    assert (await sh.run(f"read x; {command}", stdin=TTY)).outcome == "input"
    await sh.type("x\n")


async def run(sh: AsyncSession, command: str) -> None:
    await sh.run(command)


async def stream(sh: AsyncSession, command: str) -> None:
    async for _ in sh.stream(command):
        pass


async def wait(sh: AsyncSession, command: str) -> None:
    await in_a_terminal(sh, command)
    await sh.wait()


async def send(sh: AsyncSession, command: str) -> None:
    await in_a_terminal(sh, command)
    await sh.send("more\n")


async def expect(sh: AsyncSession, command: str) -> None:
    await in_a_terminal(sh, command)
    await sh.expect("never")


async def returns(sh: AsyncSession, command: str) -> None:
    async for _ in sh.stream(command):
        return


async def raises(sh: AsyncSession, command: str) -> None:
    async for _ in sh.stream(command):
        raise ZeroDivisionError


async def asks_for_one(sh: AsyncSession, command: str) -> None:
    pieces = sh.stream(command)
    await anext(pieces)


async def goes_on_a_little(sh: AsyncSession, command: str) -> None:
    async for _ in sh.stream(command):
        break
    await asyncio.sleep(0)


async def has_a_task_that_is_busy_elsewhere(sh: AsyncSession, command: str) -> None:
    heard = asyncio.Event()

    async def listen() -> None:
        async for _ in sh.stream(command):
            heard.set()
            await asyncio.sleep(PATIENCE)

    listening = asyncio.create_task(listen())
    await heard.wait()
    assert not listening.done()


LEAVES = [returns, raises, asks_for_one, goes_on_a_little, has_a_task_that_is_busy_elsewhere]


@pytest.mark.parametrize("leave", LEAVES)
def test_a_stream_that_is_left_as_its_loop_ends(place: Path, leave: Any) -> None:
    """Asyncio closes what was left in a task of its own, which the loop does not wait for."""
    sh, seconds = AsyncSession(cwd=place, timeout=PATIENCE), unique_seconds()

    async def first() -> None:
        await sh.run("kept=1")
        async with asyncio.timeout(PATIENCE):
            await leave(sh, f"echo begun; sleep {seconds}")

    async def second() -> str:
        async with sh:
            said = (await sh.run("echo $kept")).stdout
            assert with_argument(seconds) == []
            return said

    with suppress(ZeroDivisionError):
        asyncio.run(first())
    assert asyncio.run(second()) == "1\n"


def test_a_stream_that_is_left_in_a_loop_that_goes_on_is_ended_though_nobody_uses_the_session(place: Path) -> None:
    async def main() -> None:
        seconds = unique_seconds()
        async with session(place) as sh:
            async for _ in sh.stream(f"echo begun; sleep {seconds}"):
                break
            await until(lambda: not with_argument(seconds) and sh.state == "idle")

    asyncio.run(main())


@pytest.mark.sampled
@pytest.mark.parametrize("command", ["sleep {}", "trap '' INT; sleep {}; sleep 1000"], ids=["plain", "ignoring"])
@pytest.mark.parametrize("verb", [run, stream, wait, send, expect])
def test_a_task_that_is_cancelled_just_before_its_loop_ends(place: Path, verb: Any, command: str) -> None:
    """The end of the loop cancels all tasks: what was to put things in order had not begun."""
    sh, seconds = AsyncSession(cwd=place, timeout=PATIENCE), unique_seconds()

    async def first() -> None:
        await sh.run("kept=1")
        async with begun(sh, lambda sh: verb(sh, command.format(seconds)), seconds) as task:
            task.cancel()

    async def second() -> str:
        with pytest.raises(NotRunning):
            await sh.poll()
        async with sh:
            return (await sh.run("echo $kept")).stdout

    asyncio.run(first())
    assert with_argument(seconds) == []
    assert asyncio.run(second()) == "1\n"


def test_a_close_that_is_cancelled_just_before_its_loop_ends(place: Path) -> None:
    sh = AsyncSession(cwd=place)

    async def main() -> int | None:
        await sh.run("true")
        pid = sh.pid
        closing = asyncio.create_task(sh.close())
        await asyncio.sleep(0)
        closing.cancel()
        return pid

    pid = asyncio.run(main())
    assert pid is not None
    assert (sh.pid, sh.closed, stat_fields(pid)) == (None, True, [])


@pytest.mark.parametrize("command", ["sleep {}", "trap '' INT; sleep {}; sleep 1000"], ids=["plain", "ignoring"])
def test_who_cancels_all_tasks_without_end_comes_to_an_end(place: Path, command: str) -> None:
    async def main() -> None:
        seconds = unique_seconds()
        async with AsyncSession(cwd=place, timeout=PATIENCE) as sh:
            await sh.run("kept=1")
            async with begun(sh, lambda sh: sh.run(command.format(seconds)), seconds) as task:
                while not task.done():
                    for other in asyncio.all_tasks() - {asyncio.current_task()}:
                        other.cancel()
                    await asyncio.sleep(0)
            assert task.cancelled()
            assert with_argument(seconds) == []
            assert (await sh.run("echo $kept")).stdout == "1\n"

    asyncio.run(main())
