"""``AsyncDaemon``: as ``Daemon``, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Self

from ...signatures import awaited
from ...watching import Event
from .async_session import Loop
from .daemon import AnyDaemon, Daemon


class AsyncDaemon(AnyDaemon):
    """As ``Daemon``, for asyncio: ``async for event in daemon.watch()``, ``await daemon.list()``."""

    _backend_class = Loop

    def watch(self, agent: str | None = None) -> AsyncIterator[Event]:
        """As ``Daemon.watch``. Iterate in ``contextlib.aclosing(...)`` to leave the loop early."""
        events: AsyncIterator[Event] = self._watch(agent)
        return events

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.disconnect()

    why = awaited(Daemon.why)
    kill = awaited(Daemon.kill)
    approvals = awaited(Daemon.approvals)
    answer = awaited(Daemon.answer)
    list = awaited(Daemon.list)
