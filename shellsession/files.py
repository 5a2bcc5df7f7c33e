"""``read_file`` and ``write_file``: a file's content in pieces, so that a file of any size needs little memory.

``reading`` and ``writing`` return a ``Transfer``. It makes a ``FileRequest`` for each piece, one after the other, and
takes its ``FileReply``. Each kind of session carries out the requests. No file of a session is touched here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Iterator
from typing import Any, BinaryIO, Final, Generic, NamedTuple, TypeVar

from .errors import InvalidRequest
from .models import path_text, to_bytes

T = TypeVar("T")
# Bytes of a piece. More would hold up the other clients of a daemon, and less would need more round trips.
PIECE: Final = 1 << 20
_STALE: Final = (
    "another file has taken its place before the end of the transfer, or a checkpoint or a rollback was made of the"
    " branch that it is on: do it again"
)


class FileRequest(NamedTuple):
    """A piece to read or, with ``data``, to write, at the position ``begin``.

    ``name``: the path as the caller wrote it. ``path``: the same, but behind the first piece as that reply has it.
    ``file``: the device and inode of the first piece. ``parents``: make missing directories.
    """

    name: str
    path: str
    begin: int = 0
    data: bytes | None = None
    file: tuple[int, ...] | None = None
    parents: bool = False


class FileReply(NamedTuple):
    """The piece that was read, if any, and which file it was: its absolute path, and its device and inode.

    ``size``: bytes of the whole file now; 0 for most files of /proc, whatever they contain.
    """

    path: str
    file: tuple[int, ...]
    data: bytes = b""
    size: int = 0


def transfer_error(number: int, name: str) -> OSError:
    """Return the error with that number of the system. ``name``: the file, as the caller wrote it."""
    return OSError(number, _STALE if number == errno.ESTALE else os.strerror(number), name)


class Transfer(Generic[T]):
    """The requests of one call, and its ``result`` at the end."""

    result: T

    def __init__(self, steps: Generator[FileRequest, FileReply | None, T]) -> None:
        self._steps = steps

    def next(self, reply: FileReply | None) -> FileRequest | None:
        """Return the next request; None at the end. ``reply``: that of the last one.

        It uses the caller's file objects, so it may block.
        """
        try:
            return self._steps.send(reply)
        except StopIteration as end:
            self.result = end.value
            return None


def reading(path: object, into: BinaryIO | None) -> Transfer[bytes]:
    """Read a file; see ``read_file``. Raises InvalidRequest."""
    if into is not None and not hasattr(into, "write"):
        raise InvalidRequest(f"into must be a file that is open for writing bytes, not {into!r:.100}")
    return Transfer(_read(path_name(path), into))


def writing(path: object, data: object, parents: object) -> Transfer[None]:
    """Write a file; see ``write_file``. Raises InvalidRequest."""
    if not isinstance(parents, bool):
        raise InvalidRequest(f"parents is True or False, not {parents!r:.100}")
    pieces = _pieces_of_file(data) if hasattr(data, "read") else _pieces_of(to_bytes("data", data))
    return Transfer(_write(FileRequest(name := path_name(path), name, parents=parents), pieces))


def path_name(path: object) -> str:
    """Return a path as text. Raises InvalidRequest."""
    if not (name := path_text(path)):
        raise InvalidRequest(f"path must be a path (str) that is not empty, not {path!r:.100}")
    return name


def _read(name: str, into: BinaryIO | None) -> Generator[FileRequest, FileReply | None, bytes]:
    request, kept = FileRequest(name, name), list[bytes]()
    end = 0  # a file that grows as fast as it is read would have no other
    while True:
        reply = yield request
        assert reply is not None
        end = end or reply.size
        data = reply.data[: end - request.begin] if end else reply.data
        if into is None:
            kept.append(data)
        else:
            _write_all(into, data)
        request = request._replace(path=reply.path, file=reply.file, begin=request.begin + len(data))
        if len(data) < PIECE or request.begin == end:
            return b"".join(kept)


def _write_all(into: BinaryIO, data: bytes) -> None:
    while data:  # an unbuffered file may take only a part
        data = data[into.write(data) or len(data) :]


def _write(request: FileRequest, pieces: Iterator[bytes]) -> Generator[FileRequest, FileReply | None, None]:
    request = request._replace(data=next(pieces, b""))  # also of nothing: the file is made, or emptied
    while True:
        reply = yield request
        assert reply is not None
        assert request.data is not None
        if not (data := next(pieces, b"")):
            return
        request = request._replace(
            path=reply.path, file=reply.file, begin=request.begin + len(request.data), data=data, parents=False
        )


def _pieces_of(data: bytes) -> Iterator[bytes]:
    for begin in range(0, len(data), PIECE):
        yield data[begin : begin + PIECE]


def _pieces_of_file(file: Any) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        if not isinstance(piece, bytes):
            raise InvalidRequest(f"data.read() returned {type(piece).__name__}, not bytes: open the file as binary")
        yield piece
