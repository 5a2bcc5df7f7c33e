"""Where the daemon's socket is, and how to connect to it: the same for client and daemon.

Law: whoever comes first makes the directory, private, and another user's socket is never trusted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..checks import path_of
from ..engine.directories import make_missing, private_home
from ..errors import DaemonUnavailable, InvalidRequest, ShellUnavailable

VARIABLE: Final = "SHELLSESSION_SOCKET"
# sockaddr_un has 108 bytes for a path, with its NUL: unix(7).
_LONGEST: Final = 107
# A daemon greets at once; one that is stopped (SIGSTOP) takes connections all the same, as many as may wait, and says
# nothing. In seconds.
PATIENCE: Final = 15.0


def socket_path(wanted: str | os.PathLike[str] | None = None) -> str:
    """The socket's path: as wanted, as SHELLSESSION_SOCKET says, or in this user's private directory.

    Raises DaemonUnavailable where no socket can have that path, and InvalidRequest for a value that is no path.
    """
    path = os.environ.get(VARIABLE, "") if wanted is None else path_of("socket", wanted)
    if wanted is not None and not path:  # of a variable that is not set: another daemon than was meant would do it
        raise InvalidRequest("the socket's path is empty: leave --socket (socket=) away for the usual one")
    path = os.path.abspath(path) if path else os.path.join(_home(), "socket")
    if len(os.fsencode(path)) > _LONGEST:
        raise DaemonUnavailable(
            f"the socket's path has more than {_LONGEST} bytes, which no socket can: {path}; set {VARIABLE}"
        )
    return path


def _home() -> str:
    try:
        return private_home(make=False)
    except ShellUnavailable as error:
        raise DaemonUnavailable(f"{error}, or {VARIABLE} to where a daemon listens") from error


@contextmanager
def locked(path: str, inherited: int | None = None) -> Iterator[int]:
    """Hold the lock of that socket's directory: of many who find no daemon, one starts it. Yields its descriptor.

    The lock is flock(2)'s, on the directory itself, so that no file is left. ``inherited``: the descriptor by which
    the client that starts a daemon lends it the lock; it is the same open file, which may lock it twice. Raises
    DaemonUnavailable where another user could write in the directory.
    """
    directory = os.path.dirname(path)
    until = time.monotonic() + PATIENCE
    while True:
        lock = _open(directory) if inherited is None else inherited
        if lock is not None:
            try:
                _refuse_unfit(directory, os.fstat(lock))
                fcntl.flock(lock, fcntl.LOCK_EX)
                if _is(directory, lock):
                    yield lock
                    return
            finally:
                os.close(lock)
        inherited = None  # the last host of this user has removed the directory meanwhile
        if time.monotonic() >= until:
            raise DaemonUnavailable(f"the socket's directory {directory} is removed again and again: find out by whom")


def _open(directory: str) -> int | None:
    """A descriptor of the socket's directory, made where it is missing; None where it is removed just then."""
    is_made = False
    try:
        make_missing(directory)
        is_made = not os.path.islink(directory)
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except NotADirectoryError as error:
        raise _unfit(directory, "is no directory") from error
    except OSError as error:
        if is_made and error.errno == errno.ENOENT:
            return None
        raise DaemonUnavailable(f"the socket's directory {directory} cannot be made: {error.strerror}") from error


def _refuse_unfit(directory: str, found: os.stat_result) -> None:
    """Raise DaemonUnavailable where another user could write in it.

    A user who can replace the directory itself may hide a daemon, but cannot pose as one: client and daemon both check
    the peer.
    """
    if found.st_uid != os.getuid():
        raise _unfit(directory, f"belongs to user {found.st_uid}, not you")
    if found.st_mode & 0o022:
        raise _unfit(directory, "can be written by others")


def _unfit(directory: str, what: str) -> DaemonUnavailable:
    return DaemonUnavailable(
        f"the socket's directory {directory} {what}: name one of your own, with mode 0700, by {VARIABLE}"
    )


def _is(directory: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(directory), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def reach(path: str) -> socket.socket | None:
    """Connect to the daemon at that path; None when none listens. Raises DaemonUnavailable for any other failure."""
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # unix(7): how long connect waits where as many wait already as may.
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(PATIENCE), 0))
    try:
        ours.connect(path)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        ours.close()
        return None
    except OSError as error:
        ours.close()
        raise DaemonUnavailable(f"the daemon at {path} cannot be reached: {error.strerror}") from error
    # The client sends its whole environment next: only to a daemon of its own user, or of root, who can read it anyway.
    if (user := peer(ours)[1]) not in (os.geteuid(), 0):
        ours.close()
        raise DaemonUnavailable(f"who listens at {path} is user {user}, not you: nothing was sent")
    return ours


def peer(ours: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end, as the kernel has them: unix(7), SO_PEERCRED."""
    credentials = ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, user, _ = struct.unpack("3i", credentials)
    return pid, user
