"""Collects the audit log's lines, and writes several together.

A line is written about ``LATEST`` seconds after its command's end, or sooner, and at the daemon's end all lines are.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from ...models import Result
from ...policy.secrets import Secrets
from .audit import Audit, Entry

# Seconds. A line that is written alone costs 60 us, a fifth of the time of a short command over the daemon.
LATEST: Final = 0.02
_ENTRIES_MAX: Final = 256


class Journal:
    """Collects entries for ``audit``, on the running loop. Does nothing without an audit log."""

    def __init__(self, audit: Audit | None) -> None:
        self._audit = audit
        self._entries: list[Entry] = []

    @property
    def path(self) -> str:
        """The path of the log; "" if there is none."""
        return "" if self._audit is None else self._audit.path

    @property
    def fault(self) -> str:
        """Why the last lines could not be written; "" if they were."""
        return "" if self._audit is None else self._audit.fault

    def note(self, agent: str, command: bytes, secrets: Secrets, result: Result | str) -> None:
        """Add the entry of a command that has ended, or was refused."""
        if self._audit is None:
            return
        self._entries.append(Entry(agent, command, secrets, result, time.time()))
        if len(self._entries) == 1:
            asyncio.get_running_loop().call_later(LATEST, self.write)
        elif len(self._entries) == _ENTRIES_MAX:
            self.write()

    def write(self) -> None:
        """Write the collected entries."""
        entries, self._entries = self._entries, []
        if self._audit is not None and entries:
            self._audit.record_all(entries)
