"""What the layers of a branch change."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, NamedTuple

from .trees import CAPABILITIES, SETUID, Entry, Identity, Trees, attributes, entry_at, listed, open_file

_PIECE: Final = 1 << 20
SPECIAL: Final = ("FIFO", "socket", "device")


class Change(NamedTuple):
    """One path that a branch has added, changed or removed (``kind``).

    ``path``: below the base; "." is the base itself, of which only the mode is compared. ``what`` has changed: type,
    content, mode, owner, attributes (xattrs and ACLs) or links (which paths are hard links of one file).
    ``before``, ``after``: what is there, with type, mode and size.
    ``skipped``: why ``apply`` skips this path; "" if it does not. ``note``: what differs after ``apply``.
    """

    path: str
    kind: str
    what: tuple[str, ...] = ()
    before: Entry | None = None
    after: Entry | None = None
    skipped: str = ""
    note: str = ""

    @property
    def has_new_directory(self) -> bool:
        """Whether it makes a directory where there was none."""
        return bool(
            self.after and self.after.type == "directory" and not (self.before and self.before.type == "directory")
        )


def change_of(fields: Sequence[Any]) -> Change:
    """Return a change from its fields as JSON has them."""
    path, kind, what, before, after, skipped, note = fields
    return Change(path, kind, tuple(what), before and Entry(*before), after and Entry(*after), skipped, note)


def changes(
    base: str, layers: Sequence[str], *, since: int = 0, identity: Identity | None = None
) -> tuple[Change, ...]:
    """Return what the layers change, sorted, a directory before what is in it.

    ``layers``: the lowest first. ``since``: the first layers, this many, count as part of the base: those of a
    checkpoint. ``identity``: that of the base. A new time alone is not a change. An unreadable directory inside is a
    skipped change. Raises OSError if a layer is gone, and BranchUnavailable as ``Trees`` does.
    """
    with Trees(base, layers, identity) as trees:
        return compare(trees, since)


def compare(trees: Trees, since: int = 0) -> tuple[Change, ...]:
    """Return what the layers above the first ``since`` ones change."""
    top = range(len(trees.roots) - 1, -1, -1)
    numbers = tuple(top)
    cut = len(numbers) - 1 - since
    todo = [_Directory("", numbers[:cut], numbers[cut:], False, "")]
    found = list[Change]()
    while todo:
        directory = todo.pop()
        try:
            found += _in_directory(trees, directory, todo)
        except OSError as error:
            reason = directory.skipped or f"it cannot be read: {error.strerror or error}"
            named = [one for one in found if one.path == directory.path] or [Change(directory.path, "changed")]
            found = [one for one in found if one.path != directory.path] + [named[0]._replace(skipped=reason)]
    return (*_of_root(trees, since), *sorted(_with_links(found), key=lambda change: change.path.split("/")))


def _of_root(trees: Trees, since: int) -> Iterator[Change]:
    """Compare the mode of the base directory itself. Each layer begins with that of the one below."""
    before, after = (entry_at(trees.roots[number], ".", number) for number in (since, len(trees.roots) - 1))
    if before and after and before.mode != after.mode:
        skipped = "" if before.uid == after.uid else "it belongs to another user"
        yield Change(".", "changed", ("mode",), before, after, skipped)


class _Directory(NamedTuple):
    """A directory to compare: the layers that make it up above and below, the highest first.

    ``hides``: the upper ones hide the lower ones. ``skipped``: why nothing in it is applied.
    """

    path: str
    above: tuple[int, ...]
    below: tuple[int, ...]
    hides: bool
    skipped: str


def _in_directory(trees: Trees, directory: _Directory, todo: list[_Directory]) -> Iterator[Change]:
    with ExitStack() as stack:
        above, opaque = trees.merged(directory.above, directory.path, stack)
        below, _ = trees.merged(directory.below, directory.path, stack)
        hides = directory.hides or opaque
        names = {name for one in (*above, *(below if hides else ())) for name in os.listdir(one.fd)}
        fds = {one.number: one.fd for one in (*above, *below)}
        for name in names:
            path = f"{directory.path}/{name}" if directory.path else name
            after, numbers, closed = trees.look(above, name)
            before, numbers_before, _ = trees.look(below, name)
            is_upper = after is not None
            if not is_upper and not closed and not hides:
                after = before
            change = _change(path, before, after, fds) if is_upper or before != after else None
            if change and directory.skipped and not change.skipped:
                change = change._replace(skipped=directory.skipped)
            if change:
                yield change
            is_directory = after is not None and after.type == "directory"
            hidden = hides or closed or not is_directory
            if is_directory and change and change.skipped:
                continue  # it cannot be read
            if (is_directory and numbers) or (hidden and numbers_before):
                reason = change.skipped if change and not is_directory else directory.skipped
                todo.append(_Directory(path, numbers if is_directory else (), numbers_before, hidden, reason))


def _change(path: str, before: Entry | None, after: Entry | None, fds: dict[int, int]) -> Change | None:
    """Compare the two. None if they are equal and no hard link can be new. ``fds``: their directory in each layer."""
    if after is None:
        return Change(path, "removed", before=before) if before else None
    if after.type in SPECIAL:
        if before and before.type == after.type:
            return None
        kind = "changed" if before else "added"
        return Change(path, kind, ("type",), before, after, f"a {after.type} is not applied")
    name = path.rpartition("/")[2]
    old = None
    with ExitStack() as stack:
        try:
            new = _open(fds[after.layer], name, after, stack)
            note = _note(before, after, new)
            if before is None:
                return Change(path, "added", (), before, after, note=note)
            if before.type != after.type:
                return Change(path, "changed", ("type",), before, after, note=note)
            with suppress(PermissionError):  # an unreadable file may differ
                old = _open(fds[before.layer], name, before, stack)
            what = _differences(before, after, old, new, (fds[before.layer], fds[after.layer]), name)
        except OSError as error:
            reason = f"it cannot be read: {error.strerror or error}"
            return Change(path, "changed" if before else "added", (), before, after, reason)
    if what or (after.type == "file" and after.links > 1):
        return Change(path, "changed", what, before, after, note=note)
    return None


def _open(directory: int, name: str, entry: Entry, stack: ExitStack) -> int | None:
    if entry.type == "file":
        fd = open_file(directory, name)
    elif entry.type == "directory":
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    else:
        return None
    stack.callback(os.close, fd)
    return fd


def _differences(
    before: Entry, after: Entry, old: int | None, new: int | None, directories: tuple[int, int], name: str
) -> tuple[str, ...]:
    what = list[str]()
    if after.type == "link":
        targets = {os.readlink(name, dir_fd=directory) for directory in directories}
        if len(targets) > 1:
            what.append("content")
    elif before.mode != after.mode:
        what.append("mode")
    if after.type == "file" and (before.size != after.size or not _is_equal(old, new, after.size)):
        what.insert(0, "content")
    if (before.uid, before.gid) != (after.uid, after.gid):
        what.append("owner")
    if old is not None and new is not None and attributes(old) != attributes(new):
        what.append("attributes")
    return tuple(what)


def _is_equal(one: int | None, other: int | None, size: int) -> bool:
    if one is None or other is None:
        return False
    size = min(size + 1, _PIECE)  # a buffer of the full size for each small file costs more than the rest
    while piece := os.read(one, size):
        if piece != os.read(other, size):
            return False
    return True


def _note(before: Entry | None, after: Entry, fd: int | None) -> str:
    notes = []
    if after.type == "file":
        if after.mode & SETUID:
            notes.append("its setuid and setgid bits are not applied")
        if fd is not None and CAPABILITIES in listed(fd):
            notes.append("its capabilities are not applied")
        if before and before.type == "file" and before.links > 1 and before.layer != after.layer:
            notes.append("the other hard links of the file keep the old content")
    return "; ".join(notes)


def _with_links(found: Iterable[Change]) -> list[Change]:
    """Drop the changes of files of which only the hard links could have changed, and have not."""
    groups = defaultdict[tuple[int, int], list[Change]](list)
    for change in found:
        if change.after and change.after.type == "file" and change.after.links > 1:
            groups[change.after.layer, change.after.inode].append(change)
    kept = []
    for change in found:
        if change.kind == "changed" and not change.what and not change.skipped and change.after:
            group = groups[change.after.layer, change.after.inode]
            if len({one.before and (one.before.layer, one.before.inode) for one in group}) == 1:
                continue
            kept.append(change._replace(what=("links",)))
        else:
            kept.append(change)
    return kept
