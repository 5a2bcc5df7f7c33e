"""Runs bursts in turn, and sums them up: a median with its quartiles, and ratios within each round."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# A burst runs one command this many times, and returns the seconds of each run.
Burst = Callable[[str, int], list[float]]


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles."""

    low: float
    mid: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.mid)} ({number(self.low)}-{number(self.high)})"


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, both results in words, their ratio, and the bar for it."""

    what: str
    ours: str
    against: str
    ratio: str
    bar: str
    holds: bool | None = None  # None: there is no bar


@dataclass(frozen=True)
class Contender:
    """One line of the table of peers, in words. The chart shows `over_floor`."""

    name: str
    first_answer: str
    builtin: str
    over_floor: float
    external: str
    flood: str
    exit_code: str
    stderr: str
    after_timeout: str


@dataclass(frozen=True)
class Answers:
    """One line of the table of behaviour: a command, and what each peer returned, in words."""

    command: str
    answers: list[str]


def number(value: float) -> str:
    """The number with three significant digits, without an exponent."""
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
    """The spread of the ratios within each round: on a shared machine only neighbouring runs compare."""
    return spread([one / other for one, other in zip(ours, theirs, strict=True)])


def timed(run: Callable[[str], object]) -> Burst:
    """The burst that calls a plain function."""

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
    """Run every burst in turn, this many times. Returns the median of each run."""
    medians: dict[str, list[float]] = {name: [] for name in contenders}
    for burst in contenders.values():
        burst(command, 2)  # do not measure work that is done only once
    for _ in range(bursts):
        for name, burst in contenders.items():
            medians[name].append(statistics.median(burst(command, sizes[name])))
    return medians


def once(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
