"""The framing of a pipe that carries many connections: `shellsession bridge` at one end, a client at the other.

First the bridge sends a greeting, one line of JSON behind a fixed word. Then both ends send frames: a header of nine
bytes (kind, stream, size) and that many bytes. A stream is one connection to the daemon. Each direction of a stream has
a window: its sender sends no more than the receiver has room for, so a slow reader delays nobody else.

No I/O happens here. Whatever a peer sends, a ``FrameDecoder`` buffers less than one frame, and raises only
ProtocolError.
"""

from __future__ import annotations

from struct import Struct

from ...errors import ProtocolError
from .wire import PROTOCOL, from_json, to_json

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final


# The version of the framing and of the greeting; raised with every incompatible change.
FRAMING: Final = 1
# The kinds of frames. Only a client opens streams; it numbers them, and uses no number twice.
OPEN: Final = 1  # client: connect to the daemon; one byte says how (see below)
OPENED: Final = 2  # bridge: the connection is there
REFUSED: Final = 3  # bridge: there is none; the text of the error, empty if no daemon listens
DATA: Final = 4
CREDIT: Final = 5  # the receiver has room for this many more bytes; four bytes
CLOSE: Final = 6  # nothing follows in either direction
_KINDS: Final = range(OPEN, CLOSE + 1)
# How to open: only look; fail if there is no daemon; start one.
LOOK: Final = b"\0"
FIND: Final = b"\1"
START: Final = b"\2"
# Bytes that may be under way in one direction of a stream; the receiver may give more room later.
WINDOW: Final = 1 << 16
PAYLOAD_MAX: Final = 1 << 16

_MAGIC: Final = b"shellsession-bridge "
# A login script may print something first.
_PREAMBLE_MAX: Final = 1 << 16
_GREETING_MAX: Final = 1 << 21  # holds an environment, see wire.HEADER_MAX
_HEADER: Final = Struct("!BII")
_NUMBER: Final = Struct("!I")


def greeting(state: Mapping[str, object], namespaces: str, version: str) -> bytes:
    """The first line of a bridge.

    ``state``: what a session there inherits, see ``process_state``. ``namespaces``: those in which the daemon must be.
    """
    fields = {"framing": FRAMING, "protocol": PROTOCOL, "version": version, "state": state, "namespaces": namespaces}
    return _MAGIC + to_json(fields).encode("ascii") + b"\n"


def read_greeting(data: bytes) -> tuple[dict[str, Any], bytes] | None:
    """The greeting's fields and the bytes behind it; None while it is incomplete. Raises ProtocolError."""
    start = 0 if data.startswith(_MAGIC) else data.find(b"\n" + _MAGIC) + 1
    if not start and not data.startswith(_MAGIC):
        if len(data) > _PREAMBLE_MAX:
            raise ProtocolError(f"it sent no greeting in its first {_PREAMBLE_MAX} bytes")
        return None
    end = data.find(b"\n", start)
    if end < 0:
        if len(data) > _PREAMBLE_MAX + _GREETING_MAX:
            raise ProtocolError("its greeting is too long")
        return None
    try:
        fields = from_json(data[start + len(_MAGIC) : end].decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"its greeting is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ProtocolError("its greeting is not a JSON object")
    return fields, data[end + 1 :]


def frame(kind: int, stream: int, payload: bytes = b"") -> bytes:
    return header(kind, stream, len(payload)) + payload


def header(kind: int, stream: int, size: int) -> bytes:
    """The beginning of a frame; this many bytes follow."""
    return _HEADER.pack(kind, stream, size)


def credit(stream: int, size: int) -> bytes:
    """A frame that gives the sender of a stream room for this many more bytes."""
    return frame(CREDIT, stream, _NUMBER.pack(size))


def size_of(payload: bytes | memoryview) -> int:
    """The number of bytes in the payload of a CREDIT. Raises ProtocolError."""
    if len(payload) != _NUMBER.size:
        raise ProtocolError("a frame of credit has no number")
    size: int = _NUMBER.unpack(payload)[0]
    return size


class FrameDecoder:
    """Splits a peer's bytes into frames, however they are cut into pieces.

    DATA is passed on as it comes, uncopied: one frame of it may give several.
    """

    def __init__(self) -> None:
        self._buffer = b""  # the beginning of a frame
        self._stream = self._missing = 0  # bytes that a frame of DATA still lacks, and its stream

    def feed(self, data: bytes | memoryview) -> list[tuple[int, int, memoryview]]:
        """Take the next bytes; the frames (kind, stream, payload) that are complete. Raises ProtocolError."""
        view = memoryview(self._buffer + data if self._buffer else data)
        frames: list[tuple[int, int, memoryview]] = []
        while True:
            if self._missing and view:
                frames.append((DATA, self._stream, view[: self._missing]))
                view, self._missing = view[self._missing :], max(0, self._missing - len(view))
            if len(view) < _HEADER.size:
                break
            kind, stream, size = _HEADER.unpack_from(view)
            if kind not in _KINDS or size > PAYLOAD_MAX:
                raise ProtocolError("the other end of the pipe sent something that is no frame")
            rest = view[_HEADER.size :]
            if kind == DATA:
                self._stream, self._missing = stream, size
            elif size > len(rest):
                break
            else:
                frames.append((kind, stream, rest[:size]))
                rest = rest[size:]
            view = rest
        self._buffer = bytes(view)
        return frames
