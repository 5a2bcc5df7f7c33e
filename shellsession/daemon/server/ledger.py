"""Exactly once: which requests were taken, and what was answered, for a client that has to ask again.

Law: pure, bounded, and never twice. What may have been run is not run again, also when nobody remembers it.

A request's id is ``INCARNATION.CONNECTION.NUMBER``: the daemon's own random word, the number it gave to the connection
on which the request was first sent, and a count from 1 on that connection. As each connection counts up, its highest
number tells all that may have been run: no id has to be kept for that.
"""

from __future__ import annotations

import enum
import re
from collections import OrderedDict, deque
from typing import Final, NamedTuple

from ...errors import OutcomeUnknown, ProtocolError, ResultExpired

# Counted for each reply besides its bytes, or empty ones would be kept without end. Key and entry take 300 (measured);
# the rest is for what an allocator wastes.
OVERHEAD: Final = 1024

# 18 digits are under 2**63, and one spelling per number: two of them would be two requests.
_ID: Final = re.compile(r"(\w{1,64})\.([1-9][0-9]{0,17})\.([1-9][0-9]{0,17})", re.ASCII)


class Claim(enum.Enum):
    """What is to be done about a request that has no reply yet."""

    NEW = "new"  # never seen: whoever is told so runs it
    RUNNING = "running"  # somebody was told so before


class _Key(NamedTuple):
    connection: int
    number: int


class _Kept(NamedTuple):
    told: bytes  # before the reply: the last of its output
    reply: bytes
    settled: float

    @property
    def size(self) -> int:
        return len(self.told) + len(self.reply) + OVERHEAD


class Ledger:
    """The requests of one daemon, from its start to its end.

    Replies are kept for ``keep_seconds``, the latest ``keep_bytes`` of them; the highest number seen, for connections
    that are open and the last ``connections_kept`` that were. A running request is kept as long as it runs: how many do
    is not decided here. ``now`` is a clock's that never goes back.
    """

    __slots__ = (
        "_admitted",
        "_bytes",
        "_connections_kept",
        "_highest",
        "_incarnation",
        "_keep_bytes",
        "_keep_seconds",
        "_left",
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
        self._left: deque[int] = deque()  # connections that have ended, and are still in it
        self._running: set[_Key] = set()
        # Oldest first. A plain dict would walk over all that was dropped to find its first entry.
        self._replies: OrderedDict[_Key, _Kept] = OrderedDict()
        self._bytes = 0

    def admit(self) -> int:
        """The number of a new connection."""
        self._admitted += 1
        self._highest[self._admitted] = 0
        return self._admitted

    def leave(self, connection: int) -> None:
        """That connection has ended; its requests may come again on another."""
        self._left.append(connection)
        if len(self._left) > self._connections_kept:
            del self._highest[self._left.popleft()]

    def connection_of(self, request: str) -> int:
        """The number of the connection on which that request was first sent. Raises ProtocolError, OutcomeUnknown."""
        return self._key(request).connection

    def claim(self, request: str, now: float) -> Claim | bytes:
        """What is known of a request: nothing (it is the caller's to run now), that it is running, or its reply."""
        key = self._key(request)
        self._expire(now)
        if key in self._running:
            return Claim.RUNNING
        if (kept := self._replies.get(key)) is not None:
            return kept.told + kept.reply
        if self._may_have_run(key):
            raise ResultExpired(
                f"request {request} was taken before, or may have been, and its result is no longer kept: it was not "
                "run again; look at what it was to do, and send a new one if that is not done"
            )
        self._highest[key.connection] = key.number
        self._running.add(key)
        self._forget_told(_Key(key.connection, key.number - 1))
        return Claim.NEW

    def settle(self, request: str, reply: bytes, now: float, told: bytes = b"") -> None:
        """Keep the reply of a request that is running, for who asks again.

        ``told`` goes before it, and is kept until the next request comes on that connection: a client asks one after
        the other, and has heard all of the last one then. The reply may still be looked at.
        """
        key = self._key(request)
        self._running.remove(key)
        kept = _Kept(told, reply, now)
        if kept.size <= self._keep_bytes:
            self._replies[key] = kept
            self._bytes += kept.size
        self._expire(now)

    def _forget_told(self, key: _Key) -> None:
        if (kept := self._replies.get(key)) is not None and kept.told:
            self._replies[key] = heard = kept._replace(told=b"")
            self._bytes -= kept.size - heard.size

    def _key(self, request: str) -> _Key:
        match = _ID.fullmatch(request)
        if match is None:
            raise ProtocolError(f"{request[:200]!r} is no request id: INCARNATION.CONNECTION.NUMBER, counted from 1")
        if match[1] != self._incarnation:
            raise OutcomeUnknown(
                f"the daemon that got request {request} is gone: it may or may not have run, and was not run again; "
                "look at what it was to do"
            )
        key = _Key(int(match[2]), int(match[3]))
        if key.connection > self._admitted:
            raise ProtocolError(f"request {request} names a connection that this daemon never admitted")
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
