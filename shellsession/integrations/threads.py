"""A tool whose session is for threads, called from asyncio.

Law: who is cancelled ends the command, and comes back when it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ..contracts.binding import Tool
from ..contracts.contract import P

# How soon a wish to cancel is seen that comes without an event of the loop, in seconds.
_LOOK: Final = 0.1
# Threads of their own: those of the loop may all be in the very commands that are to be ended.
_INTERRUPTERS: Final = ThreadPoolExecutor(4, "shellsession-interrupt")


def _never() -> bool:
    return False


async def call_in_thread(tool: Tool[P], call: object, cancelled: Callable[[], bool] = _never) -> P:
    """Call the tool without holding up the loop. Raises what the tool raises, and CancelledError.

    ``cancelled`` is asked ten times a second; when it says yes, or this task is cancelled, what the agent's session
    runs is interrupted, as ``Session.interrupt`` does.
    """
    loop = asyncio.get_running_loop()
    work = asyncio.ensure_future(asyncio.to_thread(tool, call))
    left = False
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        if left or cancelled():  # again and again: the command may only be about to start
            loop.run_in_executor(_INTERRUPTERS, tool.interrupt)
        timer = loop.call_later(_LOOK, look)

    timer = loop.call_later(_LOOK, look)
    try:
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                if not left:
                    left = True
                    timer.cancel()
                    look()
            except Exception:
                break
    finally:
        timer.cancel()
    if left:
        work.exception()  # seen: nobody is told of it any more
        raise asyncio.CancelledError
    return work.result()
