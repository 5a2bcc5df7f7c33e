"""The processes that a bash leaves behind when it ends by itself.

Law: it looks and never acts. Its cost follows what was started since that bash, not what runs on the machine.

The kernel gives an orphan to the host, to a process above the host, or to the first one of the PID namespace, and
appends it to that one's list of children. So each of these few lists is read from its end, back to a process that was
in it before bash started.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from . import activity, processes
from .tags import LOWEST

_LOOKS: Final = 20  # other processes may start all the time


class Orphans:
    """Finds the orphans of one bash. Made when its process has started, before anything is typed to bash."""

    def __init__(self) -> None:
        self._born = processes.time_now()
        self._before = processes.adopting_lists()

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
        lists = processes.adopting_lists() or {"": b" ".join(b"%d" % pid for pid in processes.everyone())}
        for path, text in lists.items():
            before = b" " + self._before.get(path, b"")
            yield 0
            for pid in map(int, reversed(text.split())):
                if pid in besides:
                    continue
                if 0 < processes.start_time(pid) < self._born:
                    if b" %d " % pid in before:
                        break  # all that stand before it in the list were there before it
                    yield 0
                elif (tag := processes.tag(pid)) >= LOWEST and tag not in tags:
                    yield 0  # another session's, as is all that is below it
                else:
                    yield pid
                    yield from processes.below(pid, besides)


def _is_one(pid: int, tags: range, directories: Collection[str]) -> bool:
    if pid == 0:
        return False
    carries = processes.tag(pid) in tags
    return (carries or any(activity.writes_below(pid, one) for one in directories)) and processes.alive(pid)
