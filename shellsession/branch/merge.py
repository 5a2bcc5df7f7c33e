"""Merge two layers into one, so that their number stays small."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import ExitStack, suppress
from typing import NamedTuple

from .trees import MARK, WHITEOUT, Entry, Opened, Trees, closing_fd, dress, listed, open_directory, sync


def merge(lower: str, upper: str, into: str) -> None:
    """Make ``into`` a layer with the same meaning as ``upper`` on ``lower``, whatever is below.

    Both must be frozen and on the file system of ``into``, whose files are hard links to theirs: no content is copied.
    They stay as they are. ``into`` appears complete and on the disk. A kill may leave ``into`` with ".new" at the end,
    which the next call removes. Raises OSError, also if a directory in them cannot be read.
    """
    new = f"{into}.new"
    with suppress(FileNotFoundError):
        shutil.rmtree(new)
    os.mkdir(new, 0o700)
    with Trees(lower, [upper]) as trees, ExitStack() as stack:
        root = stack.enter_context(closing_fd(os.open(new, os.O_RDONLY | os.O_DIRECTORY)))
        todo, done = [_Merged("", (1, 0), False)], list[_Merged]()
        while todo:
            directory = todo.pop()
            done.append(directory)
            todo += _merge_directory(trees, root, directory)
        for directory in reversed(done):  # only now: a read-only directory could not be filled
            _finish(trees, root, directory)
        sync(root)
    os.rename(new, into)


class _Merged(NamedTuple):
    """A directory, and which of the two have it: 1 is the upper one. ``hides``: it hides what is below both."""

    path: str
    numbers: tuple[int, ...]
    hides: bool


def _merge_directory(trees: Trees, root: int, directory: _Merged) -> list[_Merged]:
    """Fill a directory, and return its subdirectories."""
    found = list[_Merged]()
    with ExitStack() as stack:
        new = stack.enter_context(closing_fd(open_directory(root, directory.path)))
        opened, _ = trees.merged(directory.numbers, directory.path, stack)
        for name in {name for one in opened for name in os.listdir(one.fd)}:
            entries = [(one, entry) for one in opened if (entry := trees.entry(one, name))]
            (where, top), *below = entries
            if top.type == "directory":
                os.mkdir(name, 0o700, dir_fd=new)
                path = f"{directory.path}/{name}" if directory.path else name
                both = bool(below) and below[0][1].type == "directory"
                numbers = tuple(one.number for one, _ in (entries if both else entries[:1]))
                found.append(_Merged(path, numbers, bool(below) and not both))
            else:
                _put(where, top, name, new)
    return found


def _put(where: Opened, entry: Entry, name: str, new: int) -> None:
    if entry.type == WHITEOUT:  # all whiteouts may be links of one file, which has a maximum number
        os.mknod(name, stat.S_IFCHR, 0, dir_fd=new)
    else:
        os.link(name, name, src_dir_fd=where.fd, dst_dir_fd=new, follow_symlinks=False)


def _finish(trees: Trees, root: int, directory: _Merged) -> None:
    """Give a directory the mode, owner, times and xattrs of the upper one, and the marks of both."""
    with ExitStack() as stack:
        new = stack.enter_context(closing_fd(open_directory(root, directory.path)))
        opened, opaque = trees.merged(directory.numbers, directory.path, stack)
        for one in reversed(opened):
            for name in listed(one.fd):
                if name.startswith(MARK):
                    os.setxattr(new, name, os.getxattr(one.fd, name))
        mark = MARK + "opaque"
        if opaque or directory.hides:
            os.setxattr(new, mark, b"y")
        elif mark in listed(new):  # "x": some whiteouts are xattrs, and ours are not
            os.removexattr(new, mark)
        dress(opened[0].fd, new)
