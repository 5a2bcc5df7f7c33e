"""``Line``: the callers of one bash in order of arrival. The first one has it; the others wait for their turn.

A caller has a ``Place`` in the line: that of a thread is here, that of a task in ``loop``. A restart goes first, and
so does a caller that has let one go first. A place can be dropped as long as its verb has not begun.

Threads need no lock for it: each change is one operation on a list. That keeps Ctrl-C harmless, wherever it comes.
"""

from __future__ import annotations

import time
from _thread import LockType, allocate_lock, get_ident
from contextlib import suppress
from itertools import takewhile
from typing import Final, Generic, TypeVar

from ...errors import LATE, SessionBusy

# How many seconds a thread waits before it looks again: Ctrl-C may have kept the one before it from waking it.
_LOOK_AGAIN: Final = 0.5


class Place:
    """The place of one caller in a line. ``within``: how many seconds it waits. ``command``: the text that it runs."""

    begun = False  # its verb runs
    ahead = False  # directly after the first one, as a restart is that the caller has let go first
    dropped: Exception | None = None  # raised in its caller, unless its verb has begun

    def __init__(self, within: float | None = None, command: bytes = b"", is_restart: bool = False) -> None:
        self.within, self.command, self.is_restart = within, command, is_restart
        self.thread = get_ident()

    def wake(self) -> None:
        """Have the caller look whether its turn has come."""


P = TypeVar("P", bound=Place)


class Line(Generic[P]):
    """The places of the callers that are in a verb or wait for one. The first one's turn has come."""

    def __init__(self) -> None:
        self.places: list[P] = []

    def enter(self, place: P) -> None:
        """Add a place: at the end, or directly after the first one."""
        if place.ahead or place.is_restart:
            self.places.insert(1, place)
        else:
            self.places.append(place)

    def has_turn(self, place: P) -> bool:
        """Return whether the turn of this place has come. It lets restarts go first. Raises why it was dropped."""
        if place.dropped is not None:
            raise place.dropped
        places = self.places
        if places[0] is not place:
            return False
        if place.is_restart or len(places) == 1 or not (restarts := self._restarts_after_first()):
            return True
        places.remove(place)  # first: Ctrl-C in between leaves none, while two would block the line for ever
        places.insert(restarts, place)
        self.wake_first()
        return False

    def _restarts_after_first(self) -> int:
        """Return how many restarts come directly after the first place."""
        return len(list(takewhile(lambda place: place.is_restart, self.places[1:])))

    def leave(self, place: P) -> None:
        """Remove a place, and wake the next one."""
        self.places.remove(place)
        self.wake_first()

    def wake_first(self) -> None:
        """Wake the first one, whose turn may have come."""
        for place in self.places[:1]:
            place.wake()

    def drop(self, command: bytes, why: Exception) -> None:
        """Have ``why`` raised in the caller that waits to run this very text object."""
        for place in tuple(self.places):
            if place.command is command and not place.begun:
                place.dropped = why
                place.wake()


class ThreadPlace(Place):
    """The place of a thread."""

    _asleep: LockType | None = None  # held until the thread is to wake up

    def wake(self) -> None:
        if self._asleep is not None:
            with suppress(RuntimeError):  # it is to wake up already
                self._asleep.release()

    def wait_in(self, line: Line[ThreadPlace], within: float | None) -> None:
        """Wait for the turn of this place. Raises SessionBusy if that takes more seconds, and why it was dropped."""
        until = None if within is None else time.monotonic() + within
        if self._asleep is None:
            self._asleep = allocate_lock()
            self._asleep.acquire()
        while not line.has_turn(self):
            left = _LOOK_AGAIN if until is None else min(_LOOK_AGAIN, until - time.monotonic())
            if left <= 0:
                raise SessionBusy(LATE)
            self._asleep.acquire(timeout=left)
