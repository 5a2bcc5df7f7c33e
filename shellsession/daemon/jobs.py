"""What a call left running in a daemon's session: ``Job`` for its clients.

Law: it keeps nothing of its own but the name by which the daemon knows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..any_job import AnyJob
from .records import field, from_part, only_part
from .wire import Message


class RemoteJob(AnyJob):
    """A live view of what one call left behind, as ``Job`` is; each look asks the daemon."""

    def __init__(self, ask: Callable[..., Message], described: dict[str, Any]) -> None:
        self._ask = ask
        self.number: int = field(described, "number", int)
        self.command: str = field(described, "command", str)
        self.pids: tuple[int, ...] = tuple(field(described, "pids", list))

    def __repr__(self) -> str:
        return f"RemoteJob({self.command!r}, pids={self.pids})"

    def _now(self) -> dict[str, Any]:
        """How the daemon describes it just now; one that it has forgotten has ended."""
        described = from_part(self._ask("jobs").parts)
        ours = (one for one in described if field(one, "number", int) == self.number)
        return next(ours, {"alive": [], "running": False})

    def alive(self) -> list[int]:
        """Those of its processes that still live."""
        return list(field(self._now(), "alive", list))

    @property
    def running(self) -> bool:
        return bool(field(self._now(), "running", bool))

    def _kept(self, name: str) -> tuple[bytes, int, int]:
        message = self._ask("job_output", job=self.number, name=name)
        return only_part(message.parts), field(message.header, "value", int), field(message.header, "cut", int)

    def kill(self) -> tuple[int, ...]:
        """Kill its processes, everything below them, and who holds its streams; the pids that were signalled."""
        return tuple(field(self._ask("kill_job", job=self.number).header, "value", list))
