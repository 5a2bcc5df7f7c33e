"""What sessions leave on the machine while they run, and its removal: slots, the watcher, and files.

Each session has a ``Slot``: a tag for its processes (see ``family``) and a private directory. ``Guard`` owns the slots
of this process. With the first slot it starts the watcher, a small bash (watcher.bash) that outlives this process. If
this process is killed, the watcher kills the tagged processes and removes the directory. ``sweep`` does the same for
hosts that were killed together with their watcher. ``Files`` manages the files and pipes in a slot's directory.
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
from ..kernel import activity, proc
from ..kernel.family import GENERATIONS, LOWEST


def remove(directory: str) -> bool:
    """Remove a control group; False if it has processes. A process leaves its group a moment after its end."""
    with suppress(OSError):
        os.rmdir(directory)
    return not os.path.isdir(directory)


_SLOTS = 1 << 20  # per host
_TAGS = _SLOTS * GENERATIONS  # per host
_ROUNDS = 20
_MAGIC = LOWEST // _TAGS  # the high bits of every host's number


@dataclass(frozen=True, slots=True)
class Slot:
    """What one shell uses: its first tag (a number), and its directory, which cannot be listed."""

    tag: int
    directory: str


class Guard:
    """The slots of one host process, and the watcher that cleans up after it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a garbage collection inside may end a session
        self._owner = os.getpid()
        self._number = _MAGIC | secrets.randbits(32)
        self._directory: str | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._bash = ""  # the program that runs the watcher
        self._reserved: set[int] = set()  # the tags of the slots in use
        self._next = 0
        self.children: set[int] = set()  # the shells' processes that this process has not reaped yet
        self._socket: tuple[str, int] | None = None  # a daemon's: the path, and the file, to tell it from a later one

    def reserve(self) -> int:
        """Reserve the tag of a new slot. ``open_slot`` makes the slot; ``free`` or ``close_slot`` ends it."""
        self._refuse_forked()
        with self._lock:
            tag = self._free_tag()
            self._reserved.add(tag)
            return tag

    def _free_tag(self) -> int:
        """The next tag that is not reserved; after the last one the first follows."""
        while True:
            self._next = (self._next + 1) % _SLOTS
            if (tag := (self._number * _SLOTS + self._next) * GENERATIONS) not in self._reserved:
                return tag

    def open_slot(self, tag: int, bash: str) -> Slot:
        """Make the directory of a slot. The first call starts the watcher; every call checks that it still runs.

        Call this after bash has been started with the tag, as bash takes its time to begin, but before it gets any
        input. If the host is killed in between, bash ends by itself, at the end of its input.
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
            directory = os.path.join(self._directory, str(tag // GENERATIONS % _SLOTS))
            make_private(directory, UNLISTED, made=3)  # and its parents: a command may have removed or changed them
            return Slot(tag, directory)

    def open_another_slot(self) -> Slot:
        """Make a slot for files that outlive one shell, while a shell of this host has a slot."""
        tag = self.reserve()
        try:
            return self.open_slot(tag, self._bash)
        except BaseException:
            self.free(tag)
            raise

    def open_daemon_slot(self, bash: str, socket: str, file: int) -> Slot:
        """The slot of a daemon itself, its first one. If the daemon is killed, the watcher also removes its socket.

        ``file``: a descriptor of the socket's file. The watcher keeps it open: some file systems would give the inode
        number to another file at once.
        """
        self._socket = socket, file
        tag = self.reserve()
        try:
            return self.open_slot(tag, bash)
        except BaseException:
            self.free(tag)
            raise

    @property
    def socket(self) -> str | None:
        """The socket of the daemon that this process is; None in any other host."""
        return self._socket[0] if self._socket else None

    def close_slot(self, slot: Slot) -> None:
        """Remove the slot's directory and ``free`` its tag. After an interrupted call, a second one does the rest."""
        above = os.path.dirname(slot.directory)
        if slot.tag in self._reserved and not os.access(above, os.X_OK):
            _restore_modes(os.path.dirname(above), above)
        _remove(slot.directory)
        self.free(slot.tag)

    def free(self, tag: int) -> None:
        """Free a tag. With the last one, end the watcher and remove the directory of this host."""
        with self._lock:
            self._reserved.discard(tag)
            if not self._reserved:
                self._close()

    def _open(self, bash: str) -> None:
        """Make the directory of this host, and clean up after others."""
        home = own_home()
        if proc.available():
            sweep(home)
        else:
            warnings.warn(
                "there is no /proc with task/PID/children here: commands run, but background processes are not found,"
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
        """Raise SessionClosed in a forked child: a watcher of its own would end the parent's shells when it ends.

        A child can get here if a signal handler of the host forks while a session starts.
        """
        if self._owner != os.getpid():
            raise SessionClosed(FORKED)

    def _watch(self) -> subprocess.Popen[bytes]:
        """Start a watcher."""
        self._refuse_forked()
        script = str(Path(__file__).with_name("watcher.bash"))
        pid = os.getpid()
        tags = (self._number * _TAGS, (self._number + 1) * _TAGS - 1)
        arguments = (pid, proc.start_time(pid), *tags, self._directory, *(self._socket or ()))
        return subprocess.Popen(
            [self._bash, "--noprofile", "--norc", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.defpath},
            pass_fds=(self._socket[1],) if self._socket else (),
            start_new_session=True,  # Ctrl-C at the host's terminal must not reach it
        )

    def _close(self) -> None:
        """End the watcher, and remove the directory of this host."""
        if self._owner != os.getpid():  # in a forked child: see _refuse_forked
            return
        if self._watcher is not None:
            _dismiss(self._watcher)
            self._watcher = None
        if self._directory is not None:
            _remove(self._directory)
            with suppress(OSError):  # another host of this user has its directory there
                os.rmdir(os.path.dirname(self._directory))
            self._directory = None

    def replace_socket(self, file: int) -> None:
        """The daemon has made its socket again, as another file: tell a new watcher."""
        with self._lock:
            assert self._socket is not None
            self._socket = self._socket[0], file
            self._replace_watcher()

    def _replace_watcher(self) -> None:
        before, self._watcher = self._watcher, self._watch()
        if before is not None:
            _dismiss(before)

    def forget(self) -> None:
        """In a forked child: close the pipe to the parent's watcher, and leave the watcher alone."""
        if self._watcher is not None and self._watcher.stdin is not None:
            self._watcher.stdin.close()  # else the watcher would not notice the parent's end
            self._watcher.returncode = 0  # not our child: nothing to wait for


def _dismiss(watcher: subprocess.Popen[bytes]) -> None:
    """Kill the watcher.

    Closing its pipe would make it clean up while we do. Popen's methods are not used, as Ctrl-C in them can leave a
    lock held.
    """
    if watcher.returncode is None:
        # Somebody else may have reaped it. Or this process has changed its user since: then the watcher ends with it.
        with suppress(ChildProcessError, PermissionError):
            if not os.waitpid(watcher.pid, os.WNOHANG)[0]:
                os.kill(watcher.pid, signal.SIGKILL)
                os.waitpid(watcher.pid, 0)
        watcher.returncode = 0
    if watcher.stdin is not None:
        watcher.stdin.close()


def sweep(home: str) -> None:
    """Clean up after hosts that were killed together with their watchers. Other hosts may be doing the same."""
    with suppress(OSError):  # another host has ended and removed it
        for name in os.listdir(home):
            with suppress(OSError, ValueError):
                _sweep_host(home, name)


def _sweep_host(home: str, name: str) -> None:
    """Clean up after one host, if it has ended: its processes, control groups and directory."""
    number, namespace, pid, start = name.split("-")
    if namespace != proc.namespace() or not proc.is_gone(int(pid), int(start)):
        return
    first = int(number, 16) * _TAGS
    directory = os.path.join(home, name)
    for _ in range(_ROUNDS):  # a process that is forked during one scan is found by the next
        victims = {*proc.tagged(first, first + _TAGS - 1), *activity.writers(directory)}
        for pid_left in victims:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid_left, signal.SIGKILL)
        if not victims:
            break
    _restore_all_modes(directory)
    if all(remove(proc.link(link)) for link in _groups(directory)):
        _remove(directory)


def _groups(directory: str) -> list[str]:
    """The links to control groups in the slots of a host."""
    with os.scandir(directory) as slots:
        inside = [slot.path for slot in slots if slot.is_dir(follow_symlinks=False)]
    return [os.path.join(slot, name) for slot in inside for name in os.listdir(slot) if name.startswith("group-")]


def _restore_modes(*directories: str) -> None:
    """Make our directories accessible again, after a command has changed their modes (chmod 000)."""
    for directory in directories:
        with suppress(OSError):
            found = os.lstat(directory)
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():  # something else may be there by now
                os.chmod(directory, 0o700)


def _restore_all_modes(directory: str) -> None:
    """``_restore_modes`` of a directory and of those in it."""
    _restore_modes(directory)
    if os.path.islink(directory):
        return
    with suppress(OSError), os.scandir(directory) as inside:
        _restore_modes(*(one.path for one in inside if one.is_dir(follow_symlinks=False)))


def _remove(directory: str) -> None:
    _restore_all_modes(directory)
    shutil.rmtree(directory, ignore_errors=True)


_guard: Guard | None = None
_lock = threading.RLock()  # reentrant: on Python 3.14 a thread that gets Ctrl-C may keep it locked


def the_guard() -> Guard:
    """The guard of this process. A forked child gets its own."""
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
_OPEN_PRIVATE: Final = partial(os.open, mode=0o600)
# A slot's directory is in that of the host, which is in the directory of all hosts of this user.
_DEPTH: Final = 3


class Files:
    """Makes files (mode 0600) and named pipes for one session, in the directory of its slot.

    If that directory becomes unusable, ``directory`` changes to a new one.
    """

    def __init__(self, directory: str) -> None:
        self.directory = self._first = directory
        self._secret = os.urandom(8).hex()  # the start of each name, so that nobody can guess it
        self._pipes = 0  # made so far
        self._written: set[str] = set()  # the names of files that may exist

    def path(self, name: str) -> bytes:
        """The path of the file with that name."""
        return os.fsencode(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, f"{self._secret}-{name}")

    def write(self, name: str, data: bytes) -> bytes:
        """Write a file, and return its path. Raises LimitReached."""

        def make(path: str) -> None:
            self._written.add(name)
            with open(path, "xb", opener=_OPEN_PRIVATE) as file:
                os.fchmod(file.fileno(), 0o600)  # as for pipes: see streams.pipe_stream
                file.write(data)

        try:
            self._put(name, make)
        except OSError as error:
            self.remove(name)
            raise LimitReached(
                f"the command's {name} ({len(data)} bytes) could not be written to {self.directory}: {error};"
                " nothing was run; make room there, or set XDG_RUNTIME_DIR to another directory"
            ) from error
        return self.path(name)

    def pipe(self) -> Stream:
        """A new named pipe. Raises OSError."""
        self._pipes += 1
        return self._put(f"pipe-{self._pipes}", pipe_stream)

    def _put(self, name: str, make: Callable[[str], T]) -> T:
        """Make something at the path of that name, in a new directory if the present one cannot be used."""
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
        """Remove all files after the end of their command. They may use memory (tmpfs)."""
        while self._written:
            self.remove(next(iter(self._written)))

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self._path(name))
        self._written.discard(name)

    def close(self) -> None:
        """Remove the directory, unless it is the slot's, which the guard removes."""
        if self.directory != self._first and is_private(self.directory):
            with suppress(OSError):
                os.chmod(self.directory, 0o700)
            shutil.rmtree(self.directory, ignore_errors=True)
