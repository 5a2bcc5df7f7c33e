"""The beginnings of a command's streams, heard as they came: a Result has both ends of one that is too long.

Law: so many bytes of each are kept, and all are counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ..models import OnOutput, Result, Stream

_STREAMS: Final[tuple[Stream, ...]] = ("stdout", "stderr")


class Heads:
    """``hear`` is for ``on_output``. ``limit``: bytes of each stream; ``also``: who is to hear besides."""

    def __init__(self, limit: int, also: OnOutput | None = None) -> None:
        self._limit, self._also = limit, also
        self._heads: dict[Stream, bytearray] = {stream: bytearray() for stream in _STREAMS}
        self._sizes: dict[Stream, int] = dict.fromkeys(_STREAMS, 0)

    def hear(self, stream: Stream, data: bytes) -> None:
        head = self._heads[stream]
        head += data[: self._limit - len(head)]
        self._sizes[stream] += len(data)
        if self._also is not None:
            self._also(stream, data)

    def cut(self, result: Result) -> Result:
        """The result, with what was heard of each stream, and nothing after it."""
        changes: dict[str, Any] = {}
        for stream, head in self._heads.items():
            names = (f"{stream}_bytes", f"{stream}_omitted", f"{stream}_cut")
            changes.update(zip(names, (bytes(head), self._sizes[stream] - len(head), len(head)), strict=True))
        return replace(result, **changes)
