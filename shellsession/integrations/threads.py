"""Call a tool for threads from asyncio, in a thread of its own.

A cancelled call ends its own command, and returns when that has ended. The calls of one agent run in the order in which
they were made: a queue starts their threads one after the other. Started together, they would reach the session in any
order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from ..async_session import Turns
from ..contracts.cancel import CallCancelled, CancelToken, cancellable, in_own_thread
from ..contracts.contract import P
from ..contracts.tool import Tool

T = TypeVar("T")
# Seconds between two calls of ``cancelled``, which cannot wake the loop.
_POLL_INTERVAL: Final = 0.1
# The queue of calls for each loop and agent. The calls hold it; it vanishes with the last one.
_turns: Final = WeakValueDictionary[tuple[object, ...], Turns]()


async def call_in_thread(tool: Tool[P], call: object, cancelled: Callable[[], bool] | None = None) -> P:
    """Call the tool without blocking the loop. Raises what the tool raises, and CancelledError.

    ``cancelled`` is polled ten times a second. If it returns True, or if this task is cancelled, the call is cancelled.
    """
    token, done = CancelToken(), asyncio.Event()
    task_cancelled: asyncio.CancelledError | None = None
    work: asyncio.Future[P] = asyncio.ensure_future(_in_turn(tool, call, token))
    work.add_done_callback(lambda _: done.set())
    while not done.is_set():
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), None if cancelled is None else _POLL_INTERVAL)
        except asyncio.CancelledError as error:
            task_cancelled = task_cancelled or error
        if task_cancelled is not None or (cancelled is not None and cancelled()):
            token.cancel()
    if task_cancelled is not None:
        work.exception()  # mark it as retrieved: nothing will await it
        raise task_cancelled  # the same object: anyio recognizes its own cancellations by their message
    try:
        return work.result()
    except CallCancelled:  # cancelled while queued: call the tool, which runs nothing, for the error of its contract
        token._left_queue = True
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


async def _in_turn(tool: Tool[P], call: object, token: CancelToken) -> P:
    """Wait until the agent's earlier calls are done, then call the tool. Raises CallCancelled if cancelled before."""
    loop = asyncio.get_running_loop()
    turns = _turns.setdefault((id(loop), *tool.owner), Turns(loop))
    await cancellable(turns.take(), None, token)
    try:
        payload: P = await in_own_thread(tool, call, token)
        return payload
    finally:
        turns.give_up()
