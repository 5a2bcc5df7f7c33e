"""What one short command costs: ours, sync and async, against the floor and a fresh process for each."""

import asyncio
import subprocess
import time

from benchmarks.floor import Floor
from benchmarks.measure import Burst, Row, Spread, duration, interleaved, ratios, spread, timed
from shellsession import AsyncSession, Session

BUILTINS = ("true", "echo hi", "X=1")
EXTERNAL = "/bin/true"


def fresh_process(command: str) -> object:
    return subprocess.run(["bash", "-c", command], capture_output=True, check=False)


def async_burst(runner: asyncio.Runner, session: AsyncSession) -> Burst:
    async def burst(command: str, count: int) -> list[float]:
        clock, took = time.perf_counter, []
        for _ in range(count):
            start = clock()
            await session.run(command)
            took.append(clock() - start)
        return took

    return lambda command, count: runner.run(burst(command, count))


def measure(quick: bool) -> list[Row]:
    bursts, size = (5, 20) if quick else (25, 120)
    with Floor() as floor, Session() as session, asyncio.Runner() as runner:
        async_session = AsyncSession()
        contenders: dict[str, Burst] = {
            "floor": timed(floor.run),
            "sync": timed(session.run),
            "async": async_burst(runner, async_session),
            "subprocess": timed(fresh_process),
        }
        try:
            rows = []
            for command in (*BUILTINS, EXTERNAL):
                medians = interleaved(contenders, command, bursts, dict.fromkeys(contenders, size))
                rows += _rows(command, medians)
            return rows
        finally:
            runner.run(async_session.close())


def _rows(command: str, medians: dict[str, list[float]]) -> list[Row]:
    over_floor = ratios(medians["sync"], medians["floor"])
    bar = 1.3 if command == EXTERNAL else 5.0
    rows = [_row(f"`{command}`", "sync", "floor", medians, over_floor, f"<= {bar} x", over_floor.mid <= bar)]
    over_sync = ratios(medians["async"], medians["sync"])
    rows.append(_row(f"`{command}`, asyncio", "async", "sync", medians, over_sync, "<= 2 x", over_sync.mid <= 2))
    slower = ratios(medians["subprocess"], medians["sync"])
    row = ("a process per command", "subprocess", "sync", medians, slower)
    if command == EXTERNAL:
        rows.append(_row(f"`{command}`, {row[0]}", *row[1:], "", None))
    else:
        rows.append(_row(f"`{command}`, {row[0]}", *row[1:], ">= 20 x", slower.mid >= 20))
    return rows


def _row(
    what: str, one: str, other: str, medians: dict[str, list[float]], ratio: Spread, bar: str, holds: bool | None
) -> Row:
    mine, theirs = (f"{name} {duration(spread(medians[name]).mid)}" for name in (one, other))
    return Row(what, mine, theirs, f"{ratio} x", bar, holds)
