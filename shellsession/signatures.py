"""The interface that all sessions share, in this process or in the daemon: the options of a call, and ``expect``.

Law: the options of ``run`` and ``stream``, which ``Request`` declares, are typed here and nowhere else. What they mean
is for each session to say, and nothing is run here.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from types import EllipsisType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypedDict, TypeVar

from .errors import InvalidRequest
from .models import TTY, Limits, OnOutput, OnTimeout, Result, Stdin, Stream, check_flag, checked, to_bytes
from .text import decoded

Seconds = float | None | EllipsisType
Text = str | bytes
Command = Text | Sequence[str]  # a list of words is quoted
P = ParamSpec("P")
T = TypeVar("T")
# A request, as that kind of session has it.
R = TypeVar("R")
# What its ``stream`` returns.
OutputT = TypeVar("OutputT")


def awaited(verb: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The coroutine function of a verb: on an asyncio session its body returns something to await."""

    @wraps(verb)
    async def awaits(self: Any, /, *values: P.args, **named: P.kwargs) -> T:
        work: Any = verb(self, *values, **named)
        result: T = await work
        return result

    return awaits


class Output(Iterator[tuple[Stream, bytes] | Result], Protocol):
    """What ``stream`` returns."""

    def close(self) -> None:
        """Interrupt the command, unless it has ended."""


class AsyncOutput(AsyncIterable[tuple[Stream, bytes] | Result], Protocol):
    """What ``stream`` of an asyncio session returns: an asynchronous iterator."""

    def __anext__(self) -> Awaitable[tuple[Stream, bytes] | Result]: ...

    async def aclose(self) -> None:
        """Interrupt the command, unless it has ended."""


class RunOptions(TypedDict, total=False):
    """The options of ``run``, by name."""

    timeout: Seconds
    idle_timeout: float | None
    on_timeout: OnTimeout | None
    stdin: Stdin
    tty: bool | None
    merge_stderr: bool
    isolated: bool
    limits: Limits | None
    on_output: OnOutput | None
    echo: bool
    check: bool


def options_given(arguments: Mapping[str, Any]) -> RunOptions:
    """The options among the arguments of ``run`` that are not left at their defaults."""
    options = RunOptions()
    for name, default in _DEFAULTS.items():
        if arguments.get(name, default) is not default:
            options[name] = arguments[name]  # type: ignore[literal-required]  # its keys are these
    return options


def fed(stdin: object) -> bytes:
    """The bytes of a stdin that is neither empty nor the terminal. Raises InvalidRequest."""
    if not isinstance(stdin, str | bytes | bytearray | memoryview):
        raise InvalidRequest(f"stdin is None (/dev/null), TTY, str or bytes, not {type(stdin).__name__}")
    return to_bytes("stdin", stdin)


def _refuse_terminal(stdin: object) -> None:
    """Raise InvalidRequest for TTY: nobody who iterates over output can answer what the command asks."""
    if stdin is TTY:
        raise InvalidRequest("stream gives a command no terminal to read from: run(stdin=TTY), and send() what it asks")


class AnySession(Generic[R]):
    """What sessions for threads and for asyncio have in common."""

    _gentle: OnTimeout  # for a command that cannot be handed back running at its time limit

    def _request(self, command: Command, given: RunOptions) -> R:
        """The request of ``run``; an option that is not given is the session's own. Raises InvalidRequest."""
        raise NotImplementedError

    def _plain_request(self, command: Command) -> R:
        """The same, for a command without options."""
        return self._request(command, {})

    @property
    def before(self) -> Any:
        """pexpect's ``before``: what came before the last match of ``expect``."""
        return self._screen("before")

    @property
    def after(self) -> Any:
        """pexpect's ``after``: what the last ``expect`` matched."""
        return self._screen("after")

    @property
    def match(self) -> Any:
        """pexpect's ``match``: the last match object of ``expect``."""
        return self._screen("match")

    def _screen(self, name: str) -> Any:
        raise NotImplementedError


class _Streaming(AnySession[R], Generic[R, OutputT]):
    """``stream``, which returns one kind of iterator for threads and another for asyncio."""

    def stream(
        self,
        command: Command,
        *,
        timeout: Seconds = ...,
        idle_timeout: float | None = None,
        stdin: bytes | str | None = None,
        tty: bool | None = None,
        merge_stderr: bool = False,
        isolated: bool = False,
        limits: Limits | None = None,
    ) -> OutputT:
        """Run a command and iterate over its output as it comes, in pieces of (stream, data); last comes its Result.

        The arguments are those of ``run``. Leaving the loop early interrupts the command, once nobody holds the
        iterator any more (while a variable does, ``run`` raises SessionBusy); ``close()`` does so at once. With asyncio
        it is interrupted a little later, at the latest when the session is used next; iterate in
        ``contextlib.aclosing(...)`` to have it done when the loop is left.
        """
        options = options_given(locals())
        _refuse_terminal(stdin)
        return self._stream(self._request(command, {**options, "on_timeout": self._gentle}))

    def _stream(self, request: R) -> OutputT:
        raise NotImplementedError


class ThreadSession(_Streaming[R, Output]):
    """For threads."""

    _checked = staticmethod(checked)

    def __enter__(self) -> Self:
        return self

    def run(
        self,
        command: Command,
        *,
        timeout: Seconds = ...,
        idle_timeout: float | None = None,
        on_timeout: OnTimeout | None = None,
        stdin: Stdin = None,
        tty: bool | None = None,
        merge_stderr: bool = False,
        isolated: bool = False,
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
        echo: bool = False,
        check: bool = False,
    ) -> Result:
        """Run a command (any bash text; str is sent as UTF-8, bytes unchanged) and return what it did.

        A list of words (``["git", "commit", "-m", message]``) is quoted, so that no word is more than one argument.
        Each command gets three streams of its own, so an ``exec >file`` ends with it; all other state persists.

        * ``timeout``: seconds it may run, from its start. ``...`` is the session's default, None no limit.
        * ``idle_timeout``: seconds it may run without printing anything.
        * ``on_timeout``: "interrupt" ends the command and keeps the shell; "kill" ends the shell as well; "yield"
          lets the command run on and returns ``outcome="running"`` (go on with ``wait``, ``send``, ``interrupt``).
        * ``stdin``: None is /dev/null; str or bytes are fed whole; ``TTY`` is the session's terminal in cooked mode. A
          command that waits for an answer there comes back with ``outcome="input"``: ``send`` it, or ``interrupt``.
        * ``tty``: stdout is a terminal (columns, colours), or with False a pipe, which is ten times as fast.
        * ``merge_stderr``: stderr goes where stdout goes, in the order in which it was written.
        * ``isolated``: in a subshell, which sees the session's state and leaves none behind; ``$$`` is still the
          session's, and its jobs are not children of the subshell. The call waits for the end of its process
          substitutions, and 0.5 s for jobs that hold its output.
        * ``limits``: how much output is kept, see ``Limits``.
        * ``on_output``: called as ``on_output("stdout" or "stderr", data)`` while output comes. With asyncio it may be
          a coroutine function; no more output is read while it is awaited.
        * ``echo``: with ``stdin=TTY``, the terminal echoes what is typed.
        * ``check``: raise CommandFailed for a status but 0 or for what was not run, CommandTimeout for a time limit.

        A time limit is no error unless ``check`` makes it one, and the output so far is always in the result. Ctrl-C,
        or cancelling the task, interrupts the command and keeps the shell.
        Raises InvalidRequest before anything runs, SessionBusy while a command that was handed back still runs,
        SessionClosed after ``close()``, and ShellUnavailable when bash cannot be started.
        """
        if (
            (timeout is ... and idle_timeout is None and on_timeout is None and stdin is None and tty is None)
            and (limits is None and on_output is None)
            and (merge_stderr is isolated is echo is check is False)
        ):
            return self._run(self._plain_request(command))
        options = options_given(locals())
        check_flag("check", options.pop("check", False))
        return self._checked(self._run(self._request(command, options)), check, command)

    def expect(self, pattern: Any, timeout: Seconds = ...) -> int:
        """Wait until the running command has printed something that matches; pexpect's ``expect``.

        ``pattern``: a regular expression, or a list of them; the index of the one that matched is returned, and
        ``before``, ``after`` and ``match`` are set as pexpect sets them. What it reads is in the next Result too.
        Raises pexpect.TIMEOUT after ``timeout`` seconds, pexpect.EOF when the command has ended.
        """
        return self._expect(pattern, timeout, exact=False)

    def expect_exact(self, pattern: Any, timeout: Seconds = ...) -> int:
        """As ``expect``, for plain strings."""
        return self._expect(pattern, timeout, exact=True)

    def _run(self, request: R) -> Result:
        raise NotImplementedError

    def _expect(self, pattern: Any, timeout: Seconds, exact: bool) -> int:
        raise NotImplementedError


_DEFAULTS: Final[Mapping[str, Any]] = ThreadSession.run.__kwdefaults__ or {}


class LoopSession(_Streaming[R, AsyncOutput]):
    """For asyncio: the same verbs, as coroutine functions."""

    run = awaited(ThreadSession.run)
    expect = awaited(ThreadSession.expect)
    expect_exact = awaited(ThreadSession.expect_exact)

    async def __aenter__(self) -> Self:
        return self

    async def _checked(self, running: Awaitable[Result], check: bool, command: object) -> Result:
        return checked(await running, check, command)

    async def _run(self, request: R) -> Result:
        raise NotImplementedError

    async def _expect(self, pattern: Any, timeout: Seconds, exact: bool) -> int:
        raise NotImplementedError


# Of its streams, what is shown as which.
_SHOWN: Final = {"stdout": ("stdout", "terminal"), "stderr": ("stderr",)}


class AnyJob:
    """What one call left behind."""

    @property
    def running(self) -> bool:
        """Does a process of it live, or anybody hold its streams?"""
        raise NotImplementedError

    @property
    def status(self) -> str:
        """ "running" or "ended" (bash alone knows with which status: ``wait PID`` asks it)."""
        return "running" if self.running else "ended"

    def output(self, name: str) -> tuple[bytes, int]:
        """The bytes kept of "stdout", "stderr" or "terminal" since the call came back, and how many were omitted.

        Raises SessionClosed in a forked child.
        """
        return self._kept(name)[:2]

    def _kept(self, name: str) -> tuple[bytes, int, int]:
        """As ``output``, and where in the bytes those are missing."""
        raise NotImplementedError

    def _shown(self, name: str) -> tuple[str, int]:
        """As ``stdout`` or ``stderr``, and how many bytes of it were omitted."""
        kept = [self._kept(stream) for stream in _SHOWN[name]]
        return "".join(decoded(*one, marked=True) for one in kept), sum(omitted for _, omitted, _ in kept)

    @property
    def stdout(self) -> str:
        """What it wrote to its call's stdout and, while it was the latest to run, what was written to /dev/tty."""
        return self._shown("stdout")[0]

    @property
    def stderr(self) -> str:
        return self._shown("stderr")[0]
