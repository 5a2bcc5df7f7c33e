"""The client of a request that is being served: what it hears meanwhile, also over a connection that was cut.

Law: output is told to it in order, and what a lost connection may have swallowed is told again on the next; each piece
says where in the output it stands, so that it is taken once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from ..errors import LATE
from ..models import Result, Stream
from .wire import encode

if TYPE_CHECKING:
    from .connection import Connection

# What is told again, in bytes: more cannot be on its way to a client (our buffer and a piece over it, 1.6 MiB, and what
# the kernel holds), and one piece more when it is gone; the rest is for a relay between us.
_RETOLD: Final = 3 << 20


LEFT: Final = "its client left before its turn came: it was not run"


class Listener:
    """One request, and the connection on which its client is just now."""

    def __init__(self, request: str, connection: Connection) -> None:
        self.request, self.connection = request, connection
        self.queued = (
            False  # for its turn: nothing was begun for it, and it is given up when its client leaves for good
        )
        self.late = False  # its turn did not come in time
        self.behind = LATE  # what it is told then
        self.begun = False  # its task has had its first turn
        self.task: asyncio.Task[None] | None = None  # that serves it; None where it was served at once
        self.partial: Result | None = None  # what came of its command, which was cancelled
        self.abandoned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._patience: asyncio.TimerHandle | None = None  # which holds us
        self._moves = asyncio.Event()
        self._told: deque[bytes] = deque()
        self._size = self._at = 0

    def reconnect(self, connection: Connection) -> None:
        """Its client lost the first connection, and asks for the same on another."""
        self.connection.drop_unsent()  # nobody may ever read what it holds
        self.connection = connection
        if self.abandoned.done() and not self.queued:  # what only waited is being given up already
            self.abandoned = asyncio.get_running_loop().create_future()
        for event in self._told:
            connection.send(event)
        self._moves.set()

    def give_up_in(self, seconds: float) -> None:
        """Unless its turn has come by then."""
        self._patience = asyncio.get_running_loop().call_later(seconds, self.give_up, True)

    def abandon(self) -> None:
        """It was answered, or the client has been gone for so long that nobody waits for it any more."""
        if self._patience is not None:
            self._patience.cancel()
        if not self.abandoned.done():
            self.abandoned.set_result(None)
        self._moves.set()

    def give_up(self, late: bool = False) -> None:
        """What still waits for its turn is not waited for any more."""
        if self.queued and self.task is not None:
            self.late = self.late or late
            self.task.cancel()

    async def until_connected(self) -> None:
        """Until its client is back, or has left for good."""
        while self.connection.is_gone and not self.abandoned.done():
            self._moves.clear()
            await self._moves.wait()

    def tell_output(self, stream: Stream, data: bytes, **also: int) -> bool:
        """Tell it of output; has it taken enough of that? Else no more is to be printed until it has: see ``taken``.

        ``also``: ``so_far``, of what came before the request: how many bytes are missing before these.
        """
        event = encode({"id": self.request, "event": "output", "stream": stream, "at": self._at, **also}, data)
        self._at += len(data)
        self._told.append(event)
        self._size += len(event)
        while self._size - len(self._told[0]) > _RETOLD:
            self._size -= len(self._told.popleft())
        self.connection.send(event)
        return not (self.connection.congested or self.connection.is_gone)

    async def taken(self) -> None:
        """Until it has taken enough, of what is told again too: more would push out what it has not heard."""
        while self.connection.congested or (self.connection.is_gone and not self.abandoned.done()):
            await (self.until_connected() if self.connection.is_gone else self.connection.drain())

    def take_told(self) -> bytes:
        """What a client gets that asks again when it was answered. That is the ledger's then, and no more kept here."""
        told = b"".join(self._told)
        self._told.clear()
        self._size = 0
        return told
