"""One request to the daemon and its answer, over as many connections as it takes.

Law: a request is sent again only under its own id, so that it is never run twice.
"""

from __future__ import annotations

import time
from _contextvars import ContextVar

from ..engine.waiting import Poller, Steps, Wait
from ..errors import DaemonUnavailable, OutcomeUnknown, ProtocolError, ResultExpired, ShellSessionError
from .link import ConnectionLost, Pool, Wire
from .records import field, only_part, to_error, to_result
from .wire import PROTOCOL, Message, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Mapping
    from contextvars import Token
    from typing import Final, Self

    from ..engine.loop_waiting import LoopPoller
    from ..models import Result

# How often a daemon may close a new connection before it has the request. One that is ending does so to who comes last.
_ATTEMPTS: Final = 5
# How long who has asked tries to hear of it, while nobody at the socket takes the request, in seconds; and the pauses
# between two attempts, of which each is twice the last.
_TRIED: Final = 30.0
_PAUSE, _LONGEST_PAUSE = 0.01, 0.5
_UNKNOWN: Final = "look at what the command was to do, and run it again only if that is not done"
_GONE: Final = "if that daemon has ended, so has the session, and the next command gets a fresh shell"


class GivenUp:
    """What came of a request that its caller gave up (Ctrl-C, a cancelled task) while it was within this.

    Only who asks so beforehand is told: what came may be megabytes, and most callers never look.
    """

    def __init__(self) -> None:
        self.request = ""  # its id, once it is sent
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
        # What comes of a cancellation says nothing of what was to be cancelled, and it is never cancelled itself.
        self.cancelled = header["verb"] == "cancel"  # the daemon is being told to end what it asked for
        self._given_up = None if self.cancelled else _TELLS.get()
        self._expected = expected
        self.sent = self._resent = False
        self.request = ""  # its id, once it was sent
        self._key = ""  # by which the daemon knows it over another connection
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

    def cancellation(self) -> Exchange:
        """The request that has this one ended, whether it runs or waits for its turn."""
        reads = self._given_up is not None
        return Exchange(self._pool, self._path, {"verb": "cancel", "request": self.request, "reads": reads})

    def note(self, answer: Message) -> str:
        """The daemon's to that cancellation, for who wants to know what came of it; the command that it has ended."""
        if self._given_up is not None:
            self._given_up.note(answer)
        return str(self._header.get("command", "")) if "result" in answer.header else ""

    def use(self, ours: socket, poller: Poller | LoopPoller) -> Wire:
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
            yield from self._say(wire)
            message = yield from self._receive(wire)
        except ConnectionLost as lost:
            yield from self._again(lost)
            return LOST
        if "event" not in message.header:
            self.done = True
            self._pool.give_back(wire)
            self.wire = None
            if "error" in message.header:
                raise to_error(field(message.header, "error", dict), message.parts)
        return message

    def say(self) -> Steps[None]:
        """Have it ``sent``, for ``next`` to go on from there; else it needs another connection. Raises as that does."""
        wire = self.wire
        assert wire is not None
        try:
            yield from self._say(wire)
        except ConnectionLost as lost:
            yield from self._again(lost)

    def _say(self, wire: Wire) -> Steps[None]:
        if not wire.hello:
            try:
                # A second try may not give up: what was asked for may be running.
                yield from wire.greet(self._path, patient=bool(self.request))
            except DaemonUnavailable as error:
                raise self.unreachable(error) from error
        if not self.sent:
            yield from self._send(wire)

    def _again(self, lost: ConnectionLost) -> Steps[None]:
        """Leave the connection, and pause before another is tried; raises where it is time to give up."""
        if lost.untouched and not self._resent:
            self.request = ""
        self.close()
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
            raise OutcomeUnknown(f"the daemon that ran this has ended, and another is there now: {_UNKNOWN}; {_GONE}")
        if self._expected not in ("", wire.incarnation):
            raise DaemonUnavailable(
                "the daemon that held this session has ended, and its state is gone with it; nothing was run: ask again"
                " for a fresh session"
            )
        self._resent = bool(self.request)
        if not self._resent:
            self.request, self._key = wire.next_id(), wire.key
        self.sent = True
        if self._given_up is not None:
            self._given_up.request = self.request
        header = {"protocol": PROTOCOL, "id": self.request, **self._header}
        if self._resent:
            header["key"] = self._key
        yield from wire.send(encode(header, *self._parts))
        self._attempts = 0  # it lives, and has it: what was begun will be heard of

    def unreachable(self, error: DaemonUnavailable) -> ShellSessionError:
        """No connection could be made, or kept, for it: what that means."""
        return OutcomeUnknown(f"the daemon was lost while it ran this: {_UNKNOWN}; {_GONE}") if self.request else error

    def close(self) -> None:
        """Leave its connection."""
        if self.wire is not None:
            self.wire.close()
        self.wire, self.sent = None, False


LOST: Final = Message({"event": "lost"}, ())
