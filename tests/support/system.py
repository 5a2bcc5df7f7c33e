"""Shared by many tests: waits for events, and facts about processes as seen from outside."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

T = TypeVar("T")

# SHELLSESSION_TEST_PATIENCE=3 triples every safety limit, for slow machines. It changes nothing else.
PATIENCE: Final = 20.0 * float(os.environ.get("SHELLSESSION_TEST_PATIENCE", "1"))

# Time limits to try one after the other, until one was long enough for what a command does first.
LIMITS: Final = (0.2, 2.0, PATIENCE)

# `make soak` runs each generated case and every combination; `make test` runs a sample of them.
SOAK: Final = "SHELLSESSION_TEST_SOAK" in os.environ

# The interpreter in the text of a command: its path may have a space.
PYTHON: Final = shlex.quote(sys.executable)

# Polls come after a tenth of the time waited so far: 40 polls in a quarter of a second, and not 120.
_TICK, _LONGEST_TICK = 0.002, 0.02
_numbers = itertools.count(os.getpid() % 10_000 * 1000)


def unique_seconds() -> str:
    """A number of seconds for ``sleep`` that no other process uses, so that the command line identifies it."""
    return f"7{next(_numbers) % 10**8:08d}"


def wait_until(question: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """Poll until the answer is true, and return it. Takes about as long as the event takes."""
    begin = time.monotonic()
    while not (answer := question()):
        waited = time.monotonic() - begin
        assert waited < patience, f"{what}: not within {patience} s"
        time.sleep(_tick(waited))
    return answer


def _tick(waited: float) -> float:
    return min(max(waited / 10, _TICK), _LONGEST_TICK)


async def until(question: Callable[[], object]) -> None:
    """As ``wait_until``, while the loop goes on."""
    begin = time.monotonic()
    async with asyncio.timeout(PATIENCE):
        while not question():  # noqa: ASYNC110 - an event of another process
            await asyncio.sleep(_tick(time.monotonic() - begin))


def in_thread(verb: Callable[[], T]) -> tuple[threading.Thread, list[T]]:
    """Start a thread that calls ``verb`` and appends its result to the list."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(verb()))
    thread.start()
    return thread, results


def process_ids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _read(pid: int, name: str) -> bytes:
    """A file of a process in /proc; empty if the process is gone. It takes few calls, as tests read thousands."""
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def command_line(pid: int) -> bytes:
    return _read(pid, "cmdline")


def stat_fields(pid: int) -> list[str]:
    """State, parent, process group, session and so on of a process; empty if it is gone."""
    return _read(pid, "stat").rpartition(b")")[2].decode().split()


def is_alive(pid: int) -> bool:
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in "ZX"


def naps(pid: int) -> int:
    """How often a process has gone to sleep."""
    return int(_read(pid, "status").partition(b"\nvoluntary_ctxt_switches:")[2].split()[0])


def with_argument(argument: str) -> list[int]:
    """Every living process with exactly this word on its command line."""
    word = argument.encode()
    return [pid for pid in process_ids() if word in command_line(pid).split(b"\0") and is_alive(pid)]


def mentioning(text: str) -> list[int]:
    """Every living process with this text anywhere on its command line."""
    return [pid for pid in process_ids() if text.encode() in command_line(pid) and is_alive(pid)]


def session_members(session: int) -> list[int]:
    """Every living process of a kernel session."""
    return [pid for pid in process_ids() if stat_fields(pid)[3:4] == [str(session)] and is_alive(pid)]


def descendants(root: int) -> set[int]:
    """Every living process below ``root``."""
    parents = {pid: int(fields[1]) for pid in process_ids() if (fields := stat_fields(pid)) and fields[0] not in "ZX"}
    found: set[int] = set()
    layer = {root}
    while layer:
        layer = {pid for pid, parent in parents.items() if parent in layer} - found
        found |= layer
    return found


def descriptors() -> set[tuple[str, str]]:
    """The descriptors of this process, each with the file behind it."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor that listed the directory
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
    return found


@contextmanager
def descriptors_left(number: int) -> Iterator[None]:
    """Use up the descriptors of this process, except for so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(fd) for fd, _ in descriptors()) + 10, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(number):
            os.close(taken.pop())
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def nobody_reads_for_jobs() -> bool:
    """True once the thread that reads the output of jobs, shared by all sessions, has ended."""
    return all(thread.name != "shellsession-jobs" for thread in threading.enumerate())
