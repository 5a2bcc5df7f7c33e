"""The client's end of connections to the daemon: one request and its answer, over as many connections as it takes.

Law: a request is sent again only under its own id, so that it is never run twice.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextvars import ContextVar, Token
from typing import Any, Final, Self

from ..engine.waiting import LoopPoller, Poller, Steps, Wait
from ..errors import (
    DaemonUnavailable,
    OutcomeUnknown,
    ProtocolError,
    ResultExpired,
    ShellSessionError,
    VersionMismatch,
)
from ..models import VERSION, Result
from .endpoint import PATIENCE, peer
from .records import field, only_part, to_error, to_result
from .wire import PROTOCOL, Decoder, Message, encode

# More, and memory is mapped and unmapped for each recv, which takes 15 us.
_CHUNK: Final = 1 << 16
# How soon an answer is to be expected: `true` takes the daemon 0.3 ms. Looking for it again and again saves the waking
# up: 0.28 ms instead of 0.42 on two cores (on one it costs 0.03).
_SOON: Final = 1e-3
# Connections that are kept for the next verb; more are only needed while verbs overlap.
_KEPT: Final = 4
# How often a daemon may end a new connection before anything was asked of it: one that ends does so to who came last.
_ATTEMPTS: Final = 5
# How long who has asked tries to hear of it, while nobody at the socket takes the request, in seconds; and the pauses
# between two attempts, of which each is twice the last.
_TRIED: Final = 30.0
_PAUSE, _LONGEST_PAUSE = 0.01, 0.5
# What a greeting holds, of whichever version.
_HELLO: Final = {"protocol": int, "incarnation": str, "connection": int, "pid": int}
_UNKNOWN: Final = "look at what the command was to do, and run it again only if that is not done"


class ConnectionLost(Exception):
    """The daemon has ended, or has closed this connection. ``untouched``: before it got a byte of the request."""

    def __init__(self, untouched: bool = False) -> None:
        super().__init__("the connection to the daemon was lost")
        self.untouched = untouched


class Wire:
    """One connection."""

    def __init__(self, ours: socket.socket, poller: Poller | LoopPoller) -> None:
        ours.setblocking(False)
        self._socket = ours
        self.poller = poller
        self._fd = (ours.fileno(),)
        self._decoder = Decoder()
        self._messages: list[Message] = []
        self._number = 0
        self.hello: dict[str, Any] = {}

    def greet(self, path: str, patient: bool = False) -> Steps[None]:
        """As ``meet``, where what follows is to be understood as well. Raises VersionMismatch."""
        yield from self.meet(path, patient)
        if self.hello.get("protocol") != PROTOCOL:
            raise VersionMismatch(
                f"the daemon at {path} is shellsession {self.hello.get('version')} (protocol"
                f" {self.hello.get('protocol')}), this client {VERSION} ({PROTOCOL}): `shellsession stop` ends it"
            )

    def meet(self, path: str, patient: bool = False) -> Steps[None]:
        """Hear the daemon's greeting. Raises ConnectionLost, what the daemon refuses us for, and, unless ``patient``,
        DaemonUnavailable when it says nothing.
        """
        try:
            hello = yield from self.receive(None if patient else time.monotonic() + PATIENCE)
        except TimeoutError:
            raise DaemonUnavailable(
                f"the daemon at {path} (pid {peer(self._socket)[0]}) takes connections and says nothing for"
                f" {PATIENCE:g} s: it is stopped (SIGSTOP) or far too busy; nothing was asked of it: let it go on"
                " (kill -CONT), end it (kill -9), or try again later"
            ) from None
        if "error" in hello.header:
            raise to_error(field(hello.header, "error", dict), hello.parts)
        for name, kind in _HELLO.items():
            field(hello.header, name, kind)
        self.hello = hello.header

    @property
    def incarnation(self) -> str:
        return str(self.hello["incarnation"])

    def next_id(self) -> str:
        self._number += 1
        return f"{self.incarnation}.{self.hello['connection']}.{self._number}"

    def send(self, data: bytes) -> Steps[None]:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest, socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                yield Wait(write=self._fd)
            except OSError as error:
                raise ConnectionLost(len(rest) == len(data)) from error

    def receive(self, until: float | None = None) -> Steps[Message]:
        """The next message. Raises ConnectionLost, TimeoutError."""
        while not self._messages:
            if not (yield Wait(self._fd, until, _SOON)) and until is not None and time.monotonic() >= until:
                raise TimeoutError
            try:
                data = self._socket.recv(_CHUNK)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ConnectionLost from error
            if not data:
                raise ConnectionLost
            self._messages = self._decoder.feed(data)
        return self._messages.pop(0)

    def close(self) -> None:
        if isinstance(self.poller, LoopPoller):
            self.poller.forget_all()
        self._socket.close()


class Pool:
    """The idle connections of one client."""

    def __init__(self) -> None:
        self._idle: list[Wire] = []
        self._owner = os.getpid()

    def take(self, incarnation: str = "") -> Wire | None:
        """One to that very daemon, if it is named; those to another are of no use any more."""
        if self._owner != os.getpid():  # a forked child must not talk on its parent's connections
            self.close()
            self._owner = os.getpid()
        while self._idle:
            wire = self._idle.pop()
            if incarnation in ("", wire.incarnation):
                return wire
            wire.close()
        return None

    def give_back(self, wire: Wire) -> None:
        if len(self._idle) < _KEPT:
            self._idle.append(wire)
        else:
            wire.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class GivenUp:
    """What came of a request that its caller gave up (Ctrl-C, a cancelled task) while it was within this.

    Only who asks so beforehand is told: what came may be megabytes, and most callers never look.
    """

    def __init__(self) -> None:
        self.ended = False  # the daemon has ended it: where there is no result, nothing was begun for it
        self.result: Result | None = None

    def __enter__(self) -> Self:
        self._before: Token[GivenUp | None] = _TELLS.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _TELLS.reset(self._before)

    def note(self, answer: Message) -> None:
        """The daemon's, to who had it cancelled."""
        if answer.header.get("value"):
            self.ended = True
            if (header := answer.header.get("result")) is not None:
                self.result = to_result(header, answer.parts)


# Whom a request tells what came of it: of this thread or task, as several may be in one session.
_TELLS: Final[ContextVar[GivenUp | None]] = ContextVar("shellsession-given-up", default=None)


class Exchange:
    """One request and its answer. While ``wire`` is None it needs a connection: ``use`` gives it one.

    ``expected``: the incarnation of the daemon that has the session; another one has lost it.
    """

    def __init__(
        self, pool: Pool, path: str, header: Mapping[str, object], parts: tuple[bytes, ...] = (), expected: str = ""
    ) -> None:
        self._pool, self._path = pool, path
        self._header, self._parts = header, parts
        # To give up a cancellation, too, says nothing of what was to be cancelled.
        self.given_up = None if header["verb"] == "cancel" else _TELLS.get()
        self._expected = expected
        self._sent = self._resent = False
        self.request = ""  # its id, once it was sent
        self.done = False  # it has its answer
        self._attempts = 0  # in a row that came to nothing: nobody took the request
        self._tried = 0.0  # when the first of them failed
        self._pause = self._since = 0.0  # before the next; and when the last began
        self._heard = 0  # bytes of its output
        self.wire: Wire | None = pool.take(expected)

    @property
    def may_start(self) -> bool:
        """May a daemon be started for it? Not once it was sent to one."""
        return not self.request

    def use(self, ours: socket.socket, poller: Poller | LoopPoller) -> Wire:
        self.wire = Wire(ours, poller)
        return self.wire

    def next(self) -> Steps[Message]:
        """The next event, or the reply, after which it is ``done``; LOST when it needs another connection.

        Raises what the daemon says went wrong, VersionMismatch, OutcomeUnknown, and DaemonUnavailable when the session
        is gone with its daemon (and nothing was run).
        """
        wire = self.wire
        assert wire is not None
        try:
            if not wire.hello:
                # A second try may not give up: what was asked for may be running.
                yield from wire.greet(self._path, patient=bool(self.request))
            if not self._sent:
                yield from self._send(wire)
            message = yield from self._receive(wire)
        except ConnectionLost as lost:
            if lost.untouched and not self._resent:
                self.request = ""
            self.close()
            yield from self._again(lost)
            return LOST
        if "event" not in message.header:
            self.done, self.wire = True, None
            self._pool.give_back(wire)
            if "error" in message.header:
                raise to_error(field(message.header, "error", dict), message.parts)
        return message

    def _again(self, lost: ConnectionLost) -> Steps[None]:
        """Pause before another connection is tried; raises where it is time to give up."""
        now = time.monotonic()
        if now - self._since > _LONGEST_PAUSE:
            self._pause = 0.0
        self._attempts += 1
        if self._attempts == 1:
            self._tried = now
        if now - self._tried >= _TRIED if self.request else self._attempts == _ATTEMPTS:
            unavailable = DaemonUnavailable(
                f"the daemon at {self._path} takes connections and ends them at once: it may be another user's,"
                " or is ending; try again, or name another socket"
            )
            raise self.unreachable(unavailable) from lost
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause or _PAUSE)
        self._since = now + self._pause
        while time.monotonic() < self._since:
            yield Wait(until=self._since)

    def _receive(self, wire: Wire) -> Steps[Message]:
        """The next message, but for output that was heard over an earlier connection. Raises ResultExpired."""
        while True:
            message = yield from wire.receive()
            if message.header.get("id") not in (self.request, None):  # None: what it said was not understood
                raise ProtocolError("the peer sent an answer to something that was not asked: end that daemon")
            if message.header.get("event") != "output":
                return message
            at = field(message.header, "at", int)
            field(message.header, "stream", str)
            size = len(only_part(message.parts))
            if at > self._heard:
                raise ResultExpired(
                    f"{at - self._heard} bytes of output came while the connection was lost, and are no longer kept:"
                    f" what was heard ends before them; the command itself is not concerned: {_UNKNOWN}"
                )
            if at == self._heard:
                self._heard = at + size
                return message

    def _send(self, wire: Wire) -> Steps[None]:
        if self.request and not self.request.startswith(wire.incarnation + "."):
            raise OutcomeUnknown(f"the daemon that ran this has ended, and another is there now: {_UNKNOWN}")
        if self._expected not in ("", wire.incarnation):
            raise DaemonUnavailable(
                "the daemon that held this session has ended, and its state is gone with it; nothing was run: ask again"
                " for a fresh session"
            )
        self._resent = bool(self.request)
        self.request = self.request or wire.next_id()
        self._sent = True
        header = {"protocol": PROTOCOL, "id": self.request, **self._header}
        yield from wire.send(encode(header, *self._parts))
        self._attempts = 0  # it lives, and has it: what was begun will be heard of

    def unreachable(self, error: DaemonUnavailable) -> ShellSessionError:
        """No connection could be made, or kept, for it: what that means."""
        return OutcomeUnknown(f"the daemon was lost while it ran this: {_UNKNOWN}") if self.request else error

    def close(self) -> None:
        """Leave its connection."""
        if self.wire is not None:
            self.wire.close()
        self.wire, self._sent = None, False


LOST: Final = Message({"event": "lost"}, ())
