"""The watchers of an agent, and how a command's output reaches them and the request that waits for it.

Law: watchers slow down no command (see ``Connection.offer``), but for a person's own command in ``attach``. A command
is told once, before anything of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..models import Stream
from .wire import encode

if TYPE_CHECKING:
    from ..engine.call import Call
    from ..engine.steps import Engine
    from .connection import Connection
    from .listener import Listener


class Audience:
    """Of one agent, whichever session it has."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._watchers: set[Connection] = set()

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def join(self, connection: Connection) -> None:
        """That client looks on from now on, until its connection ends."""
        if connection not in self._watchers:
            self._watchers.add(connection)
            connection.on_close(lambda: self._watchers.discard(connection))

    def show(self, event: str, fields: dict[str, object], *parts: bytes) -> None:
        """Tell them all."""
        if self._watchers:
            data = encode({"event": event, "agent": self._agent, **fields}, *parts)
            droppable = len(parts[0]) if event == "output" else 0
            for watcher in tuple(self._watchers):
                watcher.offer(data, droppable)


class Fanout:
    """Where the output of one command goes while it comes: to the request that stays with it, and to who looks on."""

    def __init__(
        self, engine: Engine, audience: Audience, command: bytes, person: bool, viewer: Connection | None
    ) -> None:
        self._engine, self._audience, self._command, self._person = engine, audience, command, person
        self._viewer = viewer  # of the person who typed it, and is to miss nothing
        self._held_back: asyncio.Task[None] | None = None
        self.begun = False
        self.listener: Listener | None = None

    def begin(self) -> None:
        """Who looks on is told of the command, once."""
        if not self.begun:
            self.begun = True
            self._audience.show("command", {"person": self._person}, self._command)

    def __call__(self, stream: Stream, data: bytes) -> None:
        self.begin()
        self._audience.show("output", {"stream": stream}, data)
        if self.listener is not None and not self.listener.tell_output(stream, data):
            self._hold_back(self.listener.taken)
        elif self._viewer is not None and self._viewer.congested:
            self._hold_back(self._viewer.drain)

    def _hold_back(self, taken: Callable[[], Awaitable[None]]) -> None:
        """Read no more of the command until its client has taken what there is. Its end, and who comes next, do not
        wait for that."""
        call = self._engine.last
        if call is not None and (self._held_back is None or self._held_back.done()):
            self._engine.pause(call)
            self._held_back = asyncio.create_task(self._read_on(taken, call))

    async def _read_on(self, taken: Callable[[], Awaitable[None]], call: Call) -> None:
        await taken()
        self._engine.go_on(call)
