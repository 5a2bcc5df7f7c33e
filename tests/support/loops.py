"""A session in a loop, with a time limit for the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from system import until, with_argument

from shellsession import AsyncSession

# Safety only: an asyncio test that hangs fails by this time limit, with a traceback of the task.
PATIENCE = 20.0


@asynccontextmanager
async def session(place: Path) -> AsyncIterator[AsyncSession]:
    async with asyncio.timeout(PATIENCE), AsyncSession(cwd=place, timeout=PATIENCE) as made:
        yield made


async def seen(what: str) -> None:
    """Wait until a process has this word on its command line."""
    await until(lambda: with_argument(what))
