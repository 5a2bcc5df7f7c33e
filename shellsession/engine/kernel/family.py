"""The processes of one session: everything below its bash, and the orphans that other processes have adopted.

Processes are recognised in two ways. ``Family`` follows the kernel's lists of children down from bash. And every
process of a session carries a tag, which finds it wherever it went. The tag is its soft RLIMIT_LOCKS, a limit that the
kernel has ignored since 2.4. Children inherit it; `env -i`, setsid and a double fork do not remove it. Programs that
set limits themselves (su, with pam_limits) do.

A session has several tags (``Tags``). When a call leaves processes running, bash gets the next tag. This tells what
later calls start from what those processes start.
"""

from __future__ import annotations

import os
import resource
import secrets
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from . import activity, proc
from .proc import SPARE

LIMIT: Final = 10  # RLIMIT_LOCKS in <asm-generic/resource.h>; Python does not name it
GENERATIONS: Final = 16  # tags per session
LOWEST: Final = 0x5E << 56  # the lowest tag of any session; no administrator sets a limit of 2**62 file locks
RELEASED: Final = 0x5F << 56  # from here on: the tags of released jobs, each of one job, and of no session


def set_tag(pid: int, tag: int) -> bool:
    """Give a process another tag. False if it has ended, belongs to another user or has a lower hard limit."""
    try:
        resource.prlimit(pid, LIMIT, (tag, resource.prlimit(pid, LIMIT)[1]))
    except (OSError, ValueError):
        return False
    return True


def new_released_tag() -> int:
    """A tag for a job that is about to be released."""
    return RELEASED | secrets.randbits(48)


def released(tag: int) -> list[int]:
    """The living processes of a released job, wherever they are."""
    return proc.tagged(tag, tag)


class Family:
    """The processes below bash. ``first_tag``: the tag with which bash started.

    Bash adopts orphans (PR_SET_CHILD_SUBREAPER). If bash is in a PID namespace, the first process there adopts them
    instead: the ``adopter``.
    """

    def __init__(self, pid: int, first_tag: int, adopter: int = 0) -> None:
        self.pid, self._adopter = pid, adopter
        self.tags = Tags(pid, first_tag)
        self.is_confined = bool(adopter)  # in a PID namespace of its own
        self.has_released = False  # a job was released: its processes do not count any more
        SPARE.reserve(self)  # reading /proc must work even when the host has no descriptor free
        # The kernel's lists of children, and the text of each when there is no child but bash.
        self._lists: list[tuple[int, bytes]] = []
        for parent, empty in ((pid, b""), (adopter, b"%d " % pid))[: 2 if adopter else 1]:
            with suppress(OSError):
                self._lists.append((proc.open_children(parent), empty))

    def has_children(self) -> bool:
        """Is there any process below bash? Cheap: one pread on an open descriptor."""
        try:
            for fd, empty in self._lists:
                if os.pread(fd, 16, 0) != empty:
                    return True
        except OSError:
            return False
        return not self._lists

    def children(self) -> list[int]:
        """The processes that bash started, and the orphans it adopted."""
        found = proc.children(self.pid)
        if self._adopter:
            found += [pid for pid in proc.children(self._adopter) if pid != self.pid]
        return [pid for pid in found if proc.tag(pid) < RELEASED] if self.has_released else found

    def descendants(self) -> list[int]:
        """All processes below bash, nearest first."""
        if self.has_released:
            return [pid for child in self.children() for pid in (child, *proc.descendants(child))]
        found = proc.descendants(self.pid)
        if self._adopter:
            found += proc.descendants(self._adopter, (self.pid,))
        return found

    def carriers(self, tag: int) -> list[int]:
        """The ``children`` that live and carry the tag."""
        return proc.found_among(self.children, lambda pid: proc.tag(pid) == tag and proc.alive(pid))

    def present(self) -> Mapping[int, int]:
        """A snapshot for ``newer``: each of the ``descendants`` with the present time.

        The time tells a process from a later one that gets the same pid.
        """
        return dict.fromkeys(self.descendants(), proc.time_now())

    def newer(self, older: Mapping[int, int]) -> list[int]:
        """The ``descendants`` that are not in the snapshot ``older`` (of ``present``), nor orphans of those."""
        if not older:
            return self.descendants()
        heads = self.newer_children(older)
        return heads + [pid for head in heads for pid in proc.descendants(head)]

    def living(self, older: Mapping[int, int] = MappingProxyType({}), besides: Container[int] = ()) -> list[int]:
        """The processes of ``newer`` that are not zombies and not in ``besides``."""
        return proc.found_among(lambda: self.newer(older), lambda pid: pid not in besides and proc.alive(pid))

    def newer_children(self, older: Mapping[int, int]) -> list[int]:
        """The ``children`` that live and are not ``is_older``.

        Each is judged in the same scan that finds it, as bash may adopt another orphan between two scans. Life is
        checked last: a process that has just ended shows no tag, and so would count as new.
        """

        def is_newer(pid: int) -> bool:
            return not (older and self.is_older(pid, older)) and proc.alive(pid)

        return proc.found_among(self.children, is_newer)

    def is_older(self, pid: int, older: Mapping[int, int]) -> bool:
        """Is the process in the snapshot ``older``, or was it started by one that is?"""
        if pid in older and proc.start_time(pid) <= older[pid]:
            return True
        return self.tags.is_earlier(pid)

    def close(self) -> None:
        """Close the descriptors. After an interrupted call, a second one closes the rest."""
        SPARE.release(self)
        while self._lists:
            fd, _ = self._lists[-1]
            del self._lists[-1]  # not a call: KeyboardInterrupt cannot be raised between this and the close
            os.close(fd)


class Tags:
    """The tags of one session. ``pid``: its bash; ``first``: the tag with which bash started."""

    def __init__(self, pid: int, first: int) -> None:
        self._pid, self.all = pid, range(first, first + GENERATIONS)
        self.latest = first  # carried by what bash starts now
        self.is_shared = False  # does a process that an earlier call left carry the latest tag, too?

    def renew(self, living: Iterable[int]) -> None:
        """Give bash a tag that none of the ``living`` processes carries. If bash had lost its tag, it has one again.

        If they carry all sixteen tags, the next in order is used again. A process that carries it then counts as new.
        """
        following = self.latest - self.all.start + 1
        candidates = [*self.all[following:], *self.all[: following - 1]]
        carried = {proc.tag(pid) for pid in living}
        self.is_shared = True
        with suppress(OSError, ValueError):  # a lower hard limit was set, or this process has changed its user
            tag = next((tag for tag in candidates if tag not in carried), candidates[0])
            resource.prlimit(self._pid, LIMIT, (tag, resource.prlimit(self._pid, LIMIT)[1]))
            self.latest, self.is_shared = tag, tag in carried

    def is_earlier(self, pid: int) -> bool:
        """Does the process carry an earlier tag? Then an earlier call left it, or left a process that started it.

        False for a process that has lost its tag.
        """
        return (tag := proc.tag(pid)) in self.all and tag != self.latest


_SCANS: Final = 20  # at most: other processes may keep starting


class Orphans:
    """Finds orphans of one bash that another process has adopted.

    Make it once bash's process has started, and before bash gets any input.
    """

    def __init__(self) -> None:
        self._born = proc.time_now()
        self._before = proc.adopting_lists()

    def find(self, tags: range, directories: Collection[str], besides: Collection[int]) -> Iterator[int]:
        """Yield living processes that carry one of the tags, or write to a file below one of the directories.

        Skips the processes ``besides``, and all below them. After each process that does not match it yields 0, so
        that the caller can do other work in between.
        One scan misses a process that forks and ends during it, and the child as well. The kernel's list may also be
        incomplete. So a scan that finds nothing is repeated until no new process appears.
        """
        seen = set[int]()  # 0 is new to the first scan: there is always a second one
        for _ in range(_SCANS):
            known, found = len(seen), False
            for pid in self._candidates(tags, besides):
                matches = pid not in seen and _is_of_session(pid, tags, directories)
                seen.add(pid)
                found = found or matches
                yield pid if matches else 0
            if found or len(seen) == known:
                return

    def _candidates(self, tags: range, besides: Collection[int]) -> Iterator[int]:
        """Yield processes younger than bash that may have been below it; 0 for any other process, and for each list.

        Scans all processes where a list cannot be read (hidepid).
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
                        break  # it was in the list before bash started, and so were all before it
                    yield 0
                elif (tag := proc.tag(pid)) >= LOWEST and tag not in tags:
                    yield 0  # of another session, and so is everything below it
                else:
                    yield pid
                    yield from proc.below(pid, besides)


def _is_of_session(pid: int, tags: range, directories: Collection[str]) -> bool:
    if pid == 0:
        return False
    carries = proc.tag(pid) in tags
    return (carries or any(activity.writes_below(pid, one) for one in directories)) and proc.alive(pid)
