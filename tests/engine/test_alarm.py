"""The alarm that closes idle sessions: it fires once, and can be set again."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from system import PATIENCE, in_thread, wait_until

from shellsession.engine.io.alarm import Alarm


def test_one_that_rings_before_its_setting_returns_can_be_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def start_and_ring(timer: threading.Thread) -> None:
        start(timer)
        timer.join()

    alarm, rings = Alarm(), list[int]()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_and_ring)
        alarm.set(0.001, lambda: rings.append(1))
    assert (rings, alarm.is_set) == ([1], False)
    alarm.set(0.001, lambda: rings.append(2))
    wait_until(lambda: rings == [1, 2], "the second ring")


def refuse(*_: object) -> None:
    raise RuntimeError("daemon threads are disabled in this (sub)interpreter")


@pytest.mark.parametrize(("what", "refused"), [("start", refuse), ("daemon", property(lambda _: False, refuse))])
def test_one_that_no_thread_could_be_had_for_can_be_set_again(
    monkeypatch: pytest.MonkeyPatch, what: str, refused: object
) -> None:
    """None at all, or none that the end of the program does not wait for (a subinterpreter's)."""
    alarm, rings = Alarm(), list[int]()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, what, refused)
        alarm.set(0.001, lambda: rings.append(1))
    assert not alarm.is_set
    alarm.set(0.001, lambda: rings.append(2))
    wait_until(lambda: rings == [2], "the ring")


def test_of_many_threads_that_set_it_at_once_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each further one rang, and set a further one itself, for ever: no `cancel` reached them."""
    alarm, barrier = Alarm(), threading.Barrier(8)
    made, begin = list[threading.Timer](), threading.Timer.__init__

    def make(timer: threading.Timer, *words: Any) -> None:
        begin(timer, *words)
        made.append(timer)
        barrier.wait(PATIENCE)  # all have looked whether it is set

    with monkeypatch.context() as patch:
        patch.setattr(threading.Timer, "__init__", make)
        threads = [in_thread(partial(alarm.set, 100, lambda: None))[0] for _ in range(barrier.parties)]
        for thread in threads:
            thread.join(PATIENCE)
    assert sum(timer.is_alive() for timer in made) == 1
    alarm.cancel()
    wait_until(lambda: not any(timer.is_alive() for timer in made), "the end of its timers")
