"""``Noticer``: the tap that tells ``Notices`` what happens in one session; ``Reader`` waits for the notices.

A session gets its noticer with its first reader. What no tap shows (a job has ended, a command that was handed back
waits for input) is seen when a reader looks.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...models import Result
from ...notices import Kind, Notice, Notices, Watch
from ...observe import Tap
from ...text import ending, status
from ..io.output import latest
from ..io.threads import Steps, Wait
from ..kernel import proc
from .core import Core
from .session_job import SessionJob
from .waits import question_of

# Seconds between two looks of a reader while something runs, at first and at most, and while nothing does.
_FIRST: Final = 0.02
_LONGEST: Final = 0.5
_IDLE: Final = 5.0
# For this many seconds the end of a job waits for an idle bash, which can be asked for its exit status.
_STATUS_WITHIN: Final = 1.0
# How many bytes of earlier output are searched for a new pattern.
_BEFORE: Final = 1 << 16
_LIMITS: Final = ("timed_out", "idle", "overflow")
_ENDED: Final = "ended"
_SHELL_ENDED: Final = "the shell has ended; the next command starts in a new one"
_MAKING: Final = threading.Lock()


def noticer_of(core: Core) -> Noticer:
    """The noticer of a session, made at the first call."""
    with _MAKING:
        return next((tap for tap in core.taps if isinstance(tap, Noticer)), None) or Noticer(core)


class Noticer(Tap):
    """Tells the notices of a session what its taps see, and wakes the readers."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.RLock()  # reentrant: a garbage collection may close a reader
        secrets = core.secrets()
        self._notices = Notices(time.time() - time.monotonic(), str if secrets is None else secrets.mask)
        self._wakes = set[int]()  # an eventfd of each reader
        self._dead = 0  # the pid of the last shell whose end was noticed
        self._without_status = dict[str, float]()  # jobs that have ended, and since when their status is asked for
        self.cursor = 0  # the number of the last notice that the owner of the session has got
        core.taps.append(self)  # first: what follows may see a job twice, but misses none
        for job in core.jobs:
            self.job(job.id)
        if (call := core.handed_back) is not None:
            call.show_handed_back(asks=False)

    @contextmanager
    def _told(self) -> Iterator[float]:
        """Tell the notices something, now. The readers are woken if there is a new one."""
        with self._lock:
            last = self._notices.feed.last
            yield time.monotonic()
            if self._notices.feed.last != last:
                self._wake()

    def _wake(self) -> None:
        with self._lock:
            for fd in self._wakes:
                os.eventfd_write(fd, 1)

    # -- as a tap

    def output(self, id: str, stream: str, data: bytes) -> None:
        if id in self._notices.sources:  # else an ordinary command would pay for this
            with self._told() as now:
                self._notices.output(id, stream, data, now)

    def input(self, id: str, data: bytes) -> None:
        with self._told() as now:
            self._notices.typed(id, now)

    def hand_back(self, id: str, asks: bool) -> None:
        is_new = id not in self._notices.sources
        with self._told() as now:
            if asks:
                call = self._core.last
                self._notices.asks(id, "" if call is None else question_of(self._core, call), now)
            else:
                self._notices.follow(id, now)
        if is_new:
            self._wake()  # from now on readers look more often

    def end(self, command: bytes, result: Result) -> None:
        kind: Kind = "limit" if result.outcome in _LIMITS else "ended"
        if not result.state_kept:
            kind, shell = "lost", self._core.shell
            self._dead = 0 if shell is None else shell.pid
        with self._told() as now:
            self._notices.end(kind, result.id, ending(result) or status(0), now, result.exit_code)

    def job(self, id: str) -> None:
        job = self._jobs[id]
        with self._told() as now:
            self._notices.follow(id, now, b"".join(_printed(job)))
        self._wake()

    def job_output(self, id: str, stream: str, data: bytes) -> None:
        if not data:
            self._wake()  # the job may have ended
        with self._told() as now:
            self._notices.output(id, stream, data, now)

    def close(self) -> None:
        self._wake()

    # -- for readers

    @property
    def closed(self) -> bool:
        """Whether the session is closed."""
        return self._core.closed

    @property
    def is_busy(self) -> bool:
        """Whether there is a job that runs, or a command that was handed back."""
        return bool(self._notices.sources)

    @property
    def next_moment(self) -> float:
        """See ``Notices``."""
        with self._lock:
            return self._notices.next_moment

    def look(self) -> None:
        """Notice the ends of jobs, and that of an idle shell. Blocks while bash is asked for an exit status."""
        core, jobs = self._core, self._jobs
        for id in self._notices.sources:
            job = jobs.get(id)
            if id[0] == "j" and (job is None or not job.running):  # None: it ended long ago, and was forgotten
                self._note_end(id, job)
            elif id[0] == "c" and (core.last is None or core.last.id != id):
                with self._told():
                    self._notices.drop(id)  # it was given up without a result
        shell = core.shell
        is_dead = shell is not None and core.state == "idle" and not proc.alive(shell.pid)
        with self._told() as now:
            if is_dead and shell is not None and shell.pid != self._dead:
                self._dead = shell.pid
                self._notices.end("lost", "", _SHELL_ENDED, now)
            self._notices.tick(now)

    def _note_end(self, id: str, job: SessionJob | None) -> None:
        code = None if job is None else job.exit_code
        since = self._without_status.setdefault(id, time.monotonic())
        if code is None and self._core.state == "running" and time.monotonic() < since + _STATUS_WITHIN:
            return
        self._without_status.pop(id, None)
        with self._told() as now:
            self._notices.end("ended", id, _ENDED if code is None else status(code), now, code)

    @property
    def _jobs(self) -> dict[str, SessionJob]:
        return {job.id: job for job in self._core.jobs}

    def read(self, after: int, watch: Watch) -> tuple[int, list[Notice], int]:
        """See ``Notices.read``; and the number of the last notice. The reader goes on to watch for this."""
        with self._told() as now:
            if self._notices.watch(watch, now) and (pattern := watch.pattern) is not None:
                call = self._core.handed_back
                for id in self._notices.sources:
                    if (job := self._jobs.get(id)) is not None:
                        for data in _printed(job):
                            self._notices.search(id, pattern, data, now)
                    elif call is not None and call.id == id:
                        self._notices.search(id, pattern, latest((bytes(call.unseen), 0, 0), _BEFORE), now)
            return (*self._notices.read(after, watch), self._notices.feed.last)

    def join(self, fd: int) -> None:
        """Write to this eventfd when a reader is to look."""
        with self._lock:
            self._wakes.add(fd)

    def leave(self, fd: int) -> None:
        """Forget an eventfd."""
        with self._lock:
            self._wakes.discard(fd)


def _printed(job: SessionJob) -> list[bytes]:
    """The last lines that the job has printed on each stream."""
    return [latest(job.kept(name), _BEFORE) for name in ("before", "stdout", "terminal", "stderr")]


def reader_of(core: Core, watch: Watch, after: int | None) -> Reader:
    """A reader for the owner of the session. Without a number it goes on after what the owner has got."""
    noticer = noticer_of(core)
    return Reader(noticer, watch, noticer.cursor if after is None else after)


class Reader:
    """Reads the notices of one session that a watch wants, after a number."""

    _fd = -1

    def __init__(self, noticer: Noticer, watch: Watch, after: int) -> None:
        self._noticer, self._watch, self.number = noticer, watch, after
        self.dropped = 0  # notices that the next one reports
        self._pause, self._owner = _FIRST, os.getpid()
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        noticer.join(self._fd)
        noticer.read(after, watch)

    def __del__(self) -> None:
        self.close()

    @property
    def is_over(self) -> bool:
        """Whether the session is closed."""
        return self._noticer.closed

    def read(self) -> list[Notice]:
        """Return what has come since the last time."""
        self._noticer.look()
        dropped, notices, self.number = self._noticer.read(self.number, self._watch)
        self.dropped += dropped
        if notices and self.dropped:
            notices[0] = notices[0].__replace__(dropped=notices[0].dropped + self.dropped)
            self.dropped = 0
        return notices

    def own(self) -> Iterator[Notice]:
        """Yield what has come, and note what the owner of the session has got."""
        for notice in self.read():
            self._noticer.cursor = notice.number
            yield notice

    def pause(self, until: float | None) -> Steps[None]:
        """Wait until it may be worth while to look, or until that moment."""
        noticer, now = self._noticer, time.monotonic()
        moment = min(now + (self._pause if noticer.is_busy else _IDLE), noticer.next_moment)
        ready = yield Wait((self._fd,), moment if until is None else min(moment, until))
        self._pause = _FIRST if ready else min(2 * self._pause, _LONGEST)
        if ready:
            os.eventfd_read(self._fd)

    def close(self) -> None:
        """Give back its descriptor."""
        fd, self._fd = self._fd, -1
        if fd >= 0 and self._owner == os.getpid():  # in a forked child, another thread may have held the lock
            self._noticer.leave(fd)
            os.close(fd)
