"""Measures how late a time limit takes effect while many sessions of one asyncio loop print without end."""

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from benchmarks.daemon import percentile
from benchmarks.measure import Row, duration, number, spread
from shellsession import AsyncSession

PRINTS = "yes"
LIMIT, SHORT = 0.2, 0.05
BAR = 0.5


def measure(quick: bool) -> list[Row]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    many, few, rounds = (50, 5, 1) if quick else (200, 20, 5)
    return asyncio.run(_measure(many, few, rounds))


async def _measure(many: int, few: int, rounds: int) -> list[Row]:
    rows = []
    async with _sessions(many) as busy, _sessions(few) as others:
        alone = spread([late for _ in range(20) for late in await _late(others[:1], LIMIT, tty=False)]).mid
        for tty, where in ((False, "`tty=False`"), (True, "terminal")):
            late = [late for _ in range(rounds) for late in await _late(busy, LIMIT, tty)]
            rows.append(_row(f"{many} commands that print without end, limits of {LIMIT} s, {where}", late, alone))
            runs = [asyncio.ensure_future(session.run(PRINTS, tty=tty)) for session in busy]
            await asyncio.sleep(1)  # until all of them print
            late = [late for _ in range(rounds) for late in await _late(others, SHORT, tty)]
            rows.append(_row(f"{few} limits of {SHORT} s beside {many} such commands, {where}", late, alone))
            for run in runs:
                run.cancel()
            await asyncio.gather(*runs, return_exceptions=True)
    return rows


@asynccontextmanager
async def _sessions(count: int) -> AsyncIterator[list[AsyncSession]]:
    sessions = [AsyncSession(timeout=None) for _ in range(count)]
    for session in sessions:
        await session.run("true")
    yield sessions
    await asyncio.gather(*(session.close() for session in sessions))


async def _late(sessions: Sequence[AsyncSession], limit: float, tty: bool) -> list[float]:
    """How many seconds each result came after its limit; all commands run at once."""

    async def one(session: AsyncSession) -> float:
        begun = time.perf_counter()
        result = await session.run(PRINTS, tty=tty, timeout=limit)
        if result.outcome != "timed_out" or not result.state_kept:
            raise AssertionError(f"{result}")
        return time.perf_counter() - begun - limit

    return await asyncio.gather(*map(one, sessions))


def _row(what: str, late: Sequence[float], alone: float) -> Row:
    p99 = percentile(late, 0.99)
    ours = f"p99 {duration(p99)} late, p50 {duration(spread(late).mid)}"
    against = f"one alone {duration(alone)}; load {os.getloadavg()[0]:.1f}"
    return Row(what, ours, against, f"{number(p99 / alone)} x", f"<= {BAR} s", p99 <= BAR)
