"""Lets a thread wait for a call that another thread is in; ``loop`` has the counterpart for tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from ...models import Result

_CHECK_EVERY: Final = 0.1  # seconds


class Waiter:
    """Lets a thread wait for the end of a call that another thread is in, and share its result."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self.result: Result | None = None

    def notify(self, result: Result | None) -> None:
        """The call has ended: with the command's result, or without one."""
        self.result = result
        self._ended.set()

    def wait(self, until: float | None, is_abandoned: Callable[[], bool]) -> bool:
        """Wait for ``notify``; False when the time is up.

        ``is_abandoned`` is called every 0.1 s. Where it says that nobody is left to notify, the wait ends as well.
        """
        while True:
            left = _CHECK_EVERY if until is None else min(_CHECK_EVERY, until - time.monotonic())
            if self._ended.wait(max(0.0, left)) or is_abandoned():
                return True
            if until is not None and time.monotonic() >= until:
                return False
