"""Lets clients in, one after the other as they come; where no descriptor is left for one, it is told so.

Law: nobody is left to wait unanswered. One descriptor is spare: it is given up for a moment to answer with.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from contextlib import suppress
from typing import Final

from ..errors import LimitReached
from .connection import LOG, Connection
from .records import from_error
from .server import Server
from .wire import encode

# Clients that are let in before all others get their turn.
_AT_ONCE: Final = 64
# How soon it is tried again where not even the spare descriptor could be had back, in seconds.
_PAUSE: Final = 0.1
_FULL: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_NO_ROOM: Final = (
    "the daemon has no file descriptors left for another client: close sessions or connections, or start it with a"
    " higher limit (ulimit -Hn)"
)


class Acceptor:
    """Lets in who comes to ``listener``, on the running loop, until ``close``."""

    def __init__(self, listener: socket.socket, server: Server) -> None:
        listener.setblocking(False)
        self._listener, self._server = listener, server
        self._loop = asyncio.get_running_loop()
        self._entering: set[asyncio.Task[object]] = set()
        self._spare: int | None = None
        self._full = False
        self._open()

    def _open(self) -> None:
        if self._listener.fileno() >= 0:  # it was closed meanwhile
            self._keep_spare()
            self._loop.add_reader(self._listener, self._receive)

    def _keep_spare(self) -> None:
        if self._spare is None:
            with suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _receive(self) -> None:
        try:
            for _ in range(_AT_ONCE):
                client, _ = self._listener.accept()
                self._full = False
                client.setblocking(False)
                entering = self._loop.connect_accepted_socket(lambda: Connection(self._server), client)
                task: asyncio.Task[object] = self._loop.create_task(entering)
                self._entering.add(task)
                task.add_done_callback(self._entering.discard)
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._turn_away()

    def _turn_away(self) -> None:
        if not self._full:  # once: there may be many
            LOG.warning("no file descriptors are left: clients are turned away")
        self._full = True
        if self._spare is None:  # somebody else was quicker to take it: to look again at once would be in vain
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_PAUSE, self._open)
            return
        os.close(self._spare)
        self._spare = None
        with suppress(OSError), self._listener.accept()[0] as client:
            client.setblocking(False)
            header, _ = from_error(LimitReached(_NO_ROOM))
            client.send(encode({"id": None, "error": header}))
        self._keep_spare()

    async def close(self) -> None:
        """Nobody comes in any more; whoever was on the way is in."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        if self._entering:
            await asyncio.wait(self._entering)
