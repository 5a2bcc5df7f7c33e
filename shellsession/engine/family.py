"""Bash, what it started, and the orphans of that.

Law: it looks and never acts, and a look that comes with each command costs a system call.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from contextlib import suppress
from types import MappingProxyType

from . import processes
from .spare import SPARE
from .tags import Tags


class Family:
    """Everything that comes of bash, which began with the tag ``first_tag``.

    Orphans become bash's own children; where bash is in a PID namespace they become those of its first process, the
    ``adopter``.
    """

    def __init__(self, pid: int, first_tag: int, adopter: int = 0) -> None:
        self.pid, self._adopter = pid, adopter
        self.tags = Tags(pid, first_tag)
        SPARE.want(self)  # who is below bash is to be seen whatever the host has open
        # The kernel's lists of children, and what each one says while nobody is to be counted.
        self._lists: list[tuple[int, bytes]] = []
        for parent, nobody in ((pid, b""), (adopter, b"%d " % pid))[: 2 if adopter else 1]:
            with suppress(OSError):
                path = f"/proc/{parent}/task/{parent}/children"
                self._lists.append((os.open(path, os.O_RDONLY | os.O_CLOEXEC), nobody))

    def has_children(self) -> bool:
        """Cheap: a pread on a kept descriptor."""
        try:
            for fd, nobody in self._lists:
                if os.pread(fd, 16, 0) != nobody:
                    return True
        except OSError:
            return False
        return not self._lists

    def children(self) -> list[int]:
        """What bash started, and the orphans of that."""
        found = processes.children(self.pid)
        if self._adopter:
            found += [pid for pid in processes.children(self._adopter) if pid != self.pid]
        return found

    def descendants(self) -> list[int]:
        """Everything below bash, nearest first."""
        found = processes.descendants(self.pid)
        if self._adopter:
            found += processes.descendants(self._adopter, (self.pid,))
        return found

    def carriers(self, tag: int) -> list[int]:
        """Those of ``children`` that live and carry that tag."""
        return processes.found_among(self.children, lambda pid: processes.tag(pid) == tag and processes.alive(pid))

    def present(self) -> Mapping[int, int]:
        """``descendants`` for ``newer``, each with the time just now: who has its number and began later is another."""
        return dict.fromkeys(self.descendants(), processes.time_now())

    def newer(self, older: Mapping[int, int]) -> list[int]:
        """As ``descendants``, without who was ``present`` then, and their orphans, which are bash's children by now."""
        if not older:
            return self.descendants()
        heads = self.newer_children(older)
        return heads + [pid for head in heads for pid in processes.descendants(head)]

    def living(self, older: Mapping[int, int] = MappingProxyType({}), besides: Container[int] = ()) -> list[int]:
        """Those of ``newer`` that are more than zombies, without those of ``besides``."""
        return processes.found_among(lambda: self.newer(older), lambda pid: pid not in besides and processes.alive(pid))

    def newer_children(self, older: Mapping[int, int]) -> list[int]:
        """Those of ``children`` that live and are among ``newer``.

        Each is judged in the one look that finds it: between two looks another orphan becomes bash's child. What has
        ended meanwhile shows no tag.
        """

        def is_one(pid: int) -> bool:
            return not (older and self.is_older(pid, older)) and processes.alive(pid)

        return processes.found_among(self.children, is_one)

    def is_older(self, pid: int, older: Mapping[int, int]) -> bool:
        """Is it among those who were ``present`` then, or their orphans?"""
        if pid in older and processes.start_time(pid) <= older[pid]:
            return True
        return self.tags.is_earlier(pid)

    def close(self) -> None:
        """Done again, after it was struck, it does what is left."""
        SPARE.leave(self)
        while self._lists:
            fd, _ = self._lists[-1]
            del self._lists[-1]  # no call, in which Ctrl-C could strike
            os.close(fd)
