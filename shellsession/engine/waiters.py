"""Who waits for the end of a command that another thread or task is in, and takes its result too.

Law: who is in a verb tells every waiter at its end, so nobody waits for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from ..models import Result

_PATIENCE: Final = 0.1  # seconds


class Waiter:
    """For threads: ``wait`` until the one in the verb tells."""

    def __init__(self) -> None:
        self._told = threading.Event()
        self.result: Result | None = None

    def tell(self, result: Result | None) -> None:
        """The verb has ended: with the command's result, or with none."""
        self.result = result
        self._told.set()

    def wait(self, until: float | None, nobody: Callable[[], bool]) -> bool:
        """Was it told by that moment? ``nobody`` is asked now and then whether there is nobody left to tell it."""
        while True:
            left = _PATIENCE if until is None else min(_PATIENCE, until - time.monotonic())
            if self._told.wait(max(0.0, left)) or nobody():
                return True
            if until is not None and time.monotonic() >= until:
                return False


class LoopWaiter:
    """As ``Waiter``, from task to task."""

    def __init__(self) -> None:
        import asyncio

        self._told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.result: Result | None = None

    def tell(self, result: Result | None) -> None:
        self.result = result
        if not self._told.done():
            self._told.set_result(None)

    async def wait(self, until: float | None) -> bool:
        """Was it told by that moment?"""
        import asyncio

        left = None if until is None else max(0.0, until - time.monotonic())
        told, _ = await asyncio.wait([self._told], timeout=left)
        return bool(told)


def is_owned(lock: threading.RLock) -> bool:
    """Does this thread hold the lock?"""
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]  # as threading.Condition asks it; there is no other way
    return owned
