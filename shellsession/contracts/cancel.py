"""Cancel tool calls, and everything in contracts that waits: for a command, for a person's answer, for other calls.

``CancelToken`` cancels calls. ``run`` and ``arun`` run a command that a token can end. ``ask`` and ``aask`` call a
function that may take long. A cancelled call ends its own command, and no other, before it returns.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Final

from ..base import Base
from ..errors import ShellSessionError
from ..models import OwnText, Result
from ..policy import rules

# Shortest and longest pause, in seconds, between two tries to interrupt a command that may not have started yet.
_RETRY_PAUSES: Final = (0.001, 0.05)
_JOIN_TIMEOUT: Final = 5.0  # seconds to wait for an interrupting thread to finish


class CallCancelled(ShellSessionError):
    """The call was cancelled by its token. ``result``: that of the interrupted command, None if nothing was run."""

    code = "call_cancelled"

    def __init__(self, result: Result | None = None) -> None:
        super().__init__("the call was cancelled")
        self.result = result


class CancelToken:
    """Cancels tool calls: pass it with ``bash(call, cancel=token)``, then call ``token.cancel()``.

    ``cancel`` works from any thread, task or signal handler, and before, during or after the call. One token may be
    passed to many calls. A running command is ended as a time limit would end it. The session stays open, and the call
    reports that it was cancelled. A command that has ended by itself in the meantime has its normal result.
    """

    left_queue = False  # the call was cancelled while it was queued: do not ask for its confirmation

    def __init__(self) -> None:
        self._cancelled = False
        self._listeners: list[Callable[[], object]] = []

    @property
    def cancelled(self) -> bool:
        """True once ``cancel`` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel the calls that have this token, without waiting for them. A second call does nothing."""
        self._cancelled = True
        # No lock: a signal handler may call this method while the same thread is inside it.
        while self._listeners:
            with suppress(IndexError):
                self._listeners.pop()()

    @contextmanager
    def calling(self, listener: Callable[[], object]) -> Iterator[None]:
        """Within the block, call ``listener`` on a cancellation, or at once if the token was cancelled before.

        The call may come from another thread, and may still be running when the block is left.
        """
        self._listeners.append(listener)
        try:
            if self._cancelled:
                self.cancel()
            yield
        finally:
            with suppress(ValueError):
                self._listeners.remove(listener)


class _Interrupter:
    """Interrupts the command of one run from its own thread, so that ``cancel`` returns at once."""

    def __init__(self, interrupt: Callable[[], object]) -> None:
        self._interrupt = interrupt
        self._finished = threading.Event()
        self._started = False

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._end, name="shellsession-cancel", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._finished.set()
        if self._started:
            self._thread.join(_JOIN_TIMEOUT)

    def _end(self) -> None:
        self._started = True  # before the test of _finished: finish() either sees this, or this thread sees _finished
        pause, longest = _RETRY_PAUSES
        while not self._finished.is_set():
            with suppress(ShellSessionError):
                self._interrupt()
            self._finished.wait(pause)
            pause = min(2 * pause, longest)


def run(session: Any, command: bytes, options: Mapping[str, Any], cancel: CancelToken | None) -> Result:
    """Call ``session.run``; a cancelled token ends its command, or takes it out of the line.

    Raises CallCancelled, and the errors of ``Session.run``.
    """
    if cancel is None:
        result: Result = session.run(command, **options)
        return result
    if cancel.cancelled:
        raise CallCancelled
    command = OwnText(command)
    ended = (_run_in_process if isinstance(session, Base) else _run_in_daemon)(session, command, options, cancel)
    if ended is None or (ended.outcome == "interrupted" and cancel.cancelled):
        raise CallCancelled(ended)
    return ended


def _run_in_process(session: Any, command: bytes, options: Mapping[str, Any], cancel: CancelToken) -> Result:
    def interrupt() -> None:
        session.line.drop(command, CallCancelled())
        # Another caller may be running another command, for which ours has waited.
        call = session.engine.current
        if call is not None and call.request.command is command:
            session.interrupt_command(call)

    def end() -> None:
        session.line.drop(command, CallCancelled())  # now: its turn may come before another thread runs
        interrupter.begin()

    interrupter = _Interrupter(interrupt)
    try:
        with cancel.calling(end):
            result: Result = session.run(command, **options)
            return result
    finally:
        interrupter.finish()


def _run_in_daemon(session: Any, command: bytes, options: Mapping[str, Any], cancel: CancelToken) -> Result | None:
    """Run in a daemon, which cancels exactly this request. Returns None if the request was still queued there."""
    # Imported here, as it loads sockets and the wire format, which most calls do not need.
    from ..daemon.client.exchange import CancelOutcome, cancel_request

    with CancelOutcome() as outcome:
        interrupter = _Interrupter(
            lambda: outcome.request and cancel_request(session.transport, outcome.request, outcome)
        )
        try:
            with cancel.calling(interrupter.begin):
                result: Result = session.run(command, **options)
                return result
        except ShellSessionError:
            interrupter.finish()
            if not outcome.ended:
                raise
            return outcome.result
        finally:
            interrupter.finish()


async def arun(session: Any, command: bytes, options: Mapping[str, Any], cancel: CancelToken | None) -> Result:
    """As ``run``, for asyncio. A call that is cancelled while it is queued never begins."""
    if cancel is None or cancel.cancelled:
        return await cancellable(session.run(command, **options), None, cancel)  # type: ignore[no-any-return]
    command = OwnText(command)
    from ..daemon.client.exchange import CancelOutcome  # imported here for the reason given in _run_in_daemon

    with CancelOutcome() as outcome:
        try:
            return await cancellable(session.run(command, **options), None, cancel)  # type: ignore[no-any-return]
        except CallCancelled as error:
            error.result = session.engine.came_of(command) if isinstance(session, Base) else outcome.result
            raise


async def cancellable(work: Coroutine[Any, Any, Any], timeout: float | None, cancel: CancelToken | None) -> Any:
    """Await ``work``, which is cancelled at the time limit or by the token. Raises TimeoutError and CallCancelled."""
    import asyncio

    if cancel is None:
        async with asyncio.timeout(timeout):
            return await work
    if cancel.cancelled:
        work.close()
        raise CallCancelled
    loop, over = asyncio.get_running_loop(), False

    def interrupt() -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing runs there any more
            loop.call_soon_threadsafe(end)

    def end() -> None:
        if not over:
            limit.reschedule(loop.time())

    try:
        async with asyncio.timeout(None) as limit:
            with cancel.calling(interrupt):
                try:
                    async with asyncio.timeout(timeout):
                        return await work
                finally:
                    over = True
    except TimeoutError:
        if limit.expired():
            raise CallCancelled from None
        raise


def ask(
    function: Callable[..., Any], arguments: tuple[Any, ...], timeout: float | None, cancel: CancelToken | None
) -> Any:
    """Call the function and return its answer. Raises TimeoutError, CallCancelled, and what the function raises.

    With a time limit, the function runs in its own thread, which goes on after the limit; without one, in this
    thread to its end. If the token was cancelled before, the function is called all the same, so that a refusal is
    reported as such. After a yes, the cancellation keeps the command from running.
    """
    cancel = _unless_cancelled(cancel)
    if timeout is None:
        return rules.ask(function, arguments)
    done = threading.Event()
    thread = _FunctionThread(rules.ask, (function, arguments), done.set)
    with nullcontext() if cancel is None else cancel.calling(done.set):
        in_time = done.wait(timeout)
    if not thread.answered:
        raise TimeoutError if not in_time else CallCancelled
    return thread.answer()


def _unless_cancelled(cancel: CancelToken | None) -> CancelToken | None:
    return None if cancel is None or cancel.cancelled else cancel


async def aask(
    function: Callable[..., Any], arguments: tuple[Any, ...], timeout: float | None, cancel: CancelToken | None
) -> Any:
    """As ``ask``, for asyncio. Any function that is not a coroutine function runs in its own thread."""
    cancel = _unless_cancelled(cancel)
    if inspect.iscoroutinefunction(function):
        answer = function(*arguments)
    else:  # a person may take long to answer, which must not block the loop
        answer = await cancellable(in_own_thread(function, *arguments), timeout, cancel)
    return await cancellable(_await(answer), timeout, cancel) if inspect.isawaitable(answer) else answer


async def _await(answer: Any) -> Any:
    return await answer


async def in_own_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run the function in its own thread. Commands may occupy all threads of the loop's executor for long."""
    import asyncio

    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def notify() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(done.set)

    thread = _FunctionThread(function, arguments, notify)
    await done.wait()
    return thread.answer()


class _FunctionThread:
    """Runs a function in its own thread, as a person may take long to answer it, or never do so."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], notify: Callable[[], object]) -> None:
        self._function, self._arguments, self._notify = function, arguments, notify
        self._answer: Any = None
        self._fault: BaseException | None = None
        self.answered = False
        context = contextvars.copy_context()
        # A daemon thread: a question without an answer must not keep the interpreter from exiting.
        threading.Thread(target=context.run, args=(self._run,), name="shellsession-ask", daemon=True).start()

    def _run(self) -> None:
        try:
            self._answer = self._function(*self._arguments)
        except BaseException as fault:
            self._fault = fault
        self.answered = True
        self._notify()

    def answer(self) -> Any:
        if self._fault is not None:
            raise self._fault
        return self._answer
