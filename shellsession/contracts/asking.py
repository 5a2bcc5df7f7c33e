"""Asking: for somebody's yes or no.

Law: who does not answer in time says no, and is not waited for any more.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..policy import rules
from .waiting import CallCancelled, CancelToken, cancellable


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
