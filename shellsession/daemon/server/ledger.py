"""The ledger of requests: which ones the daemon has taken, and its replies, so that a request never runs twice.

A client that loses its connection sends its request again. The ledger then returns the reply, or says that the request
still runs. If the reply is no longer kept, it refuses: a request that may have run is never run again.

A request's id is ``INCARNATION.CONNECTION.NUMBER``: the random name of the daemon process, the number of the connection
on which the request was first sent, and a count from 1 on that connection. As each connection counts up, its highest
number covers all requests that may have run. No other ids need to be kept.

No I/O happens here, and memory is bounded.
"""

from __future__ import annotations

import enum
import re
from collections import OrderedDict, deque
from typing import Final, NamedTuple

from ...errors import OutcomeUnknown, ProtocolError, ResultExpired

# Bytes counted for each reply in addition to its own, as empty replies need memory, too. Key and entry take 300
# (measured); the rest allows for waste in the allocator.
OVERHEAD: Final = 1024

# 18 digits are below 2**63. No leading zeros: two spellings of one number would be two requests.
_ID: Final = re.compile(r"(\w{1,64})\.([1-9][0-9]{0,17})\.([1-9][0-9]{0,17})", re.ASCII)


class Claim(enum.Enum):
    """The state of a request that has no reply yet."""

    NEW = "new"  # never seen before: the caller runs it
    RUNNING = "running"  # an earlier caller runs it


class _Key(NamedTuple):
    connection: int
    number: int


class _Reply(NamedTuple):
    output: bytes  # the last output events, sent before the reply
    reply: bytes
    settled: float

    @property
    def size(self) -> int:
        return len(self.output) + len(self.reply) + OVERHEAD


class Ledger:
    """The requests of one daemon, from its start to its end.

    Replies are kept for ``keep_seconds``, and at most ``keep_bytes`` of them: the latest. The highest request number is
    kept for open connections and for the last ``connections_kept`` closed ones. Running requests are always kept; their
    number is limited elsewhere. ``now`` is the time of a monotonic clock.
    """

    __slots__ = (
        "_admitted",
        "_bytes",
        "_closed",
        "_connections_kept",
        "_highest",
        "_incarnation",
        "_keep_bytes",
        "_keep_seconds",
        "_replies",
        "_running",
    )

    def __init__(
        self,
        incarnation: str,
        keep_seconds: float = 600.0,
        keep_bytes: int = 64 << 20,
        connections_kept: int = 1 << 16,
    ) -> None:
        self._incarnation = incarnation
        self._keep_seconds = keep_seconds
        self._keep_bytes = keep_bytes
        self._connections_kept = connections_kept
        self._admitted = 0
        self._highest: dict[int, int] = {}  # by connection
        self._closed: deque[int] = deque()  # closed connections that ``_highest`` still has
        self._running: set[_Key] = set()
        # Oldest first. Not a plain dict, where finding the first entry walks over all deleted ones.
        self._replies: OrderedDict[_Key, _Reply] = OrderedDict()
        self._bytes = 0

    def admit(self) -> int:
        """Register a new connection, and return its number."""
        self._admitted += 1
        self._highest[self._admitted] = 0
        return self._admitted

    def leave(self, connection: int) -> None:
        """Note the end of a connection. Its requests may come again on another one."""
        self._closed.append(connection)
        if len(self._closed) > self._connections_kept:
            del self._highest[self._closed.popleft()]

    def connection_of(self, request: str) -> int:
        """The number of the connection on which the request was first sent. Raises ProtocolError, OutcomeUnknown."""
        return self._key(request).connection

    def claim(self, request: str, now: float) -> Claim | bytes:
        """Take a request: ``Claim.NEW`` if the caller has to run it, ``Claim.RUNNING``, or its reply.

        Raises ProtocolError, OutcomeUnknown and ResultExpired.
        """
        key = self._key(request)
        self._expire(now)
        if key in self._running:
            return Claim.RUNNING
        if (kept := self._replies.get(key)) is not None:
            return kept.output + kept.reply
        if self._may_have_run(key):
            raise ResultExpired(
                f"request {request} was sent before, or may have been, and its result is no longer kept: it was not "
                "run again; check whether it has done its work, and send a new one if it has not"
            )
        self._highest[key.connection] = key.number
        self._running.add(key)
        self._forget_output(_Key(key.connection, key.number - 1))  # the client has all of it, see ``settle``
        return Claim.NEW

    def settle(self, request: str, reply: bytes, now: float, output: bytes = b"") -> None:
        """Keep the reply of a running request, for a client that asks again.

        ``output`` precedes the reply, and is kept until the next request on that connection. A client sends one request
        after the other, so by then it has all of it. The reply itself may still be needed.
        """
        key = self._key(request)
        self._running.remove(key)
        kept = _Reply(output, reply, now)
        if kept.size <= self._keep_bytes:
            self._replies[key] = kept
            self._bytes += kept.size
        self._expire(now)

    def drop(self, request: str) -> None:
        """Keep no reply of a running request. A client that asks again gets ResultExpired, and sends a new one."""
        self._running.remove(self._key(request))

    def _forget_output(self, key: _Key) -> None:
        if (kept := self._replies.get(key)) is not None and kept.output:
            self._replies[key] = smaller = kept._replace(output=b"")
            self._bytes -= kept.size - smaller.size

    def _key(self, request: str) -> _Key:
        """The parsed id of a request. Raises ProtocolError and OutcomeUnknown."""
        match = _ID.fullmatch(request)
        if match is None:
            raise ProtocolError(
                f"{request[:200]!r} is not a request id: use INCARNATION.CONNECTION.NUMBER, counted from 1"
            )
        if match[1] != self._incarnation:
            raise OutcomeUnknown(
                f"the daemon that got request {request} has ended: the request may or may not have run, and was not "
                "run again; check whether it has done its work"
            )
        key = _Key(int(match[2]), int(match[3]))
        if key.connection > self._admitted:
            raise ProtocolError(f"request {request} names a connection that this daemon has never accepted")
        return key

    def _may_have_run(self, key: _Key) -> bool:
        highest = self._highest.get(key.connection)
        return highest is None or key.number <= highest

    def _expire(self, now: float) -> None:
        while self._replies:
            oldest = next(iter(self._replies.values()))
            if self._bytes <= self._keep_bytes and now - oldest.settled <= self._keep_seconds:
                break
            self._replies.popitem(last=False)
            self._bytes -= oldest.size
