"""Where a command's output goes that is more than is kept: capped files that take a stream whole.

Law: the place is settled before the command is typed, and nothing that a command puts in the way leads elsewhere: it
may be in a sandbox, and we are not.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..checks import absolute
from ..errors import InvalidRequest
from ..models import Limits
from ..policy.sandbox import Sandbox, is_within
from . import processes
from .directories import open_directory
from .signals import undisturbed

# A FIFO that nobody reads would keep us, and with us all sessions of a daemon, for ever; no time limit is looked at
# meanwhile.
_WRITE: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_IRREGULAR: Final = {errno.ENXIO, errno.ELOOP}  # a socket, a link


class Spill:
    """A capped file that takes a stream whole, made when the first byte would be lost."""

    def __init__(self, path: str, maximum: int) -> None:
        self.path = path
        self._room = maximum
        self._identity: tuple[int, int] | None = None
        self.written: str | None = None
        self.fault = ""  # why it is not whole

    def write(self, data: bytes) -> None:
        if self.fault:
            return
        is_too_much = len(data) > self._room
        data = data[: self._room]
        self._room -= len(data)
        try:
            # Opened for each piece: a call that is never finished leaves no descriptor behind. Nor does one that is
            # struck: on the way to the file, each directory is for a moment in nobody's hands.
            with undisturbed(), open(self._open(), "wb") as file:
                self.written = self.path
                file.write(data)
        except OSError as error:  # a full disk: the command is not to blame, and goes on
            self._fail("it is no regular file" if error.errno in _IRREGULAR else str(error.strerror))
        else:
            if is_too_much:
                self._fail("it is longer than limits.spill_max")

    def _fail(self, why: str) -> None:
        self.fault = f"the output could not be written whole to {self.path}: {why}"

    def _open(self) -> int:
        """Raises OSError: ENXIO for what is no regular file, as open(2) does for a socket."""
        place, name = os.path.split(self.path)
        directory = open_directory(place, trusted=False)
        begun, is_made = self._identity is not None, False
        try:
            fd = os.open(name, _WRITE | (os.O_APPEND if begun else os.O_CREAT | os.O_EXCL), 0o600, dir_fd=directory)
            is_made = not begun
        except FileExistsError:
            fd = os.open(name, _WRITE, dir_fd=directory)  # not to be emptied before it is known whose it is
        finally:
            os.close(directory)
        try:
            self._check(fd, is_made)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _check(self, fd: int, is_made: bool) -> None:
        """Raises OSError for a file that is another user's, or not the one that was begun. A new one is made private.

        ``is_made``: the file is ours, whatever number its owner has on this file system.
        """
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
        identity = found.st_dev, found.st_ino
        if self._identity not in (None, identity):
            raise OSError(errno.ESTALE, "another file stands there by now")
        if self._identity is None:
            if not is_made and found.st_uid != os.geteuid():
                raise OSError(errno.EPERM, _foreign(found.st_uid))
            os.fchmod(fd, 0o600)
            os.ftruncate(fd, 0)
        self._identity = identity


Spills = Mapping[str, Spill]
NO_SPILLS: Final[Spills] = MappingProxyType({})


def _foreign(user: int) -> str:
    return f"it belongs to user {user}, not you"


def _found(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def settled(limits: Limits, sandbox: Sandbox | None) -> Limits:
    """With the spill's path as it is without symbolic links. Raises InvalidRequest where nothing can be written."""
    if (given := limits.spill) is None:
        return limits
    place, links = processes.resolve(absolute(given))
    writable = [os.path.realpath(os.path.expanduser(path)) for path in sandbox.paths[0]] if sandbox else []
    for link in links:
        if any(is_within(link, one) for one in writable):
            raise InvalidRequest(f"limits.spill {given!r} leads through {link!r}, a link in the sandbox's write=")
    found = _found(place)
    is_directory = found is not None and stat.S_ISDIR(found.st_mode)
    directory = place if is_directory else os.path.dirname(place)
    fit = os.path.isdir(directory) and (found is None or is_directory or stat.S_ISREG(found.st_mode))
    if not fit or not os.access(place if found else directory, os.W_OK):
        raise InvalidRequest(f"limits.spill {given!r} cannot be written: name a directory that exists or a file in one")
    if found and not is_directory and found.st_uid != os.geteuid():
        raise InvalidRequest(f"limits.spill {given!r} is refused: {_foreign(found.st_uid)}; name a file of your own")
    return limits.__replace__(spill=place)


def spills_of(limits: Limits) -> Spills:
    """The files that a command's streams may go to; asked for before it can change what stands there."""
    if (place := limits.spill) is None:
        return NO_SPILLS
    base = os.path.join(place, f"call-{secrets.token_hex(6)}.") if os.path.isdir(place) else ""
    paths = (base + "stdout", base + "stderr") if base else (place, place + ".stderr")
    return {name: Spill(path, limits.spill_max) for name, path in zip(("stdout", "stderr"), paths, strict=True)}
