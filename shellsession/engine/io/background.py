"""Who reads while nobody calls: one shared thread, or the asyncio loop.

Law: it runs only while there is something to read, and knows nothing of what it reads. Its lock comes before those of
all it reads for, as a collection can strike where it is held, and end a session: nobody asks it with one of them held.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Final

from ...models import Result
from ..kernel.signals import undisturbed


class Drainer:
    """One shared daemon thread that reads for background jobs, alive only while there are any.

    ``add`` names a descriptor and what to call when it can be read; the callable returns False when it is done.
    ``remove`` names both again: where that was done meanwhile, the number may have a new owner.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: what a collection ends inside may remove something
        self._wanted: dict[int, Callable[[], bool]] = {}
        self._wake: int | None = None  # counts, so that nobody who nudges ever waits for a reader that is busy

    def add(self, fd: int, read: Callable[[], bool], calls_back: bool = False) -> bool:
        """Without a thread or a descriptor to be had, nobody reads: who writes stands still, the session goes on."""
        with self._lock:
            if self._wake is None and not self._start():
                return False
            self._wanted[fd] = read
            self._nudge()
            return True

    def _start(self) -> bool:
        with undisturbed():  # the descriptor is the thread's, once there is one
            try:  # the thread first, as it is nothing yet; a subinterpreter has none that its end does not wait for
                thread = threading.Thread(target=lambda: self._work(wake), name="shellsession-jobs", daemon=True)
                wake = self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            except (OSError, RuntimeError):
                return False
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter ends
                self._wake = None
                os.close(wake)
                return False
            except BaseException:  # Ctrl-C all the same, while it was waited for
                if not thread.is_alive():
                    self._wake = None
                raise
            return True

    def _nudge(self) -> None:
        if self._wake is not None:
            os.eventfd_write(self._wake, 1)

    def remove(self, fd: int, read: Callable[[], bool]) -> None:
        with self._lock:
            if self._wanted.get(fd) is read:
                del self._wanted[fd]
                self._nudge()

    def _work(self, wake: int) -> None:
        try:
            self._read_on(wake)
        except BaseException:  # for want of memory, say: the next one who adds something gets another thread
            with self._lock:
                self._end(wake)
            raise

    def _end(self, wake: int) -> None:
        self._wake = None if self._wake == wake else self._wake
        os.close(wake)

    def _read_on(self, wake: int) -> None:
        while True:
            with self._lock:
                if not self._wanted or self._wake != wake:  # nothing to do, or another one has its place
                    self._end(wake)
                    return
                poll = select.poll()
                poll.register(wake, select.POLLIN)
                for fd in self._wanted:
                    poll.register(fd, select.POLLIN)
            for fd, _ in poll.poll():
                if fd == wake:
                    os.eventfd_read(wake)
                elif (read := self._wanted.get(fd)) is not None:
                    self._read(fd, read)

    def _read(self, fd: int, read: Callable[[], bool]) -> None:
        more = False
        try:
            more = read()
        finally:
            if not more:
                self.remove(fd, read)

    def forget(self) -> None:
        """In a forked child, where the thread is not: a lock that it held at the fork would stay locked for ever."""
        if self._wake is not None:
            os.close(self._wake)
        self.__init__()  # type: ignore[misc]  # as if new, for all who know it


DRAINER = Drainer()
os.register_at_fork(after_in_child=DRAINER.forget)


_PATIENCE: Final = 0.1  # seconds


class Waiter:
    """For threads: ``wait`` until the one in the verb tells."""

    def __init__(self) -> None:
        self._told = threading.Event()
        self.result: Result | None = None

    def tell(self, result: Result | None) -> None:
        """The verb has ended: with the command's result, or with none."""
        self.result = result
        self._told.set()

    def wait(self, until: float | None, nobody: Callable[[], bool]) -> bool:
        """Was it told by that moment? ``nobody`` is asked now and then whether there is nobody left to tell it."""
        while True:
            left = _PATIENCE if until is None else min(_PATIENCE, until - time.monotonic())
            if self._told.wait(max(0.0, left)) or nobody():
                return True
            if until is not None and time.monotonic() >= until:
                return False


def is_owned(lock: threading.RLock) -> bool:
    """Does this thread hold the lock?"""
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]  # as threading.Condition asks it; there is no other way
    return owned


class Alarm:
    """Calls back once, in a thread of its own. Setting one that is set already does nothing."""

    def __init__(self) -> None:
        # Of this process, by its id. No lock: a forked child would find it taken; setdefault lets only one thread in.
        self._timers: dict[int, threading.Timer] = {}
        self._ringing: threading.Thread | None = None  # which does what it rang for last

    @property
    def is_set(self) -> bool:
        return os.getpid() in self._timers

    def set(self, seconds: float, ring: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, self._ring, (ring,))
        timer.name = "shellsession-alarm"
        if self._timers.setdefault(os.getpid(), timer) is timer:  # known first: it may ring at once
            try:
                timer.daemon = True  # nobody's exit waits for it; refused in a subinterpreter
                timer.start()
            except RuntimeError:  # no more threads, or the interpreter ends: whoever comes next sets it
                self._forget(timer)

    def _ring(self, ring: Callable[[], object]) -> None:
        self._ringing = me = threading.current_thread()
        self._forget(me)
        ring()

    def _forget(self, timer: threading.Thread) -> None:
        if self._timers.get(os.getpid()) is timer:  # else it was cancelled as it rang, and another set since
            del self._timers[os.getpid()]

    def finish(self) -> None:
        """Wait until what it rang for is done."""
        thread = self._ringing
        if thread is not None and thread is not threading.current_thread():
            thread.join()  # at once in a forked child, where no other thread is

    def cancel(self) -> None:
        timer = self._timers.pop(os.getpid(), None)
        if timer is not None:
            timer.cancel()
