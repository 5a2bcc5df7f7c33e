"""What one thread or task wants of another that is in a verb, and the waiting until it is granted.

Law: who is in a verb grants every wish at its end, so nobody waits for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_PATIENCE: Final = 0.1  # seconds


class Wish(Generic[T]):
    """What one thread wants of another that is in a verb: ``wait`` until that one grants it, perhaps with an answer."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._answer: T | None = None

    def grant(self, answer: T | None) -> None:
        self._answer = answer
        self._done.set()

    def wait(self, nobody: Callable[[], bool]) -> T | None:
        """The answer; ``nobody`` is asked now and then whether there is nobody left to grant it."""
        while not self._done.wait(_PATIENCE) and not nobody():
            pass
        return self._answer


def is_owned(lock: threading.RLock) -> bool:
    """Does this thread hold the lock?"""
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]  # as threading.Condition asks it; there is no other way
    return owned


class LoopWish(Generic[T]):
    """As ``Wish``, from task to task."""

    def __init__(self) -> None:
        import asyncio

        self._done = asyncio.Event()
        self._answer: T | None = None

    def grant(self, answer: T | None) -> None:
        self._answer = answer
        self._done.set()

    async def wait(self) -> T | None:
        await self._done.wait()
        return self._answer
