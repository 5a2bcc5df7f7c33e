"""The mark that every process of a session carries: a soft RLIMIT_LOCKS, which the kernel has ignored since 2.4.

Law: every child inherits it, wherever it goes; `env -i`, setsid and a double fork do not shed it. It has generations:
bash gets the next one when a call has left something running, so what later calls start can be told from what that
starts.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from . import processes

LIMIT: Final = 10  # RLIMIT_LOCKS in <asm-generic/resource.h>; Python does not name it
GENERATIONS: Final = 16  # the marks of one session: its first and those after it


class Marks:
    """Those of the session whose bash is ``pid`` and began with the mark ``first``."""

    def __init__(self, pid: int, first: int) -> None:
        self._pid, self._first, self._generation = pid, first, 0

    def renew(self, living: Iterable[int]) -> None:
        """What bash starts from now on carries another mark than the ``living`` (and one, if it had shed its own).

        Where they carry all sixteen it is the one whose turn it is: who carries that passes for new by then.
        """
        turns = [(self._generation + step) % GENERATIONS for step in range(1, GENERATIONS)]
        carried = {processes.mark(pid) - self._first for pid in living}
        generation = next((turn for turn in turns if turn not in carried), turns[0])
        with suppress(OSError, ValueError):  # a hard limit below it was set, or we are another user meanwhile
            hard = resource.prlimit(self._pid, LIMIT)[1]
            resource.prlimit(self._pid, LIMIT, (self._first + generation, hard))
            self._generation = generation

    def is_earlier(self, pid: int) -> bool:
        """Was it started by what an earlier call had left running? One that has shed its mark counts as not."""
        return processes.mark(pid) - self._first in set(range(GENERATIONS)) - {self._generation}

    def carriers(self) -> list[int]:
        """All living processes of the session."""
        return processes.marked(self._first, self._first + GENERATIONS - 1)
