"""``Layers``: the layers of a branch and of its forks, which share them, in one directory.

On disk::

    branch.json, states   of the branch itself; see ``branch``
    layers/N/upper        what was written in one layer; layers/N/work is the kernel's
    layers/base           the directory of which it is a branch, for the kernel
    forks/NAME            of a fork: its branch.json and states
    branch.reserve        space for ``freeing``

Law: a layer stays as long as a branch.json names it. Whoever makes, names or removes layers is ``alone``.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from . import mounts

RECORD: Final = "branch.json"
LAYERS: Final = "layers"
FORKS: Final = "forks"
# It takes up space that a full disk lacks for what frees some: a new layer, a record and a journal.
_RESERVE: Final = "branch.reserve"
_RESERVED: Final = 1 << 16
# What a branch has as files, and their names while they are written; see also ``apply``.
_FILE: Final = re.compile(r"\.?(branch\.(json|reserve)|apply\.(json|staged)|applied\.json)(\.new|-[a-z0-9_]{8})?")


class Layers:
    """The layers of the branch whose directory, or that of its fork, this is."""

    def __init__(self, directory: str) -> None:
        above, forks = os.path.split(os.path.dirname(directory))
        self.is_of_fork = forks == FORKS and os.path.isdir(os.path.join(above, LAYERS))
        self.top = above if self.is_of_fork else directory
        self.directory = os.path.join(self.top, LAYERS)

    def make(self) -> None:
        """Make the directory, unless it is there."""
        os.makedirs(os.path.join(self.directory, mounts.BASE), 0o700, exist_ok=True)
        self._reserve()

    def _reserve(self) -> None:
        with suppress(OSError):
            fd = os.open(os.path.join(self.top, _RESERVE), os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(fd, 0, _RESERVED)
            finally:
                os.close(fd)

    @contextmanager
    def freeing(self) -> Iterator[None]:
        """Let what frees space have that which is reserved."""
        with suppress(FileNotFoundError):  # emptied only: ext4 may take as long for a new file as for the rest
            os.truncate(os.path.join(self.top, _RESERVE), 0)
        try:
            yield
        finally:
            self._reserve()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep the other branches out meanwhile."""
        while True:
            fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if os.fstat(fd).st_nlink:
                    yield
                    return
                self.make()  # the last branch that had it has ended meanwhile, and removed it
            finally:
                os.close(fd)

    def upper(self, name: str) -> str:
        """The directory with what was written in a layer."""
        return os.path.join(self.directory, name, "upper")

    def is_written(self, name: str, below: str) -> bool:
        """Whether anything was written in a layer, which began with the mode of the directory ``below``."""
        try:
            with os.scandir(upper := self.upper(name)) as entries:
                if any(True for _ in entries):
                    return True
        except PermissionError:  # a command has taken away its mode
            return True
        with suppress(FileNotFoundError):  # somebody has removed the base
            return os.stat(upper).st_mode != os.stat(below).st_mode
        return False

    def add(self) -> str:
        """Make an empty layer, and return its name."""
        numbers = [int(one) for one in os.listdir(self.directory) if one.isdecimal()]
        name = str(max(numbers, default=-1) + 1)
        for part in ("upper", "work"):
            os.makedirs(path := os.path.join(self.directory, name, part), 0o700)
            os.chown(path, -1, os.getegid())  # above may have the setgid bit, and a group that the branch does not know
        return name

    def new_fork(self) -> str:
        """Make the directory of a new fork."""
        os.makedirs(path := os.path.join(self.top, FORKS, os.urandom(8).hex()), 0o700)
        return path

    def others(self, directory: str) -> list[dict[str, Any]]:
        """The records of the branches but that in ``directory``.

        A temporary fork that no session has open is removed: its host was killed.
        """
        forks, found = os.path.join(self.top, FORKS), list[dict[str, Any]]()
        with suppress(FileNotFoundError):
            for name in os.listdir(forks):
                if (place := os.path.join(forks, name)) != directory:
                    record = record_of(place)
                    if record is not None and not record["temporary"]:
                        found.append(record)
                    elif (lock := lock_of(place)) is None:
                        found += [record] if record is not None else []
                    else:
                        remove_fork(place)
                        os.close(lock)
        if directory != self.top and (record := record_of(self.top)) is not None:
            found.append(record)
        return found

    def remove_files(self) -> None:
        """Remove the record of the branch that is no fork, and what else it has as a file."""
        with suppress(FileNotFoundError):
            for name in filter(is_file, os.listdir(self.top)):
                os.unlink(os.path.join(self.top, name))

    def sweep(self, directory: str, named: Iterable[str]) -> None:
        """Remove the layers that neither are ``named`` by the branch in that directory, nor by another one."""
        kept = {*named, *(name for record in self.others(directory) for name in names_in(record))}
        for name in os.listdir(self.directory):
            if name.isdecimal() and name not in kept:
                remove(os.path.join(self.directory, name))


def is_file(name: str) -> bool:
    """Is it, in the directory of a branch, the name of a file of ours, or of one that a kill has cut off?"""
    return _FILE.fullmatch(name) is not None


def record_of(directory: str) -> dict[str, Any] | None:
    """The record of the branch in this directory; None if there is none."""
    with suppress(FileNotFoundError), open(os.path.join(directory, RECORD), encoding="utf-8") as file:
        record: dict[str, Any] = json.load(file)
        return record
    return None


def write_record(directory: str, record: dict[str, Any], before: Callable[[], object] = lambda: None) -> None:
    """Write the record. ``before`` is called when this can hardly fail any more; if it raises, nothing is written."""
    fresh = os.path.join(directory, f"{RECORD}.new")
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(json.dumps(record))  # `dump` encodes in Python, `dumps` in C
    before()
    os.replace(fresh, os.path.join(directory, RECORD))


def names_in(record: dict[str, Any]) -> Iterator[str]:
    """The layers that a record names."""
    yield from record["layers"]
    for _, layers, *_ in record["checkpoints"]:
        yield from layers


def lock_of(directory: str) -> int | None:
    """Lock a branch for one session, until the descriptor is closed. None if another session has it."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def remove_fork(directory: str) -> None:
    """Remove the directory of a fork, its record first: without one, it is nobody's."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, RECORD))
    remove(directory)


def remove(directory: str) -> None:
    """Remove a tree of ours, also where a command has taken away its modes, and give back its space.

    An overlay that is mounted, although another one covers it, keeps the files that it has shown: so they are emptied.
    One with further hard links may be in a layer that was merged of this one.
    """
    for top, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                about = os.lstat(path := os.path.join(top, name))
                if stat.S_ISREG(about.st_mode) and about.st_blocks and about.st_nlink == 1:
                    if not about.st_mode & stat.S_IWUSR:
                        os.chmod(path, 0o600)
                    os.truncate(path, 0)

    def retry(_: object, path: str, __: object) -> None:
        for one in (os.path.dirname(path), path):
            with suppress(OSError):
                if stat.S_ISDIR(os.lstat(one).st_mode):
                    os.chmod(one, 0o700)
        shutil.rmtree(path, ignore_errors=True)

    shutil.rmtree(directory, onerror=retry)
