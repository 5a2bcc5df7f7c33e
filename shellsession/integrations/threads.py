"""A tool whose session is for threads, called from asyncio.

Law: a call that is cancelled ends its own command, and comes back when that has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ..contracts.asking import elsewhere
from ..contracts.binding import Tool
from ..contracts.contract import P
from ..contracts.waiting import CancelToken

# How soon a wish to cancel is seen that comes without an event of the loop, in seconds.
_LOOK: Final = 0.1


async def call_in_thread(tool: Tool[P], call: object, cancelled: Callable[[], bool] | None = None) -> P:
    """Call the tool without holding up the loop. Raises what the tool raises, and CancelledError.

    ``cancelled`` is asked ten times a second; when it says yes, or this task is cancelled, the call is.
    """
    token, left, done = CancelToken(), False, asyncio.Event()
    work: asyncio.Future[P] = asyncio.ensure_future(elsewhere(tool, call, token))
    work.add_done_callback(lambda _: done.set())
    while not done.is_set():
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), None if cancelled is None else _LOOK)
        except asyncio.CancelledError:
            left = True
        if left or (cancelled is not None and cancelled()):
            token.cancel()
    if left:
        work.exception()  # seen: nobody is told of it any more
        raise asyncio.CancelledError
    return work.result()
