"""Who has an agent's session alone, and how the others wait until that client leaves.

Law: it ends with its holder's connection, however that ends, or with the session; then the size is as it was found.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..async_session import AsyncSession
from ..errors import CLOSED, ENDED, HELD, LATE, NotRunning, SessionBusy, SessionClosed
from . import requests

if TYPE_CHECKING:
    from ..engine.steps import Engine
    from .connection import Connection
    from .listener import Listener


class Hold:
    """On one session, by one client at a time."""

    def __init__(self, session: AsyncSession, engine: Engine) -> None:
        self._session, self._engine = session, engine
        self._holder: str | None = None
        self._connection: Connection | None = None  # with which it ends
        self._refuses = False
        self._found: tuple[int, int] | None = None  # the terminal's size, which its holder has changed
        self._freed = asyncio.Event()

    async def enter(self, request: requests.OfAgent, listener: Listener) -> None:
        """Wait for the turn of who is not the holder. Raises SessionBusy and SessionClosed.

        Who asks to hold it then is never refused. What is for the command that was there before: NotRunning where that
        has ended since, whatever runs by then.
        """
        listener.queued, listener.behind = True, HELD
        meant = self._engine.current
        while self._holder not in (None, request.holder):
            if self._refuses and not isinstance(request, requests.Hold):
                raise SessionBusy(HELD)
            await self._freed.wait()
        if self._engine.closed:
            raise SessionClosed(CLOSED)
        if isinstance(request, requests.OfCommand) and self._engine.current is not meant:
            raise NotRunning(ENDED)
        listener.queued, listener.behind = False, LATE

    def take(self, holder: str, refuse: bool, connection: Connection) -> None:
        """Give it to one client alone, until that connection ends."""
        self._holder, self._refuses, self._connection = holder, refuse, connection
        self._session.attached = True
        self._freed.clear()
        connection.on_close(lambda: self._free(connection))

    def resize(self, holder: str | None, columns: int, rows: int) -> None:
        """Its holder's size ends with the hold, anybody else's stays; who holds it no more has nothing to say."""
        if holder not in (None, self._holder):
            return
        before = self._session.size
        self._session.resize(columns, rows)
        self._found = None if holder is None else self._found or before

    def _free(self, connection: Connection) -> None:
        if self._connection is connection:
            self.end()

    def end(self) -> None:
        """Nobody holds it any more, or it is there no more: who waits goes on."""
        self._holder = self._connection = None
        self._session.attached = False
        found, self._found = self._found, None
        if found is not None and not self._session.closed:
            self._session.resize(*found)
        self._freed.set()
