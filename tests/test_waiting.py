"""The waiter for threads: when it looks again and again for an answer, and when it goes to sleep at once."""

from __future__ import annotations

import os
import time

import pytest

from shellsession.engine.waiting import SOON, Poller, Wait


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


def test_after_a_long_command_nobody_looks_until_one_was_quick_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, poller = Looks(monkeypatch), Poller()
    reader, writer = os.pipe()

    def wait(seconds: float) -> bool:
        return bool(poller.wait(Wait((reader,), time.monotonic() + seconds, keen=SOON)))

    try:
        assert not wait(0.02)
        assert looks.took() > 0  # it may come within microseconds
        assert not wait(0.02)
        assert looks.took() == 0  # the last one did not
        os.write(writer, b"x")
        assert wait(20)
        assert looks.took() == 0
        assert wait(20)
        assert looks.took() > 0  # the last one did
    finally:
        os.close(reader)
        os.close(writer)
