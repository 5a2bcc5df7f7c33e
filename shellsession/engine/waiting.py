"""How steps are driven and waited for: one way for plain threads, one for asyncio.

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
from collections.abc import Callable, Collection, Coroutine, Generator
from contextlib import suppress
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Wait(NamedTuple):
    """Resume me when one of these can be read (or written), or at the moment ``until`` (``time.monotonic``).

    ``keen``: it is to be expected within so many seconds, a thousandth at the most. ``shielded``: by who puts things in
    order, after whatever it was that struck; a task's cancellation is told behind that.
    """

    read: tuple[int, ...] = ()
    until: float | None = None
    keen: float = 0.0
    write: tuple[int, ...] = ()
    shielded: bool = False


Ready = Collection[int]
Steps = Generator[Wait, Ready, T]


# One poll(2) is no longer than this, in seconds: Ctrl-C between Python's last look for signals and the system call is
# only heard when that returns.
_LONGEST = 1.0
# How long to look again and again before going to sleep, in seconds. To wake a core that has gone to sleep costs 20 to
# 40 us in a virtual machine, as much as the command itself: `true` took 87 us instead of 112, `echo hi` 104 instead of
# 130. Where bash and we share a core it costs 4 us instead, as sched_yield does not always hand over at once; and all
# of it where the command takes longer: after such a one we sleep at once (`/bin/true` 1.03 ms instead of 1.15).
SOON = 200e-6
# A look that took longer than this was away from its core: what runs there comes to its end sooner without us.
_AWAY = 50e-6
# Each look lets other Python threads run, and one that computes keeps the interpreter for 5 ms: leave it for a while.
_TAKEN = 1e-3
_CALM = 100
# On a loop: how often in a row at the most, and for how many waits not where it was in vain (5 ms commands: 0.1 %).
_IN_A_ROW = 10
_IN_VAIN = 20


class Poller:
    """Waits for one session; keeps its poll objects, as building one costs more than using it."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], select.poll] = {}
        self._calm = 0  # for how many waits we do not look again and again
        self._was_quick = True  # what came the last time it was to be expected soon

    def wait(self, wait: Wait) -> Ready:
        read, until, keen, write, _ = wait
        begun = time.monotonic()
        if keen and self._was_quick and (ready := self.look(read, keen)):
            return ready
        poll = self._known.get((read, write)) or self._learn(read, write)
        while True:
            left = math.inf if until is None else until - time.monotonic()
            came = dict(poll.poll(max(0, math.ceil(min(left, _LONGEST) * 1000))))
            if came or left <= _LONGEST:
                break
        if keen:
            self._was_quick = time.monotonic() < begun + keen
        return came

    def look(self, read: tuple[int, ...], keen: float) -> Ready:
        """Look again and again for so many seconds; empty when nothing came."""
        if self._calm:
            self._calm -= 1
            return ()
        poll = self._known.get((read, ())) or self._learn(read, ())
        now = time.monotonic()
        give_up = now + keen
        while now < give_up:
            os.sched_yield()
            if ready := dict(poll.poll(0)):
                return ready
            before, now = now, time.monotonic()
            if now - before > _AWAY:
                if now - before > _TAKEN and threading.active_count() > 1:
                    self._calm = _CALM
                break
        return ()

    def _learn(self, read: tuple[int, ...], write: tuple[int, ...]) -> select.poll:
        if len(self._known) > 8:
            self._known.clear()
        poll = self._known[read, write] = select.poll()
        for fds, event in ((read, select.POLLIN), (write, select.POLLOUT)):
            for fd in fds:
                poll.register(fd, event)
        return poll


def drive(steps: Steps[T], poller: Poller | None = None) -> T:
    """Run steps to their end in this thread."""
    wait_for = (poller or Poller()).wait
    wait: Wait | None = None
    struck: BaseException | None = None
    while True:
        try:
            if struck is not None:
                told, struck = struck, None
                wait = steps.throw(told)
            elif wait is None:
                wait = next(steps)
            while True:  # in here, as Ctrl-C strikes where a loop begins again, too
                wait = steps.send(wait_for(wait))
        except StopIteration as stop:
            result: T = stop.value
            return result
        except BaseException as error:
            # Ctrl-C strikes anywhere. What came out of the steps has ended them; anything else they must hear of.
            if not isinstance(steps, GeneratorType) or steps.gi_frame is None:
                raise
            struck = error


class LoopPoller:
    """As ``Poller``, for asyncio. What was waited for stays registered: putting it in and out costs 40 us.

    What is ready while it is not waited for is put out then, as the loop would tell of it without end, and in again
    when it is waited for next, whereupon the loop tells of it at once.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owner = 0  # the process whose loop that is
        self._readers: set[int] = set()
        self._awaited: tuple[int, ...] = ()
        self._ready: list[int] = []  # of those
        self._future: asyncio.Future[Ready] | None = None
        self.on_unawaited: Callable[[], None] = lambda: None  # something became ready, and nobody waits
        self._eager = Poller()
        self._in_a_row = self._skipped = 0

    def _look(self, wait: Wait) -> Ready:
        """As ``Poller`` looks: going through the loop costs 40 us. But the loop is the others' as well."""
        if self._skipped:
            self._skipped -= 1
            return ()
        ready = self._eager.look(wait.read, wait.keen)
        self._in_a_row += 1
        if not ready or self._in_a_row == _IN_A_ROW:
            self._skipped, self._in_a_row = 1 if ready else _IN_VAIN, 0
        return ready

    def _enter(self) -> asyncio.AbstractEventLoop:
        import asyncio

        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.forget_all()
            self._loop, self._owner = loop, os.getpid()
        return loop

    def _wake(self, fd: int) -> None:
        if not _can_be_read(fd):  # the loop has told of it a second time before who waited came to read it
            return
        future = self._future
        if future is not None and fd in self._awaited:
            self._ready.append(fd)
            _resolve(future, self._ready)
            return
        self.forget(fd)
        if future is None:
            self.on_unawaited()

    async def wait(self, wait: Wait) -> Ready:
        # A loop is the others' as well: what takes longer than a command is not looked for in it.
        if 0 < wait.keen <= SOON and (ready := self._look(wait)):
            return ready
        loop = self._enter()
        future: asyncio.Future[Ready] = loop.create_future()
        self._future, self._awaited, self._ready = future, wait.read, []
        for fd in wait.read:
            if fd not in self._readers:
                loop.add_reader(fd, self._wake, fd)
                self._readers.add(fd)
        for fd in wait.write:  # rare: when a peer is slow to take what it gets
            loop.add_writer(fd, _resolve, future, (fd,))
        timer = None
        if wait.until is not None:
            timer = loop.call_later(max(0.0, wait.until - time.monotonic()), _resolve, future, ())
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
            # A forked child has the parent's loop, and would put it out of the parent's epoll.
            if self._loop is not None and not self._loop.is_closed() and self._owner == os.getpid():
                self._loop.remove_reader(fd)

    def forget_all(self) -> None:
        for fd in list(self._readers):
            self.forget(fd)


def _can_be_read(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _resolve(future: asyncio.Future[Ready], ready: Ready) -> None:
    if not future.done():
        future.set_result(ready)


async def adrive(
    steps: Steps[T], poller: LoopPoller, strike: BaseException | None = None, wait: Wait | None = None
) -> T:
    """Run steps to their end in this task; ``strike``: which struck in that ``wait``, and is told behind a shield."""
    untold = strike
    try:
        wait = wait or next(steps)
        while True:
            if untold is not None and not wait.shielded:
                told, untold = untold, None
                wait = steps.throw(told)
            try:
                ready = await poller.wait(wait)
            except BaseException as error:
                if strike is None and _is_cancellation(error):
                    return await _put_in_order(steps, poller, error, wait)
                wait = steps.throw(error)
            else:
                wait = steps.send(ready)
    except BaseException as error:
        if untold is not None:  # what struck first ended them: one who is cancelled is told of that
            raise untold from (None if isinstance(error, StopIteration) else error)
        if isinstance(error, StopIteration):
            result: T = error.value
            return result
        raise


def shielded(steps: Steps[T]) -> Steps[T]:
    """Steps that put things in order: a task that is cancelled meanwhile lets them end."""
    try:
        wait = next(steps)
        while True:
            try:
                ready = yield wait._replace(shielded=True)
            except BaseException as error:
                wait = steps.throw(error)
            else:
                wait = steps.send(ready)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _is_cancellation(error: BaseException) -> bool:
    import asyncio

    return isinstance(error, asyncio.CancelledError)


async def _put_in_order(steps: Steps[T], poller: LoopPoller, strike: BaseException, wait: Wait) -> T:
    try:
        return await to_its_end(adrive(steps, poller, strike, wait))
    except BaseException as error:
        if _is_cancellation(error):
            raise strike from error.__cause__  # the very one: anyio knows its own by what they say
        raise


async def ends_by(task: asyncio.Task[Any], until: float | None) -> bool:
    """Wait for a task that is not cancelled with us, nor we with it: has it ended by that moment?"""
    import asyncio

    await asyncio.wait([task], timeout=None if until is None else max(0.0, until - time.monotonic()))
    return task.done()


async def to_its_end(work: Coroutine[Any, Any, T], may_hang: bool = False) -> T:
    """Await what puts things in order, though this task is cancelled meanwhile, once (asyncio) or all the time (anyio).

    That is told once it is done. ``may_hang``: it waits for another process; the end of the loop, which cancels all
    tasks that are known to it, ends it as well.
    """
    import asyncio

    task, struck = asyncio.get_running_loop().create_task(work), None
    if not may_hang:  # cancelled so before its first step, it would never begin
        asyncio._unregister_task(task)
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            struck = struck or error
    if struck is None:
        return task.result()
    with suppress(BaseException):  # else asyncio says that nobody has asked
        task.result()
    raise struck
