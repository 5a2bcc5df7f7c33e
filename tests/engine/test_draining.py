"""One thread reads for all sessions: while it is busy with one, the others go on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest
from system import PATIENCE, descriptors, wait_until

from shellsession import Session
from shellsession.engine.io.drainer import Drainer
from shellsession.engine.io.output import Capture
from shellsession.engine.io.streams import Stream, pipe_stream
from shellsession.engine.kernel.family import Family
from shellsession.engine.verbs.session_job import SessionJob

# More than a pipe takes (64 KiB): each registration is a nudge.
MANY = 70_000
Pipes = Callable[[], tuple[int, int]]


def until_it_ended() -> None:
    wait_until(lambda: "shellsession-jobs" not in [one.name for one in threading.enumerate()], "the thread's end")


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    with ExitStack() as opened:
        opened.callback(until_it_ended)

        def make() -> tuple[int, int]:
            ends = os.pipe()
            for fd in ends:
                opened.callback(os.close, fd)
            return ends

        yield make


def end() -> bool:
    return False


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
            drainer.add(other, end)
        drainer.remove(other, end)
        done.set()

    drainer.add(busy, read_slowly)
    os.write(typing, b"x")
    assert begun.wait(PATIENCE)
    threading.Thread(target=register, daemon=True).start()
    came = done.wait(PATIENCE)
    go.set()
    assert came


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # that is how it is told
def test_a_fault_ends_the_reading_of_one_and_not_of_all(pipes: Pipes) -> None:
    drainer, read = Drainer(), threading.Event()
    (faulty, typing), (other, _), (third, last) = pipes(), pipes(), pipes()

    def fail() -> bool:
        raise MemoryError

    def hear() -> bool:
        read.set()
        return False

    drainer.add(other, end)
    drainer.add(faulty, fail)
    os.write(typing, b"x")
    until_it_ended()
    drainer.add(third, hear)
    os.write(last, b"x")
    assert read.wait(PATIENCE)
    drainer.remove(other, end)


def test_what_is_removed_late_leaves_the_numbers_new_owner_alone(pipes: Pipes) -> None:
    drainer, read = Drainer(), threading.Event()
    reading, writing = pipes()

    def hear() -> bool:
        read.set()
        return False

    drainer.add(reading, end)
    drainer.add(reading, hear)
    drainer.remove(reading, end)
    os.write(writing, b"x")
    assert read.wait(PATIENCE)


@pytest.mark.usefixtures("pipes")
def test_a_collection_that_strikes_who_registers_ends_a_job_that_is_just_ending(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one has the drainer's lock, the other the job's, and each lets go of the job."""
    drainer, at_end, go, ended = Drainer(), threading.Event(), threading.Event(), threading.Event()
    stream, read = pipe_stream(str(place / "pipe")), Stream.read
    job = SessionJob("true", (), 0, cast(Family, None), 1, lambda _: None)

    def read_at_length(stream: Stream) -> bytes | None:
        at_end.set()
        go.wait(PATIENCE)
        return read(stream)

    def collect() -> None:
        with drainer._lock:
            go.set()
            job.close()
        ended.set()

    monkeypatch.setattr(Stream, "read", read_at_length)
    with open(stream.path, "wb"):
        job.adopt("stdout", stream, Capture(1), drainer)
    assert at_end.wait(PATIENCE)
    threading.Thread(target=collect, daemon=True).start()
    assert ended.wait(PATIENCE)
    assert stream.closed


def refuse(*_: object, **__: object) -> None:
    raise RuntimeError("daemon threads are disabled in this (sub)interpreter")


@pytest.mark.parametrize("what", ["__init__", "start"])
def test_where_no_thread_can_be_had_nothing_is_left_and_who_adds_next_tries_again(
    pipes: Pipes, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """None at all, or none that the end of the program does not wait for (a subinterpreter's)."""
    drainer, read = Drainer(), threading.Event()
    reading, writing = pipes()

    def hear() -> bool:
        read.set()
        return False

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, what, refuse)
        before = descriptors()
        drainer.add(reading, hear)
        assert descriptors() == before
    drainer.add(reading, hear)
    os.write(writing, b"x")
    assert read.wait(PATIENCE)


@pytest.mark.parametrize("what", ["__init__", "start"])
def test_without_a_thread_a_command_that_leaves_something_running_has_its_result(
    place: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with Session(cwd=place) as session:
        session.run(":")
        until_it_ended()
        monkeypatch.setattr(threading.Thread, what, refuse)
        assert session.run("sleep 1000 & echo a").stdout == "a\n"
        assert session.run("echo b").stdout == "b\n"


def test_where_ctrl_c_comes_before_there_is_a_thread_who_adds_next_gets_one(
    pipes: Pipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it may in a host with threads, where it cannot be put off: the kernel gives it to any of them."""
    drainer, read, made, eventfd = Drainer(), threading.Event(), list[int](), os.eventfd
    (reading, writing), interrupts = pipes(), iter([True])

    def noted(*values: int) -> int:
        made.append(eventfd(*values))
        return made[-1]

    def start(thread: threading.Thread) -> None:
        if next(interrupts, False):
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
