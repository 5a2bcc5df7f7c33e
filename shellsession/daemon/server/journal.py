"""When the audit log's lines are written: some together, and never before the answers they are about.

Law: a line is written within ``LATEST`` seconds of its command's end, and at the daemon's end all are.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from ...models import Result
from ...policy.secrets import Secrets
from .audit import Audit, Entry

# A line costs 60 us when it is written alone, a fifth of what a short command takes over the daemon.
LATEST: Final = 0.02
_MOST: Final = 256


class Journal:
    """Collects entries for ``audit``, on the running loop."""

    def __init__(self, audit: Audit | None) -> None:
        self._audit = audit
        self._entries: list[Entry] = []

    @property
    def path(self) -> str:
        """Where the log is; "" where there is none."""
        return "" if self._audit is None else self._audit.path

    @property
    def fault(self) -> str:
        """What went wrong with the log's last lines; "" when nothing did."""
        return "" if self._audit is None else self._audit.fault

    def note(self, agent: str, command: bytes, secrets: Secrets, result: Result) -> None:
        """A command has come to its end."""
        if self._audit is None:
            return
        self._entries.append(Entry(agent, command, secrets, result, time.time()))
        if len(self._entries) == 1:
            asyncio.get_running_loop().call_later(LATEST, self.write)
        elif len(self._entries) == _MOST:
            self.write()

    def write(self) -> None:
        """Write what there is."""
        entries, self._entries = self._entries, []
        if self._audit is not None and entries:
            self._audit.record_all(entries)
