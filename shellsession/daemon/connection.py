"""One client's connection: its messages in, its replies and events out.

Law: what it sends wrongly hurts nobody else, and what it does not take is never piled up.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

from ..engine import processes
from ..errors import ProtocolError, ShellSessionError
from .endpoint import peer
from .records import from_error
from .wire import ID_MAX, Decoder, Message, encode

LOG: Final = logging.getLogger("shellsession.daemon")

# Output for a slow client: beyond this its command stands still, in bytes. As large as a pipe: more would gain nothing.
_BUFFER: Final = 1 << 20
# How far behind a watcher may be before it misses output, in bytes, and before its connection is ended.
_BEHIND: Final = 1 << 20
_TOO_FAR: Final = 16 << 20
# Requests of one connection that are served at a time; then no more are read.
IN_FLIGHT: Final = 32


# Where what comes is read to, by one connection after the other: asyncio's own 256 KiB for each read cost 15 us.
_INBOX: Final = memoryview(bytearray(1 << 16))


class Host(Protocol):
    """Who serves what a connection brings: the server."""

    def admit(self, connection: Connection) -> ShellSessionError | None:
        """Note a new connection; the error, if there may be no more."""

    def take(self, connection: Connection, message: Message, at_once: bool = False) -> None:
        """Serve one message, or answer it again."""

    def leave(self, connection: Connection) -> None:
        """The connection has ended."""

    def may_be_idle(self, connection: Connection) -> None:
        """It has sent all that was waited for."""


class Connection(asyncio.BufferedProtocol):
    """Reads requests for ``server`` and writes what it answers."""

    def __init__(self, server: Host) -> None:
        self._server = server
        self._decoder = Decoder()
        self._transport: asyncio.Transport | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._missed = 0
        self._in_flight = 0
        self._taking = False
        self._messages: deque[Message] = deque()  # not taken yet
        self.number = 0
        self.pid = 0  # of the client
        self._at_end: list[Callable[[], None]] = []

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_BUFFER)
        self.pid, user = peer(self._transport.get_extra_info("socket"))
        # Our commands are not confined: a sandbox in which the socket can be seen would be none.
        confined = processes.is_confined(self.pid)
        if confined or user != os.getuid():
            if user != os.getuid() or processes.alive(self.pid):  # else it has ended meanwhile, and nobody is refused
                LOG.warning("refused a connection of user %s%s", user, " from a sandbox" if confined else "")
            self._transport.abort()
            self._transport = None
            return
        refusal = self._server.admit(self)
        if refusal is not None:
            self.fail(refusal)

    def get_buffer(self, _: int) -> memoryview:
        return _INBOX

    def buffer_updated(self, size: int) -> None:
        try:
            self._messages += self._decoder.feed(bytes(_INBOX[:size]))
            self._take_some(at_once=True)
            self._decoder.feed(b"")  # what is no message behind one that is
        except ProtocolError as error:
            self.fail(error)

    def _take_some(self, at_once: bool = False) -> None:
        """Have as many served as may be; the rest waits here, and nothing more is read meanwhile."""
        if self._taking:  # one was answered while it was taken
            return
        self._taking = True
        # Not while answers wait to be taken either: each may be 2 MiB long. What a watcher has not taken may be as
        # much as it likes: its next key is perhaps the Ctrl-C that ends that.
        try:
            while self._messages and self._in_flight < IN_FLIGHT and self._has_room_for_answers:
                self._in_flight += 1
                # At once what came alone; of many the loop gets its turn between any two.
                self._server.take(self, self._messages.popleft(), at_once)
                at_once = False
        finally:
            self._taking = False
        if self._transport is not None and bool(self._messages) == self._transport.is_reading():
            (self._transport.pause_reading if self._messages else self._transport.resume_reading)()

    def eof_received(self) -> None:
        try:
            self._decoder.end()
        except ProtocolError as error:
            self.fail(error)

    def on_close(self, do: Callable[[], None]) -> None:
        """At its end; now, where that is past (its request waited for a turn)."""
        if self._transport is None:
            do()
        else:
            self._at_end.append(do)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._room.set()
        while self._at_end:
            self._at_end.pop()()
        self._server.leave(self)
        while self._messages:  # what came before the end is served all the same: a key typed in attach, say
            self._server.take(self, self._messages.popleft())

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()
        self._take_some()
        self._server.may_be_idle(self)

    # -- the server's side

    def served(self) -> None:
        """One of its requests has been answered, or has moved to another connection: there is room for another."""
        self._in_flight -= 1
        if self._messages:
            self._take_some()
        self._server.may_be_idle(self)

    def send(self, data: bytes) -> None:
        """To be sent; nothing happens when the client is gone."""
        if (transport := self._open) is not None:
            transport.write(data)

    @property
    def _open(self) -> asyncio.Transport | None:
        """The transport, while anything can be sent."""
        return self._transport if self._transport is not None and not self._transport.is_closing() else None

    @property
    def _has_room_for_answers(self) -> bool:
        return self._open is not None and self._open.get_write_buffer_size() <= _BEHIND + _BUFFER

    @property
    def is_gone(self) -> bool:
        return self._transport is None

    @property
    def is_serving(self) -> bool:
        """Is a request of its client being served?"""
        return self._in_flight > 0

    @property
    def is_idle(self) -> bool:
        """Is nothing on its way, and has it nothing (the session, a place from which to look on) that ends with it?"""
        busy = self._in_flight or self._messages or self._at_end or self.congested or self._decoder.is_amid
        return self._open is not None and not busy

    @property
    def congested(self) -> bool:
        return not self._room.is_set()

    async def drain(self) -> None:
        """Until the client has taken enough, or is gone; or until ``drop_unsent``."""
        await self._room.wait()

    def drop_unsent(self) -> None:
        """Who waits for room here is to look again."""
        if self.congested:
            self._room.set()
            self._room.clear()

    def offer(self, data: bytes, size: int) -> None:
        """Send output to a watcher: it misses what it is too slow for, and is told how much."""
        if self._transport is None:
            return
        behind = self._transport.get_write_buffer_size()
        if size and behind > _BEHIND:
            self._missed += size
            return
        if behind > _TOO_FAR:  # commands and their ends are not dropped, and must not pile up either
            LOG.warning("connection %d looks on and does not read: it is ended", self.number)
            self._transport.abort()
            return
        if self._missed:
            self.send(encode({"event": "missed", "bytes": self._missed}))
            self._missed = 0
        self.send(data)

    def fail(self, error: ShellSessionError, request: object = None) -> None:
        """Say what is wrong with what was sent. Without a ``request`` nothing more of it can be understood: the end."""
        header, parts = from_error(error)
        known = request if isinstance(request, str) and len(request) <= ID_MAX else None
        self.send(encode({"id": known, "error": header}, *parts))
        if request is None:
            self.close()

    def close(self) -> None:
        """Send what is left, then end."""
        if self._transport is not None:
            self._transport.close()
