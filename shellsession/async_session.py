"""AsyncSession: one bash that stays open, for asyncio.

Law: what a verb does is in ``engine.verbs``, and whose turn it is in ``Turns``. Session has the same verbs with
the same signatures.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from .base import CALLBACK_RUNS, LOOK_PATIENCE, Base
from .engine.io.loop import LoopDrainer, LoopPoller, LoopWaiter, adrive, ends_by, to_its_end
from .engine.io.threads import Steps, T
from .engine.verbs.expect import expect, late
from .engine.verbs.verbs import Superseded
from .errors import ANOTHER_LOOP, CLOSED, ENDED, IN_CALLBACK, NOT_YOURS, RESTARTED, NotRunning, SessionBusy
from .models import OnOutput, Request, Result, Stream, to_bytes
from .signatures import LoopSession, Seconds, Text

if TYPE_CHECKING:
    import asyncio

    from .engine.verbs.command import Call
    from .engine.verbs.verbs import Engine


# A loop that ends when an iterator was left has ended by then, in seconds, also on a busy machine.
_LOOP_PATIENCE: Final = 0.5


class Pieces(AsyncIterator[tuple[Stream, bytes] | Result]):
    """What ``AsyncSession.stream`` gives. Asyncio closes a generator that was left by ``break`` some time later; this
    knows at once that nobody holds it any more."""

    def __init__(self, pieces: AsyncGenerator[tuple[Stream, bytes] | Result], followed: list[Call]) -> None:
        self._pieces, self._followed = pieces, followed

    async def __anext__(self) -> tuple[Stream, bytes] | Result:
        return await self._pieces.__anext__()

    async def aclose(self) -> None:
        """Interrupt the command, unless it has ended."""
        await self._pieces.aclose()

    def __del__(self) -> None:
        for call in self._followed:
            call.delivery.abandon()


def in_a_while(begin: Callable[[], Coroutine[Any, Any, object]], is_left: Callable[[], bool]) -> None:
    """End what was left, unless that has ended by then, or its loop has: then who uses the session next does it.

    Asyncio closes an iterator in a task that no end of a loop waits for. Begun there, and cut off, it cost the shell.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    loop.call_later(_LOOP_PATIENCE, lambda: loop.create_task(begin()) if is_left() else None)


class Outlet:
    """An ``on_output`` that may be a coroutine function. While it is awaited nothing more is read: who takes the output
    slowly slows the command down, and nothing piles up."""

    def __init__(self, take: OnOutput, engine: Engine) -> None:
        self._take, self._engine = take, engine
        self._pieces: deque[Awaitable[object]] = deque()
        self._task: asyncio.Task[None] | None = None
        self.call: Call | None = None  # of whose output it awaits, once there is any

    def __call__(self, stream: Stream, data: bytes) -> None:
        came = self._take(stream, data)
        if isinstance(came, Awaitable):
            self._pieces.append(came)
            self.call = call = self._engine.last
            if call is not None and (self._task is None or self._task.done()):
                import asyncio

                self._engine.pause(call)
                self._task = asyncio.get_running_loop().create_task(self._work(call))

    async def _work(self, call: Call) -> None:
        import asyncio

        # Its own to tell: an eager task (asyncio.eager_task_factory) may run to its end before who makes it knows it.
        me = asyncio.current_task()
        self._engine.callback_tasks.add(me)
        fault: BaseException | None = None
        try:
            while self._pieces:
                await self._pieces.popleft()
        except BaseException as error:
            call.mute()
            # A task that was cancelled knows: another task that is at the command later does not.
            fault = None if isinstance(error, asyncio.CancelledError) else error
            while self._pieces:
                _discard(self._pieces.popleft())
        self._engine.callback_tasks.discard(me)
        self._engine.go_on(call, fault)

    @property
    def is_at_work(self) -> bool:
        """Does it await the callback just now? One of a loop that was stopped does for ever."""
        import asyncio

        task = self._task
        return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()

    async def finish(self, until: float | None = None) -> bool:
        """The command has come back: everything it printed is to be taken, too. Was it, by that moment?

        Raises what the callback raised.
        """
        if self._task is not None and self.is_at_work and not await ends_by(self._task, until):
            return False
        if self.call is not None:
            self.call.raise_fault()
        return True

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _discard(piece: Awaitable[object]) -> None:
    if isinstance(piece, Coroutine):
        piece.close()


class Turns:
    """An asyncio.Lock does not know who is to come first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.taken = False  # somebody has the turn, or is about to
        self._restarts: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    async def take(self, first: bool = False, again: bool = False) -> None:
        """Wait for the turn. ``again``: who had it, and let a restart go first, keeps its place."""
        if not self.taken:
            self.taken = True
            return
        line = self._restarts if first else self._others
        turn = self.loop.create_future()
        (line.appendleft if again else line.append)(turn)
        await self._until(turn, line)
        while self._restarts and not first:  # one came while we were on our way
            line.appendleft(turn := self.loop.create_future())
            self.give_up()
            await self._until(turn, line)

    async def _until(self, turn: asyncio.Future[None], line: deque[asyncio.Future[None]]) -> None:
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it came, and is not wanted any more
                self.give_up()
            with suppress(ValueError):
                line.remove(turn)
            raise

    def give_up(self) -> None:
        """The next one's turn."""
        if self.loop.is_closed():  # who had it is collected long after: those who wait there cannot be woken any more
            return
        for line in (self._restarts, self._others):
            while line:
                if not (turn := line.popleft()).done():
                    turn.set_result(None)
                    return
        self.taken = False


# How long `interrupt` waits for a callback that is awaited, in seconds.
_CALLBACK_PATIENCE = 1.0


class AsyncSession(Base, LoopSession[Request]):
    """``Session`` for asyncio: the same verbs, awaited. Tasks on one session are served one after the other.

    They are of one loop: from another one, while the first runs and is in a verb, each verb raises SessionBusy.
    """

    def _prepare(self) -> None:
        self._poller = LoopPoller()
        self._turns: Turns | None = None
        self._turn = object()
        self._drainer = LoopDrainer()
        # Of the output of the last command that has one; held weakly, as it may hold whoever holds the session.
        self._taker: Callable[[], Outlet | None] = lambda: None
        self._engine.reader = self._drainer
        self._engine.forget_fd = self._poller.forget
        self._engine.on_close = self._poller.forget_all

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _start(self, verb: Callable[[], Steps[T]], first: bool = False) -> T:
        """As ``Session._start``."""
        again = False
        while True:
            try:
                return await self._do(verb(), first, again)
            except Superseded:
                again = True

    async def _do(self, steps: Steps[T], first: bool = False, again: bool = False) -> T:
        import asyncio

        loop = asyncio.get_running_loop()
        self._refuse_callbacks()
        if self._turns is None or self._turns.loop is not loop:
            self._refuse_another_loop()
            self._turns = Turns(loop)
            self._waiters.clear()  # of tasks of another loop
        self._drainer.enter(loop)
        turns = self._turns
        try:
            await turns.take(first, again)
        except BaseException:
            if self._turns is turns and not turns.taken:
                self._leave()  # it was to notify those that wait with it
            raise
        self._turn = turn = object()
        try:
            self._engine.stop_unattended()
            return await adrive(steps, self._poller)
        finally:
            turns.give_up()
            if self._turn is turn:  # else this is collected long after its loop was closed
                self._leave()

    async def _result_of(self, steps: Steps[Result], until: float | None = None) -> Result:
        """As ``_do``, for a result. An ending is delivered once an awaited callback has taken all of the output.

        Where it has not by that moment, the ending is kept for the next who asks: to empty a queue that the callback
        fills may be what the caller does between two verbs.
        """
        engine, taker = self._engine, self._taker()  # before: the call lets it go at its end
        result = await self._do(steps)
        if taker is not None and (call := taker.call) is engine.last and call is not None and not result.runs_on:
            try:
                if not await taker.finish(until) and call is engine.last and not self.closed:
                    call.delivery.take_back()
                    return self._elsewhere(CALLBACK_RUNS)
            except BaseException:
                taker.cancel()
                raise
        engine.forget_output(result)
        return result

    def _have_it_read(self) -> None:
        import asyncio

        loop = None
        with suppress(RuntimeError):  # none runs here
            loop = asyncio.get_running_loop()
        if self._owner == os.getpid():
            self._drainer.follow(loop)

    def _refuse_callbacks(self) -> None:
        import asyncio

        if self._engine.callback_tasks and asyncio.current_task() in self._engine.callback_tasks:
            raise SessionBusy(IN_CALLBACK)

    def _refuse_another_loop(self) -> None:
        """Two at once would read the same streams, and give up each other's shell. One that was stopped is no other."""
        import asyncio

        if self._busy_loop() not in (None, asyncio.get_running_loop()):
            raise SessionBusy(ANOTHER_LOOP)

    def _kill_running(self, why: str) -> None:
        self._refuse_callbacks()
        self._refuse_another_loop()
        if self._is_in_use():
            self._engine.kill_running(why)

    def _is_in_use(self) -> bool:
        """Does a task of this loop run a verb, or wait for its turn?"""
        import asyncio

        return self._busy_loop() is asyncio.get_running_loop()

    def _busy_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop, if it runs, a task of which runs a verb, or waits for its turn."""
        turns = self._turns
        return turns.loop if turns is not None and turns.taken and turns.loop.is_running() else None

    async def open(self) -> Self:
        """Start bash now. Raises ShellUnavailable."""
        await self._start(lambda: self._mine().open())
        return self

    async def _run(self, request: Request) -> Result:
        engine = self._mine()
        if request.on_output is None:
            engine.forget_output(result := await self._start(lambda: engine.run(request)))
            return result
        taker, handed_back = Outlet(request.on_output, engine), None
        self._taker = weakref.ref(taker)
        request = request.with_output(taker)
        try:
            result = await self._start(lambda: engine.run(request))
            handed_back = engine.handed_back if result.runs_on else None
            await taker.finish()
        except BaseException:
            taker.cancel()
            if handed_back is not None:  # nobody gets the result that says so
                await to_its_end(self._do(engine.drop(handed_back)))
            raise
        engine.forget_output(result)
        return result

    def _stream(self, request: Request) -> Pieces:
        followed: list[Call] = []
        return Pieces(self._follow(self._mine(), request, followed), followed)

    async def _follow(
        self, engine: Engine, request: Request, followed: list[Call]
    ) -> AsyncGenerator[tuple[Stream, bytes] | Result]:
        call = await self._start(lambda: engine.follow(request))
        followed.append(call)
        try:
            while call.delivery.runs_on:
                for piece in await self._do(self._mine().next_pieces(call)):
                    yield piece
            for piece in call.take_pieces() if call.delivery.result else await self._do(engine.next_pieces(call)):
                yield piece
            engine.forget_output(result := call.delivery.deliver())
            yield result
        finally:
            is_dropped = call.delivery.abandoned  # nobody holds the iterator: asyncio closes it, some time
            call.delivery.abandon()
            if call.delivery.runs_on and self._owner == os.getpid():
                if is_dropped:
                    in_a_while(lambda: self._do(self._mine().drop(call)), lambda: call.delivery.runs_on)
                else:
                    await self._do(engine.drop(call))

    async def wait(self, timeout: Seconds = ...) -> Result:
        """As ``Session.wait``, also for a command that another task is in. Cancelling the task ends the command."""
        engine, until = self._mine(), self._until(timeout)
        if (shared := await self._join_running(until)) is not None:
            return shared
        return await self._result_of(engine.wait(until), until)

    async def poll(self) -> Result:
        """What the running command printed since the last time, without waiting."""
        engine = self._mine()
        if (shared := await self._join_running(time.monotonic() + LOOK_PATIENCE)) is not None:
            return shared
        return await self._result_of(engine.poll(), time.monotonic() + LOOK_PATIENCE)

    async def send(self, text: Text, timeout: Seconds = ...) -> Result:
        """Type into the running command's terminal (Enter is \"\\n\"), then stay with it as ``wait`` does."""
        engine, data, until = self._mine(), to_bytes("text", text), self._until(timeout)
        await self._await_turn(until)
        return await self._result_of(engine.send(data, until), until)

    async def type(self, text: Text) -> None:
        """As ``Session.type``."""
        engine, data, until = self._mine(), to_bytes("text", text), self._until(...)
        await self._await_turn(until)
        await self._do(engine.type(data, until))

    async def interrupt(self) -> Result:
        """As ``Session.interrupt``, also from another task."""
        engine = self._mine()
        meant = engine.current
        if (shared := await self._join_running(None, lambda: engine.request_interrupt(meant))) is not None:
            return shared if meant is None else meant.delivery.result or shared
        return await self._result_of(engine.interrupt(meant), time.monotonic() + _CALLBACK_PATIENCE)

    async def _join_running(self, until: float | None, once_waiting: Callable[[], None] | None = None) -> Result | None:
        """As ``Session._join_running``."""
        if not self._is_in_use():
            return None
        waiter = LoopWaiter()
        self._waiters.append(waiter)
        if once_waiting is not None:
            once_waiting()
        try:
            return waiter.result if await waiter.wait(until) else self._elsewhere()
        finally:
            with suppress(ValueError):  # it has its result
                self._waiters.remove(waiter)

    async def _await_turn(self, until: float | None) -> None:
        """As ``Session._await_turn``."""
        if (shared := await self._join_running(until)) is not None:
            raise SessionBusy(NOT_YOURS) if shared.runs_on else NotRunning(ENDED)

    async def _expect(self, pattern: Any, timeout: Seconds, exact: bool) -> int:
        engine, until = self._mine(), self._until(timeout)
        if (shared := await self._join_running(until)) is not None and shared.runs_on:
            return late(pattern, exact)
        return await self._do(expect(engine, pattern, until, exact))

    def _on_change(self, do: Callable[[], None]) -> None:
        """Have that method called when bash says something while no verb runs: mostly, that what was handed back ended.

        It is held weakly: our finalizer keeps the engine, and that the poller. Whose method it is would live for ever.
        """
        method = weakref.WeakMethod(do)
        self._poller.on_unawaited = lambda: None if (call := method()) is None else call()

    async def _look(self) -> Result | None:
        """The ending of what was handed back, if it has ended; it is not delivered by that."""
        engine = self._mine()
        if (call := engine.handed_back) is not None:
            await self._do(engine.await_output(call, time.monotonic(), "yield"))
        return engine.due

    async def _close_if_idle(self, idle: float | None) -> None:
        """As ``Session._close_if_idle``."""
        if idle is not None and self._busy_loop() is None and not self.attached:
            await self._do(self._engine.close_if_idle(idle))

    async def restart(self) -> None:
        """As ``Session.restart``; what another task runs is ended."""
        self._refuse_callbacks()
        engine = self._mine()
        engine.refuse_restart()
        self._kill_running(RESTARTED)
        await self._start(engine.restart, first=True)  # what queues for a turn is run in the fresh one

    async def close(self) -> None:
        """End the session and everything it started, though the task be cancelled; a second time does nothing."""
        if self._owner == os.getpid():
            self._kill_running(CLOSED)
            self._engine.closed = True  # whoever queues for a turn is refused at once
            await to_its_end(self._do(self._mine().close()))
            if (taker := self._taker()) is not None and taker.is_at_work:  # who waits for that, waits no more
                taker.cancel()
