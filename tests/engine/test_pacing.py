"""A terminal that is written to without end is read at the pace of the kernel, by a clock of our own."""

from __future__ import annotations

import itertools

import pytest

from shellsession.engine.io import streams

TICK = 1e-6
QUICK, SLOW = 6e-6, 50e-6


class Clock:
    """Each look at it takes a microsecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += TICK
        return self.now


def rests(monkeypatch: pytest.MonkeyPatch, *reads: float) -> list[bool]:
    """Behind which of these reads, by what they took, was there a rest?"""
    clock = Clock()
    monkeypatch.setattr(streams, "perf_counter", clock)
    pace, rested = streams.Pace(), []
    for took in reads:
        clock.now += took
        before = clock.now
        pace.keep()
        rested.append(clock.now - before > 10 * TICK)
    return rested


def test_who_does_not_sleep_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(rests(monkeypatch, *[QUICK] * 40))
    assert not any(rests(monkeypatch, *itertools.chain.from_iterable([(SLOW, QUICK)] * 20))), "chance"


def test_behind_two_that_slept_all_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rests(monkeypatch, QUICK, SLOW, SLOW, QUICK, QUICK, SLOW, QUICK) == [False] * 3 + [True] * 4


def test_a_rest_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(streams, "perf_counter", clock)
    pace = streams.Pace()
    for _ in range(2):
        clock.now += SLOW
        pace.keep()
    before = clock.now
    pace.keep()
    assert clock.now - before < 30e-6
