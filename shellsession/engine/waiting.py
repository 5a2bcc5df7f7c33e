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
    """Resume me when one of these can be read (or written), or at the moment ``until`` (``time.monotonic``).

    ``keen``: it is to be expected within microseconds.
    """

    read: tuple[int, ...] = ()
    until: float | None = None
    write: tuple[int, ...] = ()
    keen: bool = False


Ready = Collection[int]
Steps = Generator[Wait, Ready, T]


# poll(2) takes its time in milliseconds as an int; steps are asked again then.
_LONGEST = 1e6
# How long to look again and again before going to sleep, in seconds. To wake a core that has gone to sleep costs 20 to
# 40 us in a virtual machine, as much as the command itself: `true` took 87 us instead of 112, `echo hi` 104 instead of
# 130. Where bash and we share a core it costs 4 us instead: sched_yield does not always hand over at once.
_KEEN = 100e-6


class Poller:
    """Waits for one session; keeps its poll objects, as building one costs more than using it."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], select.poll] = {}

    def wait(self, wait: Wait) -> Ready:
        read, until, write, keen = wait
        poll = self._known.get((read, write)) or self._learn(read, write)
        if keen:
            give_up = time.monotonic() + _KEEN
            while time.monotonic() < give_up:
                os.sched_yield()
                if ready := poll.poll(0):
                    return [fd for fd, _ in ready]
        left = None if until is None else max(0, math.ceil(min(until - time.monotonic(), _LONGEST) * 1000))
        return [fd for fd, _ in poll.poll(left)]

    def _learn(self, read: tuple[int, ...], write: tuple[int, ...]) -> select.poll:
        if len(self._known) > 8:
            self._known.clear()
        poll = self._known[read, write] = select.poll()
        for fd in read:
            poll.register(fd, select.POLLIN)
        for fd in write:
            poll.register(fd, select.POLLOUT)
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
        for fd in wait.write:
            loop.add_writer(fd, self._wake, fd)
        timer = None
        if wait.until is not None:
            timer = loop.call_later(max(0.0, wait.until - time.monotonic()), _resolve, future)
        try:
            return await future
        finally:
            self._future = None
            if timer is not None:
                timer.cancel()
            for fd in wait.write:
                loop.remove_writer(fd)

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

    def wait(self) -> T | None:
        self._done.wait()
        return self._answer


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
        with self._lock:
            self._wanted[fd] = read
            if self._wake is None:
                self._start()
            else:
                os.write(self._wake[1], b"+")

    def _start(self) -> None:
        self._wake = os.pipe()
        try:
            threading.Thread(target=self._work, args=self._wake, name="shellsession-jobs", daemon=True).start()
        except RuntimeError:  # no more threads, or the interpreter ends: the job is not read, its session goes on
            for fd in self._wake:
                os.close(fd)
            self._wake = None

    def remove(self, fd: int) -> None:
        with self._lock:
            if self._wanted.pop(fd, None) is not None and self._wake is not None:
                os.write(self._wake[1], b"-")

    def _work(self, wake: int, wake_end: int) -> None:
        while True:
            with self._lock:
                if not self._wanted:
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


class LoopDrainer:
    """As ``Drainer``, on the running asyncio loop."""

    def __init__(self) -> None:
        self._wanted: dict[int, Callable[[], bool]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def enter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read on this loop from now on: the session is used on another than before."""
        self._loop = loop
        for fd in self._wanted:
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
# A lock that another thread held at the fork would stay locked in the child for ever.
os.register_at_fork(after_in_child=lambda: DRAINER.__init__())  # type: ignore[misc]  # a fresh one in its place
