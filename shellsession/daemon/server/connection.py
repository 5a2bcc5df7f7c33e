"""One client of the daemon: its connection, its requests, and the answers to them.

``Connection`` reads requests and writes answers. It reads no more while the client is slow or has many requests, so one
client never fills the daemon's memory. ``Incoming`` is a request with what came with it, ``Answer`` is its reply.
``Listener`` sends the events of one request, also after its client has come back on another connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, Protocol, cast

from ...engine.kernel import proc
from ...engine.verbs.delivery import Delivery
from ...errors import LATE, InvalidRequest, ProtocolError, SessionBusy, ShellSessionError
from ...models import Stream
from ..protocol.endpoint import peer, peer_process
from ..protocol.messages import from_error
from ..protocol.wire import ID_MAX, Decoder, Message, encode

LOG: Final = logging.getLogger("shellsession.daemon")
LEFT: Final = "its client left while it was queued: it was not run"
# Bytes of unsent output at which the command of a slow client pauses. As large as a pipe: more would gain nothing.
_BUFFER: Final = 1 << 20
# Bytes of unsent data at which a watcher misses output, and at which its connection is closed.
_BEHIND: Final = 1 << 20
_TOO_FAR: Final = 16 << 20
# Bytes of output that are kept to be sent again. More cannot be under way to a client: our buffer and one piece (1.6
# MiB), what the kernel holds, and one piece more when the client is gone. The rest is for a relay in between.
_RESENT: Final = 3 << 20
# Requests of one connection that are served at a time. Beyond that no more are read.
IN_FLIGHT: Final = 32
# The buffer into which every connection reads. asyncio's own buffer of 256 KiB for each read cost 15 us.
_INBOX: Final = memoryview(bytearray(1 << 16))


class ConnectionOwner(Protocol):
    """What a connection needs of the server."""

    def admit(self, connection: Connection) -> ShellSessionError | None:
        """Add a new connection. Returns the error with which to refuse it, or None."""

    def take(self, connection: Connection, message: Message) -> None:
        """Serve one message, or send its answer again."""

    def leave(self, connection: Connection) -> None:
        """Remove a connection that has ended."""

    def may_be_idle(self, connection: Connection) -> None:
        """Note that the connection may have become idle."""


class Connection(asyncio.BufferedProtocol):
    """A client's connection: reads requests for ``server``, and writes its answers and events."""

    def __init__(self, server: ConnectionOwner) -> None:
        self._server = server
        self._decoder = Decoder()
        self._transport: asyncio.Transport | None = None
        self._room = asyncio.Event()  # set while the client reads fast enough
        self._room.set()
        self._missed = 0  # bytes of output that a slow watcher has missed
        self._in_flight = 0  # requests that the server serves
        self._taking = False  # ``_take_some`` runs
        self._messages: deque[Message] = deque()  # not yet given to the server
        self.number = 0
        self.pid = 0  # of the client
        self.is_outside = False  # of all sessions: see ``inside``
        self._since = 0  # when it connected
        self._at_close: list[Callable[[], None]] = []

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_BUFFER)
        self.pid, user = peer(self._transport.get_extra_info("socket"))
        self._since = proc.time_now()
        # The daemon's commands are not confined: a process in a sandbox or container could use them to get out.
        confined = proc.is_below(self.pid)
        if confined or user != os.getuid():
            if user != os.getuid() or proc.alive(self.pid):  # else it has ended meanwhile: nothing to report
                where = " from a sandbox or container" if confined else ""
                LOG.warning("refused a connection of user %s%s", user, where)
            self._transport.abort()
            self._transport = None
            return
        refusal = self._server.admit(self)
        if refusal is not None:
            self.fail(refusal)

    def is_same_process(self) -> bool:
        """Is the process ``pid`` the one that connected, and does it live?"""
        transport = self._transport
        if transport is None:
            return False
        try:
            process = peer_process(transport.get_extra_info("socket"))
            if process is None:
                return 0 < proc.start_time(self.pid) <= self._since and proc.alive(self.pid)
            try:
                signal.pidfd_send_signal(process, 0)
            finally:
                os.close(process)
        except OSError:
            return False
        return proc.alive(self.pid)

    def get_buffer(self, _: int) -> memoryview:
        return _INBOX

    def buffer_updated(self, size: int) -> None:
        try:
            self._messages += self._decoder.feed(bytes(_INBOX[:size]))
            self._take_some()
            self._decoder.feed(b"")  # raises for bad data behind a good message, after that one is served
        except ProtocolError as error:
            self.fail(error)

    def _take_some(self) -> None:
        """Give the server as many messages as may be served now. The rest waits, and nothing more is read meanwhile."""
        if self._taking:  # called again by an answer that was sent at once
            return
        self._taking = True
        try:
            while self._messages and self._in_flight < IN_FLIGHT and self._has_room_for_answers:
                self._in_flight += 1
                self._server.take(self, self._messages.popleft())
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
        """Call ``do`` when the connection ends; at once if it has ended (while its request was queued, say)."""
        if self._transport is None:
            do()
        else:
            self._at_close.append(do)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._room.set()
        while self._at_close:
            self._at_close.pop()()
        self._server.leave(self)
        while self._messages:  # served even so: it may be a key that was typed in attach
            self._server.take(self, self._messages.popleft())

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()
        self._take_some()
        self._server.may_be_idle(self)

    # -- called by the server

    def served(self) -> None:
        """Note that a request has been answered, or has moved to another connection: another one may be served."""
        self._in_flight -= 1
        if self._messages:
            self._take_some()
        self._server.may_be_idle(self)

    def send(self, data: bytes) -> None:
        """Send data; does nothing if the client is gone."""
        if (transport := self._open_transport) is not None:
            transport.write(data)

    @property
    def _open_transport(self) -> asyncio.Transport | None:
        """The transport, or None once nothing can be sent."""
        return self._transport if self._transport is not None and not self._transport.is_closing() else None

    @property
    def _has_room_for_answers(self) -> bool:
        """False while the client has many unread answers: each may be 2 MiB long.

        A watcher's unread output does not count: its next key may be the Ctrl-C that ends the flood.
        """
        transport = self._open_transport
        return transport is not None and transport.get_write_buffer_size() <= _BEHIND + _BUFFER

    @property
    def is_gone(self) -> bool:
        return self._transport is None

    @property
    def is_serving(self) -> bool:
        """True while a request of its client is served."""
        return self._in_flight > 0

    @property
    def is_idle(self) -> bool:
        """True if no data is under way, and nothing (a hold, a watcher) ends with this connection."""
        busy = self._in_flight or self._messages or self._at_close or self.congested or self._decoder.is_incomplete
        return self._open_transport is not None and not busy

    @property
    def congested(self) -> bool:
        return not self._room.is_set()

    async def drain(self) -> None:
        """Wait until the client has read enough or is gone, or until ``wake_waiting``."""
        await self._room.wait()

    def wake_waiting(self) -> None:
        """Make every ``drain`` that waits now return: the request has moved to another connection."""
        if self.congested:
            self._room.set()
            self._room.clear()

    def offer(self, data: bytes, size: int) -> None:
        """Send an event to a watcher. A slow watcher misses output, and later gets the number of bytes it missed.

        ``size``: bytes of output in the event; 0 for other events, which are never dropped.
        """
        if self._transport is None:
            return
        behind = self._transport.get_write_buffer_size()
        if size and behind > _BEHIND:
            self._missed += size
            return
        if behind > _TOO_FAR:  # commands and their ends are not dropped, but must not pile up
            LOG.warning("connection %d watches an agent but does not read: closing it", self.number)
            self._transport.abort()
            return
        if self._missed:
            self.send(encode({"event": "missed", "bytes": self._missed}))
            self._missed = 0
        self.send(data)

    def fail(self, error: ShellSessionError, request: object = None) -> None:
        """Send an error. Without a ``request`` also close: what the client sent could not be read at all."""
        header, parts = from_error(error)
        known = request if isinstance(request, str) and len(request) <= ID_MAX else None
        self.send(encode({"id": known, "error": header}, *parts))
        if request is None:
            self.close()

    def close(self) -> None:
        """Send what is left, then close."""
        if self._transport is not None:
            self._transport.close()


class Listener:
    """The receiver of one request's events and answer, and its place in the queue.

    A request waits for a turn, or for a person's hold to end; then it proceeds, and may wait again. While it waits,
    nothing has begun for it: it can be dropped, with the error that says why.
    """

    def __init__(self, request: str, connection: Connection, agent: str | None = None) -> None:
        self.request, self.connection, self.agent = request, connection, agent
        self.task: asyncio.Task[None]  # serves it
        self.task_begun = False  # the task has run for the first time
        self.waits_for = ""  # the message of its error if that takes too long; "" while it does not wait
        self.dropped: ShellSessionError | None = None  # why it was dropped
        self.delivery: Delivery | None = None  # of its command, if that was cancelled
        # Done once no client waits for the answer any more.
        self.abandoned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None  # of ``drop_if_queued_for``; it holds a reference to us
        self._changed = asyncio.Event()
        self._sent: deque[bytes] = deque()  # the last output events, to be sent again after a reconnect
        self._size = 0  # bytes in them
        self._at = 0  # bytes of output so far

    @property
    def missed_by(self) -> str:
        """The request's id if its client is gone, and so misses what is sent now; else ""."""
        return self.request if self.connection.is_gone else ""

    def serve(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin the task that serves the request."""

        async def begin() -> None:
            self.task_begun = True
            await work

        self.task = asyncio.get_running_loop().create_task(begin())

    def wait_for(self, message: str = LATE) -> None:
        """Note that the request waits. ``message``: of its error, if that takes too long."""
        self.waits_for = message

    def proceed(self) -> None:
        """Note that the request waits no longer."""
        self.waits_for = ""

    def drop(self, why: ShellSessionError) -> None:
        """Drop the request if it waits. ``why``: its answer."""
        if self.waits_for:
            self.dropped = self.dropped or why
            self.task.cancel()

    def cancelled_with(self, delivery: Delivery) -> None:
        """Note the ending of the command that was cancelled with this request."""
        self.delivery = delivery

    def reconnect(self, connection: Connection) -> None:
        """Continue on another connection: the client has lost the first one, and sent the request again."""
        self.connection.wake_waiting()  # what it holds may never be read
        self.connection = connection
        if self.abandoned.done() and not self.waits_for:  # a queued request is being dropped already
            self.abandoned = asyncio.get_running_loop().create_future()
        for event in self._sent:
            connection.send(event)
        self._changed.set()

    def drop_if_queued_for(self, seconds: float | None) -> None:
        """Drop the request if it waits after this many seconds, counted from now. None: however long it waits."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._drop_late)

    def _drop_late(self) -> None:
        self.drop(SessionBusy(self.waits_for))

    def abandon(self) -> None:
        """Note that no client waits any more: the request was answered, or its client has been gone for too long.

        This ends nothing. What still runs for the request looks at ``abandoned``.
        """
        if self._timer is not None:
            self._timer.cancel()
        if not self.abandoned.done():
            self.abandoned.set_result(None)
        self._changed.set()

    async def until_connected(self) -> None:
        """Wait until its client is back, or has left for good."""
        while self.connection.is_gone and not self.abandoned.done():
            self._changed.clear()
            await self._changed.wait()

    def send_output(self, stream: Stream, data: bytes, **also: int) -> bool:
        """Send output to the client. False if the client is slow: then pause the command, and await ``until_taken``.

        ``also``: ``so_far``, for output from before the request: how many bytes are missing in front of it.
        """
        event = encode({"id": self.request, "event": "output", "stream": stream, "at": self._at, **also}, data)
        self._at += len(data)
        self._sent.append(event)
        self._size += len(event)
        while self._size - len(self._sent[0]) > _RESENT:
            self._size -= len(self._sent.popleft())
        self.connection.send(event)
        return not (self.connection.congested or self.connection.is_gone)

    async def until_taken(self) -> None:
        """Wait until the client has read enough, also of what is sent again. More output would push that out."""
        while self.connection.congested or (self.connection.is_gone and not self.abandoned.done()):
            await (self.until_connected() if self.connection.is_gone else self.connection.drain())

    def take_sent(self) -> bytes:
        """Remove and return the output that may have to be sent again; from now on the ledger keeps it."""
        sent = b"".join(self._sent)
        self._sent.clear()
        self._size = 0
        return sent


class Incoming(NamedTuple):
    """A request, the parts that came with it, and its connection."""

    request: Any
    parts: tuple[bytes, ...]
    connection: Connection
    listener: Listener

    @property
    def part(self) -> bytes:
        if not self.parts:
            raise InvalidRequest(f"{self.request.verb}: its bytes are missing: send them as a part after the header")
        return self.parts[0]

    @property
    def second(self) -> bytes:
        if len(self.parts) < 2:
            raise InvalidRequest(f"{self.request.verb}: its stdin is missing: send it as a second part")
        return self.parts[1]

    def outline(self, header: dict[str, Any]) -> str:
        """A line for the log: the connection, the verb and how it ended, but never a command or its output."""
        request = self.request
        agent = f" of agent {request.agent!r}" if hasattr(request, "agent") else ""
        ended = header.get("error", {}).get("code") or header.get("result", {}).get("outcome") or "done"
        return f"connection {self.connection.number}: {request.verb}{agent} ({request.id}): {ended}"


class Answer(NamedTuple):
    """The reply's header (``result`` or ``value``) and its parts."""

    header: dict[str, Any]
    parts: tuple[bytes, ...] = ()
