"""Many sessions of one loop print without end: loop iterations stay short, and time limits hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from system import PATIENCE
from takers import in_a_loop

from shellsession import AsyncSession, Result


@asynccontextmanager
async def crowd(place: Path, count: int) -> AsyncIterator[list[AsyncSession]]:
    sessions = [AsyncSession(cwd=place, timeout=PATIENCE) for _ in range(count)]
    await asyncio.gather(*(session.open() for session in sessions))
    yield sessions
    await asyncio.gather(*(session.close() for session in sessions))


@pytest.mark.parametrize("tty", [False, True])
def test_in_a_turn_of_the_loop_the_output_of_one_session_is_read(place: Path, tty: bool) -> None:
    """Asyncio looks at the time between two turns. It was that of all, so a limit came later with each session."""
    count, turns = 10, list[set[int]]([set()])

    def take(number: int, _: str, __: bytes) -> None:
        turns[-1].add(number)

    def note_turn() -> None:
        turns.append(set())
        asyncio.get_running_loop().call_soon(note_turn)

    async def heard_often(number: int) -> None:
        while sum(number in turn for turn in turns) < 5:  # noqa: ASYNC110 - the loop's own turns
            await asyncio.sleep(0)

    async def main() -> None:
        async with asyncio.timeout(PATIENCE), crowd(place, count) as sessions:
            runs = [
                asyncio.ensure_future(session.run("yes", tty=tty, on_output=partial(take, number)))
                for number, session in enumerate(sessions)
            ]
            note_turn()
            await asyncio.gather(*map(heard_often, range(count)))
            for run in runs:
                run.cancel()
            await asyncio.gather(*runs, return_exceptions=True)

    asyncio.run(main())
    assert max(map(len, turns)) == 1


@in_a_loop
async def test_time_limits_of_many_commands_that_print_without_end_keep_time(place: Path) -> None:
    limit, late = 0.2, list[float]()

    async def limited(session: AsyncSession, tty: bool) -> Result:
        begun = time.monotonic()
        result = await session.run("yes", tty=tty, timeout=limit)
        late.append(time.monotonic() - begun - limit)
        return result

    async with crowd(place, 60) as sessions:
        results = await asyncio.gather(*(limited(session, i % 2 == 0) for i, session in enumerate(sessions)))
    assert {(result.outcome, result.state_kept) for result in results} == {("timed_out", True)}
    assert max(late) < PATIENCE
