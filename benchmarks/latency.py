"""Measures one short command, sync and async, beside the floor and a fresh process for each command."""

import asyncio
import os
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
    """The runs on one core and on two. Where the scheduler puts bash and its host matters more than what either does.

    In a virtual machine it costs 20 to 40 us to wake another core, which slows the floor most.
    """
    allowed = os.sched_getaffinity(0)
    first, *others = sorted(allowed)
    try:
        rows = _measure_at(quick, first, first, "on one core")
        return rows + (_measure_at(quick, first, others[0], "on two cores") if others else [])
    finally:
        os.sched_setaffinity(0, allowed)


def _measure_at(quick: bool, host: int, bash: int, where: str) -> list[Row]:
    bursts, size = (5, 20) if quick else (25, 120)
    os.sched_setaffinity(0, {host})
    with Floor() as floor, Session() as session, asyncio.Runner() as runner:
        async_session = runner.run(AsyncSession().open())
        for pid in (floor.pid, session.open().pid, async_session.pid):
            assert pid is not None
            os.sched_setaffinity(pid, {bash})
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
                rows += _rows(command, where, medians)
            return rows
        finally:
            runner.run(async_session.close())


def _rows(command: str, where: str, medians: dict[str, list[float]]) -> list[Row]:
    what = f"`{command}`, {where}"
    over_floor = ratios(medians["sync"], medians["floor"])
    bar = 1.3 if command == EXTERNAL else 5.0
    rows = [_row(what, "sync", "floor", medians, over_floor, f"<= {bar} x", over_floor.mid <= bar)]
    over_sync = ratios(medians["async"], medians["sync"])
    rows.append(_row(f"{what}, asyncio", "async", "sync", medians, over_sync, "<= 2 x", over_sync.mid <= 2))
    slower = ratios(medians["subprocess"], medians["sync"])
    row = ("a process per command", "subprocess", "sync", medians, slower)
    if command == EXTERNAL:
        rows.append(_row(f"{what}, {row[0]}", *row[1:], "", None))
    else:
        rows.append(_row(f"{what}, {row[0]}", *row[1:], ">= 20 x", slower.mid >= 20))
    return rows


def _row(
    what: str, one: str, other: str, medians: dict[str, list[float]], ratio: Spread, bar: str, holds: bool | None
) -> Row:
    mine, theirs = (f"{name} {duration(spread(medians[name]).mid)}" for name in (one, other))
    return Row(what, mine, theirs, f"{ratio} x", bar, holds)
