"""What sessions do between calls, in threads: read background jobs, wait for another thread's call, and time out.

``Drainer`` reads the output of background jobs. ``Waiter`` lets a second thread wait for a command that another one
runs. ``Alarm`` is a timer. ``loop`` has the same three for asyncio.

Lock order: the drainer's lock comes before the lock of any session. A garbage collection can run while the drainer's
lock is held, and its finalizers may end a session. So nobody may call the drainer while holding a session's lock.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Final

from ...models import Result
from ..kernel.signals import signals_deferred


class Drainer:
    """One shared daemon thread that reads for background jobs; it runs only while there are any.

    It knows nothing about what it reads.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a garbage collection may call ``remove`` while it is held
        self._readers: dict[int, Callable[[], bool]] = {}  # by descriptor
        self._wake: int | None = None  # an eventfd: it counts, so a write never blocks while the thread is busy

    def add(self, fd: int, read: Callable[[], bool], calls_back: bool = False) -> bool:
        """Call ``read`` whenever the descriptor is readable, until it returns False.

        Returns False if no thread or descriptor is available. Then nobody reads: the writing processes block, and the
        session goes on. ``calls_back`` matters only to ``LoopDrainer``.
        """
        with self._lock:
            if self._wake is None and not self._start():
                return False
            self._readers[fd] = read
            self._wake_thread()
            return True

    def _start(self) -> bool:
        """Start the thread; False if there can be none."""
        with signals_deferred():  # the descriptor belongs to the thread, once that runs
            try:  # the thread first: unstarted it holds nothing; and a subinterpreter refuses daemon threads here
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
            except BaseException:  # Ctrl-C came all the same, while ``start`` waited for the thread
                if not thread.is_alive():
                    self._wake = None
                raise
            return True

    def _wake_thread(self) -> None:
        if self._wake is not None:
            os.eventfd_write(self._wake, 1)

    def remove(self, fd: int, read: Callable[[], bool]) -> None:
        """Stop reading the descriptor, if ``read`` is still its reader: the number may have a new owner by now."""
        with self._lock:
            if self._readers.get(fd) is read:
                del self._readers[fd]
                self._wake_thread()

    def _work(self, wake: int) -> None:
        try:
            self._read_all(wake)
        except BaseException:  # out of memory, for example: the next ``add`` starts another thread
            with self._lock:
                self._end(wake)
            raise

    def _end(self, wake: int) -> None:
        self._wake = None if self._wake == wake else self._wake
        os.close(wake)

    def _read_all(self, wake: int) -> None:
        """The thread's loop. It ends when nothing is left to read, or when another thread has replaced it."""
        while True:
            with self._lock:
                if not self._readers or self._wake != wake:  # nothing to read, or another thread has taken over
                    self._end(wake)
                    return
                poll = select.poll()
                poll.register(wake, select.POLLIN)
                for fd in self._readers:
                    poll.register(fd, select.POLLIN)
            for fd, _ in poll.poll():
                if fd == wake:
                    os.eventfd_read(wake)
                elif (read := self._readers.get(fd)) is not None:
                    self._read(fd, read)

    def _read(self, fd: int, read: Callable[[], bool]) -> None:
        more = False
        try:
            more = read()
        finally:
            if not more:
                self.remove(fd, read)

    def forget(self) -> None:
        """Reset, in a forked child, which has no thread: a lock held at the fork would stay locked for ever."""
        if self._wake is not None:
            os.close(self._wake)
        self.__init__()  # type: ignore[misc]  # everybody keeps this same object


DRAINER = Drainer()
os.register_at_fork(after_in_child=DRAINER.forget)


_CHECK_EVERY: Final = 0.1  # seconds


class Waiter:
    """Lets a thread wait for the end of a call that another thread is in, and share its result."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self.result: Result | None = None

    def notify(self, result: Result | None) -> None:
        """The call has ended: with the command's result, or without one."""
        self.result = result
        self._ended.set()

    def wait(self, until: float | None, is_abandoned: Callable[[], bool]) -> bool:
        """Wait for ``notify``; False when the time is up.

        ``is_abandoned`` is called every 0.1 s. Where it says that nobody is left to notify, the wait ends as well.
        """
        while True:
            left = _CHECK_EVERY if until is None else min(_CHECK_EVERY, until - time.monotonic())
            if self._ended.wait(max(0.0, left)) or is_abandoned():
                return True
            if until is not None and time.monotonic() >= until:
                return False


def is_owned(lock: threading.RLock) -> bool:
    """Does this thread hold the lock?"""
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]  # as threading.Condition does; there is no other way
    return owned


def in_thread(work: Callable[[], object]) -> None:
    """Run ``work`` in a daemon thread of its own. Raises RuntimeError if there can be none."""
    threading.Thread(target=work, name="shellsession-on-end", daemon=True).start()


class Alarm:
    """A timer that calls back once, in a thread of its own. ``set`` does nothing while one is set."""

    def __init__(self) -> None:
        # By process id, as a forked child has no timer. No lock, as a forked child might find it locked: setdefault
        # lets only one thread win.
        self._timers: dict[int, threading.Timer] = {}
        self._running: threading.Thread | None = None  # the thread of the last callback

    @property
    def is_set(self) -> bool:
        return os.getpid() in self._timers

    def set(self, seconds: float, callback: Callable[[], object]) -> None:
        """Call back after so many seconds, unless the alarm is set already."""
        timer = threading.Timer(seconds, self._run, (callback,))
        timer.name = "shellsession-alarm"
        if self._timers.setdefault(os.getpid(), timer) is timer:  # stored before the start: it may expire at once
            try:
                timer.daemon = True  # the host's exit does not wait for it; refused in a subinterpreter
                timer.start()
            except RuntimeError:  # no more threads, or the interpreter ends: the next call sets it again
                self._forget(timer)

    def _run(self, callback: Callable[[], object]) -> None:
        self._running = thread = threading.current_thread()
        self._forget(thread)
        callback()

    def _forget(self, timer: threading.Thread) -> None:
        if self._timers.get(os.getpid()) is timer:  # else it was cancelled as it expired, and another one set
            del self._timers[os.getpid()]

    def finish(self) -> None:
        """Wait for the end of a callback that runs."""
        thread = self._running
        if thread is not None and thread is not threading.current_thread():
            thread.join()  # returns at once in a forked child, which has no other thread

    def cancel(self) -> None:
        timer = self._timers.pop(os.getpid(), None)
        if timer is not None:
            timer.cancel()
