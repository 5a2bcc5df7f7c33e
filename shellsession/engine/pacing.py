"""When to read a terminal again that is written to without end.

Law: it spins for microseconds, and only where the kernel would have had us sleep for longer.

A worker of the kernel carries what is written to a terminal over to its reader, 4 KiB at a time. Who comes for the next
before it is done sleeps until it is, and to wake a processor takes longer (50 us, in a virtual machine) than to copy
them (16 us). Measured for 100 MB: 1.6 s as fast as one can read, 0.95 s with a rest before each. Where nobody sleeps
(other programs keep the processors awake) the first takes 0.3 s, and a rest would only delay it.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

# A read that has not slept takes 6 us.
_SLEPT: Final = 30e-6
# So long the worker takes to fill the terminal's buffer. Of 14 nothing is left, 24 cost what they last.
_REST: Final = 19e-6
# Once may be chance: another program had the processor.
_ENOUGH: Final = 2


class Pace:
    """The pace of some reads of one terminal, from the first on."""

    def __init__(self) -> None:
        self._slept = 0  # so many of the last reads
        self._since = perf_counter()

    def keep(self) -> None:
        """To be called between two reads: behind some that slept, it rests before the next."""
        now = perf_counter()
        if self._slept < _ENOUGH:
            self._slept = self._slept + 1 if now - self._since > _SLEPT else 0
            self._since = now
            return
        rested = now + _REST
        while perf_counter() < rested:
            pass
