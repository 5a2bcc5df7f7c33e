"""The tag that every process of a session carries: a soft RLIMIT_LOCKS, which the kernel has ignored since 2.4.

Law: every child inherits it, wherever it goes; `env -i`, setsid and a double fork do not shed it. It has generations:
bash gets another one when a call has left something running, so what later calls start can be told from what that
starts.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from . import proc, readers
from .proc import SPARE

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
        carried = {proc.tag(pid) for pid in living}
        self.is_shared = True
        with suppress(OSError, ValueError):  # a hard limit below it was set, or we are another user meanwhile
            tag = next((tag for tag in turns if tag not in carried), turns[0])
            resource.prlimit(self._pid, LIMIT, (tag, resource.prlimit(self._pid, LIMIT)[1]))
            self.latest, self.is_shared = tag, tag in carried

    def is_earlier(self, pid: int) -> bool:
        """Was it started by what an earlier call had left running? One that has shed its tag counts as not."""
        return (tag := proc.tag(pid)) in self.all and tag != self.latest


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
                self._lists.append((proc.open_children(parent), nobody))

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
        found = proc.children(self.pid)
        if self._adopter:
            found += [pid for pid in proc.children(self._adopter) if pid != self.pid]
        return found

    def descendants(self) -> list[int]:
        """Everything below bash, nearest first."""
        found = proc.descendants(self.pid)
        if self._adopter:
            found += proc.descendants(self._adopter, (self.pid,))
        return found

    def carriers(self, tag: int) -> list[int]:
        """Those of ``children`` that live and carry that tag."""
        return proc.found_among(self.children, lambda pid: proc.tag(pid) == tag and proc.alive(pid))

    def present(self) -> Mapping[int, int]:
        """``descendants`` for ``newer``, each with the time just now: who has its number and began later is another."""
        return dict.fromkeys(self.descendants(), proc.time_now())

    def newer(self, older: Mapping[int, int]) -> list[int]:
        """As ``descendants``, without who was ``present`` then, and their orphans, which are bash's children by now."""
        if not older:
            return self.descendants()
        heads = self.newer_children(older)
        return heads + [pid for head in heads for pid in proc.descendants(head)]

    def living(self, older: Mapping[int, int] = MappingProxyType({}), besides: Container[int] = ()) -> list[int]:
        """Those of ``newer`` that are more than zombies, without those of ``besides``."""
        return proc.found_among(lambda: self.newer(older), lambda pid: pid not in besides and proc.alive(pid))

    def newer_children(self, older: Mapping[int, int]) -> list[int]:
        """Those of ``children`` that live and are among ``newer``.

        Each is judged in the one look that finds it: between two looks another orphan becomes bash's child. What has
        ended meanwhile shows no tag.
        """

        def is_one(pid: int) -> bool:
            return not (older and self.is_older(pid, older)) and proc.alive(pid)

        return proc.found_among(self.children, is_one)

    def is_older(self, pid: int, older: Mapping[int, int]) -> bool:
        """Is it among those who were ``present`` then, or their orphans?"""
        if pid in older and proc.start_time(pid) <= older[pid]:
            return True
        return self.tags.is_earlier(pid)

    def close(self) -> None:
        """Done again, after it was struck, it does what is left."""
        SPARE.leave(self)
        while self._lists:
            fd, _ = self._lists[-1]
            del self._lists[-1]  # no call, in which Ctrl-C could strike
            os.close(fd)


_LOOKS: Final = 20  # other processes may start all the time


class Orphans:
    """Finds the orphans of one bash. Made when its process has started, before anything is typed to bash."""

    def __init__(self) -> None:
        self._born = proc.time_now()
        self._before = proc.adopting_lists()

    def find(self, tags: range, directories: Collection[str], besides: Collection[int]) -> Iterator[int]:
        """Living processes that carry such a tag, or write to a file below such a directory.

        ``besides`` are not looked at, nor is what is below them. It yields 0 after each look at a process that is not
        one of them, so that the caller can do other work in between.
        A process that forks and ends during a look is missed, and so is its child; and a list may lack some. So a look
        that finds none is repeated until no new process has appeared.
        """
        seen = set[int]()  # 0 is new to the first look: there is always a second one
        for _ in range(_LOOKS):
            known, found = len(seen), False
            for pid in self._newer(tags, besides):
                is_one = pid not in seen and _is_one(pid, tags, directories)
                seen.add(pid)
                found = found or is_one
                yield pid if is_one else 0
            if found or len(seen) == known:
                return

    def _newer(self, tags: range, besides: Collection[int]) -> Iterator[int]:
        """Processes younger than bash that may have been below it; 0 for each other one, and for each list.

        Where a list cannot be read (hidepid), it looks at all processes.
        """
        lists = proc.adopting_lists() or {"": b" ".join(b"%d" % pid for pid in proc.everyone())}
        for path, text in lists.items():
            before = b" " + self._before.get(path, b"")
            yield 0
            for pid in map(int, reversed(text.split())):
                if pid in besides:
                    continue
                if 0 < proc.start_time(pid) < self._born:
                    if b" %d " % pid in before:
                        break  # all that stand before it in the list were there before it
                    yield 0
                elif (tag := proc.tag(pid)) >= LOWEST and tag not in tags:
                    yield 0  # another session's, as is all that is below it
                else:
                    yield pid
                    yield from proc.below(pid, besides)


def _is_one(pid: int, tags: range, directories: Collection[str]) -> bool:
    if pid == 0:
        return False
    carries = proc.tag(pid) in tags
    return (carries or any(readers.writes_below(pid, one) for one in directories)) and proc.alive(pid)
