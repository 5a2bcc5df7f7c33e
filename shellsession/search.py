"""Searches for callers' regular expressions. The daemon limits their time: it serves all agents in one thread.

Python's ``re`` may backtrack without end, and keeps the interpreter lock meanwhile. Only a signal interrupts it.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Final

# Seconds of processor time, if it is limited. An ordinary search takes a millisecond at most.
_MOST: Final = 0.2
# ``re`` checks for a signal once for 4096 places of a text, and may read all of the text at each. In a text of at most
# this many characters that is often enough.
_SHORT: Final = 1 << 13
# In a longer text we match at each place ourselves, and check after about this many characters.
_CHECK_AFTER: Final = 1 << 25
# Seconds until patterns that were too slow are tried again.
_RETRY_AFTER: Final = 1.0
# How an error goes on.
TOO_SLOW: Final = "takes too long: simplify the pattern"
_limited = _inside = False


class SearchTooSlow(Exception):
    """The searches took too long. Raised only where their time is limited."""


class Breaker:
    """Open for a second after ``open``: what was too slow is not tried again at once."""

    def __init__(self) -> None:
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        return time.monotonic() < self._until

    def open(self) -> None:
        self._until = time.monotonic() + _RETRY_AFTER


def limit_searches() -> None:
    """Limit the time of all later searches in the main thread, which calls this in the daemon's own process.

    This installs a handler for SIGVTALRM.
    """
    global _limited
    signal.signal(signal.SIGVTALRM, _interrupt)
    _limited = True


def _interrupt(*_: object) -> None:
    global _inside
    if _inside:
        _inside = False
        raise SearchTooSlow


@contextmanager
def limited() -> Iterator[None]:
    """Limit the time of what is done inside, if searches are limited. An inner limit has no effect.

    Raises SearchTooSlow, at any place inside.
    """
    global _inside
    if not _limited or _inside or threading.current_thread() is not threading.main_thread():
        yield
        return
    _inside = True
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, _MOST)
        yield
    finally:
        _inside = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def search(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Search the text as ``pattern.search`` does. Raises SearchTooSlow."""
    if not _limited:
        return pattern.search(text)
    with limited():
        if len(text) <= _SHORT:
            return pattern.search(text)
        step, size = max(1, _CHECK_AFTER // len(text)), len(text) + 1
        for at in range(0, size, step):
            places = range(at, min(at + step, size))
            if found := next(filter(None, map(pattern.match, repeat(text), places)), None):
                return found
        return None
