"""What a call left running: its processes, and the streams they still hold.

Law: a job's output is that call's for ever, it is bounded like any output, and somebody always reads it. Who reads is
never asked for anything with a job's lock held: see draining.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from ..any_job import AnyJob
from ..errors import FORKED, SessionClosed
from . import activity, processes
from .family import Family
from .output import Capture
from .shell import kill
from .streams import Stream

_NUMBERS = itertools.count(1)


class Reader(Protocol):
    """Who reads while nobody calls: a shared thread, or the asyncio loop."""

    def add(self, fd: int, read: Callable[[], bool], calls_back: bool = False) -> object: ...
    def remove(self, fd: int, read: Callable[[], bool]) -> None: ...


# Reads of 4 KiB: one that lives, and prints without end, is not listened to for ever.
_LAST_WORDS: Final = 16
# Looks at who is to be killed, at the most, and how many in a row bring nobody new until it is believed.
_HOLDS: Final = 100
_QUIET: Final = 2
_PASSES: Final = 20
# Of those that have ended so many are remembered, and so many bytes of what all have printed, and of their texts: the
# latest.
_MOST: Final = 100
_MOST_BYTES: Final = 16 << 20


class Job(AnyJob):
    """A live view of what one call left behind; it stays readable after its end."""

    def __init__(self, command: str, pids: Sequence[int], tag: int, family: Family) -> None:
        self.command = command
        self.tag = tag  # of all its processes; 0 where others have it too
        self._family = family
        self._owner = os.getpid()
        self.number = next(_NUMBERS)
        self.pids = tuple(pids)
        self._started = {pid: processes.start_time(pid) for pid in pids}
        self._lock = threading.RLock()  # reentrant: see draining.Drainer
        self._open: dict[int, tuple[Stream, Capture, Callable[[], None]]] = {}  # and how to have it read no more
        self._captures: dict[str, Capture] = {}
        self._lent = -1

    def __repr__(self) -> str:
        return f"Job({self.command!r}, pids={self.pids}, {self.status})"

    def adopt(self, name: str, stream: Stream, capture: Capture, reader: Reader) -> None:
        """Take over a stream that a process still holds, and have it read from now on."""
        capture = self._captures.setdefault(name, capture)  # of the terminal, if it had it before
        read = partial(self._read, stream.fd)
        self._open[stream.fd] = (stream, capture, partial(reader.remove, stream.fd, read))
        reader.add(stream.fd, read)

    def borrow(self, name: str, stream: Stream, capture: Capture, reader: Reader) -> None:
        """As ``adopt``, of the controlling terminal, which is only lent: see ``give_back``."""
        self._lent = stream.fd
        self.adopt(name, stream, capture, reader)

    def give_back(self) -> None:
        """The terminal is wanted for another command, or the job has ended: what is there is its last word."""
        if (lent := self._open.get(self._lent)) is None:
            return
        stream, capture, stop = lent
        stop()
        with self._lock:
            if self._open.pop(self._lent, None) is not lent:
                return
            for _ in range(_LAST_WORDS):
                if not (data := stream.read()):
                    break
                capture.feed(data)

    def _read(self, fd: int) -> bool:
        with self._lock:
            if fd not in self._open:
                return False
            stream, capture, _ = self._open[fd]
            data = stream.read()
            if data:
                capture.feed(data)
        if data == b"":
            self._let_go(fd)
            return False
        return True

    def alive(self) -> list[int]:
        """Those of its processes that still live, its orphans too (not who got the number of one since)."""
        first = [
            pid for pid, start in self._started.items() if processes.start_time(pid) == start and processes.alive(pid)
        ]
        orphans = [pid for pid in self._family.carriers(self.tag) if pid not in self._started] if self.tag else []
        if not first and not orphans:
            self.tag = 0  # who has no process gets no new one
        return first + orphans

    @property
    def running(self) -> bool:
        return any(fd != self._lent for fd in list(self._open)) or bool(self.alive())

    @property
    def size(self) -> int:
        """The bytes that are kept of it: its output, and its text."""
        return sum((capture.kept for capture in list(self._captures.values())), sys.getsizeof(self.command))

    def _kept(self, name: str) -> tuple[bytes, int, int]:
        self._check_owner()
        with self._lock:
            capture = self._captures.get(name)
            return capture.peek() if capture else (b"", 0, 0)

    def _check_owner(self) -> None:
        """In a forked child the lock may be one that a thread of the parent had."""
        if self._owner != os.getpid():
            raise SessionClosed(FORKED)

    def kill(self) -> tuple[int, ...]:
        """Kill its processes, everything below them, and who holds its streams; the pids that were signalled.

        Bash itself, which holds them after `exec 3>&2`, is not the job's. Raises SessionClosed in a forked child.
        """
        self._check_owner()
        killed: list[int] = []
        # Once more after the last: who ends as it has started the next may have slipped through between all looks.
        for _ in range(_PASSES):
            if not (more := self._kill_more(killed)):
                break
            killed += more
        return tuple(killed)

    def _kill_more(self, killed: Collection[int]) -> list[int]:
        """All but those who were killed before. Stopped first, or each may start another one before its turn comes."""
        victims: list[int] = []
        quiet = 0
        try:
            for _ in range(_HOLDS):
                victims = [pid for pid in victims if processes.alive(pid)]
                known = len(victims)
                for pid in self._to_be_killed():
                    if pid not in victims and pid not in killed:
                        victims.append(pid)
                        kill([pid], signal.SIGSTOP)
                quiet = quiet + 1 if len(victims) == known else 0
                if quiet == _QUIET:
                    break
        finally:
            signalled = kill(victims)
        return signalled

    def _to_be_killed(self) -> Iterator[int]:
        """What lives of it, what is below that, and who holds its streams."""
        for parent in self.alive():
            yield parent
            yield from processes.descendants(parent)
        if files := self._held():
            # Asked anew: of one that has been closed since, a stranger's terminal may have the number.
            holders = activity.holders(self._family.descendants(), files)
            yield from (pid for pid, file in holders if file in self._held())

    def _held(self) -> set[tuple[int, int]]:
        """The files that it holds, as long as they are open: what is lent is not its own."""
        streams = [stream for stream, _, _ in list(self._open.values())]
        return {stream.identity for stream in streams if stream.fd != self._lent and not stream.closed}

    def close(self) -> None:
        """Let go of the streams, and of its orphans."""
        self.tag = 0
        for fd in list(self._open):
            self._let_go(fd)

    def _let_go(self, fd: int) -> None:
        """Out of the loop first: where a fork of the host has the file, epoll would go on telling of its end.

        Forgotten last: what a signal strikes here (on a loop, or at the end) is found again by ``close``.
        """
        if (held := self._open.get(fd)) is None:
            return
        stream, _, stop = held
        stop()
        with self._lock:
            if self._open.get(fd) is held:  # else another thread was quicker
                if fd != self._lent:
                    stream.close()
                del self._open[fd]


def remembered(jobs: Sequence[Job]) -> list[Job]:
    """Of these, the oldest first, all that run, and the latest of what has ended; the last one in any case."""
    if len(jobs) <= _MOST and sum(job.size for job in jobs) <= _MOST_BYTES:
        return list(jobs)  # to ask each whether it runs takes 10 us
    kept, size = [jobs[-1]], jobs[-1].size
    for job in reversed(jobs[:-1]):
        size += job.size
        if (len(kept) < _MOST and size <= _MOST_BYTES) or job.running:
            kept.append(job)
    return kept[::-1]
