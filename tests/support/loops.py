"""A session in a loop, with a time limit for the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from system import PATIENCE, until, with_argument

from shellsession import AsyncSession


@asynccontextmanager
async def session(place: Path) -> AsyncIterator[AsyncSession]:
    """A test that hangs is ended by the loop's own clock, with a traceback of the task."""
    async with asyncio.timeout(PATIENCE), AsyncSession(cwd=place, timeout=PATIENCE) as made:
        yield made


async def seen(what: str) -> None:
    """Wait until a process has this word on its command line."""
    await until(lambda: with_argument(what))
