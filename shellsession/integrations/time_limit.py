"""``TimeLimit``: ends a command that a tool has handed back running, also while no call waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from ..models import Result

# Ends the command, and returns its result, or None if it has ended already.
End = Callable[[], Coroutine[Any, Any, Result | None]]


class TimeLimit:
    """The time limit of the command that was handed back last.

    A call that waits for the command compares the clock with ``deadline`` itself; between two calls an alarm does.
    """

    def __init__(self) -> None:
        self.deadline: float | None = None  # None while no command has one
        self._alarm: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[Result | None] | None = None  # its result is for the next call

    def begin(self, deadline: float) -> None:
        """A command has begun: it must end by that moment."""
        self.deadline, self._ending = deadline, None

    def lift(self) -> None:
        """The command has ended, or its caller ends it."""
        self.stop_alarm()
        self.deadline = None

    def forget(self) -> None:
        """The command is lost, and so is its result."""
        self.lift()
        self._ending = None

    def left(self, until: float) -> float:
        """How many seconds are left until that moment, or the deadline if that is earlier."""
        return (until if self.deadline is None else min(until, self.deadline)) - time.monotonic()

    def stop_alarm(self) -> None:
        """A call waits for the command from now on."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def set_alarm(self, loop: asyncio.AbstractEventLoop, end: End) -> None:
        """No call waits any more."""
        self.stop_alarm()
        if self.deadline is not None:
            self._alarm = loop.call_later(max(self.left(self.deadline), 0), self.go_off, end)

    def enter(self, loop: asyncio.AbstractEventLoop) -> None:
        """A call has come on this loop. What a closed loop has not done to its end is due now."""
        ending = self._ending
        if ending is not None and (ending.cancelled() or not (ending.done() or ending.get_loop() is loop)):
            self._ending, self.deadline = None, time.monotonic()

    def go_off(self, end: End) -> None:
        """Begin to end the command, as its deadline has passed."""
        self.deadline = None
        self._ending = asyncio.get_running_loop().create_task(end())

    async def enforce(self, end: End) -> None:
        """End the command if its deadline has passed, and wait until it has ended if that has begun."""
        if self.deadline is not None and self.left(self.deadline) <= 0:
            self.stop_alarm()
            self.go_off(end)
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def ended(self) -> Result | None:
        """The result of the command, once, if this has ended it."""
        result = None if self._ending is None else await asyncio.shield(self._ending)
        self._ending = None
        return result
