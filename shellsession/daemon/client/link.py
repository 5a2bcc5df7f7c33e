"""The client's end of its connections to the daemon.

Law: what follows a greeting is only read where it is of our protocol; a forked child has connections of its own.
"""

from __future__ import annotations

import os
import time

from ...engine.io.threads import Poller, Steps, Wait
from ...errors import DaemonUnavailable, ProtocolError, VersionMismatch
from ..protocol.endpoint import PATIENCE
from ..protocol.messages import field, to_error
from ..protocol.wire import PROTOCOL, Decoder, Message
from .transport import ConnectionLost

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Final

    from ...engine.io.loop import LoopPoller
    from .transport import Channel


# How soon an answer is to be expected: `true` takes the daemon 0.3 ms. Looking for it again and again saves the waking
# up: 0.28 ms instead of 0.42 on two cores (on one it costs 0.03).
_SOON: Final = 1e-3
# Connections that are kept for the next verb; more are only needed while verbs overlap. Each is one of those that the
# daemon has room for, in a client that may have a session for each of its agents.
_KEPT: Final = 1
# What a greeting holds, of whichever version.
_HELLO: Final = {"protocol": int, "incarnation": str, "connection": int, "pid": int}


class Link:
    """One connection to the daemon, and the messages that come over it. Its ``poller`` waits for it alone."""

    def __init__(self, channel: Channel, poller: Poller | LoopPoller) -> None:
        self._channel, self.poller = channel, poller
        self._fds = (channel.fileno(),)
        self._decoder = Decoder()
        self._messages: list[Message] = []
        self._number = 0
        self.hello: dict[str, Any] = {}
        self.incarnation = ""  # the name of this daemon's life, which no other daemon has
        self.key = ""  # by it the daemon recognises, on another connection, a request that was sent over this one
        self.closed = False  # one in the pool is where Ctrl-C came just as it was put back

    def greet(self, patient: bool = False) -> Steps[None]:
        """As ``read_greeting``; also raises VersionMismatch, and DaemonUnavailable where a sandbox listens."""
        self._channel.check()
        yield from self.read_greeting(patient)
        if self.hello["protocol"] != PROTOCOL:
            from ...models import VERSION

            raise VersionMismatch(
                f"the daemon at {self._channel} is shellsession {self.hello.get('version')} (protocol"
                f" {self.hello['protocol']}), this client {VERSION} ({PROTOCOL}): `shellsession stop` ends it"
            )
        self.key = field(self.hello, "key", str)

    def read_greeting(self, patient: bool = False) -> Steps[None]:
        """Read the daemon's greeting. Raises ConnectionLost, the error by which the daemon refuses us, ProtocolError
        for anything else and, unless ``patient``, DaemonUnavailable when nothing comes.
        """
        try:
            hello = yield from self.receive(None if patient else time.monotonic() + PATIENCE)
            if "error" in hello.header:
                raise to_error(field(hello.header, "error", dict), hello.parts)
            for name, kind in _HELLO.items():
                field(hello.header, name, kind)
        except ProtocolError as error:
            raise ProtocolError(
                f"what listens at {self._channel} is no shellsession daemon: name another socket ({error})"
            ) from None
        except TimeoutError:
            raise DaemonUnavailable(
                f"the daemon at {self._channel} takes connections and says nothing for {PATIENCE:g} s: it is stopped"
                " (SIGSTOP) or far too busy; nothing was asked of it: let it go on (kill -CONT), end it (kill -9), or"
                " try again later"
            ) from None
        self.hello, self.incarnation = hello.header, hello.header["incarnation"]

    def next_id(self) -> str:
        self._number += 1
        return f"{self.incarnation}.{self.hello['connection']}.{self._number}"

    def send(self, data: bytes) -> Steps[None]:
        """Send all of it. Raises ConnectionLost."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._channel.send(rest) :]
            except BlockingIOError:
                yield Wait(write=self._fds)
            except OSError as error:
                raise ConnectionLost(len(rest) == len(data)) from error

    def receive(self, until: float | None = None) -> Steps[Message]:
        """The next message. Raises ConnectionLost, TimeoutError."""
        while not self._messages:
            if not (yield Wait(self._fds, until, _SOON)) and until is not None and time.monotonic() >= until:
                raise TimeoutError
            try:
                data = self._channel.receive()
            except BlockingIOError:
                continue
            except OSError as error:
                raise ConnectionLost from error
            if not data:
                raise ConnectionLost
            self._messages = self._decoder.feed(data)
        return self._messages.pop(0)

    def close(self) -> None:
        self.closed = True
        self.poller.forget_all()
        self._channel.close()


class Pool:
    """The idle connections of one client."""

    def __init__(self) -> None:
        self._idle: list[Link] = []
        self._owner = os.getpid()

    def take(self, incarnation: str = "") -> Link | None:
        """A connection to the daemon of that incarnation, if it is named; those to any other one are closed."""
        if self._owner != os.getpid():  # a forked child must not talk on its parent's connections
            self.close()
            self._owner = os.getpid()
        while self._idle:
            link = self._idle.pop()
            if incarnation in ("", link.incarnation) and not link.closed:
                return link
            link.close()
        return None

    def give_back(self, link: Link) -> None:
        if len(self._idle) < _KEPT:
            self._idle.append(link)
        else:
            link.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
