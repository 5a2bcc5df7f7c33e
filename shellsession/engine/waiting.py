"""The only code that waits: one way for plain threads, one for asyncio, and who reads while nobody calls.

Law: it knows what to wait for and nothing of shells. Steps are generators: they yield a ``Wait``, are sent the
descriptors that became ready (none: the moment passed), and return the answer. An exception that strikes while
waiting (Ctrl-C, a cancelled task) is thrown into the steps, which may go on waiting to clean up after it.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections.abc import Callable, Collection, Generator
from contextlib import suppress
from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Wait(NamedTuple):
    """Resume me when one of these can be read, or at the moment ``until`` (``time.monotonic``).

    ``keen``: it is to be expected within microseconds.
    """

    read: tuple[int, ...] = ()
    until: float | None = None
    keen: bool = False


Ready = Collection[int]
Steps = Generator[Wait, Ready, T]


# poll(2) takes its time in milliseconds as an int; steps are asked again then.
_LONGEST = 1e6
# How long to look again and again before going to sleep, in seconds. To wake a core that has gone to sleep costs 20 to
# 40 us in a virtual machine, as much as the command itself: `true` took 87 us instead of 112, `echo hi` 104 instead of
# 130. Where bash and we share a core it costs 4 us instead: sched_yield does not always hand over at once.
_KEEN = 100e-6
# Each look lets other Python threads run, and one that computes keeps the interpreter for 5 ms: leave it for a while.
_TAKEN = 1e-3
_PATIENCE = 0.1  # seconds
_CALM = 100


class Poller:
    """Waits for one session; keeps its poll objects, as building one costs more than using it."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], select.poll] = {}
        self._calm = 0  # for how many waits we do not look again and again

    def wait(self, wait: Wait) -> Ready:
        read, until, keen = wait
        poll = self._known.get(read) or self._learn(read)
        if keen and (ready := self._look(poll)):
            return ready
        left = None if until is None else max(0, math.ceil(min(until - time.monotonic(), _LONGEST) * 1000))
        return [fd for fd, _ in poll.poll(left)]

    def _look(self, poll: select.poll) -> Ready:
        if self._calm:
            self._calm -= 1
            return ()
        now = time.monotonic()
        give_up = now + _KEEN
        while now < give_up:
            os.sched_yield()
            if ready := poll.poll(0):
                return [fd for fd, _ in ready]
            now = time.monotonic()
        if now > give_up + _TAKEN and threading.active_count() > 1:
            self._calm = _CALM
        return ()

    def _learn(self, read: tuple[int, ...]) -> select.poll:
        if len(self._known) > 8:
            self._known.clear()
        poll = self._known[read] = select.poll()
        for fd in read:
            poll.register(fd, select.POLLIN)
        return poll


def drive(steps: Steps[T], poller: Poller | None = None) -> T:
    """Run steps to their end in this thread."""
    wait_for = (poller or Poller()).wait
    try:
        wait = next(steps)
        while True:
            try:
                wait = steps.send(wait_for(wait))
            except StopIteration:
                raise
            except BaseException as error:
                # Ctrl-C strikes anywhere. What came out of the steps has ended them; anything else they must hear of.
                if getgeneratorstate(steps) == GEN_CLOSED:
                    raise
                wait = steps.throw(error)
    except StopIteration as stop:
        result: T = stop.value
        return result


class LoopPoller:
    """As ``Poller``, for asyncio. What was waited for stays registered: putting it in and out costs 40 us."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers: set[int] = set()
        self._future: asyncio.Future[Ready] | None = None

    def _enter(self) -> asyncio.AbstractEventLoop:
        import asyncio

        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.forget_all()
            self._loop = loop
        return loop

    def _wake(self, fd: int) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result((fd,))
        elif self._loop is not None:  # ready while nobody waits: level-triggered, it would spin
            self.forget(fd)

    async def wait(self, wait: Wait) -> Ready:
        loop = self._enter()
        future: asyncio.Future[Ready] = loop.create_future()
        self._future = future
        for fd in self._readers.difference(wait.read):
            self.forget(fd)
        for fd in wait.read:
            if fd not in self._readers:
                loop.add_reader(fd, self._wake, fd)
                self._readers.add(fd)
        timer = None
        if wait.until is not None:
            timer = loop.call_later(max(0.0, wait.until - time.monotonic()), _resolve, future)
        try:
            return await future
        finally:
            self._future = None
            if timer is not None:
                timer.cancel()

    def forget(self, fd: int) -> None:
        """Before a descriptor is closed: a stale registration would hit whoever gets its number."""
        if fd in self._readers:
            self._readers.discard(fd)
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(fd)

    def forget_all(self) -> None:
        for fd in list(self._readers):
            self.forget(fd)


def _resolve(future: asyncio.Future[Ready]) -> None:
    if not future.done():
        future.set_result(())


async def adrive(steps: Steps[T], poller: LoopPoller) -> T:
    """Run steps to their end in this task."""
    try:
        wait = next(steps)
        while True:
            try:
                ready = await poller.wait(wait)
            except BaseException as error:
                wait = steps.throw(error)
            else:
                wait = steps.send(ready)
    except StopIteration as stop:
        result: T = stop.value
        return result


class Wish(Generic[T]):
    """What one thread wants of another that is in a verb: ``wait`` until that one grants it, perhaps with an answer."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._answer: T | None = None

    def grant(self, answer: T | None) -> None:
        self._answer = answer
        self._done.set()

    def wait(self, nobody: Callable[[], bool]) -> T | None:
        """The answer; ``nobody`` is asked now and then whether there is nobody left to grant it."""
        while not self._done.wait(_PATIENCE) and not nobody():
            pass
        return self._answer


def is_owned(lock: threading.RLock) -> bool:
    """Does this thread hold the lock?"""
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]  # as threading.Condition asks it; there is no other way
    return owned


class LoopWish(Generic[T]):
    """As ``Wish``, from task to task."""

    def __init__(self) -> None:
        import asyncio

        self._done = asyncio.Event()
        self._answer: T | None = None

    def grant(self, answer: T | None) -> None:
        self._answer = answer
        self._done.set()

    async def wait(self) -> T | None:
        await self._done.wait()
        return self._answer


class Drainer:
    """One shared daemon thread that reads for background jobs, alive only while there are any.

    ``add`` names a descriptor and what to call when it can be read; the callable returns False when it is done.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a collection can strike inside and end a session
        self._wanted: dict[int, Callable[[], bool]] = {}
        self._wake: tuple[int, int] | None = None

    def add(self, fd: int, read: Callable[[], bool]) -> None:
        """Without a thread or a descriptor to be had, nobody reads: who writes stands still, the session goes on."""
        with self._lock:
            if self._wake is None and not self._start():
                return
            self._wanted[fd] = read
            self._nudge()

    def _start(self) -> bool:
        try:
            wake = os.pipe()
        except OSError:
            return False
        try:
            threading.Thread(target=self._work, args=wake, name="shellsession-jobs", daemon=True).start()
        except BaseException as error:  # no more threads, or the interpreter ends
            for fd in wake:
                os.close(fd)
            if isinstance(error, RuntimeError):
                return False
            raise
        self._wake = wake
        return True

    def _nudge(self) -> None:
        if self._wake is not None:
            os.write(self._wake[1], b"+")

    def remove(self, fd: int) -> None:
        with self._lock:
            if self._wanted.pop(fd, None) is not None:
                self._nudge()

    def _work(self, wake: int, wake_end: int) -> None:
        while True:
            with self._lock:
                if not self._wanted and self._wake == (wake, wake_end):
                    self._wake = None
                    os.close(wake)
                    os.close(wake_end)
                    return
                poll = select.poll()
                poll.register(wake, select.POLLIN)
                for fd in self._wanted:
                    poll.register(fd, select.POLLIN)
            for fd, _ in poll.poll():
                if fd == wake:
                    os.read(wake, 4096)
                elif (read := self._wanted.get(fd)) is not None and not read():
                    with self._lock:
                        if self._wanted.get(fd) is read:  # else removed meanwhile, or the number has a new owner
                            del self._wanted[fd]

    def forget(self) -> None:
        """In a forked child, where the thread is not: a lock that it held at the fork would stay locked for ever."""
        for fd in self._wake or ():
            os.close(fd)
        self.__init__()  # type: ignore[misc]  # as if new, for all who know it


class LoopDrainer:
    """As ``Drainer``, on the running asyncio loop."""

    def __init__(self) -> None:
        self._wanted: dict[int, Callable[[], bool]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def enter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read on this loop from now on: the session is used on another than before."""
        before, self._loop = self._loop, loop
        for fd in self._wanted:
            if before is not None and not before.is_closed():
                before.remove_reader(fd)
            loop.add_reader(fd, self._ready, fd)

    def add(self, fd: int, read: Callable[[], bool]) -> None:
        self._wanted[fd] = read
        if self._loop is not None:
            self._loop.add_reader(fd, self._ready, fd)

    def _ready(self, fd: int) -> None:
        read = self._wanted.get(fd)
        if read is not None and not read():
            self.remove(fd)

    def remove(self, fd: int) -> None:
        if self._wanted.pop(fd, None) is not None and self._loop is not None and not self._loop.is_closed():
            with suppress(OSError, ValueError):
                self._loop.remove_reader(fd)


DRAINER = Drainer()
os.register_at_fork(after_in_child=DRAINER.forget)
