"""Control groups: what all processes of a sandbox may use together, where this process may make such groups.

Law: a group is made below the one that we are in, or next to it where only that can have limits (version 2 mostly);
whoever makes one removes it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import stat
import subprocess
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from ...errors import FORKED, LimitReached, SessionClosed
from ..io.directories import UNLISTED, fresh_directory, is_private, make_private, own_home
from ..io.streams import Stream, pipe_stream
from ..kernel import proc, readers
from ..kernel.family import GENERATIONS, LOWEST


def remove(directory: str) -> bool:
    """Remove a group; False when there are processes in it, which may take a moment to leave after their end."""
    with suppress(OSError):
        os.rmdir(directory)
    return not os.path.isdir(directory)


_SEATS = 1 << 20
_TAGS = _SEATS * GENERATIONS  # of one host
_ROUNDS = 20
_MAGIC = LOWEST // _TAGS  # of the numbers of hosts


@dataclass(frozen=True, slots=True)
class Seat:
    """What one shell may use: its first tag (a number) and its directory, whose files cannot be listed."""

    tag: int
    directory: str


class Guard:
    """The seats of one host process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a collection can strike inside and end a session
        self._owner = os.getpid()
        self._number = _MAGIC | secrets.randbits(32)
        self._directory: str | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._bash = ""  # that runs it
        self._taken: set[int] = set()  # the seats, by their tags
        self._next = 0
        self.children: set[int] = set()  # the shells' processes that this one has not reaped yet
        self._socket: tuple[str, int] | None = None  # its path, and its file, which tells it from the next daemon's

    def take(self) -> int:
        """The tag of a new seat: ``furnish`` makes the seat of it, ``leave`` and ``give_back`` end that."""
        self._refuse_forked()
        with self._lock:
            tag = self._free_tag()
            self._taken.add(tag)
            return tag

    def _free_tag(self) -> int:
        """The next one; after the last begins the first again, without those of seats that are still taken."""
        while True:
            self._next = (self._next + 1) % _SEATS
            if (tag := (self._number * _SEATS + self._next) * GENERATIONS) not in self._taken:
                return tag

    def furnish(self, tag: int, bash: str) -> Seat:
        """Make the directory of a seat. The first one starts the watcher, and each looks whether it is still there.

        To be called when bash has been started with that tag, and takes its time to begin; but before anything is typed
        to it: where the host is killed in between, it ends by itself, as nobody has its input any more.
        """
        with self._lock:
            if self._directory is None:
                try:
                    self._open(bash)
                except BaseException:
                    self._close()
                    raise
            if self._watcher is None or self._watcher.poll() is not None:  # a command has killed it
                self._replace_watcher()
            assert self._directory is not None
            directory = os.path.join(self._directory, str(tag // GENERATIONS % _SEATS))
            make_private(directory, UNLISTED, made=3)  # and those above it: a command may have removed or shut them
            return Seat(tag, directory)

    def watch_over(self, bash: str, socket: str, file: int) -> Seat:
        """A seat for a daemon itself, before any other: its socket, too, is removed when it was killed.

        ``file``: a descriptor of the socket's file. The watcher holds it, or the file's number would be given to the
        next one at once, on some file systems.
        """
        self._socket = socket, file
        tag = self.take()
        try:
            return self.furnish(tag, bash)
        except BaseException:
            self.leave(tag)
            raise

    @property
    def socket(self) -> str | None:
        """A daemon's own."""
        return self._socket[0] if self._socket else None

    def give_back(self, seat: Seat) -> None:
        """Remove the seat's directory; with the last seat all else of this process. Done again, it does the rest."""
        above = os.path.dirname(seat.directory)
        if seat.tag in self._taken and not os.access(above, os.X_OK):
            _unshut(os.path.dirname(above), above)
        _remove(seat.directory)
        self.leave(seat.tag)

    def leave(self, tag: int) -> None:
        """The tag is free; with the last one all else of this process goes."""
        with self._lock:
            self._taken.discard(tag)
            if not self._taken:
                self._close()

    def _open(self, bash: str) -> None:
        """Make the directory of this host."""
        home = own_home()
        if proc.available():
            sweep(home)
        else:
            warnings.warn(
                "no /proc with task/PID/children here: commands run, but what they leave behind is not found,"
                " nor a command that waits for the terminal; mount /proc to have both",
                RuntimeWarning,
                stacklevel=2,
            )
        pid = os.getpid()
        start = str(proc.start_time(pid))
        name = f"{self._number:x}-{proc.namespace()}-{pid}-{start}"
        directory = os.path.join(home, name)
        make_private(directory, made=2)
        self._directory, self._bash = directory, bash

    def _refuse_forked(self) -> None:
        """A signal handler of the host has forked where a seat was taken, and the child goes on: a watcher of its own
        would end the parent's shells with it.
        """
        if self._owner != os.getpid():
            raise SessionClosed(FORKED)

    def _watch(self) -> subprocess.Popen[bytes]:
        self._refuse_forked()
        script = str(Path(__file__).with_name("watcher.bash"))
        pid = os.getpid()
        tags = (self._number * _TAGS, (self._number + 1) * _TAGS - 1)
        told = (pid, proc.start_time(pid), *tags, self._directory, *(self._socket or ()))
        return subprocess.Popen(
            [self._bash, "--noprofile", "--norc", script, *map(str, told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.defpath},
            pass_fds=(self._socket[1],) if self._socket else (),
            start_new_session=True,  # Ctrl-C at the host's terminal is not for it
        )

    def _close(self) -> None:
        if self._owner != os.getpid():  # in a forked child: see _refuse_forked
            return
        if self._watcher is not None:
            _dismiss(self._watcher)
            self._watcher = None
        if self._directory is not None:
            _remove(self._directory)
            with suppress(OSError):  # another host of this user is in it
                os.rmdir(os.path.dirname(self._directory))
            self._directory = None

    def watch_anew(self, file: int) -> None:
        """The daemon's socket was made again: it is another file."""
        with self._lock:
            assert self._socket is not None
            self._socket = self._socket[0], file
            self._replace_watcher()

    def _replace_watcher(self) -> None:
        before, self._watcher = self._watcher, self._watch()
        if before is not None:
            _dismiss(before)

    def forget(self) -> None:
        """In a forked child: let go of the parent's watcher without touching it."""
        if self._watcher is not None and self._watcher.stdin is not None:
            self._watcher.stdin.close()  # else the watcher would not see the parent's end
            self._watcher.returncode = 0  # not our child: nothing to wait for


def _dismiss(watcher: subprocess.Popen[bytes]) -> None:
    """Not by closing its pipe, or it would clean up beside us; nor with Popen's verbs: Ctrl-C in them leaves a lock."""
    if watcher.returncode is None:
        # Reaped by somebody else; or we were another user when we started it: then it sees our end.
        with suppress(ChildProcessError, PermissionError):
            if not os.waitpid(watcher.pid, os.WNOHANG)[0]:
                os.kill(watcher.pid, signal.SIGKILL)
                os.waitpid(watcher.pid, 0)
        watcher.returncode = 0
    if watcher.stdin is not None:
        watcher.stdin.close()


def sweep(home: str) -> None:
    """Remove what hosts left that were killed together with their watchers. Others may be doing the same just now."""
    with suppress(OSError):  # another host has just left and removed it
        for name in os.listdir(home):
            with suppress(OSError, ValueError):
                _sweep_behind(home, name)


def _sweep_behind(home: str, name: str) -> None:
    number, namespace, pid, start = name.split("-")
    if namespace != proc.namespace() or not proc.is_gone(int(pid), int(start)):
        return
    first = int(number, 16) * _TAGS
    directory = os.path.join(home, name)
    for _ in range(_ROUNDS):  # what was forked during a look is found by the next
        victims = {*proc.tagged(first, first + _TAGS - 1), *readers.writers(directory)}
        for pid_left in victims:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid_left, signal.SIGKILL)
        if not victims:
            break
    _unshut_all(directory)
    if all(remove(proc.link(link)) for link in _groups(directory)):
        _remove(directory)


def _groups(directory: str) -> list[str]:
    """The links to control groups that a host left."""
    with os.scandir(directory) as seats:
        inside = [seat.path for seat in seats if seat.is_dir(follow_symlinks=False)]
    return [os.path.join(seat, name) for seat in inside for name in os.listdir(seat) if name.startswith("group-")]


def _unshut(*directories: str) -> None:
    """Take directories of ours back that a command has shut (chmod 000): an ordinary user is shut out, too."""
    for directory in directories:
        with suppress(OSError):
            found = os.lstat(directory)
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():  # not what stands in its place by now
                os.chmod(directory, 0o700)


def _unshut_all(directory: str) -> None:
    """A directory and those in it."""
    _unshut(directory)
    if os.path.islink(directory):
        return
    with suppress(OSError), os.scandir(directory) as inside:
        _unshut(*(one.path for one in inside if one.is_dir(follow_symlinks=False)))


def _remove(directory: str) -> None:
    _unshut_all(directory)
    shutil.rmtree(directory, ignore_errors=True)


_guard: Guard | None = None
_lock = threading.RLock()  # reentrant: on Python 3.14 Ctrl-C can leave it taken by who was struck


def the_guard() -> Guard:
    """The guard of this process (a forked child gets its own)."""
    global _guard
    if (guard := _guard) is not None:
        return guard
    with _lock:
        if _guard is None:
            _guard = Guard()
        return _guard


def _after_fork() -> None:
    global _guard, _lock
    _lock = threading.RLock()
    if _guard is not None:
        _guard.forget()
        _guard = None


os.register_at_fork(after_in_child=_after_fork)


T = TypeVar("T")
_PRIVATELY: Final = partial(os.open, mode=0o600)
# A seat's directory is in that of the host, and this in the home of all hosts of this user.
_DEPTH: Final = 3


class Files:
    """Files (0600) and named pipes in ``directory``, which is the seat's until it can no longer be used."""

    def __init__(self, directory: str) -> None:
        self.directory = self._first = directory
        self._secret = os.urandom(8).hex()  # begins each name
        self._pipes = 0  # how many were made
        self._written: set[str] = set()  # files that may be there

    def path(self, name: str) -> bytes:
        return os.fsencode(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, f"{self._secret}-{name}")

    def write(self, name: str, data: bytes) -> bytes:
        """A file with that content; its path. Raises LimitReached."""

        def make(path: str) -> None:
            self._written.add(name)
            with open(path, "xb", opener=_PRIVATELY) as file:
                os.fchmod(file.fileno(), 0o600)  # as for pipes: see streams.pipe_stream
                file.write(data)

        try:
            self._put(name, make)
        except OSError as error:
            self.remove(name)
            raise LimitReached(
                f"the command's {name} ({len(data)} bytes) could not be put into {self.directory}: {error};"
                " nothing was run; make room there, or set XDG_RUNTIME_DIR to another place"
            ) from error
        return self.path(name)

    def pipe(self) -> Stream:
        """A new named pipe. Raises OSError."""
        self._pipes += 1
        return self._put(f"pipe-{self._pipes}", pipe_stream)

    def _put(self, name: str, make: Callable[[str], T]) -> T:
        try:
            if not is_private(self.directory):
                make_private(self.directory, UNLISTED, _DEPTH if self.directory == self._first else 1)
            self.remove(name)
            return make(self._path(name))
        except (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError):
            self.close()
            self.directory = fresh_directory(UNLISTED)
            return make(self._path(name))

    def clear(self) -> None:
        """Remove all files: the command for which they were written has ended, and they may be in memory (tmpfs)."""
        while self._written:
            self.remove(next(iter(self._written)))

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self._path(name))
        self._written.discard(name)

    def close(self) -> None:
        """Remove the directory, unless it is the seat's, which the guard removes."""
        if self.directory != self._first and is_private(self.directory):
            with suppress(OSError):
                os.chmod(self.directory, 0o700)
            shutil.rmtree(self.directory, ignore_errors=True)
