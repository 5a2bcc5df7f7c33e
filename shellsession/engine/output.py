"""Bounded memory for endless output: the first half and the last half are kept, the middle is counted.

Law: pure. Bytes come in, bytes and exact counts go out; a file to spill into is handed in as a callable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..models import Result, unfinished

Sink = Callable[[bytes], object]
# So much more of the end is kept until somebody looks: a mark that has come there is found whole, and taken out.
_SLACK: Final = 1 << 13


class Capture:
    """One stream of one command, at most ``limit`` bytes of it (in a flood, half as many more and 16 KiB in memory)."""

    # What most never change stands here, which saves setting it for each.
    total = 0
    _dropped = 0
    _taken = 0  # so many more came before
    _sink: Sink | None = None
    _spilling = False

    def __init__(self, limit: int, sink: Sink | None = None) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        if sink is not None:
            self._sink = sink
            self._unspilled = bytearray()  # all of the stream, also what was taken, while it is within the limit

    @property
    def overflowed(self) -> bool:
        return self._taken + self.total > self._limit

    @property
    def kept(self) -> int:
        """So many bytes are in memory."""
        return len(self._head) + len(self._tail)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        if self._sink is not None:
            self._spill(self._sink, data)
        room = (self._limit + 1) // 2 - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._keep_tail(data)

    def _spill(self, sink: Sink, data: bytes) -> None:
        if not self._spilling:
            if len(self._unspilled) + len(data) <= self._limit:
                self._unspilled += data
                return
            self._spilling = True  # nothing was dropped so far: the file gets all of it
            sink(bytes(self._unspilled))
            self._unspilled.clear()
        sink(data)

    def _keep_tail(self, data: bytes) -> None:
        keep = self._limit // 2 + _SLACK
        surplus = max(0, len(data) - keep)
        self._tail += data[surplus:]
        self._dropped += surplus
        # Deleting from the front moves the rest: do it only when as much has piled up again.
        if len(self._tail) > 2 * keep:
            self._trim(keep)

    def _trim(self, keep: int) -> None:
        extra = len(self._tail) - keep
        if extra > 0:
            del self._tail[:extra]
            self._dropped += extra

    def omit(self, count: int) -> None:
        """So many bytes came that nobody kept."""
        self.total += count
        self._dropped += count

    def cut_after(self, mark: bytes) -> bytes:
        """Drop ``mark`` and all that follows it; return what was dropped (b"" when it is not there)."""
        kept = bytes(self._head + self._tail)
        if (at := kept.rfind(mark)) < 0:
            return b""
        self._cut(at)
        return kept[at:]

    def cut_line(self) -> None:
        """Drop an unfinished last line."""
        end = (self._head + self._tail).rfind(b"\n") + 1
        self._cut(max(end, len(self._head)) if self._dropped else end)

    def _cut(self, at: int) -> None:
        self.total -= self.kept - at
        del self._tail[max(0, at - len(self._head)) :]
        del self._head[at:]

    def peek(self) -> tuple[bytes, int, int]:
        """The bytes kept, the number omitted between, and where in the bytes the gap is."""
        self._trim(min(self._limit // 2, self._limit - len(self._head)))  # half a character was kept back
        return bytes(self._head + self._tail), self._dropped, len(self._head)

    def take(self, final: bool = True) -> tuple[bytes, int, int]:
        """As ``peek``, and begin anew. A piece that is not the ``final`` one keeps back an unfinished character."""
        if not self.total:
            return b"", 0, 0
        data, dropped, cut = self.peek()
        rest = b"" if final else unfinished(data[cut if dropped else 0 :])  # no character goes over a gap
        data = data[: len(data) - len(rest)]
        self._tail.clear()
        self._head[:] = rest
        self._taken += self.total - len(rest)
        self._dropped, self.total = 0, len(rest)
        return data, dropped, min(cut, len(data))


def counted(result: Result) -> Result:
    """Without the output, which is counted as omitted."""
    if not (result.stdout_bytes or result.stderr_bytes):
        return result
    return result.__replace__(
        stdout_bytes=b"",
        stderr_bytes=b"",
        stdout_omitted=result.stdout_omitted + len(result.stdout_bytes),
        stderr_omitted=result.stderr_omitted + len(result.stderr_bytes),
    )
