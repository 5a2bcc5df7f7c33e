"""Calls a tool for threads from asyncio, in its own thread.

A cancelled call ends its own command, and returns when that has ended. The calls of one agent run in the order in which
they were made: a line starts their threads one after the other. Started together, they would reach the session in any
order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from ..contracts.cancel import CallCancelled, CancelToken, cancellable, in_own_thread
from ..contracts.contract import P
from ..contracts.tool import Tool
from ..engine.io.loop import TaskLine, TaskPlace

T = TypeVar("T")
# Seconds between two calls of ``cancelled``, which cannot wake the loop.
_POLL_INTERVAL: Final = 0.1
# The line of calls for each loop and agent. The calls hold it; it vanishes with the last one.
_lines: Final = WeakValueDictionary[tuple[object, ...], TaskLine]()


async def call_in_thread(tool: Tool[P], call: object, cancelled: Callable[[], bool] | None = None) -> P:
    """Call the tool without blocking the loop. Raises what the tool raises, and CancelledError.

    ``cancelled`` is polled ten times a second. If it returns True, or if this task is cancelled, the call is cancelled.
    """
    token = CancelToken()
    try:
        return await until_ended(_in_turn(tool, call, token), token.cancel, cancelled)
    except CallCancelled:  # cancelled while queued: call the tool, which runs nothing, for the error of its contract
        token.left_queue = True
        payload: P = await in_own_thread(tool, call, token)
        return payload


async def unless(cancelled: Callable[[], bool], work: Coroutine[Any, Any, T]) -> T:
    """Await the work, and cancel it once ``cancelled``, which is polled, returns True. Raises CallCancelled then."""
    loop, task, is_cancelled = asyncio.get_running_loop(), asyncio.current_task(), False
    assert task is not None
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer, is_cancelled
        if cancelled():
            is_cancelled = task.cancel()
        else:
            timer = loop.call_later(_POLL_INTERVAL, look)

    timer = loop.call_later(_POLL_INTERVAL, look)
    try:  # in this task, as a second one would take half as long as a short command
        return await work
    except asyncio.CancelledError:
        if is_cancelled and not task.uncancel():
            raise CallCancelled from None
        raise
    finally:
        timer.cancel()


async def until_ended(work: Awaitable[T], end: Callable[[], object], cancelled: Callable[[], bool] | None = None) -> T:
    """Await the work, and call ``end`` if this task is cancelled or ``cancelled``, which is polled, returns True.

    Returns once the work has ended. A cancelled task raises its cancellation then.
    """
    task, cancellation, is_ending = asyncio.ensure_future(work), None, False
    while not task.done():
        try:
            await asyncio.wait([task], timeout=None if cancelled is None else _POLL_INTERVAL)
        except asyncio.CancelledError as error:
            cancellation = cancellation or error
        if not is_ending and (cancellation is not None or (cancelled is not None and cancelled())):
            is_ending = True  # once: anyio cancels a task again and again
            end()
    if cancellation is None:
        return task.result()
    with suppress(BaseException):  # otherwise asyncio logs that nobody has retrieved the exception
        task.result()
    raise cancellation  # the same object: anyio recognizes its own cancellations by their message


async def _in_turn(tool: Tool[P], call: object, token: CancelToken) -> P:
    """Wait until the agent's earlier calls are done, then call the tool. Raises CallCancelled if cancelled before."""
    loop = asyncio.get_running_loop()
    line = _lines.setdefault((id(loop), *tool.owner), TaskLine(loop))
    place = await cancellable(line.take(TaskPlace()), None, token)
    try:
        payload: P = await in_own_thread(tool, call, token)
        return payload
    finally:
        line.leave(place)
