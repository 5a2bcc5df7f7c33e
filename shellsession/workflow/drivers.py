"""Carries out what the machine of a workflow asks for, in a session for threads or for asyncio.

The machine is a generator. It yields a ``Do``, which is called with the session, or a ``Pause``. It gets the answer, or
the error is raised in it. So a workflow is written once, for sessions of all kinds.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Do(NamedTuple):
    """Call this with the session. In a session for asyncio it may return an awaitable."""

    work: Callable[[Any], Any]


class Pause(NamedTuple):
    """Wait for this many seconds."""

    seconds: float


Action = Do | Pause
Machine = Generator[Action, Any, T]


def drive(machine: Machine[T], session: Any) -> T:
    """Run the machine with a session for threads."""
    step = machine.send
    given: Any = None
    while True:
        try:
            action = step(given)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            if isinstance(action, Pause):
                time.sleep(action.seconds)
            else:
                given = action.work(session)
            step = machine.send
        except BaseException as error:
            step, given = machine.throw, error


async def adrive(machine: Machine[T], session: Any) -> T:
    """Run the machine with a session for asyncio."""
    import asyncio

    step = machine.send
    given: Any = None
    while True:
        try:
            action = step(given)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            if isinstance(action, Pause):
                await asyncio.sleep(action.seconds)
            else:
                given = action.work(session)
                if inspect.isawaitable(given):
                    given = await given
            step = machine.send
        except BaseException as error:
            step, given = machine.throw, error
