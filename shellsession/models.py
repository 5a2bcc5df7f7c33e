"""What goes in and what comes out: plain frozen records, checked once, cheap to make and to import."""

from __future__ import annotations

import enum
import functools
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, Self, dataclass_transform

from .errors import InvalidRequest, ShellSessionError
from .text import MAX_CHARS, decoded, ending, fitted, listed, report, status


class CommandError(ShellSessionError):
    """A command that did not do well, raised because ``check=True`` asked for it."""

    code = "command"

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[type[CommandError], tuple[str, Result]]:
        return type(self), (str(self), self.result)  # to cross processes with its result


class CommandFailed(CommandError):
    """The command ended with a status other than 0, or was not run; ``result`` has its output, and says which."""

    code = "command_failed"


class CommandTimeout(CommandError, TimeoutError):
    """The time limit passed; ``result`` has the output so far and what was killed."""

    code = "command_timeout"


def _signature(made: Any) -> object:
    from inspect import signature

    return signature(made)


def _frozen(said: str) -> Exception:
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(said)


@functools.cache
def _dataclass(record: Any, bare: bool = False) -> Any:
    """What ``dataclasses`` makes of the same fields; ``bare``: without methods, which take ten times as long (1 ms)."""
    from dataclasses import MISSING, field, make_dataclass

    fields = [
        (name, kind, field(default=record._defaults.get(name, MISSING), repr=name not in record._unshown))
        for name, kind in record._types.items()
    ]
    if bare:
        named = {"__doc__": record.__name__}  # else one is made of its signature
        return make_dataclass(record.__name__, fields, init=False, repr=False, eq=False, namespace=named)
    return make_dataclass(record.__name__, fields, frozen=True)


class _AsDataclass:
    """What ``dataclasses`` (replace, asdict, fields), pydantic and inspect look for, made when it is asked for."""

    def __init__(self, read: Callable[[Any], object]) -> None:
        self._read = read

    def __get__(self, _: object, record: Any) -> Any:
        return self._read(record)


@dataclass_transform(frozen_default=True)
class Record:
    """Its fields are the names that its class annotates, in their order; what is assigned there is their default.

    Two are equal where they are of one class, and all their fields are.
    """

    # Without annotations, which typing.get_type_hints would tell of as of fields.
    __dataclass_fields__ = _AsDataclass(lambda record: _dataclass(record, bare=True).__dataclass_fields__)
    __dataclass_params__ = _AsDataclass(lambda record: _dataclass(record).__dataclass_params__)
    __signature__ = _AsDataclass(lambda record: _signature(_dataclass(record)))
    _types = dict[str, Any]()  # noqa: RUF012  # each class has its own
    _defaults = dict[str, Any]()  # noqa: RUF012
    _unshown = tuple[str, ...]()

    def __init_subclass__(cls, unshown: tuple[str, ...] = ()) -> None:
        """``unshown``: fields that ``repr`` leaves out."""
        own = cls.__annotations__
        cls._types = {**cls._types, **own}
        cls._defaults = {**cls._defaults, **{name: cls.__dict__[name] for name in own if name in cls.__dict__}}
        cls._unshown = (*cls._unshown, *unshown)
        setattr(cls, "__match_args__", tuple(cls._types))  # noqa: B010  # mypy knows of it, and wants to set it itself

    def __init__(self, *values: Any, **named: Any) -> None:
        if len(values) == len(self._types) and not named:  # as each command makes them: 2 us less
            self.__dict__.update(zip(self._types, values, strict=True))
        else:
            self.__dict__.update(self._completed(values, named))
        self.__post_init__()

    def _completed(self, values: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The fields that were given, and the defaults of the others. Raises TypeError."""
        placed = dict(zip(self._types, values, strict=False))
        fields = {**self._defaults, **placed, **named}
        if fields.keys() != self._types.keys() or len(placed) < len(values) or not placed.keys().isdisjoint(named):
            kind: Any = type(self)
            _dataclass(kind)(*values, **named)  # says what is wrong
        return fields

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""

    def __replace__(self, **changes: Any) -> Self:
        fields = {**self.__dict__, **changes}
        if len(fields) > len(self._types):
            return type(self)(**fields)  # says what is wrong
        made = object.__new__(type(self))
        made.__dict__.update(fields)
        made.__post_init__()
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise _frozen(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise _frozen(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self._types))

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in self._types if name not in self._unshown]
        return f"{type(self).__qualname__}({', '.join(shown)})"


VERSION: Final = "0.1.0"

Outcome = Literal["exited", "timed_out", "idle", "interrupted", "running", "input", "overflow", "shell_exited"]
OnTimeout = Literal["interrupt", "kill", "yield"]
State = Literal["new", "idle", "running", "closed"]
OnOverflow = Literal["truncate", "kill"]
Stream = Literal["stdout", "stderr"]
OnOutput = Callable[[Stream, bytes], object]

# As many bytes of command text as anybody has a reason to send; a mistake (a file read into
# a command) is told before bash spends minutes parsing it.
MAX_COMMAND: Final = 16 << 20


class Terminal(enum.Enum):
    """The type of ``TTY``: give the command the terminal as its stdin."""

    TTY = "tty"

    def __repr__(self) -> str:
        return self.name


TTY: Final = Terminal.TTY
Stdin = str | bytes | Terminal | None


class Limits(Record):
    """How much of a command's output is kept.

    ``max_output``: bytes kept per stream, half of them from the start and half from the end.
    ``spill``: where output beyond that is written whole: a directory (a new pair of files per call),
    or a file path (stdout there, stderr beside it with ``.stderr`` added); ``spill_max`` caps each file, in bytes.
    ``on_overflow``: ``"truncate"`` drops the middle and counts it; ``"kill"`` ends the command.
    """

    max_output: int = 1 << 20
    spill: str | None = None
    spill_max: int = 1 << 30
    on_overflow: OnOverflow = "truncate"

    def __post_init__(self) -> None:
        for name in ("max_output", "spill_max"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InvalidRequest(f"limits.{name} is a number of bytes, 0 or more, not {value!r}")
        if self.spill is not None:
            if not (spill := path_text(self.spill)):
                raise InvalidRequest(f"limits.spill is the path of a file or directory (str), not {self.spill!r:.100}")
            self.__dict__["spill"] = spill
        if self.on_overflow not in ("truncate", "kill"):
            raise InvalidRequest(f'limits.on_overflow is "truncate" or "kill", not {self.on_overflow!r}')


def path_text(value: Any) -> str | None:
    """A path, a path object too, as text; None for what is none."""
    to_text = getattr(type(value), "__fspath__", None)
    path = value if to_text is None else to_text(value)
    with suppress(UnicodeEncodeError):
        if isinstance(path, str) and b"\0" not in path.encode("utf-8", "surrogateescape"):
            return path
    return None


_LAST_WORDS: Final = 2000  # bytes of stderr in the error of a command that failed
LONGEST: Final = 1e9  # 31 years: more is a mistake, and at some point no clock can tell it


def check_seconds(name: str, value: object) -> None:
    """Refuse what is no positive, finite number of seconds (None, no limit, is fine)."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST:
        raise InvalidRequest(
            f"{name} is a positive number of seconds (at most {LONGEST:.0f}), or None for no limit, not {value!r:.100}"
        )


def check_flag(name: str, value: object) -> None:
    """Refuse what is neither True nor False: any text would be true."""
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} is True or False, not {value!r:.100}")


def to_bytes(name: str, value: object) -> bytes:
    """Text as UTF-8 (lone surrogates as the bytes they stand for), bytes as they are."""
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"{name} cannot be written as UTF-8: {error}") from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidRequest(f"{name} is str or bytes, not {type(value).__name__}")


class Request(Record):
    """One command and how to run it; see ``Session.run`` for the meaning of each field."""

    command: bytes
    timeout: float | None = None
    idle_timeout: float | None = None
    on_timeout: OnTimeout = "interrupt"
    stdin: bytes | Terminal | None = None
    tty: bool = True
    echo: bool = False
    merge_stderr: bool = False
    isolated: bool = False
    limits: Limits = Limits()
    on_output: OnOutput | None = None

    def __post_init__(self) -> None:
        self._check_command()
        check_seconds("timeout", self.timeout)
        check_seconds("idle_timeout", self.idle_timeout)
        if not isinstance(self.limits, Limits):
            raise InvalidRequest(f"limits is a Limits, not {type(self.limits).__name__}")
        if self.on_output is not None and not callable(self.on_output):
            raise InvalidRequest(f"on_output is a function of (stream, data), not {self.on_output!r}")
        if not (type(self.tty) is type(self.merge_stderr) is type(self.isolated) is type(self.echo) is bool):
            for name in ("tty", "merge_stderr", "isolated", "echo"):
                check_flag(name, getattr(self, name))
        if self.on_timeout not in ("interrupt", "kill", "yield"):
            raise InvalidRequest(f'on_timeout is "interrupt", "kill" or "yield", not {self.on_timeout!r}')

    def _check_command(self) -> None:
        if b"\0" in self.command:
            raise InvalidRequest(f"the command holds a NUL byte (at {self.command.index(0)}), which bash cannot read")
        if len(self.command) > MAX_COMMAND:
            raise InvalidRequest(
                f"the command is {len(self.command)} bytes long, over {MAX_COMMAND}: put it into a file and source that"
            )

    def with_command(self, command: bytes) -> Request:
        """The same request for another command; its other fields were checked before. Raises InvalidRequest."""
        request = object.__new__(Request)
        request.__dict__.update(self.__dict__, command=command)
        if b"\0" in command or len(command) > MAX_COMMAND:
            request._check_command()
        return request

    def with_output(self, on_output: OnOutput | None) -> Request:
        """The same request with another callback of ours; its other fields were checked before."""
        request = object.__new__(Request)
        request.__dict__.update(self.__dict__, on_output=on_output)
        return request


# The names of the options of ``run``. (Another one is ``check``: it asks for an error, and a request does not have it.)
OPTIONS: Final = Request.__match_args__[1:]
# What JSON may have for each type of a field.
_KINDS: Final = {
    "bytes": (bytes,),
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "int | None": (int, type(None)),
    "float": (float, int),
    "bool": (bool,),
    "Outcome": (str,),
    "tuple[int, ...]": (tuple,),
}


class Result(Record, unshown=("stdout_cut", "stderr_cut")):
    """What a command did, as far as it got.

    ``exit_code`` is what bash's ``$?`` shows (128 + n when signal n killed the shell itself), None when nothing
    was reported. ``signal`` is set when the shell itself, or the command by our hand, died of a signal.
    ``state_kept`` is False when the shell is gone: the next command starts in a fresh one. ``ran`` is False when the
    command is known not to have run, as the shell was gone before it, or something else took it: run it again safely.
    ``reason`` says in words why the call came back other than by the command's own end, and how its shell ended.
    ``killed`` are the ids of the processes that were ended with the command. Where the shell is gone, what earlier
    commands had left running is among them, and the shell itself if we killed it.
    ``background`` are those that it left running. ``duration`` is in seconds; ``*_omitted`` count dropped bytes.
    """

    stdout_bytes: bytes
    stderr_bytes: bytes
    exit_code: int | None
    signal: int | None
    cwd: str
    duration: float
    outcome: Outcome
    state_kept: bool = True
    reason: str = ""
    killed: tuple[int, ...] = ()
    background: tuple[int, ...] = ()
    stdout_omitted: int = 0
    stderr_omitted: int = 0
    stdout_file: str | None = None
    stderr_file: str | None = None
    stdout_cut: int = 0
    stderr_cut: int = 0
    ran: bool = True

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that are no UTF-8 become U+FFFD. A mark stands where bytes are missing."""
        return decoded(self.stdout_bytes, self.stdout_omitted, self.stdout_cut, marked=True)

    @property
    def stderr(self) -> str:
        """Standard error as text, as ``stdout``."""
        return decoded(self.stderr_bytes, self.stderr_omitted, self.stderr_cut, marked=True)

    @property
    def ok(self) -> bool:
        """True when the command ended by itself with status 0."""
        return self.outcome == "exited" and self.exit_code == 0

    @property
    def runs_on(self) -> bool:
        """True when the command was handed back running: ``wait``, ``send`` and ``interrupt`` are there for it."""
        return self.exit_code is None and self.state_kept and self.outcome in ("running", "input", "idle")

    def for_model(self, max_chars: int = MAX_CHARS, clean: bool = True) -> str:
        """What a model should read: the output, and in brackets how the command ended where it did not simply succeed.

        At most ``max_chars`` characters. Longer output keeps its first and last lines, and a mark in between says how
        much is missing. ``clean``: as a terminal shows it: no escape sequences, ``\\r`` and backspaces carried out.
        """
        if isinstance(max_chars, bool) or not isinstance(max_chars, int) or max_chars < 1:
            raise InvalidRequest(f"max_chars is a number of characters, 1 or more, not {max_chars!r:.100}")
        check_flag("clean", clean)
        notes = [ending(self)]
        if self.background:
            notes.append(f"left running in the background: process {listed(self.background)}")
        if files := [file for file in (self.stdout_file, self.stderr_file) if file]:
            notes.append(f"all of the output: {', '.join(files)}")
        return report(streams_of(self), notes, max_chars, clean)

    def __str__(self) -> str:
        """As ``for_model()``."""
        return self.for_model()

    def __repr__(self) -> str:
        said = [self.outcome] if self.exit_code is None else [self.outcome, status(self.exit_code)]
        said += [f"{name} {len(data) + omitted} bytes" for name, data, omitted, _ in streams_of(self)]
        return f"<Result {', '.join(said)}, {self.duration:.3g} s>"

    def to_dict(self) -> dict[str, Any]:
        """Every field, as JSON has it, and ``runs_on``. Output is text, and where that is not exact also base64."""
        told: dict[str, Any] = {"stdout": self.stdout, "stderr": self.stderr}
        told |= {name: getattr(self, name) for name in self._types if not name.endswith("_bytes")}
        told |= {"killed": list(self.killed), "background": list(self.background), "runs_on": self.runs_on}
        for name, data, *_ in streams_of(self):
            if told[name].encode("utf-8", "surrogateescape") != data:
                told[f"{name}_base64"] = b2a_base64(data, newline=False).decode()
        return told

    def to_json(self) -> str:
        """``to_dict`` as JSON."""
        import json

        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Result:
        """The result of which ``to_dict`` made this. Raises InvalidRequest for what is none."""
        fields = {name: given[name] for name in cls._types if name in given}
        try:
            for name in ("stdout", "stderr"):
                exact = given.get(f"{name}_base64")
                fields[f"{name}_bytes"] = given[name].encode() if exact is None else a2b_base64(exact, strict_mode=True)
            for name in ("killed", "background"):
                fields[name] = tuple(fields[name])
            made = cls(**fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidRequest(f"this is no result as to_dict makes it: {error!r:.200}") from None
        for name, kind in cls._types.items():
            if type(getattr(made, name)) not in _KINDS[kind]:
                raise InvalidRequest(f"a result's {name} is {kind}, not {getattr(made, name)!r:.100}")
            if kind == "tuple[int, ...]" and any(type(one) is not int for one in getattr(made, name)):
                raise InvalidRequest(f"a result's {name} is a list of int, not {getattr(made, name)!r:.100}")
        return made

    @classmethod
    def from_json(cls, text: str | bytes) -> Result:
        """The result of which ``to_json`` made this text. Raises InvalidRequest for what is none."""
        import json

        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"this is no JSON: {error}") from None
        if not isinstance(given, dict):
            raise InvalidRequest("the JSON of a result is an object")
        return cls.from_dict(given)


_EXITED: Final = Result(b"", b"", 0, None, "", 0.0, "exited").__dict__


def exited(stdout: bytes, stderr: bytes, status: int, cwd: str, duration: float) -> Result:
    """The result of a command that ended by itself, and of which nothing is missing."""
    result = object.__new__(Result)  # without the checks of a result that a caller makes: 2 us
    result.__dict__.update(
        _EXITED, stdout_bytes=stdout, stderr_bytes=stderr, exit_code=status, cwd=cwd, duration=duration
    )
    return result


def streams_of(result: Result) -> tuple[tuple[Stream, bytes, int, int], ...]:
    """Both its streams: which it is, what was kept, how many bytes are missing, and where."""
    return (
        ("stdout", result.stdout_bytes, result.stdout_omitted, result.stdout_cut),
        ("stderr", result.stderr_bytes, result.stderr_omitted, result.stderr_cut),
    )


_KEYWORDS: Final = frozenset(
    (
        *("case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select"),
        *("then", "time", "until", "while"),
    )
)


def command_bytes(command: object) -> bytes:
    """The text of a command as bash reads it; a list of words is quoted. Raises InvalidRequest."""
    if isinstance(command, list | tuple):
        if not command or not all(isinstance(word, str) for word in command):
            raise InvalidRequest("a command of several words is a list of str, the program first")
        import shlex

        program = shlex.quote(command[0])
        if program == command[0] and ("=" in program or program in _KEYWORDS):
            program = f"'{program}'"  # quoted it is no assignment, and no keyword of bash's
        command = " ".join([program, *map(shlex.quote, command[1:])])
    return to_bytes("command", command)


def checked(result: Result, check: bool, command: object = "") -> Result:
    """The result; raises CommandFailed or CommandTimeout where ``check`` asks for that, with the ``command``."""
    if not check or result.runs_on:
        return result
    if result.outcome in ("timed_out", "idle"):
        raise CommandTimeout(f"{result.reason} after {result.duration:.1f} s{_outline(result, command)}", result)
    if not result.ran:  # the status is that of what ended the shell before it, and may be 0
        raise CommandFailed(f"{result.reason or 'the command was not run'}{_outline(result, command)}", result)
    if result.exit_code != 0:
        why = f" ({result.reason})" if result.reason else ""
        raise CommandFailed(f"{status(result.exit_code)}{why}{_outline(result, command)}", result)
    return result


def _outline(result: Result, command: object) -> str:
    """Which command an error is about, and what it wrote last, to stderr if it wrote anything there."""
    text = command_bytes(command).decode("utf-8", "replace") if command else ""
    for name, data, *_ in reversed(streams_of(result)):  # test runners write their findings to stdout
        if said := fitted(data[-_LAST_WORDS:], 0, 0, _LAST_WORDS).rstrip():
            return f": {text:.200}" * bool(text) + f"\nThe end of {name}:\n{said}"
    return f": {text:.200}" * bool(text)
