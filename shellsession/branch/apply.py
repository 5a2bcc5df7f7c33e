"""Write the changes of a branch to its base, so that a kill at any moment loses nothing.

A journal first lists all changes. Then each new file is copied to a temporary name in the directory where it belongs.
When all are on the disk, each is renamed into place. Removals come last, the deepest first. So at any moment each path
of the base is old or new, and the next apply finishes an interrupted one.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from errno import EDQUOT, ENOSPC
from typing import Any, Final

from ..engine.io.waiter import Waiter
from ..errors import ApplyFailed, BranchUnavailable, Conflict, InvalidRequest
from ..state import snapshot_file
from .changes import Change, change_of, compare
from .trees import (
    MARK,
    Entry,
    Identity,
    Trees,
    closing_fd,
    dress,
    entry_at,
    listed,
    open_directory,
    open_file,
    split,
    sync,
)

JOURNAL: Final = "apply.json"
# This file exists once all new files are on the disk under their temporary names.
_STAGED: Final = "apply.staged"
# The inode and the ctime of each path that was applied before: they are no sign of another writer.
APPLIED: Final = "applied.json"
_CLOCK_REALTIME_COARSE: Final = 5
_BLOCK: Final = 512  # the unit of st_blocks
_PIECE: Final = 1 << 30
_ALL_OF_OWNER: Final = 0o700
_PATIENCE: Final = 5.0  # the seconds to wait for the lock of another program on the base
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_BEGUN: Final = (
    "each path has its old or its new content; apply again to finish, or discard, which keeps what was written"
)
_NOTHING: Final = "nothing was changed"


def moment(base: str) -> int:
    """Return the time of the base's file system in nanoseconds, for ``opened``. The base does not visibly change.

    Call it before the branch is mounted: a change in the same tick of the clock, some ms, counts as older.
    """
    try:
        fd = os.open(base, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except OSError:  # not writable, or the file system has no files without a name: most have the kernel's clock
        return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
    with closing_fd(fd):
        return os.fstat(fd).st_ctime_ns


def apply(
    base: str,
    layers: Sequence[str],
    home: str,
    opened: int,
    identity: Identity | None = None,
    *,
    paths: Iterable[str] | None = None,
    overwrite: bool = False,
    done: Callable[[str], object] = lambda step: None,
) -> tuple[Change, ...]:
    """Write the changes of the layers to the base, and return them. Finishes an interrupted apply first.

    ``home``: the directory of the branch, where the journal is. ``opened``: what ``moment`` returned. ``identity``:
    that of the base. ``paths``: only these, below the base, and what is in them. Skipped changes (see ``Change``) are
    left out, as are setuid and setgid bits and capabilities of files. ``done``: called with the name of each step after
    it.

    Raises Conflict before anything is written, if a changed path has also changed in the base since ``opened``;
    ``overwrite`` writes anyway. Raises ApplyFailed if the disk is full or the system refuses, and
    BranchUnavailable as ``Trees`` does.
    """
    earlier = _resume(home, overwrite, done)
    with Trees(base, layers, identity) as trees, _locked(trees.roots[0]):
        chosen = _chosen(compare(trees), None if paths is None else [os.path.normpath(path) for path in paths])
        if not overwrite:
            _refuse_conflicts(_conflicts(trees, chosen, opened, _read(home, APPLIED)))
        done("checked")
        if not chosen:
            return earlier
        paths_of_layers, nonce = [os.path.abspath(one) for one in layers], secrets.token_hex(4)
        with _failing(_NOTHING):
            closed = _closed(trees.roots[0], chosen)
            job = _Job(os.path.abspath(base), paths_of_layers, nonce, chosen, closed, done)
            _write(home, JOURNAL, job.as_json(Identity.of(trees.roots[0])))
        done("journal")
        _carry_out(trees, home, job, overwrite, False)
        return earlier + chosen


def _resume(home: str, overwrite: bool, done: Callable[[str], object]) -> tuple[Change, ...]:
    """Finish an interrupted apply, and return its changes; () if there is none."""
    if not (journal := _read(home, JOURNAL)):
        return ()
    job = _Job.of(journal, done)
    with _failing(_BEGUN), Trees(job.base, job.layers, _identity_in(journal)) as trees, _locked(trees.roots[0]):
        is_staged = _read(home, _STAGED).get("nonce") == job.nonce
        if not is_staged:
            _unstage(trees.roots[0], job)
        _carry_out(trees, home, job, overwrite, is_staged)
        return job.changes


def give_up(home: str) -> bool:
    """Forget an interrupted apply. What it has written stays. Returns whether there was one. Raises OSError."""
    if not (journal := _read(home, JOURNAL)):
        return False
    job, identity, refused = (
        _Job.of(journal, lambda step: None),
        _identity_in(journal),
        (ApplyFailed, BranchUnavailable),
    )
    with suppress(OSError, *refused), Trees(job.base, (), identity) as trees, _locked(trees.roots[0]):
        _unstage(trees.roots[0], job)
    os.unlink(os.path.join(home, JOURNAL))
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(home, _STAGED))
    return True


def _identity_in(journal: dict[str, Any]) -> Identity:
    """Return the identity of the base. An earlier version has written its device and its inode."""
    return Identity(*found) if (found := journal.get("identity")) else Identity(journal["of"][1], "")


class _Job:
    """The work of an apply: the changes, and for each new file the path where it is staged.

    ``closed``: the modes of the directories to which the owner cannot write without another mode.
    ``tops``: those to rename from there into place. A new directory brings everything in it along.
    ``done``: called after each step.
    """

    def __init__(
        self,
        base: str,
        layers: list[str],
        nonce: str,
        changes: tuple[Change, ...],
        closed: dict[str, int],
        done: Callable[[str], object],
    ) -> None:
        self.base, self.layers, self.nonce, self.changes, self.done = base, layers, nonce, changes, done
        self.closed = closed
        self.staged = dict[str, str]()
        self.tops = list[Change]()
        for number, change in enumerate(changes):
            if change.after is None or _is_set(change):
                continue
            directory, name = split(change.path)
            if directory in self.staged:
                self.staged[change.path] = f"{self.staged[directory]}/{name}"
            else:
                self.staged[change.path] = f"{directory}/.shellsession-{nonce}-{number}".lstrip("/")
                self.tops.append(change)

    def as_json(self, identity: Identity) -> dict[str, Any]:
        plain = {"base": self.base, "layers": self.layers, "nonce": self.nonce, "closed": self.closed}
        return {**plain, "identity": identity, "changes": self.changes}

    @classmethod
    def of(cls, journal: dict[str, Any], done: Callable[[str], object]) -> _Job:
        changes = tuple(map(change_of, journal["changes"]))
        return cls(journal["base"], journal["layers"], journal["nonce"], changes, journal.get("closed", {}), done)


def _carry_out(trees: Trees, home: str, job: _Job, overwrite: bool, is_staged: bool) -> None:
    base = trees.roots[0]
    if not is_staged:
        try:
            with _failing(_NOTHING):
                _stage(trees, job)
                sync(base)
                job.done("synced")
                if not overwrite:
                    _refuse_conflicts(_late_conflicts(base, job))
                _write(home, _STAGED, {"nonce": job.nonce})
        except (ApplyFailed, Conflict):
            with suppress(OSError):
                _unstage(base, job)
                os.unlink(os.path.join(home, JOURNAL))
            raise
    elif not overwrite:
        _refuse_conflicts(_late_conflicts(base, job))
    job.done("staged")
    with _failing(_BEGUN):
        _publish(trees, job)
        sync(base)
        job.done("synced again")
        _write(home, APPLIED, {**_read(home, APPLIED), **_record(base, job)})
        job.done("recorded")
        os.unlink(os.path.join(home, JOURNAL))
        job.done("no journal")
        os.unlink(os.path.join(home, _STAGED))


def _chosen(found: Iterable[Change], paths: list[str] | None) -> tuple[Change, ...]:
    """Return the changes to write. A directory is not removed if something in it must stay."""
    if wrong := [path for path in paths or () if path.startswith(("/", "../")) or path == ".."]:
        raise InvalidRequest(f"paths must be below the branch's directory, not {wrong[0]!r}")
    found = tuple(found)
    for path in paths or ():
        if path != "." and not any(one.path == path or path in _above(one.path) for one in found):
            raise InvalidRequest(f"nothing has changed at {path!r:.200}: name paths as diff() does")
    kept = {above for change in found if change.skipped for above in _above(change.path)}
    found = tuple(one for one in found if not one.skipped and not (one.path in kept and not _is_directory(one.after)))
    if paths is None or "." in paths:
        return found
    chosen = {one.path for one in found if not {one.path, *_above(one.path)}.isdisjoint(paths)}
    needed = {above for path in chosen for above in _above(path)}
    return tuple(one for one in found if one.path in chosen or (one.path in needed and one.has_new_directory))


def _above(path: str) -> Iterator[str]:
    """Return the directories above a path."""
    while path := split(path)[0]:
        yield path


def _is_directory(entry: Entry | None) -> bool:
    return entry is not None and entry.type == "directory"


def _is_set(change: Change) -> bool:
    """Is it a directory before and after, with another mode, owner or attributes?"""
    return _is_directory(change.before) and _is_directory(change.after)


def _crosses(change: Change) -> bool:
    """Does a directory replace something else, or something else a directory?"""
    return bool(change.before and change.after) and _is_directory(change.before) != _is_directory(change.after)


def _conflicts(trees: Trees, chosen: Iterable[Change], opened: int, applied: dict[str, Any]) -> Iterator[str]:
    """Find what others have changed in the base since ``opened``."""

    def is_new(path: str, inode: int, changed: int) -> bool:
        return changed > opened and applied.get(path) != [inode, changed]

    with closing(_Places(trees.roots[0])) as places:
        for change in chosen:
            if change.before:
                if is_new(change.path, change.before.inode, change.before.changed):
                    yield change.path
            elif change.after and (above := places.find(split(change.path)[0])) is not None:
                # A file that the branch has from the base, where it is gone now; or one that the branch has renamed.
                about = os.fstat(above)
                own = applied.get(split(change.path)[0] or ".") == [about.st_ino, about.st_ctime_ns]
                if about.st_mtime_ns > opened and not own and _is_copy(trees, change.path, change.after):
                    yield change.path


def _is_copy(trees: Trees, path: str, entry: Entry) -> bool:
    """Did overlayfs copy this from a layer below?"""
    if entry.type == "link":
        return False
    with closing_fd(trees.open(entry.layer, split(path)[0])) as at:
        name = split(path)[1]
        with closing_fd(open_file(at, name) if entry.type == "file" else open_directory(at, name)) as fd:
            return MARK + "origin" in listed(fd)


def _late_conflicts(base: int, job: _Job) -> Iterator[str]:
    """Find what has changed in the base since the journal was written, among the remaining changes."""
    with closing(_Places(base)) as places:
        for change in job.changes:
            if _is_set(change) or split(change.path)[0] in job.staged:  # it comes with its directory
                continue
            now, before = places.entry(change.path), change.before
            if now is None or (
                before and now.type == before.type and now.inode == before.inode and _has_time(now, before)
            ):
                continue
            staged = job.staged.get(change.path)
            if staged is None or places.entry(staged):  # else it is in place already
                yield change.path


def _has_time(now: Entry, before: Entry) -> bool:
    """Is it unchanged since? Our work in a directory, or on another link of a file, also changes its ctime."""
    return before.type == "directory" or before.links > 1 or now.changed == before.changed


def _refuse_conflicts(found: Iterable[str]) -> None:
    if paths := tuple(found):
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        raise Conflict(
            f"{paths[0]!r}{more} changed in the directory after the branch was opened: nothing was written; look at"
            " the difference, then apply other paths, or all with overwrite=True",
            paths,
        )


def _stage(trees: Trees, job: _Job) -> None:
    """Copy each new file to its temporary name."""
    _loosen(trees.roots[0], job)
    links = dict[tuple[int, int], str]()
    new = [(change, change.after) for change in job.changes if change.path in job.staged and change.after]
    with ExitStack() as stack:
        target, *sources = (stack.enter_context(closing(_Places(root))) for root in (trees.roots[0], *trees.roots))
        for change, after in new:
            directory, name = split(job.staged[change.path])
            at = target.open(directory)
            source_directory, source = split(change.path)
            origin = sources[after.layer].open(source_directory)
            if after.type == "directory":
                os.mkdir(name, _ALL_OF_OWNER, dir_fd=at)
            elif after.type == "link":
                _copy_link(origin, source, at, name)
            elif known := links.get((after.layer, after.inode)):
                with closing_fd(open_directory(trees.roots[0], split(known)[0])) as fd:
                    os.link(split(known)[1], name, src_dir_fd=fd, dst_dir_fd=at, follow_symlinks=False)
            else:
                _copy_file(origin, source, at, name)
                if after.links > 1:
                    links[after.layer, after.inode] = job.staged[change.path]
            job.done(f"copied {change.path}")
    for change, after in reversed(new):
        if after.type == "directory":
            with (
                closing_fd(trees.open(after.layer, change.path)) as origin,
                closing_fd(trees.open(0, job.staged[change.path])) as fd,
            ):
                dress(origin, fd)


def _unstage(base: int, job: _Job) -> None:
    """Remove what is staged."""
    with closing(_Places(base)) as places:
        staged = [(path, entry) for path in sorted(job.staged.values()) if (entry := places.entry(path))]
        for path, entry in staged:  # it has the mode of the branch, which may forbid writing
            if entry.type == "directory":
                os.fchmod(places.open(path), _ALL_OF_OWNER)
        for path, entry in reversed(staged):
            directory, name = split(path)
            if entry.type == "directory":
                os.rmdir(name, dir_fd=places.open(directory))
            else:
                os.unlink(name, dir_fd=places.open(directory))
    _close(base, job)


def _publish(trees: Trees, job: _Job) -> None:
    """Rename what is staged into place, and remove what the branch has removed. Part of it may be done already."""
    base = trees.roots[0]
    _loosen(base, job)
    _rename(base, job, [change for change in job.tops if not _crosses(change)])
    gone = [change for change in job.changes if change.before and (change.after is None or _crosses(change))]
    with closing(_Places(base)) as places:
        for change in reversed(gone):
            now, before = places.entry(change.path), change.before
            if now is None or _is_directory(now) != _is_directory(before):
                continue
            directory, name = split(change.path)
            (os.rmdir if _is_directory(now) else os.unlink)(name, dir_fd=places.open(directory))
            job.done(f"removed {change.path}")
    _rename(base, job, [change for change in job.tops if _crosses(change)])
    _close(base, job)
    for change in reversed(job.changes):
        if _is_set(change) and change.after:
            with (
                closing_fd(trees.open(change.after.layer, change.path)) as origin,
                closing_fd(open_directory(base, change.path)) as fd,
            ):
                if change.what == ("mode",):  # the layers have only the mode of the base itself
                    os.fchmod(fd, change.after.mode)
                else:
                    dress(origin, fd, with_times=False)
            job.done(f"set {change.path}")


def _rename(base: int, job: _Job, changes: Iterable[Change]) -> None:
    with closing(_Places(base)) as places:
        for change in changes:
            at = places.open(split(change.path)[0])
            with suppress(FileNotFoundError):  # it was renamed before a kill
                os.rename(split(job.staged[change.path])[1], split(change.path)[1], src_dir_fd=at, dst_dir_fd=at)
                job.done(f"renamed {change.path}")


def _closed(base: int, changes: Iterable[Change]) -> dict[str, int]:
    """Return the mode of each directory that must change, and to which we may not write. Raises ApplyFailed."""
    found, new = dict[str, int](), {one.path for one in changes if not _is_directory(one.before)}
    needed = {one.path if _is_set(one) else split(one.path)[0] for one in changes}
    for path in sorted(needed - new):
        with closing_fd(open_directory(base, path)) as fd:
            if os.access(".", os.R_OK | os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True):
                continue
            about = os.fstat(fd)
            if about.st_uid != os.geteuid():
                raise ApplyFailed(
                    f"this user may not write to {path or '.'!r}, which belongs to user {about.st_uid}: {_NOTHING};"
                    " apply other paths"
                )
            found[path] = about.st_mode & 0o7777
    return found


def _loosen(base: int, job: _Job) -> None:
    """Let the owner write to the closed directories, as the branch had to."""
    for path, mode in job.closed.items():
        with suppress(FileNotFoundError, NotADirectoryError), closing_fd(open_directory(base, path)) as fd:
            os.fchmod(fd, mode | _ALL_OF_OWNER)


def _close(base: int, job: _Job) -> None:
    """Give back their modes."""
    for path, mode in reversed(job.closed.items()):
        with suppress(FileNotFoundError, NotADirectoryError), closing_fd(open_directory(base, path)) as fd:
            if os.fstat(fd).st_mode & 0o7777 == mode | _ALL_OF_OWNER:
                os.fchmod(fd, mode)


def _record(base: int, job: _Job) -> dict[str, Any]:
    """Return the inodes and times of what was written, and of its directories."""
    with closing(_Places(base)) as places:
        paths = {path for change in job.changes for path in (change.path, split(change.path)[0] or ".")}
        found = {path: places.entry(path) for path in sorted(paths)}
    return {path: [entry.inode, entry.changed] for path, entry in found.items() if entry}


def _copy_link(origin: int, source: str, at: int, name: str) -> None:
    os.symlink(os.readlink(source, dir_fd=origin), name, dir_fd=at)
    about = os.stat(source, dir_fd=origin, follow_symlinks=False)
    with suppress(PermissionError):
        os.chown(name, about.st_uid, about.st_gid, dir_fd=at, follow_symlinks=False)
    os.utime(name, ns=(about.st_atime_ns, about.st_mtime_ns), dir_fd=at, follow_symlinks=False)


def _copy_file(origin: int, source: str, at: int, name: str) -> None:
    with closing_fd(open_file(origin, source)) as old, closing_fd(os.open(name, _NEW, 0o600, dir_fd=at)) as new:
        begin = 0
        for begin, end in _data(old):
            os.lseek(new, begin, os.SEEK_SET)
            while begin < end and (count := os.sendfile(new, old, begin, min(end - begin, _PIECE))):
                begin += count
        if (size := os.fstat(old).st_size) > begin:
            os.ftruncate(new, size)
        dress(old, new)


def _data(fd: int) -> Iterator[tuple[int, int]]:
    """Return the ranges of a file that have data: a sparse file has holes between them."""
    about = os.fstat(fd)
    if about.st_blocks * _BLOCK >= about.st_size:
        yield 0, about.st_size
        return
    end = 0
    with suppress(OSError):  # ENXIO: no more data
        while end < about.st_size:
            begin = os.lseek(fd, end, os.SEEK_DATA)
            end = os.lseek(fd, begin, os.SEEK_HOLE)
            yield begin, end


class _Places:
    """Paths below an open directory. The directory used last stays open, as many paths share one."""

    def __init__(self, root: int) -> None:
        self._root, self._path, self._fd = root, "", -1

    def open(self, path: str) -> int:
        """Open a directory; do not close it."""
        if self._fd < 0 or path != self._path:
            self.close()
            self._fd, self._path = open_directory(self._root, path), path
        return self._fd

    def find(self, path: str) -> int | None:
        """Open a directory; None if there is none."""
        try:
            return self.open(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def entry(self, path: str) -> Entry | None:
        directory, name = split(path)
        at = self.find(directory)
        return None if at is None else entry_at(at, name)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@contextmanager
def _locked(base: int) -> Iterator[None]:
    """Let one apply at a time write to a base, if the file system supports locks."""
    with suppress(OSError):
        if not _lock(base) and not Waiter().wait(time.monotonic() + _PATIENCE, lambda: _lock(base)):
            raise ApplyFailed(
                "another program has locked the directory (flock, see /proc/locks), perhaps to apply to it: nothing"
                " was written; apply again when that has ended"
            )
    yield  # closing the descriptor unlocks it


def _lock(fd: int) -> bool:
    """Lock a file, unless another program has locked it. Raises OSError if it cannot be locked."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _failing(state: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        name = f": {os.fsdecode(error.filename)!r}" if error.filename else ""
        hint = "free some space; " if error.errno in (ENOSPC, EDQUOT) else ""
        raise ApplyFailed(f"the changes cannot be written ({error.strerror}{name}): {hint}{state}") from error


def _read(home: str, name: str) -> dict[str, Any]:
    try:
        with open(os.path.join(home, name), encoding="ascii") as file:
            found: dict[str, Any] = json.load(file)
            return found
    except FileNotFoundError:
        return {}


def _write(home: str, name: str, content: dict[str, Any]) -> None:
    snapshot_file.write(os.path.join(home, name), json.dumps(content).encode())
