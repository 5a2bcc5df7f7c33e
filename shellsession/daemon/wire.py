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

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ..errors import CommandError, InvalidRequest, ProtocolError, ShellSessionError, TooManySessions
from ..models import Result

# Changes with every incompatible change of what is said here.
PROTOCOL: Final = 2

# A header holds the client's environment: Linux starts no program with more than 2 MiB of arguments and environment
# (with the usual stack of 8 MiB), and half of that is still far more than anybody has.
HEADER_MAX: Final = 1 << 20
# All parts of a message together: both streams of a result whose ``max_output`` was raised to 128 MiB.
PARTS_MAX: Final = 256 << 20
# A command and its stdin, or two streams, are two: there is room for more, but not for an endless list of empty ones.
PARTS_COUNT: Final = 8
# Characters of a request's id; see ledger.
ID_MAX: Final = 128


class Message(NamedTuple):
    """One message: its header (without "sizes") and the parts that came with it."""

    header: dict[str, Any]
    parts: tuple[bytes, ...]


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):  # 1e999 is written as a number, and read as what could not be sent on
        raise ValueError("a number too large for a float")
    return value


_READER: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)
_WRITER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def encode(header: Mapping[str, object], *parts: bytes) -> bytes:
    """One message as bytes. What a Decoder would refuse is refused here, where there is somebody to be told."""
    if "sizes" in header:
        raise InvalidRequest('a header has no "sizes" of its own: that key announces the parts')
    sizes = [len(part) for part in parts]
    try:
        line = _WRITER.encode({**header, "sizes": sizes} if sizes else {**header}).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"a header that is no JSON: {error}") from None
    if len(line) > HEADER_MAX:
        raise InvalidRequest(f"a header of {len(line)} bytes is over {HEADER_MAX}: send less (of the environment?)")
    if len(sizes) > PARTS_COUNT or sum(sizes) > PARTS_MAX:
        raise InvalidRequest(
            f"{len(sizes)} parts of {sum(sizes)} bytes are over what one message has room for: "
            f"{PARTS_COUNT} of {PARTS_MAX} together"
        )
    return b"".join((line, b"\n", *parts))


def to_part(value: object) -> bytes:
    """A list that may be too long for a header, as a part."""
    return _WRITER.encode(value).encode("ascii")


def from_part(parts: tuple[bytes, ...]) -> list[Any]:
    """The list again, which is the only part."""
    try:
        value = _READER.decode(parts[0].decode())
    except (IndexError, ValueError, RecursionError):
        value = None
    if not isinstance(value, list):
        raise ProtocolError("the peer sent something else than a list where one was to come")
    return value


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
        if self._line or self._header is not None:
            raise ProtocolError("the peer ended in the middle of a message; what it wanted to say is lost")

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
        header = _READER.decode(line.decode())
    except (ValueError, RecursionError) as error:  # also bad UTF-8, and an integer of more than 4300 digits
        raise _unreadable(f"a line that is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise _unreadable("a line that is no JSON object")
    return header


_NONE: Final = type(None)
# What a result's header holds, as JSON has it; the two streams are its parts. These are always there ...
_RESULT: Final[Mapping[str, tuple[type, ...]]] = {
    "exit_code": (int, _NONE),
    "cwd": (str,),
    "duration": (float, int),
    "outcome": (str,),
}
# ... and these where they are not what they mostly are: each would cost 0.5 us on either side, for every command.
_SELDOM: Final[Mapping[str, tuple[tuple[type, ...], object]]] = {
    "signal": ((int, _NONE), None),
    "state_kept": ((bool,), True),
    "reason": ((str,), ""),
    "killed": ((list,), ()),
    "background": ((list,), ()),
    "stdout_omitted": ((int,), 0),
    "stderr_omitted": ((int,), 0),
    "stdout_file": ((str, _NONE), None),
    "stderr_file": ((str, _NONE), None),
    "stdout_cut": ((int,), 0),
    "stderr_cut": ((int,), 0),
    "ran": ((bool,), True),
}


def from_result(result: Result) -> tuple[dict[str, Any], tuple[bytes, bytes]]:
    """A result as a header and two parts."""
    header = {name: getattr(result, name) for name in _RESULT}
    for name, (_, usual) in _SELDOM.items():
        if (value := getattr(result, name)) != usual:
            header[name] = list(value) if isinstance(value, tuple) else value
    return header, (result.stdout_bytes, result.stderr_bytes)


def to_result(header: Mapping[str, Any], parts: tuple[bytes, ...]) -> Result:
    """The result again; what a header holds besides one is left alone."""
    if len(parts) != 2:
        raise ProtocolError(f"the peer sent a result with {len(parts)} parts: stdout and stderr are two")
    values: dict[str, Any] = {"signal": None}
    for name, kinds in _RESULT.items():
        values[name] = _proper(header.get(name, ...), name, kinds)
    for name, value in header.items():
        if name in _SELDOM:
            values[name] = _proper(value, name, _SELDOM[name][0])
    for name in ("killed", "background"):
        if name in values:
            values[name] = _tuple_of(int, name, values[name])
    return Result(parts[0], parts[1], **values)


def _proper(value: object, name: str, kinds: tuple[type, ...]) -> object:
    if type(value) not in kinds:  # the exact type: True is an int to isinstance
        raise ProtocolError(f"the peer sent a result without a proper {name!r}")
    return value


def from_error(error: ShellSessionError) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """An error as a header and parts, with what it carries."""
    header: dict[str, Any] = {"code": error.code, "message": str(error)}
    if isinstance(error, TooManySessions):
        return header, (to_part(error.idle),)
    if isinstance(error, CommandError):
        header["result"], parts = from_result(error.result)
        return header, parts
    return header, ()


def to_error(header: Mapping[str, Any], parts: tuple[bytes, ...]) -> ShellSessionError:
    """The error again, of the class that has its code in errors.py; ShellSessionError when none has."""
    code, message = header.get("code"), header.get("message")
    if not isinstance(code, str) or not isinstance(message, str):
        raise ProtocolError("the peer sent an error without a code or without a message")
    kind = next((kind for kind in _kinds(ShellSessionError) if kind.code == code), None)
    if kind is None:
        return ShellSessionError(f"{message} (the peer calls this {code!r})")
    if issubclass(kind, CommandError):
        result = header.get("result")
        if not isinstance(result, dict):
            raise ProtocolError(f"the peer sent an error {code!r} without its result")
        return kind(message, to_result(result, parts))
    if issubclass(kind, TooManySessions):
        return kind(message, _tuple_of(str, "idle", from_part(parts)))
    return kind(message)


def _kinds(root: type[ShellSessionError]) -> Iterator[type[ShellSessionError]]:
    """A class of errors.py and those below it there: a program's own subclass is not the peer's to make."""
    yield root
    for child in root.__subclasses__():
        if child.__module__ == root.__module__:
            yield from _kinds(child)


def _tuple_of(kind: type, name: str, values: object) -> tuple[Any, ...]:
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise ProtocolError(f"the peer sent {name!r} as something else than a list of {kind.__name__}")
    return tuple(values)
