"""The output of one command: what is kept in memory (``Capture``), and the file that gets all of it (``Spill``).

A capture has a fixed limit. It keeps the first half and the last half of a stream, and counts the bytes dropped
between. If ``Limits.spill`` names a path, a stream that exceeds the limit is also written to a file there, from its
start and up to ``spill_max`` bytes. Such a file is private, and never another user's.
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
from ...text import count_lines, unfinished
from ..kernel import proc
from ..kernel.signals import signals_deferred
from .directories import open_directory

Sink = Callable[[bytes], object]
# The tail keeps this many more bytes until it is read. If bash has lost its own stderr, its last mark comes at the end
# of the command's stderr: so that is there whole, and ``cut_after`` finds it.
_SLACK: Final = 1 << 13
# Of a longer piece that is dropped, the lines are estimated from this many bytes: to count all would slow down a flood.
_COUNTED: Final = 1 << 12


def latest(peek: tuple[bytes, int, int], most: int) -> bytes:
    """The last lines in at most this many bytes of a ``Capture.peek``, without one whose beginning is missing."""
    data, omitted, cut = peek
    tail = data[cut:] if omitted else data
    return tail if not omitted and len(tail) <= most else tail[-most:].partition(b"\n")[2]


class Capture:
    """Keeps at most ``limit`` bytes of one stream of one command.

    In a flood of output it uses half as much memory again, and 16 KiB. ``sink`` gets the whole stream once that exceeds
    the limit.
    """

    # Defaults on the class: most captures never change these, and setting them for each costs time.
    total = 0  # bytes since the last ``take``
    _dropped = 0  # of these, bytes that are not kept
    _dropped_lines = 0  # about how many lines ended in those
    omitted_lines = 0  # the same for what the last ``take`` omitted
    _taken = 0  # bytes before that
    _sink: Sink | None = None
    _spilling = False

    def __init__(self, limit: int, sink: Sink | None = None) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        if sink is not None:
            self._sink = sink
            self._unspilled = bytearray()  # the whole stream, taken or not, while it is within the limit

    @property
    def overflowed(self) -> bool:
        return self._taken + self.total > self._limit

    @property
    def kept(self) -> int:
        """The number of bytes in memory."""
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
        """Pass data to the sink, once the stream exceeds the limit."""
        if not self._spilling:
            if len(self._unspilled) + len(data) <= self._limit:
                self._unspilled += data
                return
            self._spilling = True  # nothing was dropped before, so the file gets the whole stream
            sink(bytes(self._unspilled))
            self._unspilled.clear()
        sink(data)

    def _keep_tail(self, data: bytes) -> None:
        keep = self._limit // 2 + _SLACK
        surplus = max(0, len(data) - keep)
        self._tail += data[surplus:]
        if surplus:
            self._note_dropped(data, surplus)
        # Deleting from the front moves the rest, so do it only when as much again has come.
        if len(self._tail) > 2 * keep:
            self._trim(keep)

    def _trim(self, keep: int) -> None:
        extra = len(self._tail) - keep
        if extra > 0:
            self._note_dropped(self._tail, extra)
            del self._tail[:extra]

    def _note_dropped(self, data: bytes | bytearray, size: int) -> None:
        """Count the first bytes of ``data``, and their lines, as dropped."""
        self._dropped += size
        self._dropped_lines += _line_count(data, size)

    def omit(self, count: int) -> None:
        """Count bytes of the stream that were not kept."""
        self.total += count
        self._dropped += count

    def cut_after(self, mark: bytes) -> bytes:
        """Drop the last ``mark`` and everything after it; return what was dropped (b"" if there is no mark)."""
        kept = bytes(self._head + self._tail)
        if (at := kept.rfind(mark)) < 0:
            return b""
        self._cut(at)
        return kept[at:]

    def cut_line(self) -> None:
        """Drop an unfinished last line. Of one that began before the gap, only the part after the gap."""
        end = (self._head + self._tail).rfind(b"\n") + 1
        self._cut(max(end, len(self._head)) if self._dropped else end)

    def _cut(self, at: int) -> None:
        self.total -= self.kept - at
        del self._tail[max(0, at - len(self._head)) :]
        del self._head[at:]

    def peek(self) -> tuple[bytes, int, int]:
        """The bytes kept, the number of bytes dropped, and the position of that gap in the bytes kept."""
        # The head may be longer than half the limit: ``take`` leaves an incomplete character there.
        self._trim(min(self._limit // 2, self._limit - len(self._head)))
        return bytes(self._head + self._tail), self._dropped, len(self._head)

    def take(self, final: bool = True) -> tuple[bytes, int, int]:
        """As ``peek``, and start again, empty. Unless ``final``, an incomplete last character stays for the next."""
        self.omitted_lines = 0
        if not self.total:
            return b"", 0, 0
        data, dropped, cut = self.peek()
        rest = b"" if final else unfinished(data[cut if dropped else 0 :])  # a character never spans the gap
        data = data[: len(data) - len(rest)]
        self._tail.clear()
        self._head[:] = rest
        self._taken += self.total - len(rest)
        self.omitted_lines = self._dropped_lines
        self._dropped, self._dropped_lines, self.total = 0, 0, len(rest)
        return data, dropped, min(cut, len(data))


def _line_count(data: bytes | bytearray, size: int | None = None) -> int:
    """About how many lines end in the first ``size`` bytes (None: in all)."""
    return count_lines(data, 0, len(data) if size is None else size, _COUNTED)[0]


def without_output(result: Result) -> Result:
    """The result with its output removed, and counted as omitted."""
    if not (result.stdout_bytes or result.stderr_bytes):
        return result
    return result.__replace__(
        stdout_bytes=b"",
        stderr_bytes=b"",
        stdout_omitted=result.stdout_omitted + len(result.stdout_bytes),
        stderr_omitted=result.stderr_omitted + len(result.stderr_bytes),
        stdout_omitted_lines=result.stdout_omitted_lines + _line_count(result.stdout_bytes),
        stderr_omitted_lines=result.stderr_omitted_lines + _line_count(result.stderr_bytes),
    )


# O_NONBLOCK: opening a FIFO that nobody reads would block for ever, and all sessions of a daemon with it.
_WRITE: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_IRREGULAR: Final = {errno.ENXIO, errno.ELOOP}  # a socket, a link


class Spill:
    """A file of at most ``maximum`` bytes for one whole stream, made when the first byte would be lost.

    ``written``: its path, once it is made. ``fault``: why it is incomplete.
    """

    def __init__(self, path: str, maximum: int) -> None:
        self.path = path
        self._room = maximum
        self._identity: tuple[int, int] | None = None  # device and inode, once it is made
        self.written: str | None = None
        self.fault = ""

    def write(self, data: bytes) -> None:
        """Append the next bytes of the stream. Sets ``fault``, and never raises OSError."""
        if self.fault:
            return
        is_too_much = len(data) > self._room
        data = data[: self._room]
        self._room -= len(data)
        try:
            # Opened for each piece, so that a call that never ends keeps no descriptor. Signals are deferred, as Ctrl-C
            # could leak the descriptor of a directory on the path.
            with signals_deferred(), open(self._open(), "wb") as file:
                self.written = self.path
                file.write(data)
        except OSError as error:  # such as a full disk: not the command's fault, so the command goes on
            self._fail("it is not a regular file" if error.errno in _IRREGULAR else str(error.strerror))
        else:
            if is_too_much:
                self._fail("it is longer than limits.spill_max")

    def _fail(self, why: str) -> None:
        self.fault = f"the output could not be written completely to {self.path}: {why}"

    def _open(self) -> int:
        """Open the file for the next piece. Raises OSError (ENXIO for an irregular file, as open(2) for a socket)."""
        place, name = os.path.split(self.path)
        directory = open_directory(place, trusted=False)
        is_first, is_new = self._identity is None, False
        try:
            fd = os.open(name, _WRITE | (os.O_CREAT | os.O_EXCL if is_first else os.O_APPEND), 0o600, dir_fd=directory)
            is_new = is_first
        except FileExistsError:
            fd = os.open(name, _WRITE, dir_fd=directory)  # no O_TRUNC: its owner must be checked first
        finally:
            os.close(directory)
        try:
            self._check(fd, is_new)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _check(self, fd: int, is_new: bool) -> None:
        """Raise OSError for a file of another user, or for another file than before. Make a first one private.

        ``is_new``: we have just made it, so its owner does not matter (some file systems show another one).
        """
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
        identity = found.st_dev, found.st_ino
        if self._identity not in (None, identity):
            raise OSError(errno.ESTALE, "another file has taken its place")
        if self._identity is None:
            if not is_new and found.st_uid != os.geteuid():
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


def resolve_spill(limits: Limits, sandbox: Sandbox | None) -> Limits:
    """The limits with the real path of the spill. Raises InvalidRequest where no spill can be written."""
    if (given := limits.spill) is None:
        return limits
    place, links = proc.resolve(absolute(given))
    writable = [os.path.realpath(os.path.expanduser(path)) for path in sandbox.paths[0]] if sandbox else []
    for link in links:
        if any(is_within(link, one) for one in writable):
            raise InvalidRequest(
                f"limits.spill {given!r} leads through {link!r}, a link in the sandbox's write=: name its target"
            )
    found = _found(place)
    is_directory = found is not None and stat.S_ISDIR(found.st_mode)
    directory = place if is_directory else os.path.dirname(place)
    fit = os.path.isdir(directory) and (found is None or is_directory or stat.S_ISREG(found.st_mode))
    if not fit or not os.access(place if found else directory, os.W_OK):
        raise InvalidRequest(f"limits.spill {given!r} cannot be written: name a directory that exists or a file in one")
    if found and not is_directory and found.st_uid != os.geteuid():
        raise InvalidRequest(f"limits.spill {given!r} is refused: {_foreign(found.st_uid)}; name a file that you own")
    return limits.__replace__(spill=place)


def spills_of(limits: Limits) -> Spills:
    """The spill files of one command, by stream; decided before the command can change what is at the path."""
    if (place := limits.spill) is None:
        return NO_SPILLS
    base = os.path.join(place, f"call-{secrets.token_hex(6)}.") if os.path.isdir(place) else ""
    paths = (base + "stdout", base + "stderr") if base else (place, place + ".stderr")
    return {name: Spill(path, limits.spill_max) for name, path in zip(("stdout", "stderr"), paths, strict=True)}
