"""The tag that every process of a session carries: a soft RLIMIT_LOCKS, which the kernel has ignored since 2.4.

Law: every child inherits it, wherever it goes; `env -i`, setsid and a double fork do not shed it. It has generations:
bash gets another one when a call has left something running, so what later calls start can be told from what that
starts.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from . import processes

LIMIT: Final = 10  # RLIMIT_LOCKS in <asm-generic/resource.h>; Python does not name it
GENERATIONS: Final = 16  # the tags of one session: its first and those after it
LOWEST: Final = 0x5E << 56  # of all sessions; no administrator sets a limit of 2**62 file locks


class Tags:
    """Those of the session whose bash is ``pid`` and began with the tag ``first``."""

    def __init__(self, pid: int, first: int) -> None:
        self._pid, self.all = pid, range(first, first + GENERATIONS)
        self.latest = first  # of what bash starts now
        self.is_shared = False  # by something that an earlier call has left

    def renew(self, living: Iterable[int]) -> None:
        """What bash starts from now on carries another tag than the ``living`` (and one, if it had shed its own).

        Where they carry all sixteen it is the one whose turn it is: who carries that passes for new by then.
        """
        turn = self.latest - self.all.start + 1
        turns = [*self.all[turn:], *self.all[: turn - 1]]
        carried = {processes.tag(pid) for pid in living}
        self.is_shared = True
        with suppress(OSError, ValueError):  # a hard limit below it was set, or we are another user meanwhile
            tag = next((tag for tag in turns if tag not in carried), turns[0])
            resource.prlimit(self._pid, LIMIT, (tag, resource.prlimit(self._pid, LIMIT)[1]))
            self.latest, self.is_shared = tag, tag in carried

    def is_earlier(self, pid: int) -> bool:
        """Was it started by what an earlier call had left running? One that has shed its tag counts as not."""
        return (tag := processes.tag(pid)) in self.all and tag != self.latest
