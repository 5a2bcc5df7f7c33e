"""Control groups, which limit all processes of a sandbox together.

A group is made below this process's own one, or beside it where only the parent can have limits (mostly in version 2).
The code that makes a group also removes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Final, NamedTuple

from ..kernel import proc

_PERIOD: Final = 100_000  # microseconds: the kernel's own default for cpu.max

# The files of each limit and what to write to them, in cgroup version 2 and 1. "?" marks files that some kernels lack.
_FILES: Final = {
    2: {
        "memory": (("memory.max", "{}"), ("memory.swap.max?", "0")),
        "pids": (("pids.max", "{}"),),
        "cpu": (("cpu.max", f"{{}} {_PERIOD}"),),
    },
    1: {
        "memory": (("memory.limit_in_bytes", "{}"), ("memory.memsw.limit_in_bytes?", "{}")),
        "pids": (("pids.max", "{}"),),
        "cpu": (("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", "{}")),
    },
}


class Group(NamedTuple):
    """A control group of this process: its directory, the mount point of its hierarchy, and the controllers of that.

    A hierarchy of version 2 has no fixed controllers: there each group lists its own.
    """

    directory: str
    mount: str
    controllers: frozenset[str]


class Groups(NamedTuple):
    """The directories of one sandbox's groups, and the controllers whose limits they enforce."""

    directories: tuple[str, ...]
    enforced: frozenset[str]


NONE: Final = Groups((), frozenset())


def limits(memory: int | None, pids: int | None, cpu: float | None) -> dict[str, int]:
    """The limit for each controller, without those that are not set."""
    wanted = {"memory": memory, "pids": pids, "cpu": None if cpu is None else max(1000, round(cpu * _PERIOD))}
    return {name: value for name, value in wanted.items() if value is not None}


def make(name: str, wanted: Mapping[str, int]) -> Groups:
    """Make groups of that name for the limits. ``enforced`` lacks the controllers for which none can be made."""
    parents: dict[tuple[str, int], set[str]] = {}
    for controller in wanted:
        if found := _parent_group(controller):
            parents.setdefault(found, set()).add(controller)
    directories: list[str] = []
    enforced: set[str] = set()
    for (parent, version), controllers in parents.items():
        directory = os.path.join(parent, name)
        try:
            os.mkdir(directory, 0o755)
        except OSError:
            continue
        done = {one for one in controllers if _set(directory, _FILES[version][one], wanted[one])}
        if done:
            directories.append(directory)
            enforced |= done
        else:
            remove(directory)
    return Groups(tuple(directories), frozenset(enforced))


def own_groups() -> list[Group]:
    """The control groups of this process, as far as they are visible here."""
    ours = [line.split(":", 2) for line in proc.lines("/proc/self/cgroup")]
    paths = {frozenset(names.split(",")) - {""}: path for _, names, path in ours}
    found = []
    for line in proc.lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mount = before.split(" ")[3:5]
        for controllers, path in paths.items():
            if kind == ("cgroup" if controllers else "cgroup2") and controllers <= {*options.split(",")}:
                directory = os.path.normpath(mount + "/" + path.removeprefix(root))
                found.append(Group(directory, mount, controllers))
    return found


def _parent_group(controller: str) -> tuple[str, int] | None:
    """The group in which we may make one with this controller, and the cgroup version; None if there is none."""
    for group in own_groups():
        if controller in group.controllers:
            return (group.directory, 1) if _is_ours(group.directory) else None
    for group in own_groups():
        if group.controllers:
            continue
        # A group of version 2 has either processes or subgroups with controllers. So the parent of our group is mostly
        # the one.
        for directory in (group.directory, os.path.dirname(group.directory)):
            if os.path.commonpath((group.mount, directory)) != group.mount:
                break
            if controller in _words(directory, "cgroup.subtree_control") and _is_ours(directory):
                return directory, 2
    return None


def _is_ours(directory: str) -> bool:
    """May we make a group in the directory, and move our processes into it?"""
    return os.access(directory, os.W_OK) and os.access(os.path.join(directory, "cgroup.procs"), os.W_OK)


def _words(directory: str, name: str) -> list[str]:
    try:
        with open(os.path.join(directory, name), encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def _set(directory: str, files: tuple[tuple[str, str], ...], value: int) -> bool:
    """Write a limit to the files of a group; did it work?"""
    for name, text in files:
        path = os.path.join(directory, name.rstrip("?"))
        try:
            with open(path, "r+", encoding="ascii") as file:
                file.write(text.format(value))
        except OSError:
            if not name.endswith("?"):
                return False
    return True


def memory_kills(directories: Iterable[str]) -> int:
    """How many processes of these groups the kernel has killed for want of memory."""
    # These files exist in a memory group of version 2 and 1. Each has a line "oom_kill N".
    words = [_words(directory, name) for directory in directories for name in ("memory.events", "memory.oom_control")]
    return sum(int(count) for group in words for name, count in pairwise(group) if name == "oom_kill")


def entrance(directory: str) -> int:
    """Open the file to which a process writes "0" in order to enter the group. Raises OSError."""
    return os.open(os.path.join(directory, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)


def remove(directory: str) -> bool:
    """Remove a control group; False if it has processes. A process leaves its group a moment after its end."""
    with suppress(OSError):
        os.rmdir(directory)
    return not os.path.isdir(directory)
