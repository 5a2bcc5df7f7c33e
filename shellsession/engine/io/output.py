"""Bounded memory for endless output: the first half and the last half are kept, the middle is counted.

Law: pure. Bytes come in, bytes and exact counts go out; a file to spill into is handed in as a callable.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ...errors import InvalidRequest
from ...models import Limits, Result
from ...options import absolute
from ...sandbox import Sandbox, is_within
from ...text import unfinished
from ..kernel import proc
from ..kernel.signals import undisturbed
from .directories import open_directory

Sink = Callable[[bytes], object]
# So much more of the end is kept until somebody looks: a mark that has come there is found whole, and taken out.
_SLACK: Final = 1 << 13


class Capture:
    """One stream of one command, at most ``limit`` bytes of it (in a flood, half as many more and 16 KiB in memory)."""

    # What most never change stands here, which saves setting it for each.
    total = 0
    _dropped = 0
    _taken = 0  # so many more came before
    _sink: Sink | None = None
    _spilling = False

    def __init__(self, limit: int, sink: Sink | None = None) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        if sink is not None:
            self._sink = sink
            self._unspilled = bytearray()  # all of the stream, also what was taken, while it is within the limit

    @property
    def overflowed(self) -> bool:
        return self._taken + self.total > self._limit

    @property
    def kept(self) -> int:
        """So many bytes are in memory."""
        return len(self._head) + len(self._tail)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        if self._sink is not None:
            self._spill(self._sink, data)
        room = (self._limit + 1) // 2 - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._keep_tail(data)

    def _spill(self, sink: Sink, data: bytes) -> None:
        if not self._spilling:
            if len(self._unspilled) + len(data) <= self._limit:
                self._unspilled += data
                return
            self._spilling = True  # nothing was dropped so far: the file gets all of it
            sink(bytes(self._unspilled))
            self._unspilled.clear()
        sink(data)

    def _keep_tail(self, data: bytes) -> None:
        keep = self._limit // 2 + _SLACK
        surplus = max(0, len(data) - keep)
        self._tail += data[surplus:]
        self._dropped += surplus
        # Deleting from the front moves the rest: do it only when as much has piled up again.
        if len(self._tail) > 2 * keep:
            self._trim(keep)

    def _trim(self, keep: int) -> None:
        extra = len(self._tail) - keep
        if extra > 0:
            del self._tail[:extra]
            self._dropped += extra

    def omit(self, count: int) -> None:
        """So many bytes came that nobody kept."""
        self.total += count
        self._dropped += count

    def cut_after(self, mark: bytes) -> bytes:
        """Drop ``mark`` and all that follows it; return what was dropped (b"" when it is not there)."""
        kept = bytes(self._head + self._tail)
        if (at := kept.rfind(mark)) < 0:
            return b""
        self._cut(at)
        return kept[at:]

    def cut_line(self) -> None:
        """Drop an unfinished last line."""
        end = (self._head + self._tail).rfind(b"\n") + 1
        self._cut(max(end, len(self._head)) if self._dropped else end)

    def _cut(self, at: int) -> None:
        self.total -= self.kept - at
        del self._tail[max(0, at - len(self._head)) :]
        del self._head[at:]

    def peek(self) -> tuple[bytes, int, int]:
        """The bytes kept, the number omitted between, and where in the bytes the gap is."""
        self._trim(min(self._limit // 2, self._limit - len(self._head)))  # half a character was kept back
        return bytes(self._head + self._tail), self._dropped, len(self._head)

    def take(self, final: bool = True) -> tuple[bytes, int, int]:
        """As ``peek``, and begin anew. A piece that is not the ``final`` one keeps back an unfinished character."""
        if not self.total:
            return b"", 0, 0
        data, dropped, cut = self.peek()
        rest = b"" if final else unfinished(data[cut if dropped else 0 :])  # no character goes over a gap
        data = data[: len(data) - len(rest)]
        self._tail.clear()
        self._head[:] = rest
        self._taken += self.total - len(rest)
        self._dropped, self.total = 0, len(rest)
        return data, dropped, min(cut, len(data))


def counted(result: Result) -> Result:
    """Without the output, which is counted as omitted."""
    if not (result.stdout_bytes or result.stderr_bytes):
        return result
    return result.__replace__(
        stdout_bytes=b"",
        stderr_bytes=b"",
        stdout_omitted=result.stdout_omitted + len(result.stdout_bytes),
        stderr_omitted=result.stderr_omitted + len(result.stderr_bytes),
    )


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
    place, links = proc.resolve(absolute(given))
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
