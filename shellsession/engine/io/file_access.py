"""Reads and writes the files of a session in this process, without a shell."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from ...errors import InvalidRequest
from ...files import PIECE, FileReply, FileRequest, transfer_error
from ..kernel import proc
from ..kernel.rooted import open_below

_OF_PROCESS: Final = re.compile("/proc/([0-9]+)(?:/|$)")
# Without O_NONBLOCK, opening a named pipe would wait for its other end.
_FLAGS: Final = os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_LOOK: Final = os.O_PATH | os.O_CLOEXEC


# A function that opens a path with these flags, and with a mode if it makes the file.
_Open = Callable[[str, int, int], int]


def access(request: FileRequest, cwd: str, umask: int, root: int | None = None) -> FileReply:
    """Carry out a request. A relative path starts at ``cwd``. It blocks on the disk.

    ``root``: a descriptor of the session's root directory, if that is another one than ours. Only a regular file is
    opened: any other could wait, or act. Raises the OSError of the system, with the path as the caller wrote it, and
    InvalidRequest.
    """
    find: _Open = os.open if root is None else partial(open_below, root)
    try:
        if not os.path.isabs(request.path):
            os.close(find(cwd, _LOOK | os.O_DIRECTORY, 0))  # raises if it was removed meanwhile
        path = os.path.join(cwd, request.path)
        if root is None:
            # Without links: /proc/self and /dev/fd would lead to the files of this process. A "/" at the end counts.
            path = os.path.realpath(path) + "/" * request.path.endswith("/")
            _refuse_ours(path, request)
        if request.parents:
            _make_directories(os.path.dirname(path), umask, find)
        fd, is_new = _open(path, request, umask, find)
        try:
            if root is not None:
                _refuse_ours(proc.link(f"/proc/self/fd/{fd}"), request)
            if is_new and 0o666 & proc.umask() & ~umask:  # our own umask has taken away too much
                os.fchmod(fd, 0o666 & ~umask)
            state = os.fstat(fd)
            _check_regular(state, request)
            file = state.st_dev, state.st_ino
            if request.file not in (None, file):
                raise OSError(errno.ESTALE, "")
            if request.data is None:
                return FileReply(path, file, _read(fd, request.begin), state.st_size)
            if request.file is None:
                os.ftruncate(fd, 0)
            _write(fd, request.begin, request.data)
            return FileReply(path, file)
        finally:
            os.close(fd)
    except OSError as error:
        raise transfer_error(error.errno or errno.EIO, request.name) from None


def _refuse_ours(path: str, request: FileRequest) -> None:
    # Each thread has a directory there, too, which is not listed.
    if (found := _OF_PROCESS.match(path)) and os.path.isdir(f"/proc/self/task/{found[1]}"):
        raise InvalidRequest(
            f"{request.name!r:.300} would be this process's, not the session's: read it with a command"
        )


def _open(path: str, request: FileRequest, umask: int, find: _Open) -> tuple[int, bool]:
    """Open the file, and make it if it is to be written. Returns the descriptor, and True if the file is new."""
    reads, nofollow = request.data is None, os.O_NOFOLLOW if find is os.open else 0
    try:
        look = find(path, _LOOK, 0)
        try:
            _check_regular(os.fstat(look), request)  # before it is opened: that alone rewinds a tape
        finally:
            os.close(look)
        return find(path, _FLAGS | nofollow | (os.O_RDONLY if reads else os.O_WRONLY), 0), False
    except FileNotFoundError:
        if reads or request.file is not None:
            raise
    return find(path, _FLAGS | nofollow | os.O_WRONLY | os.O_CREAT, 0o666 & ~umask), True


def _check_regular(found: os.stat_result, request: FileRequest) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "")
    if not stat.S_ISREG(found.st_mode):
        raise InvalidRequest(
            f"{request.name!r:.300} is not a regular file: for a device, a named pipe or a socket use a command"
        )


def _make_directories(path: str, umask: int, find: _Open) -> None:
    with suppress(FileNotFoundError):
        os.close(find(path, _LOOK | os.O_DIRECTORY, 0))
        return
    above, name = os.path.split(path)
    _make_directories(above, umask, find)
    directory = find(above, _LOOK | os.O_DIRECTORY, 0)
    try:
        with suppress(FileExistsError):  # made by another process just now; or it is a file, which opening reports
            os.mkdir(name, 0o777 & ~umask, dir_fd=directory)
            if 0o777 & proc.umask() & ~umask:
                os.chmod(name, 0o777 & ~umask, dir_fd=directory)
    finally:
        os.close(directory)


def _read(fd: int, begin: int) -> bytes:
    pieces, left = list[bytes](), PIECE
    while left and (data := os.pread(fd, left, begin)):
        pieces.append(data)
        begin, left = begin + len(data), left - len(data)
    return b"".join(pieces)


def _write(fd: int, begin: int, data: bytes) -> None:
    while data:
        written = os.pwrite(fd, data, begin)
        begin, data = begin + written, data[written:]
