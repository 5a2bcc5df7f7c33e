"""The one thread that reads for all sessions: while it is busy with one of them, the others go on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from support import PATIENCE, wait_until

from shellsession.engine.draining import Drainer

# More than a pipe takes (64 KiB): each registration is a nudge.
MANY = 70_000
Pipes = Callable[[], tuple[int, int]]


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    with ExitStack() as opened:

        def make() -> tuple[int, int]:
            ends = os.pipe()
            for fd in ends:
                opened.callback(os.close, fd)
            return ends

        yield make


def test_a_reader_that_takes_its_time_keeps_nobody_from_registering(pipes: Pipes) -> None:
    """A slow ``on_output``, while other sessions hand commands back and look at them again and again."""
    drainer, go, done = Drainer(), threading.Event(), threading.Event()
    (busy, typing), (other, _) = pipes(), pipes()
    begun = threading.Event()

    def read_slowly() -> bool:
        begun.set()
        return not go.wait(PATIENCE)

    def register() -> None:
        for _ in range(MANY):
            drainer.add(other, lambda: False)
        drainer.remove(other)
        done.set()

    drainer.add(busy, read_slowly)
    os.write(typing, b"x")
    assert begun.wait(PATIENCE)
    threading.Thread(target=register, daemon=True).start()
    came = done.wait(PATIENCE)
    go.set()
    assert came
    wait_until(
        lambda: not [one for one in threading.enumerate() if one.name == "shellsession-jobs"], "the thread's end"
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # that is how it is told
def test_a_fault_ends_the_reading_of_one_and_not_of_all(pipes: Pipes) -> None:
    drainer, read = Drainer(), threading.Event()
    (faulty, typing), (other, _), (third, last) = pipes(), pipes(), pipes()

    def fail() -> bool:
        raise MemoryError

    def end() -> bool:
        read.set()
        return False

    drainer.add(other, lambda: False)
    drainer.add(faulty, fail)
    os.write(typing, b"x")
    wait_until(lambda: not [one for one in threading.enumerate() if one.name == "shellsession-jobs"], "its end")
    drainer.add(third, end)
    os.write(last, b"x")
    assert read.wait(PATIENCE)
    drainer.remove(other)


def test_where_ctrl_c_strikes_before_there_is_a_thread_who_adds_next_gets_one(
    pipes: Pipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it may in a host with threads, where it cannot be put off: the kernel gives it to any of them."""
    drainer, read, made, eventfd = Drainer(), threading.Event(), list[int](), os.eventfd
    (reading, writing), strikes = pipes(), iter([True])

    def noted(*values: int) -> int:
        made.append(eventfd(*values))
        return made[-1]

    def start(thread: threading.Thread) -> None:
        if next(strikes, False):
            raise KeyboardInterrupt
        monkeypatch.undo()
        thread.start()

    def hear() -> bool:
        read.set()
        return False

    monkeypatch.setattr(os, "eventfd", noted)
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        drainer.add(reading, hear)
    drainer.add(reading, hear)
    os.write(writing, b"x")
    assert read.wait(PATIENCE)
    os.close(made[0])  # it is the thread's to close, and nobody knows that none will come
