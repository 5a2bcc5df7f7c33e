"""``AsyncSession``: one bash that stays open, for asyncio.

The operations themselves are in ``engine.verbs``. Here tasks wait for their turn. ``Outlet`` awaits callbacks, and
``Pieces`` is the iterator of ``stream``. Session has the same methods with the same signatures.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from .base import CALLBACK_RUNS, LOOK_PATIENCE, Base, check_count
from .branch.checkpoint import name_of_checkpoint
from .branch.files import AsyncBranchFiles
from .engine.io.loop import LoopDrainer, LoopPoller, LoopWaiter, TaskLine, TaskPlace, adrive, ends_by, to_its_end
from .engine.io.threads import Steps, T, drive
from .engine.verbs.engine import Moved, RestartPending
from .engine.verbs.expect import expect, late
from .engine.verbs.noticing import Reader, reader_of
from .engine.verbs.session_job import LoopJob
from .engine.verbs.state import check_snapshot
from .errors import (
    ANOTHER_LOOP,
    CLOSED,
    ENDED,
    IN_CALLBACK,
    NOT_YOURS,
    RESTARTED,
    STILL_RUNS,
    NotRunning,
    SessionBusy,
    ShellSessionError,
)
from .files import FileReply, FileRequest, Transfer
from .keys import check_keys
from .models import OnOutput, Request, Result, Stream, Why, check_flag, to_bytes
from .notices import Notice, Watch
from .paging import Query, Read, page
from .signatures import Command, LoopSession, RunOptions, Seconds, Text, check_idle, pattern_of, refuse_unknown

if TYPE_CHECKING:
    import asyncio

    from .branch.attempt import AsyncAttempt
    from .branch.checkpoint import Checkpoint
    from .engine.verbs.call import Call
    from .engine.verbs.engine import Engine
    from .engine.verbs.session_job import SessionJob
    from .policy.rules import Policy
    from .state.snapshot import Snapshot
    from .state.values import Restored


# A loop that ends soon after an iterator was left has ended within this many seconds, even on a busy machine.
_LOOP_PATIENCE: Final = 0.5


class Pieces(AsyncIterator[tuple[Stream, bytes] | Result]):
    """The iterator that ``AsyncSession.stream`` returns.

    It notes at once that nothing refers to it any more. Asyncio closes a generator that was left by ``break`` later.
    """

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
    """End a command whose iterator was left, after a delay, if it still runs and the loop still exists.

    If the loop has ended by then, the next use of the session ends the command. Asyncio closes an iterator in a task
    for which the end of a loop does not wait. When the command was ended in that task and the loop cut it off, the
    shell was lost.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    loop.call_later(_LOOP_PATIENCE, lambda: loop.create_task(begin()) if is_left() else None)


class Outlet:
    """Calls an ``on_output`` that may be a coroutine function.

    While the callback is awaited, no more output is read. So a slow callback slows the command down, and no output
    piles up.
    """

    def __init__(self, take: OnOutput, engine: Engine) -> None:
        self._take, self._engine = take, engine
        self._pieces: deque[Awaitable[object]] = deque()
        self._task: asyncio.Task[None] | None = None
        self.call: Call | None = None  # the command whose output it awaits, once there is any

    def __call__(self, stream: Stream, data: bytes) -> None:
        came = self._take(stream, data)
        if isinstance(came, Awaitable):
            self._pieces.append(came)
            self.call = call = self._engine.last
            if call is not None and (self._task is None or self._task.done()):
                import asyncio

                call.pause()
                self._task = asyncio.get_running_loop().create_task(self._work(call))

    async def _work(self, call: Call) -> None:
        import asyncio

        # The task registers itself: an eager one (asyncio.eager_task_factory) may end before its creator knows it.
        me = asyncio.current_task()
        self._engine.callback_tasks.add(me)
        fault: BaseException | None = None
        try:
            while self._pieces:
                await self._pieces.popleft()
        except BaseException as error:
            call.mute()
            # A cancelled task knows that itself. A later verb of another task must not raise it.
            fault = None if isinstance(error, asyncio.CancelledError) else error
            while self._pieces:
                _discard(self._pieces.popleft())
        self._engine.callback_tasks.discard(me)
        self._engine.go_on(call, fault)

    @property
    def is_at_work(self) -> bool:
        """Whether it awaits the callback now, on this loop. A task of a stopped loop would wait for ever."""
        import asyncio

        task = self._task
        return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()

    async def finish(self, until: float | None = None) -> bool:
        """Wait until the callback has taken all of the output. Returns False if it has not by the moment ``until``.

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


async def permitted(policy: Policy, request: Request, cwd: str, granted: str | None = None) -> Request:
    """Return the request as it may run, after ``confirm`` has said yes. Raises PolicyRefused.

    ``granted``: the directory for which a person has said yes already, in the daemon.
    """
    verdict = policy.judge(request, lambda: cwd, time.thread_time)
    if verdict.question:
        import asyncio

        from .policy.approval import place_of
        from .policy.rules import UNCONFIRMED, refused, yes

        place = place_of(request.cwd, cwd)
        if not callable(policy.confirm):
            if place != granted:
                raise refused(UNCONFIRMED)
            return verdict.request
        try:
            async with asyncio.timeout(policy.confirm_timeout):
                # In a thread: a person may take long to answer. A coroutine function only makes its coroutine there.
                answer = await asyncio.to_thread(policy.confirm, verdict.question, "", place)
                answer = await answer if isinstance(answer, Awaitable) else answer
        except TimeoutError:
            raise refused(f"it was not confirmed within {policy.confirm_timeout} s") from None
        if not yes(answer):
            raise refused(UNCONFIRMED)
    return verdict.request


# How many seconds ``interrupt`` waits for a callback that is awaited.
_CALLBACK_PATIENCE = 1.0


class AsyncSession(Base, LoopSession[Request]):
    """``Session`` for asyncio: the same methods, awaited. It serves the calls of several tasks one after the other.

    All tasks must be of one event loop. While one loop runs a call, a call from another loop raises SessionBusy.
    """

    def _prepare(self) -> None:
        self._poller = LoopPoller()
        self.line: TaskLine | None = None
        self._drainer = LoopDrainer()
        # The outlet of the last command that has one. The reference is weak: the callback may refer to what refers to
        # the session.
        self._taker: Callable[[], Outlet | None] = lambda: None
        self.engine.adapt(
            reader=self._drainer, job_kind=LoopJob, forget_fd=self._poller.forget, on_close=self._poller.forget_all
        )

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def do_in_bash(self, verb: Callable[[], Steps[T]], place: TaskPlace | None = None) -> T:
        """As ``Session.do_in_bash``."""
        place = place or TaskPlace()
        while True:
            try:
                return await self.do(verb(), place)
            except RestartPending:
                place.ahead = True

    async def _start_permitted(
        self, request: Request, verb: Callable[[Request], Steps[T]], granted: str | None = None
    ) -> T:
        """Start a request as the session's policy permits it in the directory in which it runs. Raises PolicyRefused.

        The policy may ask a person, and keeps no other caller waiting meanwhile. One of them may change the directory.
        """
        if (policy := self.engine.options.policy) is None:
            return await self.do_in_bash(lambda: verb(request), TaskPlace(request.waits))
        while True:
            cwd = self.cwd
            judged = await permitted(policy, request, cwd, granted)
            try:
                return await self.do_in_bash(partial(self.engine.judged, cwd, verb, judged), TaskPlace(judged.waits))
            except Moved:
                pass

    async def do(self, steps: Steps[T], place: TaskPlace | None = None) -> T:
        """Do the steps once no other task is in a verb. Raises SessionBusy if it waits in vain."""
        import asyncio

        loop = asyncio.get_running_loop()
        self._refuse_callbacks()
        if (line := self.line) is None or line.loop is not loop:
            self._refuse_another_loop()
            self.line = line = TaskLine(loop)
            self._waiters.clear()  # they are tasks of another loop
        self._drainer.enter(loop)
        place = place or TaskPlace()
        try:
            await line.take(place)
        except BaseException:
            if self.line is line and not line.places:
                self._leave()  # this task would have notified the waiters
            raise
        try:
            self.engine.stop_unattended()
            return await adrive(steps, self._poller)
        finally:
            line.leave(place)
            if self.line is line:  # otherwise garbage collection closes this, after its loop was closed
                self._leave()

    async def _result_of(self, steps: Steps[Result], until: float | None = None) -> Result:
        """Do the steps like ``_do``. A final result is delivered once an awaited callback has taken all of the output.

        If it has not by the moment ``until``, the result is kept for the next caller. The callback may fill a queue
        that the caller empties between two calls.
        """
        engine, taker = self.engine, self._taker()  # read before: the call drops it at its end
        result = await self.do(steps)
        if taker is not None and (call := taker.call) is engine.last and call is not None and not result.runs_on:
            try:
                if not await taker.finish(until) and call is engine.last and not self.closed:
                    call.delivery.take_back()
                    return self.engine.running_elsewhere(CALLBACK_RUNS)
            except BaseException:
                taker.cancel()
                raise
        engine.forget_output(result)
        return result

    def _ensure_reader(self) -> None:
        import asyncio

        loop = None
        with suppress(RuntimeError):  # none runs here
            loop = asyncio.get_running_loop()
        if self._owner == os.getpid():
            self._drainer.ensure_reading(loop)

    def _refuse_callbacks(self) -> None:
        import asyncio

        if self.engine.callback_tasks and asyncio.current_task() in self.engine.callback_tasks:
            raise SessionBusy(IN_CALLBACK)

    def _refuse_another_loop(self) -> None:
        """Refuse a second loop: both would read the same streams and give up each other's shell.

        A stopped loop does not count.
        """
        import asyncio

        if self._busy_loop() not in (None, asyncio.get_running_loop()):
            raise SessionBusy(ANOTHER_LOOP)

    def _kill_running(self, why: str) -> None:
        self._refuse_callbacks()
        self._refuse_another_loop()
        if self.is_in_use():
            self.engine.kill_running(why)

    def is_in_use(self) -> bool:
        """Return whether a task of this loop runs a verb, or waits for its turn."""
        import asyncio

        return self._busy_loop() is asyncio.get_running_loop()

    def _busy_loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the loop whose tasks run verbs or wait for their turn, if there is one and it runs."""
        line = self.line
        return line.loop if line is not None and line.places and line.loop.is_running() else None

    async def open(self) -> Self:
        """As ``Session.open``."""
        await self.do_in_bash(lambda: self._mine().start())
        return self

    async def _run(self, request: Request, granted: str | None = None) -> Result:
        engine = self._mine()
        if request.on_output is None:
            engine.forget_output(result := await self._start_permitted(request, engine.run, granted))
            return result
        taker, handed_back = Outlet(request.on_output, engine), None

        def run(permitted: Request) -> Steps[Result]:
            self._taker = weakref.ref(taker)
            return engine.run(permitted)

        try:
            result = await self._start_permitted(request.with_output(taker), run)
            handed_back = engine.handed_back if result.runs_on else None
            await taker.finish()
        except BaseException:
            taker.cancel()
            if handed_back is not None:  # the caller does not get the result that hands the command back
                await to_its_end(self.do(engine.drop(handed_back)))
            raise
        engine.forget_output(result)
        return result

    def _stream(self, request: Request) -> Pieces:
        followed: list[Call] = []
        return Pieces(self._follow(self._mine(), request, followed), followed)

    async def _follow(
        self, engine: Engine, request: Request, followed: list[Call]
    ) -> AsyncGenerator[tuple[Stream, bytes] | Result]:
        call = await self._start_permitted(request, engine.follow)
        followed.append(call)
        try:
            while call.delivery.runs_on:
                for piece in await self.do(self._mine().next_pieces(call)):
                    yield piece
            for piece in call.take_pieces() if call.delivery.result else await self.do(engine.next_pieces(call)):
                yield piece
            engine.forget_output(result := call.delivery.deliver())
            yield result
        finally:
            is_dropped = call.delivery.abandoned  # nothing refers to the iterator, and asyncio closes it late
            call.delivery.abandon()
            if call.delivery.runs_on and self._owner == os.getpid():
                if is_dropped:
                    in_a_while(lambda: self.do(self._mine().drop(call)), lambda: call.delivery.runs_on)
                else:
                    await self.do(engine.drop(call))

    def _events(self, watch: Watch, after: int | None, until: float | None) -> AsyncGenerator[Notice]:
        self._mine().refuse_closed()
        return self._notices(reader_of(self.engine, watch, after), until)

    async def _notices(self, reader: Reader, until: float | None) -> AsyncGenerator[Notice]:
        poller = LoopPoller()
        try:
            while True:
                self._ensure_reader()
                if self._busy_loop() is None and self._mine().handed_back is not None:
                    await to_its_end(self.do(self.engine.look()))  # a cancelled reader must not end the command
                for notice in reader.own():
                    yield notice
                if reader.is_over or (until is not None and time.monotonic() >= until):
                    return
                await adrive(reader.pause(until), poller)
        finally:
            poller.forget_all()

    async def wait(self, timeout: Seconds = ..., *, idle_timeout: Seconds = ..., until: str | None = None) -> Result:
        """As ``Session.wait``, for tasks. Cancelling the task ends the command."""
        engine, moment = self._mine(), self._until(timeout)
        check_idle(idle_timeout)
        pattern = pattern_of(until)
        if (shared := await self._join_running(moment)) is not None:
            return shared
        return await self._result_of(engine.wait(moment, idle_timeout, pattern), moment)

    async def poll(self) -> Result:
        """As ``Session.poll``."""
        engine = self._mine()
        if (shared := await self._join_running(time.monotonic() + LOOK_PATIENCE)) is not None:
            return shared
        return await self._result_of(engine.poll(), time.monotonic() + LOOK_PATIENCE)

    async def send(
        self, text: Text = "", timeout: Seconds = ..., *, keys: Sequence[str] = (), idle_timeout: Seconds = ...
    ) -> Result:
        """As ``Session.send``, for tasks."""
        engine, data, until = self._mine(), to_bytes("text", text), self._until(timeout)
        check_idle(idle_timeout)
        names = check_keys(keys)
        await self._await_turn(until)
        return await self._result_of(engine.send(engine.typed(data, names), until, idle_timeout), until)

    async def type(self, text: Text) -> None:
        """As ``Session.type``."""
        engine, data, until = self._mine(), to_bytes("text", text), self._until(...)
        await self._await_turn(until)
        await self.do(engine.type(data, until))

    async def interrupt(self) -> Result:
        """As ``Session.interrupt``, for tasks."""
        engine = self._mine()
        meant = engine.current
        if (shared := await self._join_running(None, lambda: engine.request_interrupt(meant))) is not None:
            return shared if meant is None else meant.delivery.result or shared
        return await self._result_of(engine.interrupt(meant), time.monotonic() + _CALLBACK_PATIENCE)

    async def interrupt_command(self, command: Call) -> Result:
        """End the command that was handed back. Raises NotRunning if it is not this one any more."""
        if self.handed_back is not command:
            raise NotRunning("there is no running command to interrupt: the one that was handed back has ended")
        return await self.interrupt()

    async def _join_running(self, until: float | None, once_waiting: Callable[[], None] | None = None) -> Result | None:
        """Wait for the result of the command that another task runs; see ``Session._join_running``."""
        if not self.is_in_use():
            return None
        waiter = LoopWaiter()
        self._waiters.append(waiter)
        if once_waiting is not None:
            once_waiting()
        try:
            return waiter.result if await waiter.wait(until) else self.engine.running_elsewhere()
        finally:
            with suppress(ValueError):  # the waiter was notified and removed
                self._waiters.remove(waiter)

    async def _await_turn(self, until: float | None) -> None:
        """Wait until the command can be typed to; see ``Session._await_turn``."""
        if (shared := await self._join_running(until)) is not None:
            raise SessionBusy(NOT_YOURS) if shared.runs_on else NotRunning(ENDED)

    async def _expect(self, pattern: Any, timeout: Seconds, exact: bool) -> int:
        engine, until = self._mine(), self._until(timeout)
        if (shared := await self._join_running(until)) is not None and shared.runs_on:
            return late(pattern, exact)
        return await self.do(expect(engine, pattern, until, exact))

    async def read_page(self, query: Query, read: Read = page) -> Any:
        """As ``Session.read_page``."""
        return await adrive(self._reading(query, read), LoopPoller())

    async def _why(self) -> Why:
        return await adrive(self._mine().why(), LoopPoller())

    async def _transfer(self, transfer: Transfer[T]) -> T:
        import asyncio

        def step() -> FileRequest | None:
            return transfer.next(None if work is None else work())

        work: Callable[[], FileReply] | None = None
        # In a thread, whose end a cancelled task waits for: nothing is written later.
        while (request := await to_its_end(asyncio.to_thread(step))) is not None:
            work = self._mine().file_access(request)
        return transfer.result

    def _on_change(self, do: Callable[[], None]) -> None:
        """Call a method when bash prints something while no verb runs, mostly the mark of a command that has ended.

        The reference is weak. Our finalizer keeps the engine alive, and the engine the poller; so the object of the
        method would live for ever.
        """
        method = weakref.WeakMethod(do)
        self._poller.on_unawaited = lambda: None if (call := method()) is None else call()

    async def close_if_idle(self, idle: float | None) -> None:
        """Close the session if nothing has run in it for ``idle`` seconds."""
        if idle is not None and self._busy_loop() is None and not self.is_needed():
            await self.do(self.engine.close_if_idle(idle))

    def jobs(self, released: bool = False) -> list[LoopJob]:
        """As ``Session.jobs``. Blocks, as ``exit_code`` of a job does, for about a millisecond."""
        return self._jobs(released)

    def _exit_code_of(self, job: SessionJob) -> int | None:
        if self._busy_loop() is None and self.state == "idle":
            return drive(self.engine.exit_code(job))
        return None

    async def restart(self, *, keep_state: bool = False) -> Restored:
        """As ``Session.restart``, for tasks."""
        check_flag("keep_state", keep_state)
        return await self._restart(self._mine().restart, keep_state)

    async def snapshot(self, *, exclude: Sequence[str] = (), secrets: Sequence[str] = ()) -> Snapshot:
        """As ``Session.snapshot``."""
        return await self.do_in_bash(self._snapshot_steps(exclude, secrets))

    async def restore(self, snapshot: Snapshot) -> Restored:
        """As ``Session.restore``."""
        engine = self._mine()
        check_snapshot(snapshot, engine.options)
        return await self._restart(partial(engine.restart, snapshot))

    async def checkpoint(self, name: str = "", *, end_jobs: bool = False) -> Checkpoint:
        """As ``Session.checkpoint``."""
        return await self.do_in_bash(self._checkpoint_steps(name, end_jobs))

    async def rollback(
        self, checkpoint: Checkpoint | str = "", *, files_only: bool = False, end_jobs: bool = False
    ) -> Restored:
        """As ``Session.rollback``."""
        return await self.do_in_bash(self._rollback_steps(checkpoint, files_only, end_jobs))

    async def checkpoints(self) -> list[Checkpoint]:
        """As ``Session.checkpoints``."""
        return await self.do(self._mine().checkpoints())

    async def drop_checkpoint(self, checkpoint: Checkpoint | str) -> None:
        """As ``Session.drop_checkpoint``."""
        await self.do(self._mine().drop_checkpoint(name_of_checkpoint(checkpoint)))

    @property
    def branch(self) -> AsyncBranchFiles:
        """As ``Session.branch``; its methods are coroutines."""
        act = self._mine().act_on_branch
        return AsyncBranchFiles(lambda *given: self.do_in_bash(partial(act, *given)), self.engine.branch_path)

    async def fork(self) -> Self:
        """As ``Session.fork``."""
        (child,) = await self.fork_many(1)
        if isinstance(child, ShellSessionError):
            raise child
        return child

    async def fork_many(self, count: int) -> list[Self | ShellSessionError]:
        """As ``Session.fork_many``."""
        check_count(count)
        begun = await self.do_in_bash(lambda: self._mine().fork(self._forked, count))
        children = list[Self | ShellSessionError]()
        async with AsyncExitStack() as made:  # a cancelled task leaves none
            for child in begun:
                made.push_async_exit(child)
            for child in begun:
                try:
                    children.append(await child.open())
                except ShellSessionError as error:
                    await child.close()
                    children.append(error)
            made.pop_all()
        return children

    async def attempt(self, command: Command, **options: Unpack[RunOptions]) -> AsyncAttempt:
        """As ``Session.attempt``."""
        refuse_unknown("AsyncSession.attempt", options, RunOptions.__annotations__)
        from .branch.attempt import AsyncAttempt  # rarely needed

        self._mine().refuse_without_branch()
        return await AsyncAttempt.of(await self.fork(), self._take_over, command, options)

    async def _take_over(self, fork: AsyncSession) -> Restored:
        """As ``Session._take_over``."""
        frozen = await fork.do(fork.engine.frozen())
        restored = await self.do_in_bash(lambda: self._mine().take_over(frozen))
        await fork.close()
        return restored

    async def _restart(self, verb: Callable[[], Steps[Restored]], keep_state: bool = False) -> Restored:
        self._refuse_callbacks()
        engine = self._mine()
        engine.refuse_restart()
        if keep_state and engine.current is not None:  # its task is in a verb
            verb = engine.restart_with_last_state(SessionBusy(STILL_RUNS))
        elif keep_state:
            verb = await self.do(engine.restart_with_state(), TaskPlace(is_restart=True))
        self._kill_running(RESTARTED)
        # Calls that wait for their turn run in the new bash.
        return await self.do_in_bash(verb, TaskPlace(is_restart=True))

    async def close(self) -> None:
        """As ``Session.close``, for tasks. It does all of this even if the task is cancelled meanwhile."""
        if self._owner == os.getpid():
            self._kill_running(CLOSED)
            self.engine.refuse_calls()  # refuse the calls that wait for their turn
            await to_its_end(self.do(self._mine().close()))
            if (taker := self._taker()) is not None and taker.is_at_work:  # end the wait for the callback
                taker.cancel()
