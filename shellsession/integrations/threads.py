"""A tool whose session is for threads, called from asyncio.

Law: a call that is cancelled ends its own command, and comes back when that has ended; calls of one agent are made in
the order in which they were asked for. A thread for each, started at once, would come to the session in any order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from weakref import WeakValueDictionary

from ..async_session import Turns
from ..contracts.cancel import CallCancelled, CancelToken, cancellable, in_own_thread
from ..contracts.contract import P
from ..contracts.tool import Tool

# How soon a wish to cancel is seen that comes without an event of the loop, in seconds.
_LOOK: Final = 0.1
# Whose turn it is among an agent's calls in a loop; held by the calls.
_turns: Final = WeakValueDictionary[tuple[object, ...], Turns]()


async def call_in_thread(tool: Tool[P], call: object, cancelled: Callable[[], bool] | None = None) -> P:
    """Call the tool without holding up the loop. Raises what the tool raises, and CancelledError.

    ``cancelled`` is asked ten times a second; when it says yes, or this task is cancelled, the call is.
    """
    token, done = CancelToken(), asyncio.Event()
    left: asyncio.CancelledError | None = None
    work: asyncio.Future[P] = asyncio.ensure_future(_in_turn(tool, call, token))
    work.add_done_callback(lambda _: done.set())
    while not done.is_set():
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), None if cancelled is None else _LOOK)
        except asyncio.CancelledError as error:
            left = left or error
        if left is not None or (cancelled is not None and cancelled()):
            token.cancel()
    if left is not None:
        work.exception()  # seen: nobody is told of it any more
        raise left  # the very one: anyio knows its own by what they say
    try:
        return work.result()
    except CallCancelled:  # in the queue: it is called to tell that in its contract's words, and runs nothing
        token._left_queue = True
        payload: P = await in_own_thread(tool, call, token)
        return payload


async def _in_turn(tool: Tool[P], call: object, token: CancelToken) -> P:
    """Raises CallCancelled too, when that comes before the turn."""
    loop = asyncio.get_running_loop()
    turns = _turns.setdefault((id(loop), *tool.owner), Turns(loop))
    await cancellable(turns.take(), None, token)
    try:
        payload: P = await in_own_thread(tool, call, token)
        return payload
    finally:
        turns.give_up()
