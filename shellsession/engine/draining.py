"""Who reads while nobody calls: one shared thread, or the asyncio loop.

Law: it runs only while there is something to read, and knows nothing of what it reads. Its lock comes before those of
all it reads for, as a collection can strike where it is held, and end a session: nobody asks it with one of them held.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from .signals import undisturbed

if TYPE_CHECKING:
    import asyncio


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


class LoopDrainer:
    """As ``Drainer``, on the running asyncio loop; by the thread, once that loop is closed.

    Not what calls back: the callback is for a loop alone, and waits for the next one.
    """

    def __init__(self) -> None:
        self._wanted: dict[int, tuple[Callable[[], bool], bool]] = {}  # and whether it calls back
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owner = 0  # the process whose loop that is

    def enter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read on this loop from now on: the session is used on another than before."""
        if (before := self._loop) is loop:
            return
        self._loop, self._owner = loop, os.getpid()
        for fd in list(self._wanted):
            if before is not None and not before.is_closed():
                before.remove_reader(fd)
            loop.add_reader(fd, _Registered(self, loop, fd))

    def follow(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Somebody looks, on this loop or on none: where that of the last verb stands still, it is read there."""
        before = self._loop
        if before is None or not before.is_running():
            if loop is not None:
                self.enter(loop)
            elif before is not None:
                self.hand_over(before)

    def hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """That loop was stopped, or closed: the thread reads from now on, also when a loop runs again."""
        if loop is not self._loop or self._owner != os.getpid():
            return
        self._loop = None if loop.is_closed() else loop
        for fd, (read, calls_back) in list(self._wanted.items()):
            if not calls_back:
                self.remove(fd, read)  # first: at its end the thread does, and it is for one of them only
                if not DRAINER.add(fd, read):
                    self.add(fd, read)

    def add(self, fd: int, read: Callable[[], bool], calls_back: bool = False) -> None:
        self._wanted[fd] = read, calls_back
        if self._loop is not None:
            self._loop.add_reader(fd, _Registered(self, self._loop, fd))

    def ready(self, fd: int) -> None:
        wanted = self._wanted.get(fd)
        # In a forked child, which has its parent's loop to end it, what came is the parent's.
        if wanted is not None and self._owner == os.getpid() and not wanted[0]():
            self.remove(fd, wanted[0])

    def remove(self, fd: int, read: Callable[[], bool]) -> None:
        DRAINER.remove(fd, read)  # which may have it by now
        if (wanted := self._wanted.get(fd)) is None or wanted[0] is not read:
            return
        # A forked child would put it out of the parent's epoll.
        if self._loop is not None and not self._loop.is_closed() and self._owner == os.getpid():
            with suppress(OSError, ValueError):
                self._loop.remove_reader(fd)
        self._wanted.pop(fd, None)  # last: struck here, it is asked for again


class _Registered:
    """What the loop calls, and nobody but the loop holds: no loop tells that it is closed, but it lets go of this."""

    def __init__(self, drainer: LoopDrainer, loop: asyncio.AbstractEventLoop, fd: int) -> None:
        self._drainer, self._loop, self._fd = drainer, loop, fd

    def __call__(self) -> None:
        self._drainer.ready(self._fd)

    def __del__(self) -> None:
        if self._loop.is_closed():
            self._drainer.hand_over(self._loop)
