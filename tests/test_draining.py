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
