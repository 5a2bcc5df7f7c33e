"""Whose turn it is among several clients of an agent's session: a call waits until the others' commands have ended.

Law: what has not begun when its patience ends is never run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from ..daemon.remote import TURN_WITHIN
from ..errors import STILL_RUNS, SessionBusy
from ..models import Result

if TYPE_CHECKING:
    from ..async_session import AsyncSession
    from ..daemon.async_client import AsyncRemoteSession

Progress = Callable[[float], Awaitable[object]]
# Who is told, every few seconds, for how many seconds the call of this task has waited.
PROGRESS: ContextVar[Progress | None] = ContextVar("progress", default=None)

_PAUSE: Final = 0.2  # seconds between two looks at whether a command still runs


async def in_turn(
    session: AsyncSession | AsyncRemoteSession, run: Callable[[], Awaitable[Result]], until: float, tick: float
) -> Result:
    """What comes of ``run``, which may begin until that moment. Raises SessionBusy where its turn does not come.

    The session is ours to wait for while somebody is with a command there; one that was handed back, for a moment or
    for long, makes it refuse what comes.
    """
    begun = time.monotonic()
    while True:
        TURN_WITHIN.set(max(until - time.monotonic(), 0.001))
        try:
            return await run()
        except SessionBusy as error:
            if str(error) != STILL_RUNS:
                raise
        await _until_free(session, begun, until, tick)


async def _until_free(session: AsyncSession | AsyncRemoteSession, begun: float, until: float, tick: float) -> None:
    told = time.monotonic()
    while session.state == "running":
        if (now := time.monotonic()) >= until:
            raise SessionBusy(STILL_RUNS)
        if now - told >= tick and (tell := PROGRESS.get()) is not None:
            await tell(now - begun)
            told = now
        await asyncio.sleep(min(_PAUSE, tick, max(until - now, 0.001)))
