"""The client's connections to the daemon: ``Link`` is one of them, ``Pool`` keeps the idle ones.

Messages after the greeting are read only if the daemon speaks our protocol. A forked child never uses a connection of
its parent.
"""

from __future__ import annotations

import os
import time

from ...engine.io.threads import Poller, Steps, Wait
from ...errors import DaemonUnavailable, ProtocolError, VersionMismatch
from ..protocol.messages import field, to_error
from ..protocol.wire import PROTOCOL, Decoder, Message
from .transport import ELSEWHERE, ConnectionLost, not_reached

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Final

    from ...engine.io.loop import LoopPoller
    from .transport import Channel


# The fields of a greeting, in every version of the protocol.
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
        self.incarnation = ""  # the random name of this daemon process
        self.key = ""  # proves, on another connection, that a request was sent over this one
        self.closed = False  # a closed link may be in the pool, if Ctrl-C came just as it was put back

    def read_greeting(self, patient: bool = False) -> Steps[None]:
        """Read the daemon's greeting.

        Raises ConnectionLost, the error with which the daemon refuses the connection, ProtocolError for anything else,
        and, unless ``patient``, DaemonUnavailable if nothing comes.
        """
        within = self._channel.patience
        try:
            hello = yield from self.receive(None if patient else time.monotonic() + within)
            if "error" in hello.header:
                raise to_error(field(hello.header, "error", dict), hello.parts)
            for name, kind in _HELLO.items():
                field(hello.header, name, kind)
        except ProtocolError as error:
            raise ProtocolError(
                f"the process that listens at {self._channel} is not a shellsession daemon: name another socket"
                f" ({error})"
            ) from None
        except TimeoutError:
            raise DaemonUnavailable(
                f"the daemon at {self._channel} accepts connections but has sent nothing for {within:g} s: it is"
                " stopped (SIGSTOP) or overloaded; nothing was sent to it: continue it (kill -CONT), end it (kill -9),"
                " or try again later"
            ) from None
        self.hello, self.incarnation = hello.header, hello.header["incarnation"]

    def greet(self, patient: bool = False) -> Steps[None]:
        """Read the greeting of a daemon that is to get a request. As ``read_greeting``, and refuses other peers.

        Raises DaemonUnavailable for one in a sandbox or another container, and VersionMismatch for a daemon with
        another protocol.
        """
        self._channel.check()
        yield from self.read_greeting(patient)
        if self.hello["protocol"] != PROTOCOL:
            from ...models import VERSION

            raise VersionMismatch(
                f"the daemon at {self._channel} is shellsession {self.hello.get('version')} (protocol"
                f" {self.hello['protocol']}), this client is {VERSION} ({PROTOCOL}): end that daemon with"
                " `shellsession stop`"
            )
        theirs, ours = field(self.hello, "namespaces", str), self._channel.namespaces
        if theirs != ours:
            raise not_reached(
                self._channel,
                f"the daemon at {self._channel} runs in the mount and PID namespaces {theirs}, here they are {ours}:"
                f" nothing was sent, as commands would run in another container, or outside this one; {ELSEWHERE}",
            )
        self.key = field(self.hello, "key", str)

    def next_id(self) -> str:
        """The id of the next request that is sent first over this connection; see ``ledger``."""
        self._number += 1
        return f"{self.incarnation}.{self.hello['connection']}.{self._number}"

    def send(self, data: bytes) -> Steps[None]:
        """Send all the data. Raises ConnectionLost."""
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
            if (
                not (yield Wait(self._fds, until, self._channel.spin))
                and until is not None
                and time.monotonic() >= until
            ):
                raise TimeoutError
            self._messages = self.read()
        return self._messages.pop(0)

    def read(self) -> list[Message]:
        """Read once, and return the messages that are complete. Raises ConnectionLost."""
        try:
            data = self._channel.receive()
        except BlockingIOError:
            return []
        except OSError as error:
            raise ConnectionLost from error
        if not data:
            raise ConnectionLost
        return self._decoder.feed(data)

    def close(self) -> None:
        self.closed = True
        self.poller.forget_all()
        self._channel.close()


class Pool:
    """The idle connections of one client, at most ``most``.

    More than one are needed only while calls overlap. The daemon has room for a limited number of connections, and a
    client may have a session for each of its agents.
    """

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._idle: list[Link] = []
        self._owner = os.getpid()

    def take(self, incarnation: str = "") -> Link | None:
        """An idle connection, if there is one. With an ``incarnation``, connections to any other daemon are closed."""
        if self._owner != os.getpid():  # a forked child must not use its parent's connections
            self.close()
            self._owner = os.getpid()
        while (link := self._pop()) is not None:
            if incarnation in ("", link.incarnation) and not link.closed:
                return link
            link.close()
        return None

    def give_back(self, link: Link) -> None:
        """Keep the connection for the next ``take``, or close it."""
        if len(self._idle) < self._most:
            self._idle.append(link)
        else:
            link.close()

    def close(self) -> None:
        while (link := self._pop()) is not None:
            link.close()

    def _pop(self) -> Link | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None
