"""The search for ``until`` in the output of a command. The daemon limits its time: it serves all agents in one thread.

Python's ``re`` may backtrack without end, and keeps the interpreter lock meanwhile. Only a signal interrupts it.
"""

from __future__ import annotations

import re
import signal
from typing import Final

# Seconds for one search, if they are limited. An ordinary one takes a millisecond at most.
_MOST: Final = 0.5
_limited = _searching = False


class SearchTooSlow(Exception):
    """A search took too long. Raised only where searches are limited."""


def limit_searches() -> None:
    """Limit the time of all later searches. Call it in the main thread of the daemon's own process.

    The searches must run in that thread, too. This installs a handler for SIGALRM.
    """
    global _limited
    signal.signal(signal.SIGALRM, _interrupt)
    _limited = True


def _interrupt(*_: object) -> None:
    if _searching:
        raise SearchTooSlow


def search(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Search the text. Raises SearchTooSlow."""
    global _searching
    if not _limited:
        return pattern.search(text)
    _searching = True
    try:
        signal.setitimer(signal.ITIMER_REAL, _MOST)
        return pattern.search(text)
    finally:
        _searching = False
        signal.setitimer(signal.ITIMER_REAL, 0)
