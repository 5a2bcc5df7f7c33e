"""What goes in and what comes out: plain frozen records, checked once, cheap to make and to import."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from .errors import CommandFailed, CommandTimeout, InvalidRequest
from .record import Record

if TYPE_CHECKING:
    from .policy.sandbox import Sandbox

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


LONGEST: Final = 1e9  # 31 years: more is a mistake, and at some point no clock can tell it


def check_seconds(name: str, value: object) -> None:
    """Refuse what is no positive, finite number of seconds (None, no limit, is fine)."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST:
        raise InvalidRequest(f"{name} is a positive number of seconds (at most {LONGEST:.0f}), or None for no limit")


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
        """Standard output as text; bytes that are no UTF-8 become U+FFFD."""
        return text_of(self.stdout_bytes, self.stdout_omitted, self.stdout_cut)

    @property
    def stderr(self) -> str:
        """Standard error as text; bytes that are no UTF-8 become U+FFFD."""
        return text_of(self.stderr_bytes, self.stderr_omitted, self.stderr_cut)

    @property
    def ok(self) -> bool:
        """True when the command ended by itself with status 0."""
        return self.outcome == "exited" and self.exit_code == 0

    @property
    def runs_on(self) -> bool:
        """True when the command was handed back running: ``wait``, ``send`` and ``interrupt`` are there for it."""
        return self.exit_code is None and self.state_kept and self.outcome in ("running", "input", "idle")


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


def checked(result: Result, check: bool) -> Result:
    """The result; raises CommandFailed or CommandTimeout where ``check`` asks for that."""
    if not check or result.runs_on:
        return result
    if result.outcome in ("timed_out", "idle"):
        raise CommandTimeout(f"{result.reason} after {result.duration:.1f} s; what it printed is in .result", result)
    if not result.ran:  # the status is that of what ended the shell before it, and may be 0
        raise CommandFailed(f"{result.reason or 'the command was not run'}; see .result", result)
    if result.exit_code != 0:
        why = result.reason or result.outcome
        raise CommandFailed(f"the command ended with status {result.exit_code} ({why}); see .result", result)
    return result


def unfinished(data: bytes) -> bytes:
    """The first bytes of a UTF-8 character at the end of ``data`` whose last ones have not come."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if 0xC2 <= byte < 0xF5:
            whole = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return data[-back:] if back < whole else b""
        if not 0x80 <= byte < 0xC0:  # others begin none, and none will ever come of them
            break
    return b""


def text_of(data: bytes, omitted: int, cut: int) -> str:
    """Decode output whose middle is missing at ``cut``, without half a character on either side of the gap."""
    if not omitted:
        return data.decode("utf-8", "replace")
    head, tail = data[:cut], data[cut:]
    head = head[: len(head) - len(unfinished(head))]
    skip = 0
    while skip < min(3, len(tail)) and 0x80 <= tail[skip] < 0xC0:
        skip += 1
    return head.decode("utf-8", "replace") + tail[skip:].decode("utf-8", "replace")


class Options(Record, unshown=("env", "extra_env")):
    """How a session's bash is started; see ``Session`` for the meaning of each field."""

    cwd: str | None = None
    env: Mapping[str, str] | None = None
    extra_env: Mapping[str, str] | None = None
    agent_env: bool = True
    startup: tuple[bytes, ...] = ()
    size: tuple[int, int] = (200, 50)
    bash: str = "bash"
    timeout: float | None = None
    sandbox: Sandbox | None = None
    umask: int | None = None  # of the client that opened it; None: the host's
    tty: bool = True  # most commands have a terminal
    check_startup: bool = True
