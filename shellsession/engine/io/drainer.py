"""A thread that reads the output of background jobs; ``loop`` has its counterpart for asyncio.

Lock order: the drainer's lock comes before the lock of any session. A garbage collection can run while the drainer's
lock is held, and its finalizers may end a session. So nobody may call the drainer while holding a session's lock.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

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
        session goes on. ``calls_back``: ``read`` may call the user back; only ``LoopDrainer`` asks.
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
