"""``Branch``: the files of one session below one directory, as layers over it.

On disk, in the directory of the branch::

    branch.json   its base, the names of its layers, the lowest first, and its checkpoints
    states/N      the state of the shell at a checkpoint

``layers`` says where the layers are. Only the last one is writable, and only one mount writes to it. All below it are
frozen. A checkpoint is a list of frozen layers. A fork is a branch that begins with frozen layers of another one. Law:
branch.json is written last, and names only what exists.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count, pairwise
from typing import Final, NamedTuple, Self

from ..engine.io.directories import homes, make_private, state_directory
from ..engine.kernel import proc
from ..engine.kernel.signals import signals_deferred
from ..engine.kernel.vfork import SystemCall
from ..errors import ApplyFailed, BranchUnavailable, Conflict, InvalidRequest
from ..sandbox import is_within
from . import mounts
from .apply import APPLIED, JOURNAL, apply, give_up, moment
from .changes import Change, changes
from .checkpoint import FORKED, Checkpoint
from .layers import (
    FORKS,
    LAYERS,
    RECORD,
    Layers,
    is_file,
    lock_of,
    names_in,
    record_of,
    remove,
    remove_fork,
    write_record,
)
from .merge import merge
from .patch import patch
from .trees import OTHER_BASE, Identity, closing_fd, open_directory

_STATES: Final = "states"
_HOME: Final = "branches"
_FORMAT: Final = 1
# With more layers, neighbours that no checkpoint separates are merged.
_MANY: Final = 50
# The name of an automatic checkpoint: this and a number.
_AUTOMATIC: Final = "auto-"
_IS_AUTOMATIC: Final = re.compile(_AUTOMATIC + "[0-9]{1,9}").fullmatch


class _Frozen(NamedTuple):
    """A checkpoint with its frozen layers and the name of the file with the state of the shell."""

    checkpoint: Checkpoint
    layers: list[str]
    state: str
    is_automatic: bool = False


class _Mount(NamedTuple):
    """A mount: it shows the directory ``root`` of its file system at ``point``."""

    device: str
    root: str
    point: str


class Branch:
    """A branch of ``base``. ``directory``: where its layers are; None: in a new one.

    ``open`` makes the branch, and then ``spaces`` has its namespaces.
    """

    def __init__(self, base: str, directory: str | None) -> None:
        self.base = os.path.realpath(base)
        self.directory = os.path.realpath(directory or os.path.join(_home(), os.urandom(8).hex()))
        self.layers: list[str] = []
        self._disk = Layers(self.directory)
        self._checkpoints: dict[str, _Frozen] = {}
        self._parent = ""  # the checkpoint that the files are based on
        self._is_fresh = False  # it has no record yet
        self._is_temporary = False  # ``close`` removes it, even if it has changes
        self._link = ""  # the path at which a later session finds a fork
        self._version = object()  # replaced when another last layer is mounted
        self._forked_from: object = None  # the version of the parent when this was forked off
        self._identity: Identity | None = None  # of the base
        self._opened = 0  # what ``apply.moment`` returned when the branch was begun, or last applied as a whole
        self.spaces: mounts.Spaces | None = None
        self._lock = -1

    # -- open and close

    def open(self) -> mounts.Spaces:
        """Make the branch, unless it is open. Raises BranchUnavailable."""
        if self.spaces is not None:
            return self.spaces
        try:
            self._check(all_mounts := _mounts())
            self._make_directory()
            with self._disk.alone():
                self._read()
                self._recognize()
                self._add_layer()
                self._opened = self._opened or moment(self.base)
                covered = self._covered(all_mounts)
                self.spaces = mounts.make(self.base, self._disk.directory, self.layers, covered)
                self._write()
            self._is_fresh = False
            return self.spaces
        except BaseException as error:
            if self._is_temporary:  # the next call tries again, and needs its record
                self._leave()
            else:
                self.close()
            if isinstance(error, OSError):
                raise BranchUnavailable(
                    f"the branch of {self.base} cannot be made in {self.directory}: {error}; name another directory"
                    " with branch_dir="
                ) from error
            raise

    def close(self) -> None:
        """Close the namespaces. Remove the layers if nothing was written; else a later ``open`` continues."""
        was_open = self._leave()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            with closing_fd(lock), suppress(FileNotFoundError):  # the directory was removed by somebody else
                if self._is_fresh or self._is_temporary or (was_open and not self.has_changes()):
                    self._remove_all()

    def _leave(self) -> bool:
        """Close the namespaces. Returns whether there were any."""
        spaces, self.spaces = self.spaces, None
        if spaces is not None:
            spaces.close()
        return spaces is not None

    def has_changes(self) -> bool:
        """Whether the branch has checkpoints, or anything was written on it."""
        return bool(self._checkpoints) or any(map(self._is_written, range(len(self.layers))))

    def entering(self, is_sandboxed: bool) -> list[SystemCall]:
        """The calls with which a child enters the branch, which must be open."""
        assert self.spaces is not None
        return mounts.entering(self.spaces, is_sandboxed)

    def _remove_all(self) -> None:
        """Remove the branch, but no layer that another one uses. A directory that a caller named stays."""
        top = self._disk.top
        if self._disk.is_held:  # by what garbage collection interrupts to close this: ``others`` removes the fork later
            return
        with self._disk.alone():
            if self._disk.is_of_fork:
                remove_fork(self.directory)
                with suppress(FileNotFoundError):
                    os.unlink(self._link)
            else:
                remove(self._path(_STATES))
                self._disk.remove_files()
            if self._disk.others(self.directory):
                self._disk.sweep(self.directory, ())
                return
            for name in (FORKS, LAYERS):
                remove(os.path.join(top, name))
            self._disk.remove_files()
            if self._is_at_home:
                remove(top)

    def _check(self, all_mounts: list[_Mount]) -> None:
        """Raise BranchUnavailable if the base cannot have a branch, or cannot have its layers there."""
        base = self.base
        if not os.path.isdir(base):
            raise BranchUnavailable(f"branch: {base!r} is not a directory: make it, or name another")
        if (owner := os.stat(base).st_uid) != os.geteuid() == 0:
            raise BranchUnavailable(
                f"branch: {base!r} belongs to user {owner}, whose files root cannot change on a branch: run this as"
                " that user"
            )
        if is_within(self.directory, base):
            raise BranchUnavailable(
                f"the layers of a branch of {base!r} cannot be in it, at {self.directory!r}: name another directory"
                " with branch_dir="
            )
        for home in homes():
            if is_within(os.path.realpath(home), base) and os.path.isdir(home):
                raise BranchUnavailable(
                    f"branch: {base!r} contains the files of sessions, in {home!r}: name a directory that does not"
                )
        for mount in all_mounts:
            if mount.point != base and is_within(mount.point, base):
                raise BranchUnavailable(
                    f"branch: another file system is mounted at {mount.point!r}, in {base!r}, and a branch has one:"
                    " unmount it, or name a directory without it"
                )

    def _covered(self, all_mounts: list[_Mount]) -> list[str]:
        """The directories to hide on the branch: those of the layers, and other paths to the base."""
        top = self._disk.top
        found = {os.path.dirname(top) if self._is_at_home else top}
        for path in (self.base, top):
            mount = max((one for one in all_mounts if is_within(path, one.point)), key=lambda one: len(one.point))
            inner = _moved(path, mount.point, mount.root)
            for other in all_mounts:
                if other.device == mount.device and other is not mount:
                    if is_within(inner, other.root):
                        found.add(_moved(inner, other.root, other.point))
                    elif is_within(other.root, inner):
                        found.add(other.point)
        return sorted(path for path in found if os.path.isdir(path) and not is_within(path, self.base))

    @property
    def _is_at_home(self) -> bool:
        """Whether we, and not a caller, chose the directory of its layers."""
        return os.path.dirname(self._disk.top) == os.path.realpath(_home())

    # -- on disk

    def _path(self, *names: str) -> str:
        return os.path.join(self.directory, *names)

    def _make_directory(self) -> None:
        os.makedirs(os.path.dirname(self.directory), 0o700, exist_ok=True)
        self._refuse_foreign()
        make_private(self.directory)
        if self._lock < 0:
            if (lock := lock_of(self.directory)) is None:
                raise BranchUnavailable(
                    f"the branch in {self.directory} is open in another session: close that, or name another"
                    " branch_dir="
                )
            self._lock = lock
        os.makedirs(self._path(_STATES), 0o700, exist_ok=True)
        self._disk.make()

    def _refuse_foreign(self) -> None:
        """Raise BranchUnavailable if the directory is used for something else. Call this before any change in it."""
        names = os.listdir(self.directory) if os.path.isdir(self.directory) else []
        if RECORD not in names and not all(name in (LAYERS, FORKS, _STATES) or is_file(name) for name in names):
            raise BranchUnavailable(
                f"branch_dir: {self.directory} is not empty, and no directory of a branch: name another"
            )

    def _read(self) -> None:
        """Read the record. Raises BranchUnavailable if it is of another base or format."""
        self.layers, self._checkpoints, self._parent, self._opened = [], {}, "", 0
        if (record := record_of(self.directory)) is None:
            self._is_fresh = True
            return
        if record.get("format") != _FORMAT or record["base"] != self.base:
            raise BranchUnavailable(
                f"branch_dir: {self.directory} has a branch of {record.get('base')!r}, in format"
                f" {record.get('format')}: name another directory"
            )
        frozen = (_Frozen(Checkpoint(*one), *parts) for one, *parts in record["checkpoints"])
        self._checkpoints, self._parent = {one.checkpoint.name: one for one in frozen}, record["parent"]
        self.layers, self._opened = record["layers"], record["opened"]
        self._identity = Identity(*found) if (found := record.get("identity")) else None
        self._is_temporary, self._link = record["temporary"], record["link"]
        if self.layers and not self.is_written:
            self.layers.pop()
        self._sweep()

    def _recognize(self) -> None:
        """Raise BranchUnavailable if there are changes, and the base is another directory than they were made of."""
        with closing_fd(os.open(self.base, os.O_RDONLY | os.O_DIRECTORY)) as fd:
            now = Identity.of(fd)
        if self._identity and self._identity.is_other(now):
            if self.has_changes():
                raise BranchUnavailable(f"{OTHER_BASE.format(self.base)} (its layers are in {self.directory})")
            self._opened = 0
        self._identity = now

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change the layers and checkpoints in the block: all of it takes effect, or nothing if anything fails.

        The new record is written under a temporary name, then a new last layer is mounted, then the record is renamed.
        A kill before that leaves the old branch, and nothing has been written to the new layer. Raises
        BranchUnavailable.
        """
        with signals_deferred(), self._disk.alone():
            before = self.layers, self._checkpoints, self._parent, self._opened
            try:
                self.layers = [*self.layers]  # the block changes copies
                self._checkpoints = {key: one._replace(layers=[*one.layers]) for key, one in self._checkpoints.items()}
                self.refuse_applying()
                yield
                self._write(lambda: self._mount(before[0]))
            except BaseException as error:
                self.layers, self._checkpoints, self._parent, self._opened = before
                if isinstance(error, OSError):
                    raise BranchUnavailable(
                        f"the branch in {self.directory} cannot be changed ({error.strerror}), and is as it was before:"
                        " if there is no space, drop checkpoints, remove files, apply, or discard"
                    ) from error
                raise
            self._sweep()

    def _mount(self, before: list[str]) -> None:
        """Mount the layers if the last one has changed."""
        if self.layers[-1] != before[-1]:
            assert self.spaces is not None
            mounts.stack(self.spaces, self.base, self.layers)
            self._version = object()

    def _write(self, before: Callable[[], object] = lambda: None) -> None:
        record = {
            "format": _FORMAT,
            "base": self.base,
            "layers": self.layers,
            "parent": self._parent,
            "opened": self._opened,
            "identity": self._identity,
            "checkpoints": list(self._checkpoints.values()),
            "temporary": self._is_temporary,
            "link": self._link,
        }
        write_record(self.directory, record, before)

    def _sweep(self) -> None:
        """Remove unused layers and states, unless an apply was interrupted, which may need any of them."""
        if self._is_applying:
            return
        named = {name for one in self._checkpoints.values() for name in one.layers}.union(self.layers)
        self._disk.sweep(self.directory, named)
        for name in set(os.listdir(self._path(_STATES))) - {one.state for one in self._checkpoints.values()}:
            os.unlink(self._path(_STATES, name))

    @property
    def _is_applying(self) -> bool:
        return os.path.exists(self._path(JOURNAL))

    def refuse_applying(self) -> None:
        """Raise ApplyFailed if an apply was interrupted."""
        if self._is_applying:
            raise ApplyFailed(
                f"{self.base} has a part of the changes, as an apply was interrupted: apply again first, or"
                " discard, which keeps that part"
            )

    # -- checkpoints

    def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints, the oldest first."""
        return [one.checkpoint for one in self._checkpoints.values()]

    def free_name(self, name: str) -> str:
        """The name for a new checkpoint; for "" a free one. Raises InvalidRequest if it is taken."""
        if name in self._checkpoints:
            raise InvalidRequest(f"there is a checkpoint {name!r} already: drop it first, or choose another name")
        numbers = (f"checkpoint-{number}" for number in count(1))
        return name or next(one for one in numbers if one not in self._checkpoints)

    def freeze(self, name: str, state: bytes) -> tuple[Checkpoint, bool]:
        """Make a checkpoint of the files as they are, with the ``state`` of the shell.

        Also returns whether there is a new layer, which the shell must enter. No process may write meanwhile.
        """
        last = self.layers[-1]
        with self._changing():
            is_new = self._freeze()
            made = Checkpoint(name, time.time(), _size(self._disk.upper(last)) if is_new else 0, self._parent)
            self._checkpoints[name] = _Frozen(made, self.layers[:-1], _put(self._path(_STATES), state))
            self._parent = name
        return made, is_new

    def _freeze(self) -> bool:
        """Freeze the last layer if anything is in it. Returns whether there is a new one."""
        if is_new := self.is_written:
            self._merge()
            self._add_layer()
        return is_new

    def freeze_last(self) -> bool:
        """Freeze the files as they are, without a checkpoint. Returns whether there is a new layer."""
        with self._changing():
            return self._freeze()

    @property
    def is_written(self) -> bool:
        """Whether anything was written since the last freeze."""
        return self._is_written(len(self.layers) - 1)

    def _is_written(self, number: int) -> bool:
        return self._disk.is_written(self.layers[number], self._below(number))

    def _below(self, number: int) -> str:
        """The directory just below that layer."""
        return self._disk.upper(self.layers[number - 1]) if number else self.base

    def keep_before(self, state: bytes, at: float, most: int) -> str:
        """Freeze what was written, and make an automatic checkpoint of the moment before it. Returns its name.

        ``state``: that of the shell at that moment, ``at``. The last ``most`` automatic checkpoints stay. There must
        be changes, so there is always a new layer.
        """
        with self._changing():
            self._freeze()
            return self._keep_moment(self.layers[:-2], state, at, most)

    def _keep_moment(self, layers: list[str], state: bytes, at: float, most: int) -> str:
        numbers = (int(name[len(_AUTOMATIC) :]) for name in self._checkpoints if _IS_AUTOMATIC(name))
        name = f"{_AUTOMATIC}{max(numbers, default=0) + 1}"
        before = self._checkpoints[self._parent].layers if self._parent else []
        size = sum(_size(self._disk.upper(one)) for one in layers if one not in before)
        made = Checkpoint(name, at, size, self._parent)
        self._checkpoints[name] = _Frozen(made, layers, _put(self._path(_STATES), state), is_automatic=True)
        self._parent = name
        for old in [one for one, frozen in self._checkpoints.items() if frozen.is_automatic][:-most]:
            self._forget(old)
        return name

    def last_automatic(self) -> str:
        """The last automatic checkpoint that the files are based on. Raises InvalidRequest."""
        name = self._parent
        while name and not self._checkpoints[name].is_automatic:
            name = self._checkpoints[name].checkpoint.parent
        if not name:
            raise InvalidRequest(f"there is no command left to take back: name a checkpoint ({self.known()})")
        return name

    def fork(self, state: bytes) -> Self:
        """Make a branch that begins with the frozen files. ``close`` removes it.

        Its checkpoint FORKED has the files as they are now, and the ``state`` of the shell.
        """
        with self._disk.alone():
            made = type(self)(self.base, self._disk.new_fork())
            made._begin(self, state)
        return made

    def _begin(self, parent: Branch, state: bytes) -> None:
        """Begin with the frozen layers of the parent, in an empty directory."""
        lock = lock_of(self.directory)
        assert lock is not None  # nobody else knows the directory yet
        self._lock, self._is_temporary = lock, True
        self._opened, self._forked_from, self._identity = parent._opened, parent._version, parent._identity
        self.layers = parent.layers[:-1]
        os.mkdir(self._path(_STATES), 0o700)
        with suppress(FileNotFoundError):
            shutil.copy(parent._path(APPLIED), self._path(APPLIED))
        made = Checkpoint(FORKED, time.time(), 0, "")
        self._checkpoints[FORKED] = _Frozen(made, self.layers[:], _put(self._path(_STATES), state))
        self._parent = FORKED
        self._write()

    def keep(self, link: str) -> None:
        """Let a fork outlive ``close``: a branch with the directory ``link`` is this one. Raises BranchUnavailable."""
        with self._disk.alone():
            try:
                os.makedirs(os.path.dirname(link), 0o700, exist_ok=True)
                if not os.path.exists(link):  # to a fork that is gone
                    with suppress(FileNotFoundError):
                        os.unlink(link)
                os.symlink(self.directory, link)
            except FileExistsError as error:
                raise BranchUnavailable(
                    f"{link} has an earlier branch, which was not applied: use another name for the fork"
                ) from error
            self._is_temporary, self._link = False, link
            self._write()

    def forget(self) -> None:
        """Have ``close`` remove the branch if it is a fork."""
        if self._disk.is_of_fork:
            self.begin_to_remove()

    def begin_to_remove(self) -> bool:
        """Have ``close`` remove the branch. False if there is none, or if another session has it open."""
        if (record := record_of(self.directory)) is None:
            return False
        if self._lock < 0 and (lock := lock_of(self.directory)) is not None:
            self._lock = lock
        self._is_temporary, self._link = True, record["link"]
        return self._lock >= 0

    def take_over(self, fork: Branch, state: bytes, most: int) -> str:
        """Continue with the frozen files of a fork. Raises Conflict if those here have changed since it was made.

        Before, make an automatic checkpoint; ``state``, ``most``: as for ``keep_before``. With 0 it makes none.
        Returns its name.
        """
        with self._changing():
            self._refuse_other(fork)  # what a trap has written at the end of the old bash does not count
            name = self._keep_moment(self.layers[:-1], state, time.time(), most) if most else ""
            self.layers = fork.layers[:-1]
            self._merge(fork.layers)
            self._add_layer()
        return name

    def refuse_changed(self, fork: Branch) -> None:
        """Raise Conflict if the files have changed since the fork was made."""
        self._refuse_other(fork, self.is_written)

    def _refuse_other(self, fork: Branch, is_written: bool = False) -> None:
        if fork._forked_from is not self._version or is_written:
            raise Conflict(
                "the files of the session have changed since this fork of it was made: nothing was changed; look at"
                " what both have written (branch.diff), and do it again in the session itself",
                (),
            )

    def state(self, name: str) -> bytes:
        """The state of the shell at a checkpoint, for ``roll_back``. Raises InvalidRequest and ApplyFailed."""
        self.refuse_applying()
        with open(self._path(_STATES, self._named(name).state), "rb") as file:
            return file.read()

    def time_of(self, name: str) -> float:
        """The moment of a checkpoint, as by time.time. Raises InvalidRequest."""
        return self._named(name).checkpoint.at

    def roll_back(self, name: str, drop: bool = False) -> bool:
        """Bring the files back to a checkpoint. Later changes are lost, except those in another checkpoint.

        ``drop``: forget the checkpoint then. Returns whether there is a new layer, as ``freeze`` does.
        """
        layers = self._named(name).layers
        with self._disk.freeing(), self._changing():
            if is_new := layers != self.layers[:-1] or self.is_written:
                self.layers = [*layers]
                self._add_layer()
            self._parent = name
            if drop:
                self._forget(name)
        return is_new

    def drop(self, name: str) -> None:
        """Forget a checkpoint. Raises InvalidRequest."""
        self._named(name)
        with self._disk.freeing(), self._changing():
            self._forget(name)

    def _forget(self, name: str) -> None:
        dropped = self._checkpoints.pop(name).checkpoint
        for other, one in self._checkpoints.items():
            if one.checkpoint.parent == name:
                self._checkpoints[other] = one._replace(checkpoint=one.checkpoint._replace(parent=dropped.parent))
        self._parent = dropped.parent if self._parent == name else self._parent

    # -- what it changes

    def diff(self, since: str) -> tuple[Change, ...]:
        """What has changed since a checkpoint, or ("") since the branch began. Raises InvalidRequest and OSError."""
        return changes(self.base, self._uppers(), since=self._count(since), identity=self._identity)

    def written_last(self) -> tuple[Change, ...]:
        """What has changed since the last freeze."""
        return changes(self.base, self._uppers(), since=len(self.layers) - 1)

    def patch(self, since: str) -> bytes:
        """The same as a patch for ``git apply``."""
        return patch(self.base, self._uppers(), since=self._count(since), identity=self._identity)

    def apply(self, paths: Sequence[str] | None, overwrite: bool) -> tuple[tuple[Change, ...], bool]:
        """Write the changes to the base; see ``apply.apply``. Also returns whether there is a new layer.

        After all changes are applied, the branch starts over: without layers, and without checkpoints, which are of the
        old base. If only some are applied, and make a directory, the branch is mounted anew: the mounted overlay would
        not look for that directory in the base, and what a command removed in it would leave no mark in the layer.
        """
        uppers = self._uppers()
        with self._disk.freeing():
            whose = self.base, uppers, self.directory, self._opened, self._identity
            done = apply(*whose, paths=paths, overwrite=overwrite)
        if paths is None and not changes(self.base, uppers):
            self._begin_anew(moment(self.base))
        elif any(one.has_new_directory for one in done):
            with self._disk.freeing(), self._changing():
                if not self._freeze():
                    self.layers.pop()
                    self._add_layer()
        else:
            return done, False
        return done, True

    def discard(self) -> None:
        """Throw away all changes, and the checkpoints. What an interrupted apply has written stays."""
        self._begin_anew(moment(self.base) if give_up(self.directory) else self._opened)

    def _begin_anew(self, opened: int) -> None:
        with self._disk.freeing(), self._changing():
            self.layers, self._checkpoints, self._parent, self._opened = [], {}, "", opened
            self._add_layer()

    def _uppers(self) -> list[str]:
        return list(map(self._disk.upper, self.layers))

    def _count(self, since: str) -> int:
        """How many of the layers a checkpoint has. Raises InvalidRequest."""
        layers = self._named(since).layers if since else []
        if layers != self.layers[: len(layers)]:
            raise InvalidRequest(f"the files are not based on the checkpoint {since!r}: name another")
        return len(layers)

    def known(self) -> str:
        """The names of the checkpoints, for a message."""
        return f"there are: {', '.join(self._checkpoints) or 'none':.500}"

    def _named(self, name: str) -> _Frozen:
        if (found := self._checkpoints.get(name)) is None:
            raise InvalidRequest(f"there is no checkpoint {name!r:.100} ({self.known()})")
        return found

    def _merge(self, taken: Sequence[str] = ()) -> None:
        """If there are many layers, merge neighbours that no checkpoint separates: the kernel mounts some hundreds.

        The merged layers stay for now, as the mounted overlay still needs them. Those that another branch uses are not
        merged. ``taken``: the layers of the fork that this continues with, which does not count.
        """
        if len(self.layers) <= _MANY:
            return
        stacks = [self.layers, *(one.layers for one in self._checkpoints.values())]
        others = (one for one in self._disk.others(self.directory) if one["layers"] != taken)
        shared = {name for record in others for name in names_in(record)}
        for lower, upper in pairwise(self.layers[:-1]):
            if lower not in self.layers or any((lower in one) != (upper in one) for one in stacks):
                continue
            if lower in shared:
                continue
            merged = self._disk.add()
            os.rmdir(into := self._disk.upper(merged))
            try:
                merge(self._disk.upper(lower), self._disk.upper(upper), into)
            except OSError:  # a command has made a directory unreadable: the layers stay
                return
            for stack in stacks:
                if upper in stack:
                    stack[stack.index(lower) : stack.index(upper) + 1] = [merged]

    def _add_layer(self) -> None:
        """Make an empty layer on top of the others."""
        name = self._disk.add()
        below = os.stat(self._below(len(self.layers)))
        upper = self._disk.upper(name)
        os.chmod(upper, stat.S_IMODE(below.st_mode))
        os.utime(upper, ns=(below.st_atime_ns, below.st_mtime_ns))
        self.layers.append(name)


def first_directory(base: str, here: str | None = None) -> str | None:
    """Where a session on a branch of ``base`` starts if nobody says: ``here`` if that is in it, or else in the base.

    ``here``: by default the current directory, for which None stands.
    """
    with suppress(FileNotFoundError):  # the current directory is gone
        if is_within(os.path.realpath(here or os.getcwd()), os.path.realpath(base)):
            return here
    return base


def directory_of(key: str) -> str:
    """The default directory of the branch with this key."""
    return os.path.join(_home(), sha256(os.fsencode(key)).hexdigest()[:16])


def forget_fork(link: str) -> None:
    """Remove the fork that ``Branch.keep`` has linked here, unless a session has it open."""
    if os.path.islink(link):
        fork = Branch("/", link)
        fork.forget()
        fork.close()


def base_of(directory: str) -> str:
    """The directory of which there is a branch, if it is closed, with its layers there; "" if there is none."""
    with suppress(BranchUnavailable):  # damaged
        return "" if (record := record_of(directory)) is None else str(record["base"])
    return ""


def remove_left(directory: str) -> bool:
    """Remove the branch that a closed session has left there. False if there is none, or if a session has it open."""
    if (record := record_of(directory)) is None:
        return False
    left = Branch(record["base"], directory)
    if is_ours := left.begin_to_remove():
        give_up(directory)
    left.close()
    return is_ours


def _home() -> str:
    """The default place for the branches of this user."""
    return os.path.join(state_directory(), _HOME)


def _put(directory: str, data: bytes) -> str:
    """Write the data to a new file, and return its name."""
    name = os.urandom(8).hex()
    with open(os.path.join(directory, name), "wb") as file:
        file.write(data)
    return name


def _size(directory: str) -> int:
    """The total size of the files in a tree, in bytes."""
    found, todo = 0, [""]
    with closing_fd(os.open(directory, os.O_RDONLY | os.O_DIRECTORY)) as root:
        while todo:
            path = todo.pop()
            # a command has made it unreadable, or still changes it
            with suppress(OSError), closing_fd(open_directory(root, path)) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(f"{path}/{entry.name}" if path else entry.name)
                    else:
                        found += entry.stat(follow_symlinks=False).st_size
    return found


def _moved(path: str, before: str, after: str) -> str:
    """The path with the beginning ``after`` in place of ``before``."""
    return os.path.normpath(os.path.join(after, os.path.relpath(path, before)))


def _mounts() -> list[_Mount]:
    fields = (line.split(" ", 5) for line in proc.lines("/proc/self/mountinfo"))
    return [_Mount(device, _plain(root), _plain(point)) for _, _, device, root, point, _ in fields]


def _plain(path: str) -> str:
    """The path that mountinfo writes with octal escapes for spaces and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path)
