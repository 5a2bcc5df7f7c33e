"""Who reads while nobody calls: one shared thread, or the asyncio loop.

Law: it runs only while there is something to read, and knows nothing of what it reads. Its lock comes before those of
all it reads for, as a collection can strike where it is held, and end a session: nobody asks it with one of them held.
"""

from __future__ import annotations

import os
import select
import time
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...models import Result
from .background import DRAINER
from .threads import SOON, Poller, Ready, Steps, T, Wait

if TYPE_CHECKING:
    import asyncio


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


class LoopWaiter:
    """As ``Waiter``, from task to task."""

    def __init__(self) -> None:
        import asyncio

        self._told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.result: Result | None = None

    def tell(self, result: Result | None) -> None:
        self.result = result
        if not self._told.done():
            self._told.set_result(None)

    async def wait(self, until: float | None) -> bool:
        """Was it told by that moment?"""
        import asyncio

        left = None if until is None else max(0.0, until - time.monotonic())
        told, _ = await asyncio.wait([self._told], timeout=left)
        return bool(told)


class LoopAlarm:
    """As ``Alarm``, for a coroutine on the running loop; outside of a loop setting it does nothing."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None  # asyncio itself holds its tasks weakly
        self._process = 0  # that runs the loop

    @property
    def is_set(self) -> bool:
        mine = self._handle is not None and self._process == os.getpid()
        return mine and self._loop is not None and self._loop.is_running()

    def set(self, seconds: float, ring: Callable[[], Coroutine[Any, Any, object]]) -> None:
        import asyncio

        with suppress(RuntimeError):  # no loop runs here
            loop = asyncio.get_running_loop()
            if not self.is_set:
                self._process = os.getpid()
                self._loop, self._handle = loop, loop.call_later(seconds, self._ring, loop, ring)

    def _ring(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._handle = None
        self._task = loop.create_task(ring())

    async def finish(self) -> None:
        """Wait until what it rang for in this loop is done."""
        import asyncio

        task = self._task
        if task is not None and task is not asyncio.current_task() and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([task])

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


# How often in a row at the most a loop looks again and again, and for how many waits not where that was in vain (5 ms
# commands: 0.1 %).
_IN_A_ROW = 10
_IN_VAIN = 20
_ONCE = select.EPOLLIN | select.EPOLLONESHOT


class _Output:
    """The output of all sessions of one loop, of which each turn of the loop reads one stream, in rotation.

    Asyncio runs all that is ready before it looks at the time again, and a process that prints without end is always
    ready. When a turn read all of 200 such streams it took 0.3 s, and a time limit, which needs about ten turns, came
    3 s late. The streams have an epoll of their own, which rotates through what is ready: epoll_wait(2).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, epoll: select.epoll) -> None:
        self._loop, self._owner, self._epoll = loop, os.getpid(), epoll
        self._registered: set[int] = set()
        self._pollers: dict[int, weakref.ref[LoopPoller]] = {}  # who waits for those that are watched now
        loop.add_reader(epoll.fileno(), _read_next, weakref.ref(self))  # weakly: this ends with the last session

    def __del__(self) -> None:
        if self._owner == os.getpid() and not self._loop.is_closed():
            self._loop.remove_reader(self._epoll.fileno())

    def read_next(self) -> None:
        for fd, _ in self._epoll.poll(0, 1):
            if (found := self._pollers.pop(fd, None)) is not None and (poller := found()) is not None:
                poller.notice(fd)

    def watch(self, fd: int, poller: weakref.ref[LoopPoller]) -> None:
        """Have the poller notice it once, in a turn in which the stream can be read and is the next.

        Not watched while it is read: with two epolls in a row, a wake-up for each write of 8 KiB took a fifth of the
        throughput.
        """
        if fd not in self._pollers:
            (self._epoll.modify if fd in self._registered else self._epoll.register)(fd, _ONCE)
            self._registered.add(fd)
            self._pollers[fd] = poller

    def remove(self, fd: int) -> None:
        self._registered.discard(fd)
        self._pollers.pop(fd, None)
        self._epoll.unregister(fd)


_OUTPUTS: weakref.WeakValueDictionary[asyncio.AbstractEventLoop, _Output] = weakref.WeakValueDictionary()


def _output_of(loop: asyncio.AbstractEventLoop) -> _Output | None:
    """None where the host has no free descriptor for one: then the loop itself watches the stream."""
    if (output := _OUTPUTS.get(loop)) is None:
        with suppress(OSError):
            output = _OUTPUTS[loop] = _Output(loop, select.epoll())
    return output


def _read_next(output: weakref.ref[_Output]) -> None:
    if (found := output()) is not None:
        found.read_next()


class LoopPoller:
    """As ``Poller``, for asyncio. What was waited for stays registered: putting it in and out costs 40 us.

    What is ready while it is not waited for is put out then, as the loop would tell of it without end, and in again
    when it is waited for next, whereupon the loop tells of it at once.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owner = 0  # the process whose loop that is
        self._readers: set[int] = set()
        self._output: _Output | None = None  # of that loop
        self._outputs: set[int] = set()  # that are registered there
        self._itself = weakref.ref(self)  # a session that nobody closes ends with its last reference
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

    def _register(self, loop: asyncio.AbstractEventLoop, wait: Wait) -> None:
        read = wait.read
        if wait.output:
            if (output := self._output or _output_of(loop)) is None:
                read += wait.output
            else:
                self._output = output
                for fd in wait.output:
                    output.watch(fd, self._itself)
                self._outputs.update(wait.output)
        for fd in read:
            if fd not in self._readers:
                loop.add_reader(fd, self._wake, fd)
                self._readers.add(fd)

    def _wake(self, fd: int) -> None:
        if _can_be_read(fd):  # else the loop has told of it a second time before who waited came to read it
            self.notice(fd)

    def notice(self, fd: int) -> None:
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
        self._future, self._awaited, self._ready = future, wait.read + wait.output, []
        self._register(loop, wait)
        for fd in wait.write:  # rare: when a peer is slow to take what it gets
            loop.add_writer(fd, _resolve, future, (fd,))
        timer = None
        if wait.within or wait.until is not None:
            left = wait.within or max(0.0, (wait.until or 0.0) - time.monotonic())
            timer = loop.call_later(left, _resolve, future, ())
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
        ours = self._owner == os.getpid()  # a forked child has the parent's loop, and would put it out of its epolls
        if fd in self._readers:
            self._readers.discard(fd)
            if ours and self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(fd)
        if fd in self._outputs:
            self._outputs.discard(fd)
            if ours and self._output is not None:
                self._output.remove(fd)
            if not self._outputs:  # with the last session of the loop its epoll ends
                self._output = None

    def forget_all(self) -> None:
        for fd in (*self._readers, *self._outputs):
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
