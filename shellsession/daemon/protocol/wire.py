"""How the daemon and its clients talk: a message is one JSON object on a line, and raw bytes directly behind it.

Law: pure, and wary. Whatever a peer sends, a Decoder buffers no more than its limits and raises only ProtocolError.

::

    {"verb":"run","id":"5f.1.7","sizes":[7,2]}     the header, a line; "sizes" is there when parts follow
    echo hihi                                      the parts: 7 bytes, then 2, and nothing between

A part is output, or what a command is given: it crosses exactly, without base64. The line is ASCII: json escapes the
rest, lone surrogates too, which stand for what is no UTF-8 in a path or in the environment. Only a text that holds
both halves of a pair as two characters comes out as the one they mean; decoding never makes such a text.
"""

from __future__ import annotations

from _json import (
    encode_basestring_ascii,  # json loads re first, for nothing that is here
    make_encoder,  # json loads re first, for nothing that is here
    make_scanner,  # json loads re first, for nothing that is here
)

from ...errors import InvalidRequest, ProtocolError

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final, NoReturn, Self


# Changes with every incompatible change of what is said here.
PROTOCOL: Final = 10

# A header holds the client's environment: Linux starts no program with more than 2 MiB of arguments and environment
# (with the usual stack of 8 MiB), and half of that is still far more than anybody has.
HEADER_MAX: Final = 1 << 20
# All parts of a message together: both streams of a result whose ``max_output`` was raised to 128 MiB.
PARTS_MAX: Final = 256 << 20
OUTPUT_MAX: Final = PARTS_MAX // 2
# A command and its stdin, or two streams, are two: there is room for more, but not for an endless list of empty ones.
PARTS_COUNT: Final = 8
# Characters of a request's id; see ledger.
ID_MAX: Final = 128
# Instead of the words of a RecursionError: those of Python 3.14 tell of kilobytes of its own stack.
_TOO_DEEP: Final = "nested too deeply"


class Message(tuple["dict[str, Any]", "tuple[bytes, ...]"]):
    """One message: its header (without "sizes") and the parts that came with it. (To load NamedTuple takes longer than
    the rest of a command line's start.)
    """

    __slots__ = ()

    def __new__(cls, header: dict[str, Any], parts: tuple[bytes, ...]) -> Self:
        return tuple.__new__(cls, (header, parts))

    @property
    def header(self) -> dict[str, Any]:
        return self[0]

    @property
    def parts(self) -> tuple[bytes, ...]:
        return self[1]


class _Reading:
    """How the scanner of ``json`` reads: nothing that not every reader understands."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_int = int

    @staticmethod
    def parse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON")

    @staticmethod
    def parse_float(text: str) -> float:
        value = float(text)
        if value in (_INFINITE, -_INFINITE):  # 1e999 is written as a number, and read as what could not be sent on
            raise ValueError("a number too large for a float")
        return value


_BLANK: Final = " \t\n\r"
_INFINITE: Final = float("inf")
_scan: Final = make_scanner(_Reading)  # type: ignore[arg-type]  # it reads these attributes, of whatever has them


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def to_json(value: object) -> str:
    """As ``json.dumps``, without blanks and without NaN. Raises TypeError, ValueError, RecursionError."""
    return "".join(make_encoder({}, _refuse, encode_basestring_ascii, None, ":", ",", False, False, False)(value, 0))


def from_json(text: str) -> Any:
    """As ``json.loads``, without NaN and infinity. Raises ValueError, RecursionError."""
    text = text.strip(_BLANK)
    try:
        value, end = _scan(text, 0)
    except StopIteration as stop:
        raise ValueError(f"no value at character {stop.value}") from None
    if end != len(text):
        raise ValueError(f"more than one value, the next at character {end}")
    return value


def encode(header: Mapping[str, object], *parts: bytes) -> bytes:
    """One message as bytes. What a Decoder would refuse is refused here, where there is somebody to be told."""
    if "sizes" in header:
        raise InvalidRequest('a header has no "sizes" of its own: that key announces the parts')
    sizes = [len(part) for part in parts]
    try:
        line = to_json({**header, "sizes": sizes} if sizes else {**header}).encode("ascii")
    except RecursionError:
        raise InvalidRequest(f"a header that is no JSON: {_TOO_DEEP}") from None
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"a header that is no JSON: {error}") from None
    if len(line) > HEADER_MAX:
        raise InvalidRequest(f"a header of {len(line)} bytes is over {HEADER_MAX}: send less (of the environment?)")
    if len(sizes) > PARTS_COUNT or sum(sizes) > PARTS_MAX:
        raise InvalidRequest(
            f"{len(sizes)} parts of {sum(sizes)} bytes are over what one message has room for: "
            f"{PARTS_COUNT} of {PARTS_MAX} together"
        )
    return b"".join((line, b"\n", *parts))


class Decoder:
    """Finds the messages in what a peer sends, however it is cut, in linear time."""

    __slots__ = (
        "_body",
        "_broken",
        "_header",
        "_header_max",
        "_line",
        "_missing",
        "_parts_count",
        "_parts_max",
        "_sizes",
    )

    def __init__(
        self, header_max: int = HEADER_MAX, parts_max: int = PARTS_MAX, parts_count: int = PARTS_COUNT
    ) -> None:
        self._header_max = header_max
        self._parts_max = parts_max
        self._parts_count = parts_count
        self._line = bytearray()  # the start of a header whose newline has not come
        self._header: dict[str, Any] | None = None  # a header whose parts have not all come
        self._sizes: list[int] = []
        self._missing = 0
        # It grows with what comes: room for what was only announced would be memory for nothing, and a list of pieces
        # many times their size with a peer that sends them small.
        self._body = bytearray()
        self._broken: str | None = None

    def feed(self, data: bytes) -> list[Message]:
        """Take the next bytes; the messages that became whole with them.

        Messages before an error are given all the same, or the cut would decide whether they count: then it is the
        next call that raises. After an error every call raises it.
        """
        self._check()
        messages: list[Message] = []
        try:
            self._read(data, messages)
        except ProtocolError as error:
            self._broken = str(error)
            self._line, self._body = bytearray(), bytearray()
            if not messages:
                raise
        return messages

    def end(self) -> None:
        """Nothing more will come: raise if there was an error, or if a message is only half there."""
        self._check()
        if self.is_amid:
            raise ProtocolError("the peer ended in the middle of a message; what it wanted to say is lost")

    @property
    def is_amid(self) -> bool:
        """Is a message only half there?"""
        return bool(self._line) or self._header is not None

    def _check(self) -> None:
        if self._broken is not None:
            raise ProtocolError(self._broken)  # a new one: the old one's traceback would grow, and keep bytes alive

    def _read(self, data: bytes, messages: list[Message]) -> None:
        at = 0
        while at < len(data):
            at = self._read_line(data, at) if self._header is None else self._read_parts(data, at)
            if self._header is not None and not self._missing:
                messages.append(Message(self._header, self._take_parts()))
                self._header = None

    def _read_line(self, data: bytes, start: int) -> int:
        newline = data.find(b"\n", start)
        end = newline if newline >= 0 else len(data)
        if len(self._line) + end - start > self._header_max:
            raise _unreadable(f"a line of more than {self._header_max} bytes")
        self._line += data[start:end]
        if newline < 0:
            return end
        header = _parse(self._line)
        self._sizes = self._checked(header.pop("sizes", []))
        self._missing = sum(self._sizes)
        self._header = header
        self._line = bytearray()
        return newline + 1

    def _checked(self, sizes: object) -> list[int]:
        if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
            raise _unreadable('"sizes" is no list of byte counts')
        # Neither number is told: each may have thousands of digits, and Python refuses to write those.
        if len(sizes) > self._parts_count or sum(sizes) > self._parts_max:
            raise _unreadable(f"over {self._parts_count} parts, or over {self._parts_max} bytes of them")
        return sizes

    def _read_parts(self, data: bytes, start: int) -> int:
        piece = data[start : start + self._missing]
        self._body += piece
        self._missing -= len(piece)
        return start + len(piece)

    def _take_parts(self) -> tuple[bytes, ...]:
        parts: list[bytes] = []
        at = 0
        with memoryview(self._body) as body:  # a slice of the bytearray itself would be one more copy
            for size in self._sizes:
                parts.append(bytes(body[at : at + size]))
                at += size
        self._body = bytearray()
        return tuple(parts)


def _unreadable(reason: str) -> ProtocolError:
    return ProtocolError(f"the peer sent what is no message ({reason}); nothing after it can be read: connect anew")


def _parse(line: bytearray) -> dict[str, Any]:
    try:
        header = from_json(line.decode())
    except RecursionError:
        raise _unreadable(f"a line that is no JSON: {_TOO_DEEP}") from None
    except ValueError as error:  # also bad UTF-8, and an integer of more than 4300 digits
        raise _unreadable(f"a line that is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise _unreadable("a line that is no JSON object")
    return header
