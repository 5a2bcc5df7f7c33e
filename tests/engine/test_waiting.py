"""The waiter for threads: when it spins for an answer, and when it sleeps at once."""

from __future__ import annotations

import itertools
import os
import select
import time
from collections.abc import Iterator

import pytest

from shellsession.engine.io.threads import SOON, Poller, Wait


class Looks:
    """Counts them, by the hand-overs of the processor between."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = 0
        monkeypatch.setattr(os, "sched_yield", self._look)

    def _look(self) -> None:
        self._count += 1

    def took(self) -> int:
        count, self._count = self._count, 0
        return count


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


class Clock:
    """A clock that passes while something is waited for, a microsecond at each look at it, and never by itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now, self.readable = 100.0, False
        monkeypatch.setattr(time, "monotonic", self.now)
        monkeypatch.setattr(select, "poll", lambda: self)

    def now(self) -> float:
        self._now += 1e-6
        return self._now

    def register(self, *_: object) -> None:
        pass

    def poll(self, milliseconds: int) -> list[tuple[int, int]]:
        if self.readable:
            return [(0, select.POLLIN)]
        self._now += milliseconds / 1000
        return []


def test_after_a_long_command_nobody_looks_until_one_was_quick_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, clock, poller = Looks(monkeypatch), Clock(monkeypatch), Poller()

    def wait() -> bool:
        return bool(poller.wait(Wait((0,), clock.now() + 0.02, spin=SOON)))

    assert not wait()
    assert looks.took() > 0  # it may come within microseconds
    assert not wait()
    assert looks.took() == 0  # the last one did not
    clock.readable = True
    assert wait()
    assert looks.took() == 0
    assert wait()
    assert looks.took() > 0  # the last one did


@pytest.mark.parametrize(("step", "many"), [(1e-6, True), (1e-4, False)], ids=["at-once", "away-from-its-core"])
def test_a_look_that_took_long_is_the_last_one(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int], step: float, many: bool
) -> None:
    looks, clock = Looks(monkeypatch), itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(clock) * step)
    assert not Poller().spin(pipe[:1], 20 * step)
    assert (looks.took() > 1) == many  # what runs on our core comes to its end sooner without us


@pytest.mark.parametrize("seconds", [None, 2.5, 0.0005])
def test_no_poll_is_long(monkeypatch: pytest.MonkeyPatch, seconds: float | None) -> None:
    """Ctrl-C that comes just before it is heard only when it returns."""
    clock, polls = Clock(monkeypatch), list[int]()
    asleep = clock.poll

    def poll(milliseconds: int) -> list[tuple[int, int]]:
        polls.append(milliseconds)
        if len(polls) == 5:
            raise KeyboardInterrupt
        return asleep(milliseconds)

    monkeypatch.setattr(clock, "poll", poll)
    if seconds is None:
        with pytest.raises(KeyboardInterrupt):
            Poller().wait(Wait((0,)))
    else:
        assert not Poller().wait(Wait((0,), clock.now() + seconds))
    assert polls == {None: [1000] * 5, 2.5: [1000, 1000, 500], 0.0005: [1]}[seconds]
