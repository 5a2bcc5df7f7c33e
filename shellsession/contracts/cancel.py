"""Waiting: for a command that may be cancelled; with ``asking`` the one place where contracts wait.

Law: a cancelled call has ended its own command, and no other, before it comes back.
"""

from __future__ import annotations

import contextvars
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from ..base import Base
from ..errors import ShellSessionError
from ..models import Result
from ..policy import rules

_PAUSES: Final = (0.001, 0.05)  # seconds between tries to end a command that is yet to begin: soon, then seldom
_PATIENCE: Final = 5.0  # seconds for what a thread of ours does when all is over


class CallCancelled(ShellSessionError):
    """The call was cancelled by its token: nothing was run, or what ran was ended; ``result`` is what it did then."""

    code = "call_cancelled"

    def __init__(self, result: Result | None = None) -> None:
        super().__init__("the call was cancelled")
        self.result = result


class CancelToken:
    """Cancels tool calls: ``bash(call, cancel=token)``, and then ``token.cancel()`` from wherever you are.

    From any thread, task or signal handler, before the call, during it or after it; one token may be given to many
    calls. A command that runs is ended as a time limit ends it, the session stays, and the call tells that it was
    cancelled. A command that has ended by itself in the meantime has its result.
    """

    _left_queue = False  # its call was cancelled before its turn came: nobody is to be asked about that

    def __init__(self) -> None:
        self._cancelled = False
        self._listeners: list[Callable[[], object]] = []

    @property
    def cancelled(self) -> bool:
        """Has ``cancel`` been called?"""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel the calls that have this token. Does not wait for them; a second time does nothing."""
        self._cancelled = True
        # No lock: a signal handler may call this in the middle of itself.
        while self._listeners:
            with suppress(IndexError):
                self._listeners.pop()()

    @contextmanager
    def calling(self, listener: Callable[[], object]) -> Iterator[None]:
        """Within the block a cancellation (also one that came before) calls ``listener``, perhaps from another thread,
        perhaps as late as the block is left."""
        self._listeners.append(listener)
        try:
            if self._cancelled:
                self.cancel()
            yield
        finally:
            with suppress(ValueError):
                self._listeners.remove(listener)


class _Turn:
    """Which tool call a session is at, and which come next: in order of arrival, as what a model asks for in one breath
    builds on what came before. A cancelled one in the queue must not end another's command."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.line: list[int] = []  # threads, by their identities; the first has the turn

    def wake(self) -> None:
        with self.changed:
            self.changed.notify_all()

    @contextmanager
    def taken(self, cancel: CancelToken | None) -> Iterator[None]:
        """Raises CallCancelled, when that comes before the turn."""
        me, line = threading.get_ident(), self.line
        if line[:1] == [me]:  # a signal handler within a call: the session tells it that it is busy
            yield
            return
        try:
            with self.changed:
                # A signal handler in the queue comes before its thread, which waits for its end.
                line.insert(line.index(me) if me in line else len(line), me)
                self.changed.wait_for(lambda: line[0] == me or (cancel is not None and cancel.cancelled))
                if cancel is not None and cancel.cancelled:
                    raise CallCancelled
            yield
        finally:
            with suppress(ValueError):  # struck by Ctrl-C before it was in the line
                line.remove(me)
            with self.changed:
                # To all: one that was told of its turn may be cancelled just then, or struck by Ctrl-C.
                self.changed.notify_all()


_turns: weakref.WeakKeyDictionary[Any, _Turn] = weakref.WeakKeyDictionary()
_turns_lock = threading.RLock()  # reentrant: on Python 3.14 Ctrl-C can leave it taken by who was struck


def _turn(session: Any) -> _Turn:
    with _turns_lock:
        return _turns.setdefault(session, _Turn())


def _forget_turns() -> None:
    """In a forked child: the threads that held them are not there."""
    global _turns, _turns_lock
    _turns, _turns_lock = weakref.WeakKeyDictionary(), threading.RLock()


os.register_at_fork(after_in_child=_forget_turns)


class _Ending:
    """Ends the command of one run from a thread of its own, so that who cancels does not wait."""

    def __init__(self, strike: Callable[[], object]) -> None:
        self._strike = strike
        self._over = threading.Event()
        self._acts = False

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._end, name="shellsession-cancel", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._over.set()
        if self._acts:
            self._thread.join(_PATIENCE)

    def _end(self) -> None:
        self._acts = True  # before the look whether it is over: who finishes sees this, or is seen
        pause, longest = _PAUSES
        while not self._over.is_set():
            with suppress(ShellSessionError):
                self._strike()
            self._over.wait(pause)
            pause = min(2 * pause, longest)


def run(session: Any, command: bytes, options: Mapping[str, Any], cancel: CancelToken | None) -> Result:
    """``session.run``, ended by the token. Raises CallCancelled, and what ``Session.run`` raises."""
    turn = _turn(session)
    if cancel is None:
        with turn.taken(None):
            result: Result = session.run(command, **options)
            return result
    with cancel.calling(turn.wake), turn.taken(cancel):
        ended = (_run_here if isinstance(session, Base) else _run_there)(session, command, options, cancel)
    if ended is None or (ended.outcome == "interrupted" and cancel.cancelled):
        raise CallCancelled(ended)
    return ended


def _run_here(session: Any, command: bytes, options: Mapping[str, Any], cancel: CancelToken) -> Result:
    def strike() -> None:
        # Whoever uses the session without a tool may be at another command, while ours waits for its turn.
        call = session._engine.current
        if call is not None and call.request.command is command:
            session._interrupt(call)

    ending = _Ending(strike)
    try:
        with cancel.calling(ending.begin):
            result: Result = session.run(command, **options)
            return result
    finally:
        ending.finish()


def _run_there(session: Any, command: bytes, options: Mapping[str, Any], cancel: CancelToken) -> Result | None:
    """In a daemon, which ends the very request; None where its turn had not come."""
    # Sockets and the wire: only once something is run that may be cancelled.
    from ..daemon.client.exchange import Cancelled, cancel_request

    with Cancelled() as cancelled:
        ending = _Ending(lambda: cancelled.request and cancel_request(session._transport, cancelled.request, cancelled))
        try:
            with cancel.calling(ending.begin):
                result: Result = session.run(command, **options)
                return result
        except ShellSessionError:
            ending.finish()
            if not cancelled.ended:
                raise
            return cancelled.result
        finally:
            ending.finish()


async def arun(session: Any, command: bytes, options: Mapping[str, Any], cancel: CancelToken | None) -> Result:
    """As ``run``, for asyncio; a call that is cancelled while it waits for its turn never begins."""
    if cancel is None or cancel.cancelled:
        return await cancellable(session.run(command, **options), None, cancel)  # type: ignore[no-any-return]
    from ..daemon.client.exchange import (
        Cancelled,  # sockets and the wire: only once something is run that may be cancelled
    )

    with Cancelled() as cancelled:
        try:
            return await cancellable(session.run(command, **options), None, cancel)  # type: ignore[no-any-return]
        except CallCancelled as error:
            error.result = session._came_of(command) if isinstance(session, Base) else cancelled.result
            raise


async def cancellable(work: Coroutine[Any, Any, Any], timeout: float | None, cancel: CancelToken | None) -> Any:
    """Await it, at most so many seconds. Raises TimeoutError and CallCancelled when it was given up."""
    import asyncio

    if cancel is None:
        async with asyncio.timeout(timeout):
            return await work
    if cancel.cancelled:
        work.close()
        raise CallCancelled
    loop, over = asyncio.get_running_loop(), False

    def strike() -> None:
        with suppress(RuntimeError):  # the loop was closed: nothing runs there any more
            loop.call_soon_threadsafe(end)

    def end() -> None:
        if not over:
            limit.reschedule(loop.time())

    try:
        async with asyncio.timeout(None) as limit:
            with cancel.calling(strike):
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
    """A function's answer. Raises TimeoutError after so many seconds, CallCancelled, and what the function raises.

    With a time limit it is asked in a thread of its own, which goes on when nobody waits for it any more; without one,
    in this thread, and to the end. A call that was cancelled before is asked about all the same: it is not run, but
    first told what it would be told otherwise.
    """
    cancel = _fresh(cancel)
    if timeout is None:
        return rules.ask(function, arguments)
    heard = threading.Event()
    asked = _Asked(rules.ask, (function, arguments), heard.set)
    if cancel is None:
        in_time = heard.wait(timeout)
    else:
        with cancel.calling(heard.set):
            in_time = heard.wait(timeout)
    if not asked.answered:
        raise TimeoutError if not in_time else CallCancelled
    return asked.answer()


def _fresh(cancel: CancelToken | None) -> CancelToken | None:
    return None if cancel is None or cancel.cancelled else cancel


async def aask(
    function: Callable[..., Any], arguments: tuple[Any, ...], timeout: float | None, cancel: CancelToken | None
) -> Any:
    """As ``ask``, for asyncio; the function may be a coroutine function. Any other is asked in a thread of its own."""
    cancel = _fresh(cancel)
    if inspect.iscoroutinefunction(function):
        answer = function(*arguments)
    else:  # people may take their time, and the loop has none
        answer = await cancellable(elsewhere(function, *arguments), timeout, cancel)
    return await cancellable(_awaited(answer), timeout, cancel) if inspect.isawaitable(answer) else answer


async def _awaited(answer: Any) -> Any:
    return await answer


async def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function gives, in a thread of its own: the loop's few may be taken, for as long as commands run."""
    import asyncio

    loop, heard = asyncio.get_running_loop(), asyncio.Event()

    def hear() -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(heard.set)

    asked = _Asked(function, arguments, hear)
    await heard.wait()
    return asked.answer()


class _Asked:
    """A function that is asked in a thread of its own: people may take their time, and never answer."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], hear: Callable[[], object]) -> None:
        self._function, self._arguments, self._hear = function, arguments, hear
        self._answer: Any = None
        self._fault: BaseException | None = None
        self.answered = False
        context = contextvars.copy_context()
        # A daemon: who never answers must not keep the interpreter from its end.
        threading.Thread(target=context.run, args=(self._ask,), name="shellsession-ask", daemon=True).start()

    def _ask(self) -> None:
        try:
            self._answer = self._function(*self._arguments)
        except BaseException as fault:
            self._fault = fault
        self.answered = True
        self._hear()

    def answer(self) -> Any:
        if self._fault is not None:
            raise self._fault
        return self._answer
