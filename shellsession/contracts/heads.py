"""Heads: the first bytes of a command's streams, for who wants to see these where it is ended for printing too much.

Law: as much of each stream as its limit allows; a Result keeps both ends of one instead, and both are of that size.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..models import Result, Stream


class Heads:
    """Hears one command's output (``hear`` is its ``on_output``), and keeps ``limit`` bytes of each stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._heads: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}

    def hear(self, stream: Stream, data: bytes) -> None:
        head = self._heads[stream]
        head += data[: self._limit - len(head)]

    def of(self, result: Result) -> Result:
        """The result, with the head of each stream that was too long, and nothing after it."""
        changes: dict[str, Any] = {}
        for stream, head in self._heads.items():
            if omitted := getattr(result, f"{stream}_omitted"):
                size = len(getattr(result, f"{stream}_bytes")) + omitted
                names = (f"{stream}_bytes", f"{stream}_omitted", f"{stream}_cut")
                changes.update(zip(names, (bytes(head), size - len(head), len(head)), strict=True))
        return replace(result, **changes)
