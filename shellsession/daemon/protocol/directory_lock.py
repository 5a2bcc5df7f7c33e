"""The lock beside the daemon's socket: of many clients that find no daemon, one starts it.

Law: whoever comes first makes the directory, private.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ...engine.io.directories import make_missing
from ...errors import DaemonUnavailable
from .endpoint import PATIENCE, VARIABLE


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
