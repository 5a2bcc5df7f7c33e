"""``Feed``: the latest items of an endless stream, each with a number, for readers of any speed. Pure."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class Feed(Generic[T]):
    """The latest items of a stream, numbered from 1. It drops the oldest ones when all are larger than ``most``.

    It knows no readers: each one names the number of the last item that it has, also after it was away. Threads that
    share a feed need a lock.
    """

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._kept = deque[tuple[T, int]]()
        self._size = 0
        self.last = 0  # the number of the newest item; 0 before the first

    def append(self, item: T, size: int = 1) -> int:
        """Add an item, and return its number. The newest one is kept, whatever its size."""
        self._kept.append((item, size))
        self._size += size
        while self._size > self._most and len(self._kept) > 1:
            self._size -= self._kept.popleft()[1]
        self.last += 1
        return self.last

    def after(self, number: int) -> tuple[int, list[T]]:
        """Return how many items after that number were dropped, and all that are kept. The last one is ``last``."""
        first = self.last - len(self._kept)  # the number before the oldest item that is kept
        known = max(number, first)
        return known - max(0, number), [item for item, _ in islice(self._kept, known - first, None)]
