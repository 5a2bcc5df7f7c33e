"""Control groups: what all processes of a sandbox may use together, where this process may make such groups.

Law: a group is made below the one that we are in, or next to it where only that can have limits (version 2 mostly);
whoever makes one removes it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from . import processes

_PERIOD: Final = 100_000  # microseconds: the kernel's own default for cpu.max

# What is written for a limit, by file: of version 2, then of version 1. "?" marks what not every kernel has.
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
    """A control group that we are in: its directory, where its hierarchy is mounted, and the controllers of that.

    A hierarchy of version 2 names none: there each group says which ones it has.
    """

    directory: str
    mount: str
    controllers: frozenset[str]


class Groups(NamedTuple):
    """The directories of one sandbox's groups, and the controllers that hold."""

    directories: tuple[str, ...]
    held: frozenset[str]


def limits(memory: int | None, pids: int | None, cpu: float | None) -> dict[str, int]:
    """What is asked of each controller."""
    asked = {"memory": memory, "pids": pids, "cpu": None if cpu is None else max(1000, round(cpu * _PERIOD))}
    return {name: value for name, value in asked.items() if value is not None}


def make(name: str, asked: Mapping[str, int]) -> Groups:
    """Groups of that name for what can be held; the other controllers are not among ``held``."""
    places: dict[tuple[str, int], set[str]] = {}
    for controller in asked:
        if found := _place(controller):
            places.setdefault(found, set()).add(controller)
    directories: list[str] = []
    held: set[str] = set()
    for (parent, version), controllers in places.items():
        directory = os.path.join(parent, name)
        try:
            os.mkdir(directory, 0o755)
        except OSError:
            continue
        done = {one for one in controllers if _set(directory, _FILES[version][one], asked[one])}
        if done:
            directories.append(directory)
            held |= done
        else:
            remove(directory)
    return Groups(tuple(directories), frozenset(held))


def own_groups() -> list[Group]:
    """The control groups of this process, as far as they can be seen."""
    ours = [line.split(":", 2) for line in processes.lines("/proc/self/cgroup")]
    paths = {frozenset(names.split(",")) - {""}: path for _, names, path in ours}
    found = []
    for line in processes.lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mount = before.split(" ")[3:5]
        for controllers, path in paths.items():
            if kind == ("cgroup" if controllers else "cgroup2") and controllers <= {*options.split(",")}:
                directory = os.path.normpath(mount + "/" + path.removeprefix(root))
                found.append(Group(directory, mount, controllers))
    return found


def _place(controller: str) -> tuple[str, int] | None:
    """Where a group with this controller can be made by us, and the version it has there."""
    for group in own_groups():
        if controller in group.controllers:
            return (group.directory, 1) if _is_ours(group.directory) else None
    for group in own_groups():
        if group.controllers:
            continue
        # A group of version 2 has processes or groups with controllers, not both: most often it is our neighbour's.
        for directory in (group.directory, os.path.dirname(group.directory)):
            if os.path.commonpath((group.mount, directory)) != group.mount:
                break
            if controller in _words(directory, "cgroup.subtree_control") and _is_ours(directory):
                return directory, 2
    return None


def _is_ours(directory: str) -> bool:
    """May we make a group there, and move a process of ours into it?"""
    return os.access(directory, os.W_OK) and os.access(os.path.join(directory, "cgroup.procs"), os.W_OK)


def _words(directory: str, name: str) -> list[str]:
    try:
        with open(os.path.join(directory, name), encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def _set(directory: str, files: tuple[tuple[str, str], ...], value: int) -> bool:
    for name, text in files:
        path = os.path.join(directory, name.rstrip("?"))
        try:
            with open(path, "r+", encoding="ascii") as file:
                file.write(text.format(value))
        except OSError:
            if not name.endswith("?"):
                return False
    return True


def entrance(directory: str) -> int:
    """Open what a process writes "0" to in order to move into the group. Raises OSError."""
    return os.open(os.path.join(directory, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)


def remove(directory: str) -> bool:
    """Remove a group; False when there are processes in it, which may take a moment to leave after their end."""
    with suppress(OSError):
        os.rmdir(directory)
    return not os.path.isdir(directory)
