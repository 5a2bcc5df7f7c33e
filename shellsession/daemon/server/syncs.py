"""Waits until the disk has what was written. All that wait at one time share one sync, which runs in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Syncs:
    """The syncs of one store, one after the other. ``sync`` blocks, and raises OSError."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._present: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None  # it has not begun yet, so it is for all that is written by now

    async def synced(self) -> None:
        """Wait until the disk has all that was written before this call. Raises OSError."""
        if self._next is None:
            self._next = asyncio.create_task(self._sync_after(self._present))
        await asyncio.shield(self._next)

    async def _sync_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._present, self._next = self._next, None
        await asyncio.to_thread(self._sync)
