"""Waiting on an asyncio loop: the counterparts of ``threads``, ``drainer``, ``waiter`` and ``alarm``.

``LoopPoller`` and ``adrive`` run steps in a task. ``LoopDrainer`` reads the output of background jobs, ``LoopWaiter``
lets a task wait for a call that another task is in, and ``LoopAlarm`` is a timer. ``to_its_end`` awaits a cleanup even
if its task is cancelled; ``in_thread`` calls what blocks.

Asyncio is imported only inside functions: a host without it does not pay for it.
"""

from __future__ import annotations

import os
import select
import time
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...errors import LATE, SessionBusy
from ...models import Result
from .drainer import DRAINER
from .line import Line, Place
from .threads import SOON, Poller, Ready, Steps, T, Wait

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future


# A loop spins in at most this many waits in a row, and then blocks in one. After a spin in vain it blocks in this many
# (with commands of 5 ms, spinning then costs 0.1 %).
_SPINS_IN_A_ROW = 10
_BLOCKS_AFTER_VAIN_SPIN = 20
_ONCE = select.EPOLLIN | select.EPOLLONESHOT


class _OutputQueue:
    """The output of all sessions of one loop. Each iteration of the loop reads one stream, round robin.

    Asyncio runs all ready callbacks before it looks at the clock again, and a process that prints without end is always
    ready. When an iteration read all of 200 such streams it took 0.3 s. A time limit needs about ten iterations, and
    came 3 s late. The streams have their own epoll, which rotates through what is ready: epoll_wait(2).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, epoll: select.epoll) -> None:
        self._loop, self._owner, self._epoll = loop, os.getpid(), epoll
        self._registered: set[int] = set()
        self._pollers: dict[int, weakref.ref[LoopPoller]] = {}  # the pollers of the streams that are watched now
        loop.add_reader(epoll.fileno(), _read_next, weakref.ref(self))  # weakly: this object ends with the last session

    def __del__(self) -> None:
        if self._owner == os.getpid() and not self._loop.is_closed():
            self._loop.remove_reader(self._epoll.fileno())

    def read_next(self) -> None:
        for fd, _ in self._epoll.poll(0, 1):
            if (found := self._pollers.pop(fd, None)) is not None and (poller := found()) is not None:
                poller.notice(fd)

    def watch(self, fd: int, poller: weakref.ref[LoopPoller]) -> None:
        """``notice`` the stream once in the poller, when it is readable and next in the rotation.

        The stream is not watched while it is read: with two nested epolls, a wake-up for each write of 8 KiB cost a
        fifth of the throughput.
        """
        if fd not in self._pollers:
            (self._epoll.modify if fd in self._registered else self._epoll.register)(fd, _ONCE)
            self._registered.add(fd)
            self._pollers[fd] = poller

    def remove(self, fd: int) -> None:
        self._registered.discard(fd)
        self._pollers.pop(fd, None)
        self._epoll.unregister(fd)


_QUEUES: weakref.WeakValueDictionary[asyncio.AbstractEventLoop, _OutputQueue] = weakref.WeakValueDictionary()


def _queue_of(loop: asyncio.AbstractEventLoop) -> _OutputQueue | None:
    """The loop's queue; None where the host has no free descriptor for one. Then the loop itself watches the stream."""
    if (queue := _QUEUES.get(loop)) is None:
        with suppress(OSError):
            queue = _QUEUES[loop] = _OutputQueue(loop, select.epoll())
    return queue


def _read_next(reference: weakref.ref[_OutputQueue]) -> None:
    if (queue := reference()) is not None:
        queue.read_next()


class LoopPoller:
    """As ``Poller``, for asyncio. Descriptors stay registered between waits: removing and adding one costs 40 us.

    If a descriptor becomes ready while nobody waits for it, it is removed, as the loop would report it over and over.
    The next wait for it adds it again, and the loop reports it at once.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owner = 0  # the process that runs the loop
        self._readers: set[int] = set()  # registered with the loop
        self._queue: _OutputQueue | None = None  # of the loop
        self._outputs: set[int] = set()  # registered with the queue
        self._itself = weakref.ref(self)  # weakly: a session that nobody closes ends with its last reference
        self._awaited: tuple[int, ...] = ()
        self._ready: list[int] = []  # of the awaited ones
        self._future: asyncio.Future[Ready] | None = None
        self.on_unawaited: Callable[[], None] = lambda: None  # called when something is ready while nobody waits
        self._spinner = Poller()
        self._spins = self._waits_without_spin = 0

    def _spin(self, wait: Wait) -> Ready:
        """Busy-poll as ``Poller`` does: a way through the loop costs 40 us. But other tasks need the loop, too."""
        if self._waits_without_spin:
            self._waits_without_spin -= 1
            return ()
        ready = self._spinner.spin(wait.read, wait.spin)
        self._spins += 1
        if not ready or self._spins == _SPINS_IN_A_ROW:
            self._waits_without_spin, self._spins = 1 if ready else _BLOCKS_AFTER_VAIN_SPIN, 0
        return ready

    def _enter(self) -> asyncio.AbstractEventLoop:
        import asyncio

        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.forget_all()
            self._loop, self._owner = loop, os.getpid()
        return loop

    def _register(self, loop: asyncio.AbstractEventLoop, wait: Wait) -> None:
        """Register what the wait is for, with the queue (its output) or the loop."""
        read = wait.read
        if wait.output:
            if (queue := self._queue or _queue_of(loop)) is None:
                read += wait.output
            else:
                self._queue = queue
                for fd in wait.output:
                    queue.watch(fd, self._itself)
                self._outputs.update(wait.output)
        for fd in read:
            if fd not in self._readers:
                loop.add_reader(fd, self._on_event, fd)
                self._readers.add(fd)

    def _on_event(self, fd: int) -> None:
        if _is_readable(fd):  # else the loop reports it a second time, and the task has read it in between
            self.notice(fd)

    def notice(self, fd: int) -> None:
        """A descriptor is readable: end the wait for it, or remove it until the next wait."""
        future = self._future
        if future is not None and fd in self._awaited:
            self._ready.append(fd)
            _resolve(future, self._ready)
            return
        self.forget(fd)
        if future is None:
            self.on_unawaited()

    async def wait(self, wait: Wait) -> Ready:
        """Suspend the task until a descriptor is ready or the time is up; the ready ones."""
        # Other tasks need the loop, too: it never spins for longer than a short command takes.
        if 0 < wait.spin <= SOON and (ready := self._spin(wait)):
            return ready
        loop = self._enter()
        future: asyncio.Future[Ready] = loop.create_future()
        self._future, self._awaited, self._ready = future, wait.read + wait.output, []
        self._register(loop, wait)
        for fd in wait.write:  # rare: a peer is slow to read
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
        """Remove a descriptor before it is closed: a stale registration would affect the next owner of the number."""
        is_ours = self._owner == os.getpid()  # a forked child would remove it from the parent's epolls
        if fd in self._readers:
            self._readers.discard(fd)
            if is_ours and self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(fd)
        if fd in self._outputs:
            self._outputs.discard(fd)
            if is_ours and self._queue is not None:
                self._queue.remove(fd)
            if not self._outputs:  # the queue ends with the last session of the loop
                self._queue = None

    def forget_all(self) -> None:
        """``forget`` every descriptor."""
        for fd in (*self._readers, *self._outputs):
            self.forget(fd)


def _is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _resolve(future: asyncio.Future[Ready], ready: Ready) -> None:
    if not future.done():
        future.set_result(ready)


async def adrive(
    steps: Steps[T], poller: LoopPoller, cancellation: BaseException | None = None, wait: Wait | None = None
) -> T:
    """Run steps to their end in this task, and return their result.

    ``cancellation``: the exception that was raised in ``wait``. It is thrown into the steps once they are not shielded.
    """
    deferred = cancellation
    try:
        wait = wait or next(steps)
        while True:
            if deferred is not None and not wait.shielded:
                error, deferred = deferred, None
                wait = steps.throw(error)
            try:
                ready = await poller.wait(wait)
            except BaseException as error:
                if cancellation is None and _is_cancellation(error):
                    return await _finish_cancelled(steps, poller, error, wait)
                wait = steps.throw(error)
            else:
                wait = steps.send(ready)
    except BaseException as error:
        if deferred is not None:  # the steps ended within their shield: a cancelled task still raises its cancellation
            raise deferred from (None if isinstance(error, StopIteration) else error)
        if isinstance(error, StopIteration):
            result: T = error.value
            return result
        raise


def _is_cancellation(error: BaseException) -> bool:
    import asyncio

    return isinstance(error, asyncio.CancelledError)


async def _finish_cancelled(steps: Steps[T], poller: LoopPoller, cancellation: BaseException, wait: Wait) -> T:
    """Run the steps to their end after a cancellation, so that they can clean up."""
    try:
        return await to_its_end(adrive(steps, poller, cancellation, wait))
    except BaseException as error:
        if _is_cancellation(error):
            raise cancellation from error.__cause__  # the same object: anyio recognises its own by their message
        raise


async def ends_by(task: asyncio.Task[Any], until: float | None) -> bool:
    """Wait for a task; has it ended in time? Neither task's cancellation cancels the other."""
    import asyncio

    await asyncio.wait([task], timeout=None if until is None else max(0.0, until - time.monotonic()))
    return task.done()


async def to_its_end(work: Coroutine[Any, Any, T], may_hang: bool = False) -> T:
    """Await a cleanup to its end, even if this task is cancelled meanwhile: once (asyncio) or repeatedly (anyio).

    A cancellation is raised afterwards. ``may_hang``: the work waits for another process. Then the end of the loop,
    which cancels all tasks that it knows, ends the work as well.
    """
    import asyncio

    task, cancellation = asyncio.get_running_loop().create_task(work), None
    if not may_hang:  # hide it from asyncio.run: cancelled before its first step, it would never begin
        asyncio._unregister_task(task)
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancellation = cancellation or error
    if cancellation is None:
        return task.result()
    with suppress(BaseException):  # else asyncio logs that nobody has retrieved the exception
        task.result()
    raise cancellation


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Call a function in its own thread: the end of a loop would wait for those of its executor."""
    import threading
    from concurrent.futures import Future

    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from now on nobody can cancel it

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="shellsession-connect", daemon=True).start()
    return future


_TASKS: set[asyncio.Task[object]] = set()  # asyncio itself refers to its tasks weakly


def in_task(work: Coroutine[Any, Any, object]) -> None:
    """Run ``work`` in its own task on the running loop."""
    import asyncio

    task = asyncio.get_running_loop().create_task(work)
    _TASKS.add(task)
    task.add_done_callback(_TASKS.discard)


class LoopDrainer:
    """As ``Drainer``, on the running asyncio loop; once that loop is closed, the drainer's thread reads.

    Readers that call the user back are not handed to the thread: they wait for the next loop.
    """

    def __init__(self) -> None:
        self._readers: dict[int, tuple[Callable[[], bool], bool]] = {}  # by descriptor; with ``calls_back``
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owner = 0  # the process that runs the loop

    def enter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read on this loop from now on, if the last one was another."""
        if (before := self._loop) is loop:
            return
        self._loop, self._owner = loop, os.getpid()
        for fd in list(self._readers):
            if before is not None and not before.is_closed():
                before.remove_reader(fd)
            loop.add_reader(fd, _Callback(self, loop, fd))

    def ensure_reading(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Make sure that something reads, while the session is only inspected. ``loop``: the one that runs here.

        Does nothing while the loop of the last call runs. Else this loop takes over, or the thread if there is none.
        """
        before = self._loop
        if before is None or not before.is_running():
            if loop is not None:
                self.enter(loop)
            elif before is not None:
                self.hand_over(before)

    def hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop was stopped or closed: the thread reads from now on, even if a loop runs again."""
        if loop is not self._loop or self._owner != os.getpid():
            return
        self._loop = None if loop.is_closed() else loop
        for fd, (read, calls_back) in list(self._readers.items()):
            if not calls_back:
                self.remove(fd, read)  # first: from then on only the thread removes it
                if not DRAINER.add(fd, read):
                    self.add(fd, read)

    def add(self, fd: int, read: Callable[[], bool], calls_back: bool = False) -> None:
        """Call ``read`` whenever the descriptor is readable, until it returns False."""
        self._readers[fd] = read, calls_back
        if self._loop is not None:
            self._loop.add_reader(fd, _Callback(self, self._loop, fd))

    def ready(self, fd: int) -> None:
        """The loop found the descriptor readable."""
        reader = self._readers.get(fd)
        # A forked child may run its parent's loop, to end it: the data is the parent's.
        if reader is not None and self._owner == os.getpid() and not reader[0]():
            self.remove(fd, reader[0])

    def remove(self, fd: int, read: Callable[[], bool]) -> None:
        """Stop reading the descriptor, if ``read`` is still its reader."""
        DRAINER.remove(fd, read)  # it may have been handed over
        if (reader := self._readers.get(fd)) is None or reader[0] is not read:
            return
        # A forked child would remove it from the parent's epoll.
        if self._loop is not None and not self._loop.is_closed() and self._owner == os.getpid():
            with suppress(OSError, ValueError):
                self._loop.remove_reader(fd)
        self._readers.pop(fd, None)  # last: if Ctrl-C comes before, a second call finds it again


class _Callback:
    """The loop's callback for one descriptor. Only the loop refers to it, so it is deleted when the loop is closed.

    Asyncio has no other notice of that.
    """

    def __init__(self, drainer: LoopDrainer, loop: asyncio.AbstractEventLoop, fd: int) -> None:
        self._drainer, self._loop, self._fd = drainer, loop, fd

    def __call__(self) -> None:
        self._drainer.ready(self._fd)

    def __del__(self) -> None:
        if self._loop.is_closed():
            self._drainer.hand_over(self._loop)


class LoopWaiter:
    """As ``Waiter``, between tasks."""

    def __init__(self) -> None:
        import asyncio

        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.result: Result | None = None

    def notify(self, result: Result | None) -> None:
        """The call has ended: with the command's result, or without one."""
        self.result = result
        if not self._ended.done():
            self._ended.set_result(None)

    async def wait(self, until: float | None) -> bool:
        """Wait for ``notify``; False when the time is up."""
        import asyncio

        left = None if until is None else max(0.0, until - time.monotonic())
        ended, _ = await asyncio.wait([self._ended], timeout=left)
        return bool(ended)


class TaskPlace(Place):
    """The place of a task in a line."""

    _turn: asyncio.Future[None] | None = None

    def wake(self) -> None:
        # A holder that is collected after its loop was closed cannot wake the others.
        if (turn := self._turn) is not None and not turn.done() and not turn.get_loop().is_closed():
            turn.set_result(None)

    async def wait_in(self, line: TaskLine) -> None:
        """Wait for the turn of this place."""
        while not line.has_turn(self):
            self._turn = line.loop.create_future()
            await self._turn


class TaskLine(Line[TaskPlace]):
    """A line of tasks of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop

    async def take(self, place: TaskPlace) -> TaskPlace:
        """Enter, and wait for the turn of this place. Returns it. Raises SessionBusy if its time is up before."""
        import asyncio

        self.enter(place)
        try:
            if not self.has_turn(place):  # else a timer would cost as much as all the rest here
                async with asyncio.timeout(place.within):
                    await place.wait_in(self)
        except BaseException as error:
            self.leave(place)
            if isinstance(error, TimeoutError):
                raise SessionBusy(LATE) from None
            raise
        return place


class LoopAlarm:
    """As ``Alarm``, for a coroutine on the running loop. Where no loop runs, ``set`` does nothing."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None  # asyncio itself refers to its tasks weakly
        self._process = 0  # the process that runs the loop

    @property
    def is_set(self) -> bool:
        is_ours = self._handle is not None and self._process == os.getpid()
        return is_ours and self._loop is not None and self._loop.is_running()

    def set(self, seconds: float, callback: Callable[[], Coroutine[Any, Any, object]]) -> None:
        import asyncio

        with suppress(RuntimeError):  # no loop runs here
            loop = asyncio.get_running_loop()
            if not self.is_set:
                self._process = os.getpid()
                self._loop, self._handle = loop, loop.call_later(seconds, self._run, loop, callback)

    def _run(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._handle = None
        self._task = loop.create_task(callback())

    async def finish(self) -> None:
        """Wait for the end of a callback that runs on this loop."""
        import asyncio

        task = self._task
        if task is not None and task is not asyncio.current_task() and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([task])

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
