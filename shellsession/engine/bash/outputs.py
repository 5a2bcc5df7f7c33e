"""The output of the last commands of one session, for ``read_output``: small ones in memory, others in files.

The files are in a separate slot (see ``watcher``), which lasts as long as the session. Nobody can list it, and it is
not visible in a sandbox.

Law: an output that a model can be shown whole costs nothing extra. A longer one costs a file, but no open descriptor.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from ...errors import NoSuchOutput
from ...models import Stream
from ...paging import PIECE, Piece
from ...text import MAX_CHARS
from ..kernel.signals import signals_deferred
from .watcher import Guard, Slot, the_guard

# How many outputs are kept: this many small ones, and as many in files.
MOST: Final = 20
# The size limits of all files together and of one, in bytes: the two streams of one command always fit.
MOST_BYTES: Final = 64 << 20
FILE_MOST: Final = MOST_BYTES // 2
# How many bytes stay free in the file system: it is usually memory, which commands need, too.
_RESERVE: Final = 16 << 20
# How many ids an error shows.
_SHOWN: Final = 2 * MOST

_WRITE: Final = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Whole:
    """One stream of one command: ``data`` while that is short, else the file at ``path``.

    ``size``: how many bytes it has received. ``kept``: how many of them can be read.
    """

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.path = ""
        self.size = self.kept = len(data)

    def read(self, begin: int, size: int) -> bytes:
        """Return some bytes. Raises OSError."""
        data = bytes(self.data[begin : begin + size])
        if not self.path:  # checked last: another thread sets the path, then drops the data
            return data
        fd = os.open(self.path, _READ)
        try:
            return os.pread(fd, min(size, max(0, self.kept - begin)), begin)
        finally:
            os.close(fd)


class KeptOutput:
    """The output of one command, from its beginning, however many results delivered it.

    ``lost``: it could not be kept.
    """

    def __init__(self, outputs: Outputs, id: str, stdout: bytes = b"", stderr: bytes = b"") -> None:
        self._outputs, self.id = outputs, id
        self.streams: dict[Stream, _Whole] = {"stdout": _Whole(stdout), "stderr": _Whole(stderr)}
        self.lost = False

    @property
    def size(self) -> int:
        """How many bytes its files have."""
        return sum(one.kept for one in self.streams.values() if one.path)

    def feed(self, name: Stream, data: bytes) -> None:
        """Take the next bytes of a stream. Never raises OSError."""
        whole = self.streams[name]
        whole.size += len(data)
        if self.lost:
            return
        if not whole.path:
            if whole.size <= MAX_CHARS:
                whole.data += data
                whole.kept = whole.size
                return
            data = bytes(whole.data) + data
        if data := data[: FILE_MOST - whole.kept * bool(whole.path)]:
            try:
                self._outputs.write(self, whole, data)
            except OSError:  # such as a full disk: not the command's fault, so the command goes on
                self._outputs.drop(self)

    def end(self) -> None:
        """Note that the command has ended."""
        self._outputs.end(self)


class Outputs:
    """The records of one session. ``small``: the latest short ones, with id and both streams."""

    def __init__(self) -> None:
        self.small: deque[tuple[str, bytes, bytes]] = deque(maxlen=MOST)
        self._large: dict[str, KeptOutput] = {}  # records with a file, the oldest first
        self._size = 0  # of all files
        self._running: KeptOutput | None = None
        self._guard: Guard | None = None
        self._slot: Slot | None = None
        self._made = 0  # files so far
        self._secret = os.urandom(8).hex()  # the start of each name, so that nobody can guess it

    def begin(self, id: str) -> KeptOutput:
        """Return the record of a new command."""
        self._running = record = KeptOutput(self, id)
        return record

    def end(self, record: KeptOutput) -> None:
        """Keep a short output, now that it is complete."""
        if self._running is record:
            self._running = None
            if not (record.lost or record.id in self._large):
                stdout, stderr = (bytes(one.data) for one in record.streams.values())
                self.small.append((record.id, stdout, stderr))

    def write(self, record: KeptOutput, whole: _Whole, data: bytes) -> None:
        """Append to a file, made with the first bytes. Drops the oldest records beyond the limits. Raises OSError."""
        with signals_deferred():
            self._large[record.id] = record
            path, flags = whole.path or self._new_path(), _WRITE if whole.path else _WRITE | os.O_CREAT | os.O_EXCL
            try:
                with open(os.open(path, flags, 0o600), "wb", buffering=0) as file:
                    found = os.fstatvfs(file.fileno())
                    if found.f_bavail * found.f_frsize < _RESERVE + len(data) or file.write(data) < len(data):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    if not whole.path:
                        os.fchmod(file.fileno(), 0o600)  # the host's umask may have removed our own rights
            except OSError:
                with suppress(OSError):
                    os.unlink(path)
                raise
            # In this order: another thread may be reading.
            whole.kept = len(data) + (whole.kept if whole.path else 0)
            whole.path = path
            whole.data.clear()
            self._size += len(data)
        while len(self._large) > MOST or self._size > MOST_BYTES:
            if (oldest := next(iter(self._large.values()))) is record:
                break
            self.drop(oldest)

    def _new_path(self) -> str:
        if self._slot is None:
            self._guard = the_guard()
            self._slot = self._guard.open_another_slot()
        self._made += 1
        return os.path.join(self._slot.directory, f"{self._secret}-{self._made}")

    def drop(self, record: KeptOutput) -> None:
        """Remove a record and its files."""
        record.lost = True
        if self._large.pop(record.id, None) is not None:
            self._size -= record.size
        for whole in record.streams.values():
            whole.data.clear()
            if whole.path:
                with suppress(OSError):
                    os.unlink(whole.path)

    def _records(self) -> Iterator[KeptOutput]:
        """Yield all records, the oldest first."""
        found = {record.id: record for record in list(self._large.values())}
        found |= {id: KeptOutput(self, id, *streams) for id, *streams in tuple(self.small)}
        if (running := self._running) is not None and not running.lost:
            found[running.id] = running
        return iter(sorted(found.values(), key=lambda record: int(record.id[1:])))

    def read(self, id: str, stream: str, begin: int, size: int) -> Piece:
        """Return a part of an output. ``id`` "" means the latest command with output. Raises NoSuchOutput."""
        records = list(self._records())
        for record in reversed(records):
            whole = record.streams["stdout" if stream == "stdout" else "stderr"]
            if record.id == id or (not id and whole.size):
                with suppress(OSError):  # it was dropped meanwhile, or somebody has removed the file
                    grows = record is self._running  # first: once it has ended, all its output is there
                    data = whole.read(begin, min(size, PIECE))
                    return Piece(record.id, data, whole.kept, whole.size, grows=grows)
                records.remove(record)
                break
        known = ", ".join(record.id for record in records[-_SHOWN:]) or "none"
        asked = f"output {id!r:.40} is not kept (it has expired, or never existed)" if id else f"no {stream} is kept"
        raise NoSuchOutput(f"{asked}; kept outputs: {known}; run the command again, with its output in a file")

    def close(self) -> None:
        """Drop everything. If an exception interrupts this, call it again to drop the rest."""
        self.small.clear()
        self._large.clear()
        self._size, self._running = 0, None
        if self._guard is not None and self._slot is not None:
            self._guard.close_slot(self._slot)
            self._slot = None
