"""``Layers``: the layers of a branch and of its forks, which share them, in one directory.

On disk::

    branch.json, states   of the branch itself; see ``branch``
    layers/N/upper        what was written in one layer; layers/N/work is for the kernel
    layers/base           where the kernel finds the base
    forks/NAME            the branch.json and states of a fork
    branch.reserve        space for ``freeing``

Law: a layer stays as long as a branch.json names it. Code that makes, names or removes layers runs in ``alone``.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from threading import get_ident
from typing import Any, Final

from ..errors import BranchUnavailable
from . import mounts
from .trees import closing_fd

RECORD: Final = "branch.json"
LAYERS: Final = "layers"
FORKS: Final = "forks"
# Space on a full disk for what frees more: a new layer, a record and a journal.
_RESERVE: Final = "branch.reserve"
_RESERVED: Final = 1 << 16
# The threads in ``alone``, and the directories of the layers.
_HOLDERS: Final = set[tuple[int, str]]()
# The files of a branch, also under the names that they have while they are written; see also ``apply``.
_FILE: Final = re.compile(r"\.?(branch\.(json|reserve)|apply\.(json|staged)|applied\.json)(\.new|-[a-z0-9_]{8})?")


class Layers:
    """The layers of a branch. ``directory``: that of the branch, or of a fork of it."""

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
            path = os.path.join(self.top, _RESERVE)
            with closing_fd(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)) as fd:
                os.posix_fallocate(fd, 0, _RESERVED)

    @contextmanager
    def freeing(self) -> Iterator[None]:
        """Let the block, which frees space, use the reserve."""
        with suppress(FileNotFoundError):  # not removed: to create a file, ext4 may take as long as for all the rest
            os.truncate(os.path.join(self.top, _RESERVE), 0)
        try:
            yield
        finally:
            self._reserve()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other branches that share the layers out of the block."""
        holder = get_ident(), self.directory
        _HOLDERS.add(holder)
        try:
            while True:
                with closing_fd(os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)) as fd:
                    fcntl.flock(fd, fcntl.LOCK_EX)
                    if os.fstat(fd).st_nlink:
                        yield
                        return
                    self.make()  # the last branch to use it has just removed it
        finally:
            _HOLDERS.discard(holder)

    @property
    def is_held(self) -> bool:
        """Whether this thread is in ``alone`` of these layers, and would wait there for ever."""
        return (get_ident(), self.directory) in _HOLDERS

    def upper(self, name: str) -> str:
        """The directory with the changes of a layer."""
        return os.path.join(self.directory, name, "upper")

    def is_written(self, name: str, below: str) -> bool:
        """Whether anything was written in a layer. ``below``: the directory whose mode it started with."""
        try:
            with os.scandir(upper := self.upper(name)) as entries:
                if any(True for _ in entries):
                    return True
        except PermissionError:  # a command has made it unreadable
            return True
        with suppress(FileNotFoundError):  # the base was removed
            return os.stat(upper).st_mode != os.stat(below).st_mode
        return False

    def add(self) -> str:
        """Make an empty layer, and return its name."""
        numbers = [int(one) for one in os.listdir(self.directory) if one.isdecimal()]
        name = str(max(numbers, default=-1) + 1)
        for part in ("upper", "work"):
            os.makedirs(path := os.path.join(self.directory, name, part), 0o700)
            os.chown(path, -1, os.getegid())  # a parent with the setgid bit may give it a group that the branch lacks
        return name

    def new_fork(self) -> str:
        """Make the directory of a new fork."""
        os.makedirs(path := os.path.join(self.top, FORKS, os.urandom(8).hex()), 0o700)
        return path

    def others(self, directory: str) -> list[dict[str, Any]]:
        """The records of all branches that share these layers, except the one in ``directory``.

        Removes each temporary fork that no session has open: its host was killed.
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
        """Remove the files of the branch that is not a fork, its record among them."""
        with suppress(FileNotFoundError):
            for name in filter(is_file, os.listdir(self.top)):
                os.unlink(os.path.join(self.top, name))

    def sweep(self, directory: str, named: Iterable[str]) -> None:
        """Remove the layers that no branch uses. ``named``: those that the branch in ``directory`` uses."""
        kept = {*named, *(name for record in self.others(directory) for name in names_in(record))}
        for name in os.listdir(self.directory):
            if name.isdecimal() and name not in kept:
                remove(os.path.join(self.directory, name))


def is_file(name: str) -> bool:
    """Whether a file in the directory of a branch is one of ours, complete or left by a kill."""
    return _FILE.fullmatch(name) is not None


def record_of(directory: str) -> dict[str, Any] | None:
    """The record of the branch in this directory; None if there is none. Raises BranchUnavailable if it is damaged."""
    path = os.path.join(directory, RECORD)
    try:
        with open(path, encoding="utf-8") as file:
            record: dict[str, Any] = json.load(file)
        record["base"]  # every record has it
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise BranchUnavailable(
            f"{path}, the record of a branch, is damaged ({error}): the files of the branch are below"
            f" {os.path.join(directory, LAYERS)}; move {directory} away to begin a new branch"
        ) from error
    return record


def write_record(directory: str, record: dict[str, Any], before: Callable[[], object] = lambda: None) -> None:
    """Write the record. ``before`` is called just before the rename that ends this; if it raises, the old one stays."""
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
    """Lock a branch for one session, until the descriptor is closed. None if another session has locked it."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def remove_fork(directory: str) -> None:
    """Remove the directory of a fork, the record first: without one it counts as abandoned."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, RECORD))
    remove(directory)


def remove(directory: str) -> None:
    """Remove a tree of ours, even if a command has changed its modes, and free its space. What cannot be removed stays.

    A command that still runs may put a link in place of a directory meanwhile: so each part is opened without following
    one, and what is changed is what was opened. Each directory is moved up to the top of the tree before its turn: so
    the depth does not matter.

    A mounted overlay, even one that another covers, keeps the files alive that it has shown: so they are emptied first,
    except those with other hard links, which a merged layer may use.
    """
    with suppress(OSError):
        with _opened(directory, None) as top:
            fresh = map(f"{os.urandom(8).hex()}-{{}}".format, count())
            todo = _remove_files(top, top, None)
            while todo:
                with suppress(OSError), _opened(name := todo.pop(), top) as fd:
                    todo += _remove_files(fd, top, fresh)
                with suppress(OSError):
                    os.rmdir(name, dir_fd=top)
        os.rmdir(directory)


def _remove_files(directory: int, top: int, fresh: Iterator[str] | None) -> list[str]:
    """Remove what is no directory. Return the names of the directories, moved to ``top`` if ``fresh`` has new ones."""
    found = list[str]()
    with os.scandir(directory) as entries:
        names = [(one.name, one.is_dir(follow_symlinks=False)) for one in entries]
    for name, is_directory in names:
        with suppress(OSError):
            if not is_directory:
                _empty(name, directory)
                os.unlink(name, dir_fd=directory)
            elif fresh is None:
                found.append(name)
            else:
                with _opened(name, directory):  # to move it takes the right to write in it
                    os.rename(name, new := next(fresh), src_dir_fd=directory, dst_dir_fd=top)
                found.append(new)
    return found


def _empty(name: str, directory: int) -> None:
    with closing_fd(os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=directory)) as fd:
        about = os.fstat(fd)
        if stat.S_ISREG(about.st_mode) and about.st_blocks and about.st_nlink == 1:
            if not about.st_mode & stat.S_IWUSR:
                os.chmod(_path_of(fd), 0o600)
            os.truncate(_path_of(fd), 0)


@contextmanager
def _opened(name: str, directory: int | None) -> Iterator[int]:
    """Open a directory, and let its owner, who we are, change it."""
    with closing_fd(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=directory)) as found:
        if os.fstat(found).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(_path_of(found), 0o700)
        with closing_fd(os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=found)) as fd:
            yield fd


def _path_of(fd: int) -> str:
    """A path to what is open, which no rename makes another; ``os.fchmod`` refuses a descriptor with O_PATH."""
    return f"/proc/self/fd/{fd}"
