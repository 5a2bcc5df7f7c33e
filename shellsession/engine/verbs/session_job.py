"""``SessionJob``: what one command has left running, its processes and the streams that they still hold.

Its output is bounded like any output, and a reader always reads it.

Law: no method of a reader is called while a job's lock is held (see ``drainer.Drainer``).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from ...errors import FORKED, InvalidRequest, NotRunning, SessionClosed
from ...observe import Tap
from ...signatures import AnyJob
from ..io.jobs import AsyncJob, Job
from ..io.output import Capture, latest
from ..io.streams import Stream
from ..io.threads import Steps, Wait, drive
from ..kernel import activity, proc
from ..kernel.family import Family, new_released_tag, released, set_tag
from ..kernel.signals import kill


class Reader(Protocol):
    """Reads streams while no verb does: a shared thread, or the asyncio loop."""

    def add(self, fd: int, read: Callable[[], bool], calls_back: bool = False) -> object: ...
    def remove(self, fd: int, read: Callable[[], bool]) -> None: ...


# At most this many reads of 4 KiB from the terminal when it is taken away: the job may live and print without end.
_LAST_READS: Final = 16
# A job's kill scans for processes at most this many times, and ends after this many in a row that find no new one.
_SCANS: Final = 100
_QUIET: Final = 2
_PASSES: Final = 20
# This many ended jobs are remembered, and this many bytes of the output and text of all: the latest ones.
_MOST: Final = 100
_MOST_BYTES: Final = 16 << 20

# What ``wait`` searches of the output that the call itself returned: its last bytes.
_BEFORE: Final = 1 << 14
# Seconds that `setsid` or `nohup` have to detach a job that is to be released, and between two looks.
_DETACHED_WITHIN: Final = 0.2
_TICK: Final = 0.005
_ALONE: Final = (
    "start it so that it outlives the session: `setsid COMMAND >FILE 2>&1 </dev/null &`, and release that job"
)

Peek = tuple[bytes, int, int]  # what a capture has: see ``Capture.peek``


class SessionJob(AnyJob):
    """A live view of what one call left running. It stays readable after its end."""

    def __init__(
        self,
        command: str,
        pids: Sequence[int],
        tag: int,
        family: Family,
        number: int,
        exit_code_of: Callable[[SessionJob], object],
        before: Sequence[Peek] = (),
    ) -> None:
        """``exit_code_of``: asks bash, and sets ``known_exit_code``.

        ``before``: the streams of the call itself, as ``Capture.peek`` returns them.
        """
        self.command = command
        self.tag = tag  # of all its processes; 0 if processes of other calls have it too
        self.family = family
        self._owner = os.getpid()
        self.id = f"j{number}"
        self.pids = tuple(pids)
        # The pid by which to ask bash for the exit status, another one in a sandbox. 0: bash is not to be asked.
        self.bash_pid = 0 if not pids else proc.inner_pid(pids[-1]) if family.is_confined else pids[-1]
        self._before = b"".join(latest(one, _BEFORE) for one in before)
        self.known_exit_code: int | None = None
        self._exit_code_of = exit_code_of
        self._released = False
        self._started = {pid: proc.start_time(pid) for pid in pids}
        self._lock = threading.RLock()  # reentrant: see drainer.Drainer
        self._open: dict[int, tuple[Stream, Capture, Callable[[], None]]] = {}  # the last stops the reader
        self._captures: dict[str, Capture] = {}
        self._lent = -1
        self.taps: Sequence[Tap] = ()  # those of its session

    def __repr__(self) -> str:
        return f"Job({self.id}, {self.command!r}, pids={self.pids}, {self.status})"

    def adopt(self, name: str, stream: Stream, capture: Capture, reader: Reader) -> None:
        """Take over a stream that a process still holds, and let ``reader`` read it from now on."""
        capture = self._captures.setdefault(name, capture)  # continue an earlier record of the terminal
        read = partial(self._read, name, stream.fd)
        self._open[stream.fd] = (stream, capture, partial(reader.remove, stream.fd, read))
        reader.add(stream.fd, read)

    def borrow(self, name: str, stream: Stream, capture: Capture, reader: Reader) -> None:
        """Take over the controlling terminal like ``adopt``, but only until ``give_back``."""
        self._lent = stream.fd
        self.adopt(name, stream, capture, reader)

    def give_back(self) -> None:
        """Give the terminal back: another command needs it, or the job has ended. The job gets what is there now."""
        if (lent := self._open.get(self._lent)) is None:
            return
        stream, capture, stop = lent
        stop()
        with self._lock:
            if self._open.pop(self._lent, None) is not lent:
                return
            last = bytearray()
            for _ in range(_LAST_READS):
                if not (data := stream.read()):
                    break
                capture.feed(data)
                last += data
        self._show("terminal", bytes(last))

    def _show(self, name: str, data: bytes) -> None:
        for tap in self.taps:
            tap.job_output(self.id, name, data)

    def _read(self, name: str, fd: int) -> bool:
        with self._lock:
            if fd not in self._open:
                return False
            stream, capture, _ = self._open[fd]
            data = stream.read()
            if data:
                capture.feed(data)
        if is_over := data == b"":
            self._release(fd)
        if data is not None:
            self._show(name, data)
        return not is_over

    def alive(self) -> list[int]:
        """Return the pids of its processes that still live, orphans included.

        A process that has reused one of the pids does not count.
        """
        first = [pid for pid, start in self._started.items() if proc.start_time(pid) == start and proc.alive(pid)]
        carriers = [] if not self.tag else released(self.tag) if self._released else self.family.carriers(self.tag)
        orphans = [pid for pid in carriers if pid not in self._started]
        if not first and not orphans:
            self.tag = 0  # a job without processes gets no new ones
        return first + orphans

    @property
    def running(self) -> bool:
        return any(fd != self._lent for fd in list(self._open)) or bool(self.alive())

    @property
    def exit_code(self) -> int | None:
        if self.known_exit_code is None and not self.running:
            self._exit_code_of(self)
        return self.known_exit_code

    def is_there(self, pid: int) -> bool:
        """Return whether that process of the call, or its zombie, is there, and no later one with its pid."""
        return proc.start_time(pid) == self._started[pid] != 0

    @property
    def size(self) -> int:
        """The bytes that are kept for it: its output and its command text."""
        return sum((capture.kept for capture in list(self._captures.values())), sys.getsizeof(self.command))

    def kept(self, name: str) -> tuple[bytes, int, int]:
        self._check_owner()
        if name == "before":
            return self._before, 0, 0
        with self._lock:
            capture = self._captures.get(name)
            return capture.peek() if capture else (b"", 0, 0)

    def _check_owner(self) -> None:
        """Refuse in a forked child: a thread of the parent may have held the lock."""
        if self._owner != os.getpid():
            raise SessionClosed(FORKED)

    def kill(self) -> tuple[int, ...]:
        """Kill its processes, everything below them, and what else holds its streams. Returns the signalled pids.

        Bash itself may hold the streams (`exec 3>&2`), but does not belong to the job. Raises SessionClosed in a forked
        child.
        """
        self._check_owner()
        killed: list[int] = []
        # Repeat until nothing is found: a process that ends just after it has started the next may escape all scans.
        for _ in range(_PASSES):
            if not (more := self._kill_more(killed)):
                break
            killed += more
        return tuple(killed)

    def _kill_more(self, killed: Collection[int]) -> list[int]:
        """Kill all that were not killed before. First stop them: otherwise each may start another one meanwhile."""
        victims: list[int] = []
        quiet = 0
        try:
            for _ in range(_SCANS):
                victims = [pid for pid in victims if proc.alive(pid)]
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
        """Yield its living processes, everything below them, and the processes that hold its streams."""
        for parent in self.alive():
            yield parent
            yield from proc.descendants(parent)
        if files := self._held():
            # Check again for each: if a stream was closed meanwhile, a stranger's terminal may have its number.
            holders = activity.holders(self.family.descendants(), files)
            yield from (pid for pid, file in holders if file in self._held())

    def _held(self) -> set[tuple[int, int]]:
        """Return device and inode of its open streams. The lent terminal is not its own."""
        streams = [stream for stream, _, _ in list(self._open.values())]
        return {stream.identity for stream in streams if stream.fd != self._lent and not stream.closed}

    def release(self) -> None:
        drive(self.releasing())

    def releasing(self) -> Steps[None]:
        """Return the steps of ``release``. They wait a moment: `setsid` may only just have been started."""
        self._check_owner()
        if self._released:
            return
        if not self.alive():
            raise NotRunning(f"job {self.id} has no process that could be released: it has ended")
        until = time.monotonic() + _DETACHED_WITHIN
        while why := self._why_dependent():
            if self.family.is_confined or time.monotonic() >= until:
                raise InvalidRequest(f"job {self.id} cannot be released: {why}")
            yield Wait((), time.monotonic() + _TICK)
        tag = new_released_tag()
        # Repeat until nothing is found: a process that was forked before its parent had the new tag has the old one.
        for _ in range(_SCANS):
            if not (fresh := [pid for pid in self._all() if proc.tag(pid) != tag]):
                break
            for pid in fresh:
                if not set_tag(pid, tag) and proc.alive(pid):
                    why = f"process {pid} belongs to another user, or has limits of its own"
                    raise InvalidRequest(f"job {self.id} cannot be released: {why}")
        self.tag, self._released, self.family.has_released = tag, True, True

    def _all(self) -> list[int]:
        """Return its living processes, and everything below them."""
        first = self.alive()
        return [*first, *(pid for one in first for pid in proc.descendants(one))]

    def _why_dependent(self) -> str:
        """Return how the end of the session would reach the job; "" if it would not."""
        if self.family.is_confined:
            return "all that a sandbox runs ends with it"
        group = proc.process_group(self.family.pid)
        for pid in self._all():
            if any(activity.holders([pid], self._held())):
                return f"process {pid} writes to the session's own stream, which ends with it; {_ALONE}"
            if proc.process_group(pid) == group and not activity.ignores(pid, signal.SIGHUP):
                return f"process {pid} would end with the session's terminal (SIGHUP); {_ALONE}"
        return ""

    @property
    def released(self) -> bool:
        return self._released

    def close(self) -> None:
        """Close the streams, and give up the orphans."""
        self.tag = self.tag if self._released else 0
        for fd in list(self._open):
            self._release(fd)

    def _release(self, fd: int) -> None:
        """Stop reading a stream, and close it.

        The reader forgets it first: if a fork of the host holds the file, epoll would report its end for ever. The job
        forgets it last: if a signal handler raises in between, ``close`` finds it again.
        """
        if (held := self._open.get(fd)) is None:
            return
        stream, _, stop = held
        stop()
        with self._lock:
            if self._open.get(fd) is held:  # otherwise another thread was faster
                if fd != self._lent:
                    stream.close()
                del self._open[fd]


class ThreadJob(SessionJob, Job):
    """A job of a ``Session``."""


class LoopJob(SessionJob, AsyncJob):
    """A job of an ``AsyncSession``."""


def remembered(jobs: Sequence[SessionJob]) -> list[SessionJob]:
    """Return the jobs to remember: all that run, and the latest of those that have ended. The last job always stays.

    ``jobs`` and the returned list begin with the oldest.
    """
    if len(jobs) <= _MOST and sum(job.size for job in jobs) <= _MOST_BYTES:
        return list(jobs)  # checking whether a job runs takes 10 us for each
    kept, size = [jobs[-1]], jobs[-1].size
    for job in reversed(jobs[:-1]):
        size += job.size
        if (len(kept) < _MOST and size <= _MOST_BYTES) or job.running:
            kept.append(job)
    return kept[::-1]
