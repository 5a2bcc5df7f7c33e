"""What sessions leave on the machine while they run, and who removes it: slots, and the watcher.

Each session has a ``Slot``: a tag for its processes (see ``family``) and a private directory. ``Guard`` owns the slots
of this process. With the first slot it starts the watcher, a small bash (watcher.bash) that outlives this process. If
this process is killed, the watcher kills the tagged processes and removes the directory. ``sweep`` does the same for
hosts that were killed together with their watcher.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ...errors import FORKED, SessionClosed
from ..io.directories import UNLISTED, home_or_fresh, make_private
from ..kernel import activity, proc
from ..kernel.family import GENERATIONS, LOWEST
from . import cgroups

# A host has a random number, its slots are numbered from 0, and a slot has a range of tags, one for each generation:
#     tag = (number * _SLOTS + slot) * GENERATIONS + generation
_SLOTS = 1 << 20
_TAGS = _SLOTS * GENERATIONS  # per host
_MAGIC = LOWEST // _TAGS  # the high bits of every host's number, so that no tag is a limit that somebody has set
_ROUNDS = 20


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

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the watcher and the directory of this host meanwhile, also when the last slot is closed."""
        tag = self.reserve()
        try:
            yield
        finally:
            self.free(tag)

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
        home = home_or_fresh()
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
        """Raise SessionClosed in a forked child: its own watcher would end the parent's shells when it ends.

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
    if all(cgroups.remove(proc.link(link)) for link in _groups(directory)):
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
