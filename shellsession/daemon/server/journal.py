"""Collects the audit log's lines, and writes several together.

A line is written about ``LATEST`` seconds after its command's end, or sooner, and at the daemon's end all lines are. A
command that still runs ``LATEST`` seconds after it began gets a line for that, and its ``note_running`` is called. So
a daemon that is killed leaves a trace of what ran, and a short command costs one line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from ...models import Result
from ...policy.secrets import Secrets
from .audit import KEPT, Approval, Audit, Entry

# Seconds. A line that is written alone costs 60 us, a fifth of the time of a short command over the daemon.
LATEST: Final = 0.02
_ENTRIES_MAX: Final = 256


class Begun(NamedTuple):
    """A command that is to run.

    ``id``: returns its id; "" until it runs. ``note_running``: gets its masked text. ``key``: its idempotency key.
    ``approval``: who has said yes to it.
    """

    command: bytes
    secrets: Secrets
    when: float
    client: int
    id: Callable[[], str]
    note_running: Callable[[str], object]
    key: str = ""
    approval: Approval = None


class Journal:
    """Collects entries for ``audit``, on the running loop. Without an audit log it only calls ``note_running``."""

    def __init__(self, audit: Audit | None) -> None:
        self._audit = audit
        self._entries: list[Entry] = []
        self._running: dict[str, Begun] = {}  # by agent
        self._unwritten: set[str] = set()  # the agents of those whose beginning is not written yet
        self._is_due = False  # ``write`` will be called

    @property
    def path(self) -> str:
        """The path of the log; "" if there is none."""
        return "" if self._audit is None else self._audit.path

    @property
    def fault(self) -> str:
        """Why the last lines could not be written; "" if they were."""
        return "" if self._audit is None else self._audit.fault

    def begin(self, agent: str, begun: Begun) -> None:
        """Note that a command of the agent begins."""
        self._running[agent] = begun
        self._unwritten.add(agent)
        self._schedule()

    def end(self, agent: str) -> tuple[int, str, float, Approval]:
        """Note that the agent's command does not run any more.

        Returns its client, or 0, its key, when it began, or 0.0 if there is no line of that, and who has said yes.
        """
        is_written = agent not in self._unwritten
        self._unwritten.discard(agent)
        begun = self._running.pop(agent, None)
        if begun is None:
            return 0, "", 0.0, None
        return begun.client, begun.key, begun.when if is_written else 0.0, begun.approval

    def note(
        self,
        agent: str,
        command: bytes,
        secrets: Secrets,
        result: Result | str,
        client: int,
        key: str = "",
        began: float = 0.0,
        approval: Approval = None,
    ) -> None:
        """Add the entry of a command that has ended, or was refused."""
        if self._audit is None:
            return
        id = "" if isinstance(result, str) else result.id
        self._entries.append(Entry(agent, command, secrets, result, time.time(), id, client, key, began, approval))
        if len(self._entries) >= _ENTRIES_MAX:
            self.write()
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(LATEST, self._write_due)

    def _write_due(self) -> None:
        self._is_due = False
        self.write()

    def write(self) -> None:
        """Write the collected entries, then those of the commands that run."""
        entries, self._entries = self._entries, []
        self._record(entries)
        agents, self._unwritten = self._unwritten, set()
        begun: list[Entry] = []
        for agent in agents:
            one = self._running[agent]
            if not (id := one.id()):  # bash is still starting
                self._unwritten.add(agent)
                self._schedule()
                continue
            one.note_running(one.secrets.mask(one.command.decode("utf-8", "replace"), KEPT))
            entry = Entry(agent, one.command, one.secrets, None, one.when, id, one.client, one.key)
            begun.append(entry._replace(approval=one.approval))
        self._record(begun)

    def _record(self, entries: list[Entry]) -> None:
        if self._audit is not None and entries:
            self._audit.record(entries)
