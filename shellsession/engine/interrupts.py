"""One thread or task asks another, which is in a verb, to end the command there; and waits for the result.

Law: who is in a verb resolves every request at its end, so nobody waits for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ..models import Result

_PATIENCE: Final = 0.1  # seconds


class InterruptRequest:
    """For threads: ``wait`` until the one in the verb resolves it."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._result: Result | None = None

    def resolve(self, result: Result | None) -> None:
        self._result = result
        self._done.set()

    def wait(self, nobody: Callable[[], bool]) -> Result | None:
        """The command's result, None where there was none; ``nobody`` is asked now and then who could still tell it."""
        while not self._done.wait(_PATIENCE) and not nobody():
            pass
        return self._result


class LoopInterruptRequest:
    """As ``InterruptRequest``, from task to task."""

    def __init__(self) -> None:
        import asyncio

        self._done = asyncio.Event()
        self._result: Result | None = None

    def resolve(self, result: Result | None) -> None:
        self._result = result
        self._done.set()

    async def wait(self) -> Result | None:
        await self._done.wait()
        return self._result


def is_owned(lock: threading.RLock) -> bool:
    """Does this thread hold the lock?"""
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]  # as threading.Condition asks it; there is no other way
    return owned
