"""The lock on the directory of the daemon's socket: of many clients that find no daemon, only one starts it.

The first client also makes the directory, private.
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
    """Hold the lock of a socket's directory; yields the locked descriptor.

    It is a flock(2) on the directory itself, so no lock file is left behind. ``inherited``: a descriptor that the
    client passes to the daemon that it starts. It is the same open file, so the daemon gets the lock while the client
    holds it. Raises DaemonUnavailable where another user could write in the directory.
    """
    directory = os.path.dirname(path)
    until = time.monotonic() + PATIENCE
    while True:
        lock = _open(directory) if inherited is None else inherited
        if lock is not None:
            try:
                _refuse_unfit(directory, os.fstat(lock))
                fcntl.flock(lock, fcntl.LOCK_EX)
                if _is_at(directory, lock):
                    yield lock
                    return
            finally:
                os.close(lock)
        # Another process of this user has removed the directory meanwhile: make it again.
        inherited = None
        if time.monotonic() >= until:
            raise DaemonUnavailable(
                f"the socket's directory {directory} is removed again and again: find out which program does that"
            )


def _open(directory: str) -> int | None:
    """Open the socket's directory, made if missing. None if it was removed in between."""
    may_be_removed = False
    try:
        make_missing(directory)
        may_be_removed = not os.path.islink(directory)  # a link without a target is there, and stays useless
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except NotADirectoryError as error:
        raise _unfit(directory, "is not a directory") from error
    except OSError as error:
        if may_be_removed and error.errno == errno.ENOENT:
            return None
        raise DaemonUnavailable(f"the socket's directory {directory} cannot be made: {error.strerror}") from error


def _refuse_unfit(directory: str, found: os.stat_result) -> None:
    """Raise DaemonUnavailable if another user could write in the directory.

    Its parents are not checked. A user who can replace the directory may hide the daemon, but cannot pose as one:
    client and daemon both check their peer.
    """
    if found.st_uid != os.getuid():
        raise _unfit(directory, f"belongs to user {found.st_uid}, not you")
    if found.st_mode & 0o022:
        raise _unfit(directory, "is writable by others")


def _unfit(directory: str, what: str) -> DaemonUnavailable:
    return DaemonUnavailable(
        f"the socket's directory {directory} {what}: set {VARIABLE} to a path in one of your own, with mode 0700"
    )


def _is_at(directory: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(directory), os.fstat(descriptor))
    except FileNotFoundError:
        return False
