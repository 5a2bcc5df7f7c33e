"""What happens in all sessions, for clients that watch: openings, commands, their output and ends, and closings.

A client asks for what came after the last events that it has, and waits until there are some. So a slow watcher costs
no more than a fast one, and one that is gone costs nothing. Events are collected for a moment and encoded once, for all
watchers. Nothing is collected while nobody watches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ...errors import DaemonUnavailable
from ...feed import Feed
from ...models import Result, Stream
from ..protocol.wire import encode
from .connection import Answer, Listener

# Seconds for which events are collected.
_INTERVAL: Final = 0.2
# Seconds between the answers to two watchers, so that not all of them work at one moment; and to how many that applies.
_APART: Final = 0.008
_PLACES: Final = 16
# Bytes of encoded events that are kept for slow watchers.
_KEPT: Final = 1 << 20
# Bytes of one agent's output in that time: for a watcher of this agent, and for one of all agents.
_MOST_OF_ONE: Final = 1 << 16
_MOST_OF_MANY: Final = 1 << 12
# Bytes of a command's text.
_TEXT: Final = 1 << 12
# Events that are encoded together: their header must fit into a message, whatever the names of the agents.
_TOGETHER: Final = 256
# Seconds for which events are collected after the last watcher has asked: it may only be busy.
_LINGER: Final = 20.0
# Seconds between two looks for sessions that were closed for being idle.
_LOOK: Final = 1.0


class _Event:
    __slots__ = ("agent", "data", "fields", "omitted")

    def __init__(self, kind: str, agent: str, data: bytes = b"", **fields: object) -> None:
        self.fields = {"kind": kind, "agent": agent, **fields}
        self.agent, self.data, self.omitted = agent, bytearray(data), 0

    def add(self, data: bytes, most: int) -> None:
        """Add output, of which only the last ``most`` bytes stay."""
        self.omitted += max(0, len(data) - most)
        self.data += data[-most:]
        if (over := len(self.data) - most) > 0:
            del self.data[:over]
            self.omitted += over


class _Collected:
    """The events for the watchers of one agent, or of all agents. ``number``: which collection this is."""

    def __init__(self, number: int, most: int) -> None:
        self.number, self._most = number, most
        self.feed = Feed[bytes](_KEPT)
        self.totals = {"events": 0, "bytes": 0}  # so far; a watcher sees in them what it has missed
        self.waiting = 0  # watchers
        self.until = 0.0  # when it ends, if no watcher has come until then
        self.news = asyncio.get_running_loop().create_future()  # done when there is more
        self._events: list[_Event] = []
        self._printing: dict[str, _Event] = {}  # of each agent, the event that more output is added to

    def add(self, event: _Event) -> None:
        if len(self._events) == _TOGETHER:
            self.flush()
        self._printing.pop(event.agent, None)
        self._events.append(event)
        self.totals["events"] += 1

    def output(self, agent: str, stream: Stream, data: bytes) -> None:
        event = self._printing.get(agent)
        if event is None or event.fields["stream"] != stream:
            self.add(event := _Event("output", agent, stream=stream))
            self._printing[agent] = event
        event.add(data, self._most)
        self.totals["bytes"] += len(data)

    def flush(self) -> None:
        """Encode what was collected, and wake the watchers."""
        if self._events:
            data = _encoded(self._events, **self.totals)
            self._events, self._printing = [], {}
            self.feed.append(data, len(data))
            self.wake()

    def wake(self) -> None:
        self.news.set_result(None)
        self.news = asyncio.get_running_loop().create_future()


def _encoded(events: Sequence[_Event], /, **totals: int) -> bytes:
    listed = [{**one.fields, "size": len(one.data), "omitted": one.omitted} for one in events]
    return encode({"of": listed, **totals}, b"".join(one.data for one in events))


class Board:
    """Collects what happens while somebody watches."""

    def __init__(self) -> None:
        self._collected: dict[str | None, _Collected] = {}  # by the agent that is watched; None: all
        self._made = 0
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False
        self._looked = 0.0  # when

    @property
    def is_watched(self) -> bool:
        """Whether somebody watches, or has watched just now."""
        return bool(self._collected)

    def opened(self, agent: str) -> None:
        self._add("opened", agent)

    def closed(self, agent: str) -> None:
        self._add("closed", agent)

    def began(self, agent: str, command: bytes) -> None:
        self._add("began", agent, command[:_TEXT])

    def ended(self, agent: str, result: Result) -> None:
        fields = {"outcome": result.outcome, "exit_code": result.exit_code, "duration": result.duration}
        self._add("ended", agent, result.reason.encode("utf-8", "replace")[:_TEXT], **fields)

    def output(self, agent: str, stream: Stream, data: bytes) -> None:
        for collected in self._watched(agent):
            collected.output(agent, stream, data)

    def _add(self, kind: str, agent: str, data: bytes = b"", **fields: object) -> None:
        for collected in self._watched(agent):
            collected.add(_Event(kind, agent, data, **fields))

    def _watched(self, agent: str) -> list[_Collected]:
        """Those that get the events of this agent, which is about to have one."""
        found = [one for name in (None, agent) if (one := self._collected.get(name)) is not None]
        if found and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._flush)
        return found

    def _flush(self) -> None:
        self._timer, now = None, time.monotonic()
        for name, collected in [*self._collected.items()]:
            if collected.waiting or now < collected.until:
                collected.flush()
            else:
                del self._collected[name]

    async def after(
        self,
        agent: str | None,
        known: tuple[int, int] | None,
        listener: Listener,
        look: Callable[[], Iterable[tuple[str, bytes | None]]],
    ) -> Answer:
        """What came after the events that the client knows. Waits until there are some.

        ``known``: the number of the collection, and that of its last events. If the client knows none of this
        collection, it gets the present state. ``look``: returns each session, and the command that runs in it.
        """
        if (collected := self._collected.get(agent)) is None:
            self._made += 1
            most = _MOST_OF_MANY if agent is None else _MOST_OF_ONE
            self._collected[agent] = collected = _Collected(self._made, most)
        if known is None or known[0] != collected.number:
            collected.until = time.monotonic() + _LINGER
            collected.flush()  # what was before is not news for this client
            state = [*_state(look())]
            parts = [state[at : at + _TOGETHER] for at in range(0, len(state), _TOGETHER)]
            return _answer(collected, [_encoded(part, **collected.totals) for part in parts])
        place = collected.waiting % _PLACES
        collected.waiting += 1
        try:
            while collected.feed.last <= known[1] and not (self._has_ended or listener.abandoned.done()):
                futures = (collected.news, listener.abandoned)
                await asyncio.wait(futures, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
                if time.monotonic() > self._looked + _LOOK:  # one of the watchers does it for all
                    self._looked = time.monotonic()
                    look()
            await asyncio.sleep(_APART * place)
        finally:
            collected.waiting -= 1
            collected.until = time.monotonic() + _LINGER
        if self._has_ended:
            raise DaemonUnavailable("the daemon is ending")
        return _answer(collected, collected.feed.after(known[1])[1])

    def end(self) -> None:
        """Note that the daemon is ending. Every watcher gets an error."""
        self._has_ended = True
        for collected in self._collected.values():
            collected.wake()


def _state(sessions: Iterable[tuple[str, bytes | None]]) -> Iterable[_Event]:
    for agent, command in sessions:
        yield _Event("opened", agent)
        if command is not None:
            yield _Event("began", agent, command[:_TEXT])


def _answer(collected: _Collected, events: list[bytes]) -> Answer:
    return Answer({"collection": collected.number, "last": collected.feed.last}, (b"".join(events),))
