"""Results, errors and lists as messages: each as a header and parts, and back.

Pure functions. Decoding gives back exactly what was encoded. For anything malformed it raises ProtocolError, and no
other error.
"""

from __future__ import annotations

from ...errors import ProtocolError, ShellSessionError, TooManySessions
from .wire import from_json, to_json

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from ...models import Result
    from ...notices import Notice


_NONE: Final = type(None)
_ERROR_MODULES: Final = {"shellsession.errors", "shellsession.models"}  # whose errors a peer may name
# The fields of a result's header, with their JSON types. (The two streams are its parts.) These are always sent ...
_ALWAYS: Final[Mapping[str, tuple[type, ...]]] = {
    "exit_code": (int, _NONE),
    "cwd": (str,),
    "duration": (float, int),
    "outcome": (str,),
}
# ... and these only if they differ from their default: each costs 0.5 us on either side, for every command.
_UNLESS_DEFAULT: Final[Mapping[str, tuple[tuple[type, ...], object]]] = {
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
    "id": ((str,), ""),
    "output_kept": ((bool,), True),
    "matched": ((bool,), False),
    "stdout_omitted_lines": ((int,), 0),
    "stderr_omitted_lines": ((int,), 0),
    "command": ((str,), ""),
    "recovered": ((str,), ""),
    "changes": ((dict, _NONE), None),
    "replayed": ((bool,), False),
}
_TRUE_BY_DEFAULT: Final = ("state_kept", "ran")


def field(header: object, name: str, *kinds: type) -> Any:
    """A field of a header from the peer. Raises ProtocolError if it is missing or has another type."""
    value = header.get(name, ...) if isinstance(header, dict) else ...
    if type(value) not in kinds:  # the exact type: True is an int to isinstance
        raise ProtocolError(f"the peer sent a message without a valid {name!r}")
    return value


def only_part(parts: tuple[bytes, ...]) -> bytes:
    """The part of a message that has exactly one. Raises ProtocolError for any other number."""
    if len(parts) != 1:
        raise ProtocolError(f"the peer sent {len(parts)} parts instead of one")
    return parts[0]


def from_result(result: Result) -> tuple[dict[str, Any], tuple[bytes, bytes]]:
    """A result as a header and two parts, stdout and stderr."""
    header = {name: getattr(result, name) for name in _ALWAYS}
    for name, (_, default) in _UNLESS_DEFAULT.items():
        if (value := getattr(result, name)) != default:
            header[name] = list(value) if isinstance(value, tuple) else value
    if result.changes is not None:
        header["changes"] = result.changes.to_dict()
    return header, (result.stdout_bytes, result.stderr_bytes)


def to_result(header: Mapping[str, Any], parts: tuple[bytes, ...]) -> Result:
    """The result of a header and its parts. Ignores other fields of the header."""
    if len(parts) != 2:
        raise ProtocolError(f"the peer sent a result with {len(parts)} parts instead of two (stdout and stderr)")
    values: dict[str, Any] = {"signal": None}  # a Result itself has no default for it
    for name, kinds in _ALWAYS.items():
        values[name] = field(header, name, *kinds)
    for name in header:
        if name in _UNLESS_DEFAULT:
            values[name] = field(header, name, *_UNLESS_DEFAULT[name][0])
    for name in ("killed", "background"):
        if name in values:
            values[name] = _tuple_of(int, name, values[name])
    # Slow to import; the command line shows an ordinary result without it.
    from ...models import Changes, Result

    if (given := values.get("changes")) is not None:
        try:
            values["changes"] = Changes.from_dict(given)
        except (KeyError, TypeError, ValueError):
            raise ProtocolError("the peer sent a message without a valid 'changes'") from None
    return Result(parts[0], parts[1], **values)


def exit_code_of(header: object) -> int | None:
    """The exit code of an ordinary result: the command ended by itself, and its shell lives on.

    None for any other result, where the code alone does not tell what happened.
    """
    if not isinstance(header, dict) or header.get("outcome") != "exited" or header.get("reason"):
        return None
    if not header.keys().isdisjoint(_TRUE_BY_DEFAULT):  # it is sent, so it is False
        return None
    code = header.get("exit_code")
    return code if type(code) is int else None


def from_error(error: ShellSessionError) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """An error as a header and parts, with its result or its list of idle agents if it has one."""
    header: dict[str, Any] = {"code": error.code, "message": str(error)}
    if isinstance(error, TooManySessions):
        return header, (to_part(error.idle),)
    if (result := getattr(error, "result", None)) is not None:
        header["result"], parts = from_result(result)
        return header, parts
    return header, ()


def to_error(header: Mapping[str, Any], parts: tuple[bytes, ...]) -> ShellSessionError:
    """The error of a header and its parts: of our class with its code, or a ShellSessionError for an unknown code."""
    code, message = field(header, "code", str), field(header, "message", str)
    from ...models import CommandError  # imported here, as most commands end without an error

    kind = next((kind for kind in _kinds(ShellSessionError) if kind.code == code), None)
    if kind is None:
        return ShellSessionError(f"{message} (the peer calls this {code!r})")
    if issubclass(kind, CommandError):
        return kind(message, to_result(field(header, "result", dict), parts))
    if issubclass(kind, TooManySessions):
        return kind(message, _tuple_of(str, "idle", from_part(parts)))
    return kind(message)


def closed_meanwhile(agent: str) -> str:
    """The message for a client whose agent has no session any more."""
    return f"the session of agent {agent!r} was closed meanwhile: connect again for a new one"


def _kinds(root: type[ShellSessionError]) -> Iterator[type[ShellSessionError]]:
    """Yield a class and its subclasses in our own modules: a peer must not create a subclass of the host program."""
    yield root
    for child in root.__subclasses__():
        if child.__module__ in _ERROR_MODULES:
            yield from _kinds(child)


def to_part(value: object) -> bytes:
    """A list as a part: it may be too long for a header."""
    return to_json(value).encode("ascii")


def from_part(parts: tuple[bytes, ...]) -> list[Any]:
    """The list in a message's part. Raises ProtocolError."""
    try:
        value = from_json(parts[0].decode())
    except (IndexError, ValueError, RecursionError):
        value = None
    if not isinstance(value, list):
        raise ProtocolError("the peer sent something else instead of a list")
    return value


def to_notice(values: object) -> Notice:
    """The notice with these fields, as the daemon lists them."""
    from ...notices import Notice

    kinds = [(int,), (str,), (float,), (str,), (str,), (int, _NONE), (str,), (int,)]
    if not isinstance(values, list) or len(values) != len(kinds):
        values = [None] * len(kinds)
    if not all(type(one) in kind for one, kind in zip(values, kinds, strict=True)):
        raise ProtocolError("the peer sent a list without valid notices")
    return Notice(*values)


def _tuple_of(kind: type, name: str, values: object) -> tuple[Any, ...]:
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise ProtocolError(f"the peer sent {name!r} as something other than a list of {kind.__name__}")
    return tuple(values)
