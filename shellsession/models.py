"""The records that a session takes and returns: ``Request``, ``Limits``, ``Result``, and the errors with a result.

They are frozen, are checked once when they are made, and are cheap to make and to import. ``Record`` is their base.
"""

from __future__ import annotations

import enum
import functools
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import EllipsisType
from typing import Any, Final, Literal, Self, dataclass_transform

from .errors import InvalidRequest, ShellSessionError
from .paging import check_chars
from .redact import Redact, masker
from .text import (
    MAX_CHARS,
    clean as cleaned,
    decoded,
    edited,
    ending,
    fitted,
    left_running,
    reason_of,
    report,
    status,
    waits,
)


class CommandError(ShellSessionError):
    """A command failed or timed out. Raised only with ``check=True``; ``result`` is its Result."""

    code = "command"

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[type[CommandError], tuple[str, Result]]:
        return type(self), (str(self), self.result)  # so that pickle keeps ``result``


class CommandFailed(CommandError):
    """The exit status was not 0, or the command was not run. ``result`` has its output and says which."""

    code = "command_failed"


class CommandTimeout(CommandError, TimeoutError):
    """The time limit passed. ``result`` has the output so far and says what was killed."""

    code = "command_timeout"


def _signature(made: Any) -> object:
    from inspect import signature

    return signature(made)


def _frozen(said: str) -> Exception:
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(said)


@functools.cache
def _dataclass(record: Any, bare: bool = False) -> Any:
    """Return the dataclass with the same fields as a record class.

    ``bare``: without methods, which take ten times as long to make (1 ms).
    """
    from dataclasses import MISSING, field, make_dataclass

    fields = [
        (name, kind, field(default=record._defaults.get(name, MISSING), repr=name not in record._unshown))
        for name, kind in record._types.items()
    ]
    if bare:
        named = {"__doc__": record.__name__}  # otherwise dataclasses makes one from the signature
        return make_dataclass(record.__name__, fields, init=False, repr=False, eq=False, namespace=named)
    return make_dataclass(record.__name__, fields, frozen=True)


class _AsDataclass:
    """A class attribute for ``dataclasses`` (replace, asdict, fields), pydantic and inspect; made on first use."""

    def __init__(self, read: Callable[[Any], object]) -> None:
        self._read = read

    def __get__(self, _: object, record: Any) -> Any:
        return self._read(record)


@dataclass_transform(frozen_default=True)
class Record:
    """A frozen record. The annotations of its class are its fields, in order; values assigned there are the defaults.

    Two records are equal if they have the same class and equal fields.
    """

    # Without annotations: typing.get_type_hints would report these as fields.
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
        setattr(cls, "__match_args__", tuple(cls._types))  # noqa: B010  # mypy sets this attribute itself

    def __init__(self, *values: Any, **named: Any) -> None:
        if len(values) == len(self._types) and not named:  # this way, which each command takes, saves 2 us
            self.__dict__.update(zip(self._types, values, strict=True))
        else:
            self.__dict__.update(self._completed(values, named))
        self.__post_init__()

    def _completed(self, values: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Return the given fields, and the defaults of the others. Raises TypeError."""
        placed = dict(zip(self._types, values, strict=False))
        fields = {**self._defaults, **placed, **named}
        if fields.keys() != self._types.keys() or len(placed) < len(values) or not placed.keys().isdisjoint(named):
            kind: Any = type(self)
            _dataclass(kind)(*values, **named)  # raises the TypeError that says what is wrong
        return fields

    def __post_init__(self) -> None:
        """Validate the fields. Raises InvalidRequest."""

    def __replace__(self, **changes: Any) -> Self:
        fields = {**self.__dict__, **changes}
        if len(fields) > len(self._types):
            return type(self)(**fields)  # raises the TypeError that says what is wrong
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

# The longest command, in bytes. It exceeds every real need. A mistake (a file read into a command) is refused before
# bash spends minutes on parsing it.
MAX_COMMAND: Final = 16 << 20


class Terminal(enum.Enum):
    """The type of ``TTY``, the value of ``stdin`` that gives a command the terminal."""

    TTY = "tty"

    def __repr__(self) -> str:
        return self.name


TTY: Final = Terminal.TTY
Stdin = str | bytes | Terminal | None


class Limits(Record):
    """How much of a command's output is kept.

    * ``max_output``: how many bytes of each stream are kept, half from the start and half from the end.
    * ``spill``: where the whole output is written if it exceeds that. A directory gets a new pair of files for each
      call. A file path gets stdout; stderr goes beside it, with ``.stderr`` added to the name.
    * ``spill_max``: the largest size of each of these files, in bytes.
    * ``on_overflow``: ``"truncate"`` drops the middle and counts the bytes; ``"kill"`` ends the command.
    """

    max_output: int = 1 << 20
    spill: str | None = None
    spill_max: int = 1 << 30
    on_overflow: OnOverflow = "truncate"

    def __post_init__(self) -> None:
        for name in ("max_output", "spill_max"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InvalidRequest(f"limits.{name} must be a number of bytes, 0 or more, not {value!r}")
        if self.spill is not None:
            if not (spill := path_text(self.spill)):
                raise InvalidRequest(f"limits.spill must be the path of a file or directory, not {self.spill!r:.100}")
            self.__dict__["spill"] = spill
        if self.on_overflow not in ("truncate", "kill"):
            raise InvalidRequest(f'limits.on_overflow is "truncate" or "kill", not {self.on_overflow!r}')


def path_text(value: Any) -> str | None:
    """Return a path (str or path object) as text, or None if ``value`` is no valid path."""
    to_text = getattr(type(value), "__fspath__", None)
    path = value if to_text is None else to_text(value)
    with suppress(UnicodeEncodeError):
        if isinstance(path, str) and b"\0" not in path.encode("utf-8", "surrogateescape"):
            return path
    return None


_LAST_OUTPUT: Final = 2000  # bytes of output in the error of a command that failed
KEY_MAX: Final = 255  # characters of an idempotency key
LONGEST: Final = 1e9  # 31 years: more is a mistake, and clocks overflow at some point


def check_seconds(name: str, value: object) -> None:
    """Raise InvalidRequest unless the value is a positive, finite number of seconds, or None (no limit)."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST:
        raise InvalidRequest(
            f"{name} must be a positive number of seconds (at most {LONGEST:.0f}), or None for no limit, "
            f"not {value!r:.100}"
        )


def check_flag(name: str, value: object) -> None:
    """Raise InvalidRequest unless the value is True or False: any non-empty text would count as true."""
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} is True or False, not {value!r:.100}")


class OwnText(bytes):
    """The text of one command, which is no other object: Python has one object for all equal ``bytes`` of one byte."""


def to_bytes(name: str, value: object) -> bytes:
    """Return text as UTF-8, with lone surrogates as the bytes that they stand for; return bytes unchanged."""
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"{name} cannot be written as UTF-8: {error}") from None
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidRequest(f"{name} must be str or bytes, not {type(value).__name__}")


def check_key(key: object) -> None:
    """Raise InvalidRequest unless this can be an idempotency key."""
    if not isinstance(key, str) or not 0 < len(key) <= KEY_MAX or any("\ud800" <= one <= "\udfff" for one in key):
        raise InvalidRequest(f"idempotency_key must be text (Unicode) of 1 to {KEY_MAX} characters, not {key!r:.100}")


class Request(Record, unshown=("env",)):
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
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    patience: float | EllipsisType | None = ...
    changes: bool = False
    errexit: bool = False
    idempotency_key: str | None = None

    def __post_init__(self) -> None:
        self._check_command()
        if self.cwd is not None and not path_text(self.cwd):
            raise InvalidRequest(f"cwd must be the path of a directory, not {self.cwd!r:.100}")
        if self.env is not None:
            _check_variables(self.env)
        check_seconds("timeout", self.timeout)
        check_seconds("idle_timeout", self.idle_timeout)
        if self.patience is not ...:
            check_seconds("patience", self.patience)
        if not isinstance(self.limits, Limits):
            raise InvalidRequest(f"limits must be a Limits, not {type(self.limits).__name__}")
        if self.on_output is not None and not callable(self.on_output):
            raise InvalidRequest(f"on_output must be a function of (stream, data), not {self.on_output!r}")
        flags = {type(self.tty), type(self.merge_stderr), type(self.isolated), type(self.echo), type(self.changes)}
        if flags != {bool} or type(self.errexit) is not bool:
            for name in ("tty", "merge_stderr", "isolated", "echo", "changes", "errexit"):
                check_flag(name, getattr(self, name))
        if self.on_timeout not in ("interrupt", "kill", "yield"):
            raise InvalidRequest(f'on_timeout is "interrupt", "kill" or "yield", not {self.on_timeout!r}')
        if self.idempotency_key is not None:
            check_key(self.idempotency_key)

    def _check_command(self) -> None:
        if b"\0" in self.command:
            raise InvalidRequest(f"the command holds a NUL byte (at {self.command.index(0)}), which bash cannot read")
        if len(self.command) > MAX_COMMAND:
            raise InvalidRequest(
                f"the command is {len(self.command)} bytes long, over {MAX_COMMAND}: put it into a file and source that"
            )

    @property
    def waits(self) -> float | None:
        """How many seconds it may wait before it runs; None is no limit."""
        return self.timeout if isinstance(self.patience, EllipsisType) else self.patience

    def with_command(self, command: bytes) -> Request:
        """Return the same request for another command. Its other fields were checked before. Raises InvalidRequest."""
        request = object.__new__(Request)
        request.__dict__.update(self.__dict__, command=command)
        if b"\0" in command or len(command) > MAX_COMMAND:
            request._check_command()
        return request

    def with_output(self, on_output: OnOutput | None) -> Request:
        """Return the same request with another callback, without checks: the callback is ours."""
        request = object.__new__(Request)
        request.__dict__.update(self.__dict__, on_output=on_output)
        return request


# Bash computes these itself. They would lose their meaning for good, as they cannot be set back to what they were.
_COMPUTED: Final = frozenset(
    (
        *("BASHPID", "BASH_ALIASES", "BASH_ARGV0", "BASH_CMDS", "BASH_COMMAND", "BASH_MONOSECONDS", "BASH_SUBSHELL"),
        *("COMP_WORDBREAKS", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "FUNCNAME", "GROUPS", "HISTCMD", "LINENO"),
        *("PIPESTATUS", "RANDOM", "SECONDS", "SRANDOM"),
    )
)


def _check_variables(env: object) -> None:
    """Raise InvalidRequest unless a command can have these variables. No message shows a value: it may be a secret."""
    if not isinstance(env, Mapping):
        raise InvalidRequest(f"env must be a mapping of names to values, not {type(env).__name__}")
    for name, value in env.items():
        if not (isinstance(name, str) and name.isascii() and name.isidentifier()):
            head, equals, _ = name.partition("=") if isinstance(name, str) else (type(name).__name__, "", "")
            shown = repr(f"{head}=..." if equals else head) if isinstance(name, str) else head
            raise InvalidRequest(f"env: {shown:.100} is not the name of a variable: use letters, digits and _")
        if name in _COMPUTED:
            raise InvalidRequest(f"env: bash computes {name} itself, and it cannot be set for one command")
        if not isinstance(value, str):
            raise InvalidRequest(f"env: the value of {name} must be a str, not {type(value).__name__}")
        if b"\0" in to_bytes(f"env: the value of {name}", value):
            raise InvalidRequest(f"env: the value of {name} contains a NUL byte, which no variable can have")


_OF_SHELL: Final = ("added", "changed", "removed")


class Changes(Record):
    """What a command has changed in its shell: pairs of a kind and a name, such as ("variable", "X").

    The kinds are "variable", "function", "alias", "trap", "option", "cwd" and "umask". The name of an option is that of
    ``set -o`` or ``shopt``; of "cwd" and "umask" it is the new value. No other value is here: it may be a secret.

    ``files``: what it has written on a branch: pairs of "added", "changed" or "removed" and a path. There are at most
    some hundreds, and ``files_omitted`` counts the rest.
    """

    added: tuple[tuple[str, str], ...] = ()
    changed: tuple[tuple[str, str], ...] = ()
    removed: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    files_omitted: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.files)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values for JSON."""
        pairs = {name: [list(pair) for pair in getattr(self, name)] for name in (*_OF_SHELL, "files")}
        return {**pairs, "files_omitted": self.files_omitted}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Changes:
        """Return the changes from which ``to_dict`` made this. Raises TypeError, ValueError or KeyError otherwise."""
        listed = {**{name: given[name] for name in _OF_SHELL}, "files": given.get("files", ())}
        fields = {name: tuple((kind, one) for kind, one in pairs) for name, pairs in listed.items()}
        if any(type(text) is not str for pairs in fields.values() for pair in pairs for text in pair):
            raise TypeError("changes must be pairs of texts")
        if type(omitted := given.get("files_omitted", 0)) is not int:
            raise TypeError("files_omitted must be a number")
        return cls(**fields, files_omitted=omitted)


# The names of the options of ``run``, without ``check``: that only asks for an error, and no request has it.
OPTIONS: Final = Request.__match_args__[1:]
# The types that JSON may give for each type of a field.
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
    "Changes | None": (Changes, type(None)),
}


class Result(Record, unshown=("stdout_cut", "stderr_cut")):
    """What a command did until its call returned.

    * ``outcome``: how the call ended; "exited" means that the command ended by itself.
    * ``exit_code``: what ``$?`` is in bash, or 128 + n if signal n killed the shell itself. None if bash has reported
      no status.
    * ``signal``: the signal that ended the shell itself, or that we sent to end the command.
    * ``reason``: in words, why the call returned before the command ended by itself, how the shell ended, or that the
      agent's earlier session had expired.
    * ``state_kept``: False if the shell is gone; the next command starts in a new one.
    * ``ran``: False if the command certainly did not run. The shell was gone before, something else read the command,
      or its ``cwd`` or ``env`` could not be set. You can safely run it again.
    * ``killed``: the ids of the processes that were ended with the command. If the shell is gone, they include what
      earlier commands had left running, and the shell itself if we killed it.
    * ``background``: the ids of the processes that the command left running.
    * ``duration``: in seconds. ``cwd``: bash's working directory afterwards.
    * ``stdout_omitted``, ``stderr_omitted``: how many bytes were dropped. ``stdout_omitted_lines``,
      ``stderr_omitted_lines``: about how many lines ended in them; 0 also if that is unknown.
    * ``stdout_file``, ``stderr_file``: the spill files that were written; see ``Limits``.
    * ``id``: the name of the command for ``read_output``. A command that was handed back has one id for all its
      results.
    * ``output_kept``: False if ``read_output`` cannot show all of it, because the session's directory is full.
    * ``matched``: True if ``wait(until=)`` returned because the output matches.
    * ``command``: the first 4096 bytes of the command, as text.
    * ``recovered``: with ``recover=True``, which state a fresh shell was given after the end of the last one; else "".
    * ``changes``: with ``run(changes=True)``, what the command has changed. None if that is unknown: the command was
      handed back, or its shell is gone.
    * ``replayed``: True if this call ran nothing, as an earlier one had the same ``idempotency_key``: this is the
      result of that one.
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
    id: str = ""
    output_kept: bool = True
    matched: bool = False
    stdout_omitted_lines: int = 0
    stderr_omitted_lines: int = 0
    command: str = ""
    recovered: str = ""
    changes: Changes | None = None
    replayed: bool = False

    @property
    def stdout(self) -> str:
        """Standard output as text. Invalid UTF-8 becomes U+FFFD, and a note marks the place of omitted bytes."""
        return decoded(self.stdout_bytes, self.stdout_omitted, self.stdout_cut, marked=True)

    @property
    def stderr(self) -> str:
        """Standard error as text, decoded like ``stdout``."""
        return decoded(self.stderr_bytes, self.stderr_omitted, self.stderr_cut, marked=True)

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself with status 0."""
        return self.outcome == "exited" and self.exit_code == 0

    @property
    def still_running(self) -> bool:
        """Whether the command was handed back and still runs. Continue with ``wait``, ``send`` or ``interrupt``."""
        return self.exit_code is None and self.state_kept and self.outcome in ("running", "input", "idle")

    @property
    def runs_on(self) -> bool:
        """The earlier name of ``still_running``."""
        return self.still_running

    @property
    def question(self) -> str:
        """The program's question if ``outcome`` is "input", else "".

        It is the unfinished last line of stderr, where `read -p` and Python's `input()` write it, or else of stdout. If
        all lines are complete, it is the last one. Escape sequences are removed.
        """
        return question_in(self.stdout_bytes, self.stderr_bytes) if self.outcome == "input" else ""

    def for_model(self, max_chars: int = MAX_CHARS, clean: bool = True, redact: Redact = False) -> str:
        """Return the text for a model: the output, and in brackets how the command ended if it did not just succeed.

        The text has at most ``max_chars`` characters. Longer output is cut in the middle, where a note says how much
        was omitted, and which ``read_output`` call shows it. ``clean``: leave out escape sequences, and show only the
        last version of a line that was overwritten after ``\\r``. ``redact``: show ``***`` for secrets; see
        ``Session``.
        """
        check_chars(max_chars)
        check_flag("clean", clean)
        notes = [ending(self, max_chars)]
        if self.background:
            notes.append(left_running(self.background))
        if files := [file for file in (self.stdout_file, self.stderr_file) if file]:
            notes.append(f"all of the output: {', '.join(files)}")
        if (mask := masker(redact)) is None:
            id = self.id if self.output_kept else ""
            return report(streams_of(self), notes, max_chars, clean, id, omitted_lines(self))
        return report(masked_streams(self, mask, clean), [*map(mask, notes)], max_chars, clean, "", omitted_lines(self))

    def __str__(self) -> str:
        """Return ``for_model()``."""
        return self.for_model()

    def __repr__(self) -> str:
        said = [self.outcome] if self.exit_code is None else [self.outcome, status(self.exit_code)]
        said += [f"{name} {len(data) + omitted} bytes" for name, data, omitted, _ in streams_of(self)]
        return f"<Result {', '.join(said)}, {self.duration:.3g} s>"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, and ``still_running``, as values for JSON. ``runs_on`` is its earlier name.

        Output is text. If the text does not reproduce the bytes exactly, a base64 field has them as well.
        """
        fields: dict[str, Any] = {"stdout": self.stdout, "stderr": self.stderr}
        fields |= {name: getattr(self, name) for name in self._types if not name.endswith("_bytes")}
        fields |= {"killed": list(self.killed), "background": list(self.background)}
        fields["changes"] = None if self.changes is None else self.changes.to_dict()
        fields |= {"still_running": self.still_running, "runs_on": self.still_running}
        for name, data, *_ in streams_of(self):
            if fields[name].encode("utf-8", "surrogateescape") != data:
                fields[f"{name}_base64"] = b2a_base64(data, newline=False).decode()
        return fields

    def to_json(self) -> str:
        """Return ``to_dict`` as JSON."""
        import json

        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Result:
        """Return the result from which ``to_dict`` made this. Raises InvalidRequest if it is not such a dict."""
        fields = {name: given[name] for name in cls._types if name in given}
        try:
            for name in ("stdout", "stderr"):
                exact = given.get(f"{name}_base64")
                fields[f"{name}_bytes"] = given[name].encode() if exact is None else a2b_base64(exact, strict_mode=True)
            for name in ("killed", "background"):
                fields[name] = tuple(fields[name])
            if fields.get("changes") is not None:
                fields["changes"] = Changes.from_dict(fields["changes"])
            made = cls(**fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidRequest(f"this is not a result as to_dict makes it: {error!r:.200}") from None
        for name, kind in cls._types.items():
            if type(getattr(made, name)) not in _KINDS[kind]:
                raise InvalidRequest(f"a result's {name} is {kind}, not {getattr(made, name)!r:.100}")
            if kind == "tuple[int, ...]" and any(type(one) is not int for one in getattr(made, name)):
                raise InvalidRequest(f"a result's {name} must be a list of int, not {getattr(made, name)!r:.100}")
        return made

    @classmethod
    def from_json(cls, text: str | bytes) -> Result:
        """Return the result from which ``to_json`` made this text. Raises InvalidRequest if it is not such a text."""
        import json

        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"this is not JSON: {error}") from None
        if not isinstance(given, dict):
            raise InvalidRequest("the JSON of a result is an object")
        return cls.from_dict(given)


def question_in(stdout: bytes, stderr: bytes) -> str:
    """Return what a program has asked in this output; see ``Result.question``."""
    lines = [cleaned(data[-_LAST_OUTPUT:].decode("utf-8", "replace")).split("\n") for data in (stderr, stdout)]
    unfinished = (line[-1].strip() for line in lines)
    complete = (one.strip() for line in lines for one in reversed(line[:-1]))
    return next(filter(None, (*unfinished, *complete)), "")


# Of several processes, what explains most comes first.
WhyKind = Literal[
    "stopped",
    "cpu",
    "lock",
    "network",
    "terminal",
    "fifo",
    "pipe",
    "socket",
    "output",
    "disk",
    "listen",
    "files",
    "sleep",
    "children",
    "signal",
    "itself",
    "unknown",
    "nothing",
]


class Why(Record):
    """What a command waits for, as /proc shows it: ``str()`` of it is one line, such as "sleep sleeps".

    * ``kind``: a word for programs; docs/why.md lists them. "nothing": no command runs. "unknown": /proc does not say.
    * ``pid``, ``comm``: the process that explains the rest, and its name; 0 and "" if there is none.
    """

    kind: WhyKind
    text: str
    pid: int = 0
    comm: str = ""

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values for JSON."""
        return {name: getattr(self, name) for name in self._types}


# Bytes of a command in its results: more than a person or a model reads, and little for a message.
_COMMAND_SHOWN: Final = 4096
_EXITED: Final = Result(b"", b"", 0, None, "", 0.0, "exited").__dict__


def exited(stdout: bytes, stderr: bytes, status: int, cwd: str, duration: float, id: str, command: bytes) -> Result:
    """Return the result of a command that ended by itself, with its complete output."""
    result = object.__new__(Result)  # without ``__init__``, which takes 2 us more
    result.__dict__.update(
        _EXITED,
        stdout_bytes=stdout,
        stderr_bytes=stderr,
        exit_code=status,
        cwd=cwd,
        duration=duration,
        id=id,
        command=command_text(command),
    )
    return result


def command_text(command: bytes) -> str:
    """Return the ``Result.command`` of a command."""
    return command[:_COMMAND_SHOWN].decode("utf-8", "replace")


def streams_of(result: Result) -> tuple[tuple[Stream, bytes, int, int], ...]:
    """Return for each stream its name, the bytes kept, how many bytes are missing, and where."""
    return (
        ("stdout", result.stdout_bytes, result.stdout_omitted, result.stdout_cut),
        ("stderr", result.stderr_bytes, result.stderr_omitted, result.stderr_cut),
    )


def omitted_lines(result: Result) -> dict[str, int]:
    """Return for each stream about how many lines were dropped."""
    return {"stdout": result.stdout_omitted_lines, "stderr": result.stderr_omitted_lines}


def masked_streams(
    result: Result, mask: Callable[[str], str], clean: bool = True
) -> tuple[tuple[Stream, bytes, int, int], ...]:
    """Return ``streams_of`` the result with secrets masked: as a terminal shows them, if the text will be cleaned."""

    def edit(text: str) -> str:
        return mask(cleaned(text) if clean else text)

    return tuple((name, *edited(data, omitted, cut, edit)) for name, data, omitted, cut in streams_of(result))


_KEYWORDS: Final = frozenset(
    (
        *("case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select"),
        *("then", "time", "until", "while"),
    )
)


def command_bytes(command: object) -> bytes:
    """Return the text of a command as bash reads it, with the words of a list quoted. Raises InvalidRequest."""
    if isinstance(command, list | tuple):
        if not command or not all(isinstance(word, str) for word in command):
            raise InvalidRequest("a command of several words is a list of str: the program first, then its arguments")
        import shlex

        program = shlex.quote(command[0])
        if program == command[0] and ("=" in program or program in _KEYWORDS):
            program = f"'{program}'"  # quoted it is no assignment, and no keyword of bash's
        command = " ".join([program, *map(shlex.quote, command[1:])])
    elif not isinstance(command, str | bytes | bytearray | memoryview):
        raise InvalidRequest(f"a command must be str, bytes or a list of words, not {type(command).__name__}")
    return to_bytes("command", command)


def checked(result: Result, check: bool, command: object = "") -> Result:
    """Return the result. With ``check``, raise CommandFailed or CommandTimeout; the message shows the ``command``."""
    if not check or result.runs_on:
        return result
    if result.outcome in ("timed_out", "idle"):
        said, _ = reason_of(result)
        raise CommandTimeout(f"{said} after {result.duration:.1f} s{waits(result)}{_outline(result, command)}", result)
    if not result.ran:  # the status is that of the shell that had ended before, and may be 0
        raise CommandFailed(f"{result.reason or 'the command was not run'}{_outline(result, command)}", result)
    if not result.ok:  # also where a command that ended the shell has cut the rest short
        why = f" ({result.reason})" if result.reason else ""
        raise CommandFailed(f"{status(result.exit_code)}{why}{_outline(result, command)}", result)
    return result


def _outline(result: Result, command: object) -> str:
    """Return the end of an error message: the command, and the end of its stderr (of its stdout if that is empty)."""
    text = command_bytes(command).decode("utf-8", "replace") if command else ""
    for name, data, *_ in reversed(streams_of(result)):  # test runners write their findings to stdout
        if shown := fitted(data[-_LAST_OUTPUT:], 0, 0, _LAST_OUTPUT).rstrip():
            return f": {text:.200}" * bool(text) + f"\nThe end of {name}:\n{shown}"
    return f": {text:.200}" * bool(text)
