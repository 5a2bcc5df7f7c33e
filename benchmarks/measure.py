"""Bursts that take turns, and what is said of them: a median with its quartiles, and ratios of neighbours."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# A burst runs one command so many times and gives the seconds that each took.
Burst = Callable[[str, int], list[float]]


@dataclass(frozen=True)
class Spread:
    """A median between its quartiles."""

    low: float
    mid: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.mid)} ({number(self.low)}-{number(self.high)})"


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, ours and theirs in words, the ratio, and the bar it is held to."""

    what: str
    ours: str
    against: str
    ratio: str
    bar: str
    holds: bool | None = None  # None: for information, no bar


@dataclass(frozen=True)
class Contender:
    """One line of the table of peers, in words; `over_floor` is what the chart shows."""

    name: str
    first_answer: str
    builtin: str
    over_floor: float
    external: str
    flood: str
    exit_code: str
    stderr: str
    after_timeout: str


def number(value: float) -> str:
    """Three digits that count, never in powers of ten."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{number(seconds)} s"
    return f"{number(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{number(seconds * 1e6)} µs"


def spread(values: Sequence[float]) -> Spread:
    if len(values) < 2:
        return Spread(values[0], values[0], values[0])
    low, mid, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(low, mid, high)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """The spread of neighbours' ratios: both of a pair ran within the same moment of a shared machine."""
    return spread([one / other for one, other in zip(ours, theirs, strict=True)])


def timed(run: Callable[[str], object]) -> Burst:
    """Make a burst of a plain function."""

    def burst(command: str, count: int) -> list[float]:
        clock, took = time.perf_counter, []
        for _ in range(count):
            start = clock()
            run(command)
            took.append(clock() - start)
        return took

    return burst


def interleaved(
    contenders: Mapping[str, Burst], command: str, bursts: int, sizes: Mapping[str, int]
) -> dict[str, list[float]]:
    """Let everybody run a burst in turn, so many times; give the median of each burst."""
    medians: dict[str, list[float]] = {name: [] for name in contenders}
    for burst in contenders.values():
        burst(command, 2)  # what is only ever done once is not what we measure
    for _ in range(bursts):
        for name, burst in contenders.items():
            medians[name].append(statistics.median(burst(command, sizes[name])))
    return medians


def once(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
