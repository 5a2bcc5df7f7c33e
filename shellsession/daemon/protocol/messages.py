"""What messages say: results, errors and lists, as headers and parts.

Law: pure. What was said comes out as it went in; what is none of it raises ProtocolError, and nothing else.
"""

from __future__ import annotations

from ...errors import ProtocolError, ShellSessionError, TooManySessions
from .wire import from_json, to_json

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from ...models import Result


_NONE: Final = type(None)
_HOMES: Final = {"shellsession.errors", "shellsession.models"}  # of the errors that a peer may name
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
_LOST: Final = ("state_kept", "ran")  # these are there only where they are False


def field(header: object, name: str, *kinds: type) -> Any:
    """What the peer sent as that. Raises ProtocolError where it is no such thing."""
    value = header.get(name, ...) if isinstance(header, dict) else ...
    if type(value) not in kinds:  # the exact type: True is an int to isinstance
        raise ProtocolError(f"the peer sent a message without a proper {name!r}")
    return value


def only_part(parts: tuple[bytes, ...]) -> bytes:
    """What the peer sent with a message. Raises ProtocolError where that is not one part."""
    if len(parts) != 1:
        raise ProtocolError(f"the peer sent {len(parts)} parts where one was to come")
    return parts[0]


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
        values[name] = field(header, name, *kinds)
    for name in header:
        if name in _SELDOM:
            values[name] = field(header, name, *_SELDOM[name][0])
    for name in ("killed", "background"):
        if name in values:
            values[name] = _tuple_of(int, name, values[name])
    from ...models import Result  # dear, and a command line shows what ends well without one

    return Result(parts[0], parts[1], **values)


def exit_code_of(header: object) -> int | None:
    """The exit code in the header of a result, of a command that ended by itself and left its shell as usual.

    None for any other, where there is more to say than that.
    """
    if not isinstance(header, dict) or header.get("outcome") != "exited" or not header.keys().isdisjoint(_LOST):
        return None
    code = header.get("exit_code")
    return code if type(code) is int else None


def from_error(error: ShellSessionError) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """An error as a header and parts, with what it carries."""
    header: dict[str, Any] = {"code": error.code, "message": str(error)}
    if isinstance(error, TooManySessions):
        return header, (to_part(error.idle),)
    if (result := getattr(error, "result", None)) is not None:
        header["result"], parts = from_result(result)
        return header, parts
    return header, ()


def to_error(header: Mapping[str, Any], parts: tuple[bytes, ...]) -> ShellSessionError:
    """The error again, of the class of ours that has its code; ShellSessionError when none has."""
    code, message = field(header, "code", str), field(header, "message", str)
    from ...models import CommandError  # here, as most commands end without an error

    kind = next((kind for kind in _kinds(ShellSessionError) if kind.code == code), None)
    if kind is None:
        return ShellSessionError(f"{message} (the peer calls this {code!r})")
    if issubclass(kind, CommandError):
        return kind(message, to_result(field(header, "result", dict), parts))
    if issubclass(kind, TooManySessions):
        return kind(message, _tuple_of(str, "idle", from_part(parts)))
    return kind(message)


def closed_meanwhile(agent: str) -> str:
    """What a client is told whose agent has no session any more."""
    return f"the session of agent {agent!r} was closed meanwhile: connect again for a new one"


def _kinds(root: type[ShellSessionError]) -> Iterator[type[ShellSessionError]]:
    """A class and those below it, as far as they are ours: a program's own subclass is not the peer's to make."""
    yield root
    for child in root.__subclasses__():
        if child.__module__ in _HOMES:
            yield from _kinds(child)


def to_part(value: object) -> bytes:
    """A list that may be too long for a header, as a part."""
    return to_json(value).encode("ascii")


def from_part(parts: tuple[bytes, ...]) -> list[Any]:
    """The list again, which is the only part."""
    try:
        value = from_json(parts[0].decode())
    except (IndexError, ValueError, RecursionError):
        value = None
    if not isinstance(value, list):
        raise ProtocolError("the peer sent something else than a list where one was to come")
    return value


def _tuple_of(kind: type, name: str, values: object) -> tuple[Any, ...]:
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise ProtocolError(f"the peer sent {name!r} as something else than a list of {kind.__name__}")
    return tuple(values)
