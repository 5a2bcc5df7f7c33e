"""The client's end of its connections to the daemon.

Law: what follows a greeting is only read where it is of our protocol; a forked child has connections of its own.
"""

from __future__ import annotations

import os
import time
from _socket import MSG_NOSIGNAL  # see endpoint

from ..engine import processes
from ..engine.waiting import Poller, Steps, Wait
from ..errors import DaemonUnavailable, ProtocolError, VersionMismatch
from .endpoint import PATIENCE, peer
from .records import field, to_error
from .wire import PROTOCOL, Decoder, Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any, Final

    from ..engine.loop_waiting import LoopPoller

# More, and memory is mapped and unmapped for each recv, which takes 15 us.
_CHUNK: Final = 1 << 16
# How soon an answer is to be expected: `true` takes the daemon 0.3 ms. Looking for it again and again saves the waking
# up: 0.28 ms instead of 0.42 on two cores (on one it costs 0.03).
_SOON: Final = 1e-3
# Connections that are kept for the next verb; more are only needed while verbs overlap. Each is one of those that the
# daemon has room for, in a client that may have a session for each of its agents.
_KEPT: Final = 1
# What a greeting holds, of whichever version.
_HELLO: Final = {"protocol": int, "incarnation": str, "connection": int, "pid": int}


class ConnectionLost(Exception):
    """The daemon has ended, or has closed this connection. ``untouched``: before it got a byte of the request."""

    def __init__(self, untouched: bool = False) -> None:
        super().__init__("the connection to the daemon was lost")
        self.untouched = untouched


class Wire:
    """One connection."""

    def __init__(self, ours: socket, poller: Poller | LoopPoller) -> None:
        ours.setblocking(False)
        self._socket = ours
        self.poller = poller
        self._fd = (ours.fileno(),)
        self._decoder = Decoder()
        self._messages: list[Message] = []
        self._number = 0
        self.hello: dict[str, Any] = {}

    def greet(self, path: str, patient: bool = False) -> Steps[None]:
        """As ``meet``, where what follows is to be understood as well, and is for no sandbox to read.

        Raises VersionMismatch, and DaemonUnavailable where a sandbox listens.
        """
        # A command in a sandbox may be able to write where our socket is, and would get our environment.
        if processes.is_confined(pid := peer(self._socket)[0]):
            if not processes.alive(pid):
                raise ConnectionLost
            raise DaemonUnavailable(
                f"what listens at {path} runs in a sandbox or container (pid {pid}): nothing was sent; remove that"
                " socket, or name another"
            )
        yield from self.meet(path, patient)
        if self.hello.get("protocol") != PROTOCOL:
            from ..models import VERSION

            raise VersionMismatch(
                f"the daemon at {path} is shellsession {self.hello.get('version')} (protocol"
                f" {self.hello.get('protocol')}), this client {VERSION} ({PROTOCOL}): `shellsession stop` ends it"
            )

    def meet(self, path: str, patient: bool = False) -> Steps[None]:
        """Hear the daemon's greeting. Raises ConnectionLost, what the daemon refuses us for, ProtocolError where it is
        none, and, unless ``patient``, DaemonUnavailable when it says nothing.
        """
        try:
            yield from self._hear_hello(path, patient)
        except ProtocolError as error:
            raise ProtocolError(
                f"what listens at {path} is no shellsession daemon: name another socket ({error})"
            ) from None

    def _hear_hello(self, path: str, patient: bool) -> Steps[None]:
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

    @property
    def key(self) -> str:
        """By which a request that was sent here is known to the daemon over another connection."""
        return str(field(self.hello, "key", str))

    def next_id(self) -> str:
        self._number += 1
        return f"{self.incarnation}.{self.hello['connection']}.{self._number}"

    def send(self, data: bytes) -> Steps[None]:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest, MSG_NOSIGNAL) :]
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

    @property
    def closed(self) -> bool:
        """Also of one that was given back: Ctrl-C may have struck just then."""
        return self._socket.fileno() < 0

    def close(self) -> None:
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
            if incarnation in ("", wire.incarnation) and not wire.closed:
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
