"""The wire format of the daemon: a message is one JSON object on a line, directly followed by raw bytes.

::

    {"verb":"run","id":"5f.1.7","sizes":[7,2]}     the header, one line; it has "sizes" if parts follow
    echo hihi                                      the parts: 7 bytes, then 2, with nothing between

Parts carry output, commands and input as raw bytes, without base64. The header is ASCII: json escapes all other
characters. So it does with lone surrogates, which stand for bytes of a path or variable that are not UTF-8. A text
with both halves of a surrogate pair as two characters comes out as one character; decoding bytes never makes such a
text.

No I/O happens here. Whatever a peer sends, a Decoder buffers no more than its limits and raises only ProtocolError.
"""

from __future__ import annotations

from _json import (  # not from json, which imports re: the command line would start more slowly
    encode_basestring_ascii,
    make_encoder,
    make_scanner,
)

from ...errors import InvalidRequest, ProtocolError

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final, NoReturn, Self


# The version of the protocol; raised with every incompatible change.
PROTOCOL: Final = 18

# A header holds the client's environment. Linux allows a program 2 MiB of arguments and environment (with the usual
# stack of 8 MiB); half of that is still far more than anybody has.
HEADER_MAX: Final = 1 << 20
# All parts of a message together: both streams of a result whose ``max_output`` was raised to 128 MiB.
PARTS_MAX: Final = 256 << 20
OUTPUT_MAX: Final = PARTS_MAX // 2
# Messages have at most two parts today: a command and its stdin, or two streams. There is room for a few more, but not
# for an endless list of empty ones.
PARTS_COUNT: Final = 8
# Characters of a request's id; see ledger.
ID_MAX: Final = 128
# Replaces the text of a RecursionError, which in Python 3.14 is about kilobytes of stack.
_TOO_DEEP: Final = "nested too deeply"


class Message(tuple["dict[str, Any]", "tuple[bytes, ...]"]):
    """One message: its header (without "sizes") and its parts.

    Not a NamedTuple: importing that takes longer than the rest of a command line's start.
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


class _StrictJson:
    """Settings for the scanner of ``json``: standard JSON only, without NaN and infinity."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_int = int

    @staticmethod
    def parse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    @staticmethod
    def parse_float(text: str) -> float:
        value = float(text)
        if value in (_INFINITE, -_INFINITE):  # such as 1e999: it could not be encoded again
            raise ValueError("a number too large for a float")
        return value


_BLANK: Final = " \t\n\r"
_INFINITE: Final = float("inf")
_scan: Final = make_scanner(_StrictJson)  # type: ignore[arg-type]  # it takes any object with these attributes


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
    """One message as bytes. Raises InvalidRequest for a message that a Decoder would refuse."""
    if "sizes" in header:
        raise InvalidRequest('a header must not contain "sizes": that key announces the parts')
    sizes = [len(part) for part in parts]
    try:
        line = to_json({**header, "sizes": sizes} if sizes else {**header}).encode("ascii")
    except RecursionError:
        raise InvalidRequest(f"the header is not JSON: {_TOO_DEEP}") from None
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"the header is not JSON: {error}") from None
    if len(line) > HEADER_MAX:
        raise InvalidRequest(
            f"the header has {len(line)} bytes, over the limit of {HEADER_MAX}: send less (of the environment?)"
        )
    if len(sizes) > PARTS_COUNT or sum(sizes) > PARTS_MAX:
        raise InvalidRequest(
            f"the message has {len(sizes)} parts of {sum(sizes)} bytes, over the limit of "
            f"{PARTS_COUNT} parts of {PARTS_MAX} bytes together"
        )
    return b"".join((line, b"\n", *parts))


class Decoder:
    """Splits a peer's bytes into messages, in linear time, however the bytes are cut into pieces."""

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
        # It grows with the data. Allocating what was only announced would waste memory, and so would a list of many
        # small pieces.
        self._body = bytearray()
        self._broken: str | None = None

    def feed(self, data: bytes) -> list[Message]:
        """Take the next bytes, and return the messages that are complete with them. Raises ProtocolError.

        If whole messages precede an error, they are returned, and the next call raises. So whether these messages count
        does not depend on how the bytes are cut. After an error every call raises it.
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
        """Note that no more bytes will come. Raises ProtocolError after an error, or if a message is incomplete."""
        self._check()
        if self.is_incomplete:
            raise ProtocolError("the peer closed the connection in the middle of a message, which is lost")

    @property
    def is_incomplete(self) -> bool:
        """Has only a part of a message come so far?"""
        return bool(self._line) or self._header is not None

    def _check(self) -> None:
        if self._broken is not None:
            raise ProtocolError(self._broken)  # a new exception: the traceback of the old one keeps data alive

    def _read(self, data: bytes, messages: list[Message]) -> None:
        at = 0
        while at < len(data):
            at = self._read_line(data, at) if self._header is None else self._read_parts(data, at)
            if self._header is not None and not self._missing:
                messages.append(Message(self._header, self._take_parts()))
                self._header = None

    def _read_line(self, data: bytes, start: int) -> int:
        """Read up to the end of a header line; the position after it."""
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
            raise _unreadable('"sizes" is not a list of byte counts')
        # The message shows neither number: each may have thousands of digits, and Python refuses to print those.
        if len(sizes) > self._parts_count or sum(sizes) > self._parts_max:
            raise _unreadable(f"over {self._parts_count} parts, or over {self._parts_max} bytes of them")
        return sizes

    def _read_parts(self, data: bytes, start: int) -> int:
        """Read missing bytes of the parts; the position after them."""
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
    return ProtocolError(f"the peer sent an invalid message ({reason}); nothing after it can be read: connect again")


def _parse(line: bytearray) -> dict[str, Any]:
    try:
        header = from_json(line.decode())
    except RecursionError:
        raise _unreadable(f"a line that is not JSON: {_TOO_DEEP}") from None
    except ValueError as error:  # also for invalid UTF-8, and an integer of more than 4300 digits
        raise _unreadable(f"a line that is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise _unreadable("a line that is not a JSON object")
    return header
