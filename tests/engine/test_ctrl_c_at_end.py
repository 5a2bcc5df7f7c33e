"""An exception while a session releases its resources (Ctrl-C, an error): all of them are released all the same."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from escapes import of_host
from system import PATIENCE, SOAK, descendants, wait_until

import shellsession
from shellsession import TTY, AsyncSession, Session
from shellsession.engine.bash import watcher as runtime
from shellsession.engine.bash.files import Files
from shellsession.engine.bash.shell import Shell
from shellsession.engine.io.streams import Stream, Streams
from shellsession.engine.kernel import signals
from shellsession.engine.verbs import shell_end
from shellsession.errors import GONE

STEP = 1 if SOAK else 7  # of the places where it may come
OURS = str(Path(shellsession.__file__).parent)


def descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")}


def have_ended(threads: set[threading.Thread]) -> bool:
    return set(threading.enumerate()) <= threads


@pytest.fixture(autouse=True)
def _all_is_given_back() -> Iterator[None]:
    gc.collect()  # what an earlier test has left would be closed meanwhile
    fds, threads, children = descriptors(), set(threading.enumerate()), descendants(os.getpid())
    yield
    wait_until(lambda: have_ended(threads), "the end of the threads")
    assert descriptors() == fds
    assert descendants(os.getpid()) <= children
    assert of_host(os.getpid()) == set()


class CtrlC:
    """Sends Ctrl-C once, at the n-th place where Python looks for signals: a function's beginning, a call's end.

    In our code, and in what goes through our steps. (What the standard library does in one step is not all so safe.)
    """

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code.co_filename
        ours = code.startswith(OURS) and code != signals.__file__
        if event in ("call", "c_return") and (ours or code == contextlib.__file__):
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    @property
    def has_interrupted(self) -> bool:
        return self.left <= 0


def interrupted(number: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A session whose end is interrupted there, and is closed again; False where so many places are not."""
    session, ctrl_c, discard = Session(cwd=place), CtrlC(number), shell_end.discard
    session.run("true", stdin=TTY)  # the keyboard has a descriptor of its own from then on
    session.run("sleep 1000 &", tty=False)

    def discard_interrupted(*values: Any) -> None:
        sys.setprofile(ctrl_c)
        try:
            discard(*values)
        finally:
            sys.setprofile(None)

    with monkeypatch.context() as patched:
        patched.setattr(shell_end, "discard", discard_interrupted)
        try:
            session.close()
        except KeyboardInterrupt:
            assert ctrl_c.has_interrupted
    session.close()
    assert session.pid is None
    return ctrl_c.has_interrupted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a look at a directory, interrupted
@pytest.mark.parametrize("alone", [True, False], ids=["the only session", "one of two"])
def test_wherever_a_host_with_threads_is_interrupted(place: Path, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    """There Ctrl-C cannot be put off: the kernel gives it to another thread, and Python to this one."""
    with Session(cwd=place) as company:
        if not alone:
            company.run("true")
        fds, threads, number = descriptors(), set(threading.enumerate()), 1
        while interrupted(number, place, monkeypatch):
            wait_until(lambda: have_ended(threads), "the end of the thread that read for the job")
            assert descriptors() == fds, f"interrupted at {number}"
            assert len(runtime.the_guard()._reserved) == (not alone), f"interrupted at {number}"
            number += STEP
        assert number > 50
        assert alone or company.run("echo on").stdout == "on\n"


def on_call(monkeypatch: pytest.MonkeyPatch, where: object, name: str, do: Callable[[], None]) -> None:
    real, armed = getattr(where, name), [True]

    def called(*values: Any, **named: Any) -> Any:
        if armed:
            armed.clear()
            do()
        return real(*values, **named)

    monkeypatch.setattr(where, name, called)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.sampled
@pytest.mark.parametrize("way", ["close", "restart", "exit 3"])
@pytest.mark.parametrize(("where", "name"), [(Shell, "close"), (Streams, "close"), (runtime.Guard, "close_slot")])
def test_a_host_without_threads_is_interrupted_when_all_is_given_back(
    place: Path, monkeypatch: pytest.MonkeyPatch, where: type, name: str, way: str
) -> None:
    session = Session(cwd=place)
    session.run("true")
    shell = session.engine.live()
    on_call(monkeypatch, where, name, interrupt)
    with pytest.raises(KeyboardInterrupt):
        session.run(way) if " " in way else getattr(session, way)()
    assert not os.path.exists(shell.slot.directory)
    assert session.pid is None
    session.close()


@pytest.mark.parametrize(("command", "status"), [("exit 3", 3), ("set -r", 0)])
def test_the_end_of_a_shell_that_nobody_saw_is_reported_by_the_next_command(
    place: Path, monkeypatch: pytest.MonkeyPatch, command: str, status: int
) -> None:
    with Session(cwd=place) as session:
        session.run("X=1")
        on_call(monkeypatch, Shell, "close", interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.run(command)
        told = session.run("touch ran")
        assert (told.outcome, told.exit_code, told.ran, told.reason.startswith(GONE)) == (
            "shell_exited",
            status,
            False,
            True,
        )
        assert session.run("ls; echo ${X-fresh}").stdout == "fresh\n"


def test_a_stream_that_was_interrupted_on_the_loop_as_its_job_ended_is_given_back_with_its_session(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = AsyncSession(cwd=place)

    def ctrl_c() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        await session.run("mkfifo go; read x <go &", tty=False)
        on_call(monkeypatch, Stream, "close", ctrl_c)
        await session.run("echo >go", tty=False)
        await asyncio.sleep(PATIENCE)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert session.jobs()
    asyncio.run(session.close())


def test_what_cannot_be_given_back_keeps_nothing_else(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no")

    session = Session(cwd=place)
    session.run("true")
    on_call(monkeypatch, Files, "close", fail)
    with pytest.raises(OSError, match="no"):
        session.restart()
    assert session.run("echo on").stdout == "on\n"
    del session
    gc.collect()
