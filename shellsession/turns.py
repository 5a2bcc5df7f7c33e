"""Whose turn it is among the tasks of one loop.

Law: in order of arrival, but a restart before all others; also before who got the turn and has not begun.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    Line = deque[asyncio.Future[None]]


class Turns:
    """An asyncio.Lock does not know who is to come first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.taken = False  # somebody has the turn, or is about to
        self._restarts: Line = deque()
        self._others: Line = deque()

    async def take(self, first: bool = False, again: bool = False) -> None:
        """Wait for the turn. ``again``: who had it, and let a restart go first, keeps its place."""
        if not self.taken:
            self.taken = True
            return
        line = self._restarts if first else self._others
        turn = self.loop.create_future()
        (line.appendleft if again else line.append)(turn)
        await self._until(turn, line)
        while self._restarts and not first:  # one came while we were on our way
            line.appendleft(turn := self.loop.create_future())
            self.give_up()
            await self._until(turn, line)

    async def _until(self, turn: asyncio.Future[None], line: Line) -> None:
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it came, and is not wanted any more
                self.give_up()
            with suppress(ValueError):
                line.remove(turn)
            raise

    def give_up(self) -> None:
        """The next one's turn."""
        if self.loop.is_closed():  # who had it is collected long after: those who wait there cannot be woken any more
            return
        for line in (self._restarts, self._others):
            while line:
                if not (turn := line.popleft()).done():
                    turn.set_result(None)
                    return
        self.taken = False
