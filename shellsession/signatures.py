"""The interface that all sessions share, in this process or in the daemon: what they do with commands and their output.

Law: the options of ``run`` and ``stream``, which ``Request`` declares, are typed here and nowhere else. Nothing runs
here; each kind of session implements ``_run`` and ``_stream``.
"""

from __future__ import annotations

import re
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import wraps
from os import PathLike
from types import EllipsisType
from typing import (
    Any,
    BinaryIO,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
)

from .errors import InvalidRequest
from .files import Transfer, reading, writing
from .models import (
    TTY,
    Limits,
    OnOutput,
    OnTimeout,
    Result,
    Stdin,
    Stream,
    Why,
    check_flag,
    check_seconds,
    checked,
    to_bytes,
)
from .notices import Notice, Watch
from .paging import Query, Range, query_for
from .patterns import Pattern, compiled
from .redact import Redact, masker
from .text import MAX_CHARS, decoded

Seconds = float | None | EllipsisType
Text = str | bytes
Command = Text | Sequence[str]  # each word of a list becomes one argument
P = ParamSpec("P")
T = TypeVar("T")
# The type of a request in that kind of session.
R = TypeVar("R")
# The types that its ``stream`` and its ``events`` return.
OutputT = TypeVar("OutputT")
EventsT = TypeVar("EventsT")


def awaited(verb: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Turn a method into a coroutine function. In an asyncio session the method's body returns an awaitable."""

    @wraps(verb)
    async def awaits(self: Any, /, *values: P.args, **named: P.kwargs) -> T:
        work: Any = verb(self, *values, **named)
        result: T = await work
        return result

    return awaits


def explained(call: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Decorate a method: Python's TypeError for wrong arguments names the caller's class, and a similar option."""

    @wraps(call)
    def explains(self: Any, /, *values: P.args, **named: P.kwargs) -> T:
        try:
            return call(self, *values, **named)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # ``call`` has begun
                raise
            name = type(self).__name__ + ("" if call.__name__ == "__init__" else f".{call.__name__}")
            code = call.__code__
            refuse_unknown(name, named, code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])
            raise TypeError(str(error).replace(call.__qualname__, name, 1)) from None

    return explains


def refuse_unknown(name: str, given: Iterable[str], options: Collection[str]) -> None:
    """Raise TypeError, as Python words it, for the first of the ``given`` names that is no option of ``name``."""
    for one in given:
        if one not in options:
            from difflib import get_close_matches  # 5 ms

            close = get_close_matches(one, options, 1, 0.7)
            hint = f"did you mean {close[0]}?" if close else f"its options are {', '.join(options)}"
            raise TypeError(f"{name}() got an unexpected keyword argument {one!r}: {hint}") from None


class Output(Iterator[tuple[Stream, bytes] | Result], Protocol):
    """The iterator that ``stream`` returns."""

    def close(self) -> None:
        """Interrupt the command, unless it has ended."""


class AsyncOutput(AsyncIterable[tuple[Stream, bytes] | Result], Protocol):
    """The asynchronous iterator that ``stream`` of an asyncio session returns."""

    def __anext__(self) -> Awaitable[tuple[Stream, bytes] | Result]: ...

    async def aclose(self) -> None:
        """Interrupt the command, unless it has ended."""


class RunOptions(TypedDict, total=False):
    """The options of ``run``, by name."""

    timeout: Seconds
    idle_timeout: Seconds
    on_timeout: OnTimeout | None
    stdin: Stdin | EllipsisType
    tty: bool | None
    merge_stderr: bool | None
    isolated: bool
    limits: Limits | None
    on_output: OnOutput | None
    echo: bool
    cwd: str | PathLike[str] | None
    env: Mapping[str, str] | None
    patience: Seconds
    changes: bool
    errexit: bool
    idempotency_key: str | None
    check: bool


def options_given(arguments: Mapping[str, Any]) -> RunOptions:
    """Return those arguments of ``run`` that are options and differ from their defaults."""
    options = RunOptions()
    for name, default in _DEFAULTS.items():
        if arguments.get(name, default) is not default:
            options[name] = arguments[name]  # type: ignore[literal-required]  # _DEFAULTS has the same keys
    return options


def fed(stdin: object) -> bytes:
    """Return the bytes of a stdin that is neither None nor the terminal. Raises InvalidRequest."""
    if not isinstance(stdin, str | bytes | bytearray | memoryview):
        raise InvalidRequest(f"stdin is None (/dev/null), TTY, str or bytes, not {type(stdin).__name__}")
    if stdin == "TTY":
        raise InvalidRequest("stdin is the text 'TTY': pass shellsession.TTY for the terminal, or b'TTY' for that text")
    return to_bytes("stdin", stdin)


def deadline(timeout: Seconds, default: float | None) -> float | None:
    """The moment at which a verb with this time limit must return; None if it has none. Raises InvalidRequest."""
    seconds = default if isinstance(timeout, EllipsisType) else timeout
    check_seconds("timeout", seconds)
    return None if seconds is None else time.monotonic() + seconds


def check_idle(idle_timeout: Seconds) -> None:
    """Raise InvalidRequest unless this is a number of seconds, None, or ``...``."""
    if idle_timeout is not ...:
        check_seconds("idle_timeout", idle_timeout)


def pattern_of(until: object) -> re.Pattern[str] | None:
    """Return the regular expression of ``wait(until=)``. Raises InvalidRequest."""
    if until is not None and not isinstance(until, str):
        raise InvalidRequest(f"until must be a regular expression (str), not {until!r:.100}")
    return None if until is None else compiled("until", until, re.MULTILINE)


def _refuse_terminal(stdin: object) -> None:
    """Raise InvalidRequest for TTY: a caller that iterates over output cannot answer a question of the command."""
    if stdin is TTY:
        raise InvalidRequest("stream gives a command no terminal to read from: use run(stdin=TTY) and send()")


class AnySession(Generic[R]):
    """The base of sessions for threads and for asyncio."""

    _gentle: OnTimeout  # the ``on_timeout`` of a command that cannot be handed back at its time limit

    def __reduce__(self) -> Any:
        raise TypeError(
            "a session cannot be pickled, as its shell belongs to this machine: pickle its results, or use connect()"
            " with the agent's name in the other process"
        )

    def _request(self, command: Command, given: RunOptions) -> R:
        """Return the request for ``run``, with the session's own value for each option that is not given.

        Raises InvalidRequest.
        """
        raise NotImplementedError

    def _plain_request(self, command: Command) -> R:
        """Return the request for a command without options."""
        return self._request(command, {})

    @property
    def before(self) -> Any:
        """pexpect's ``before``: the output before the last match of ``expect``."""
        return self._screen("before")

    @property
    def after(self) -> Any:
        """pexpect's ``after``: the output that the last ``expect`` matched."""
        return self._screen("after")

    @property
    def match(self) -> Any:
        """pexpect's ``match``: the last match object of ``expect``."""
        return self._screen("match")

    def _screen(self, name: str) -> Any:
        raise NotImplementedError


class _Streaming(AnySession[R], Generic[R, OutputT, EventsT]):
    """``stream`` and ``events``, which return one kind of iterator for threads and another for asyncio."""

    @explained
    def stream(
        self,
        command: Command,
        *,
        timeout: Seconds = ...,
        idle_timeout: Seconds = ...,
        stdin: bytes | str | None = None,
        tty: bool | None = None,
        merge_stderr: bool | None = None,
        isolated: bool = False,
        limits: Limits | None = None,
        cwd: str | PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        patience: Seconds = ...,
        errexit: bool = False,
    ) -> OutputT:
        """Run a command and iterate over its output while it runs.

        The items are (stream, data) pairs; the last item is the Result. The arguments are those of ``run``. Without
        ``stdin``, it is /dev/null, also in a session with ``stdin=TTY``.

        If you leave the loop early, the command is interrupted as soon as nothing refers to the iterator any more.
        While a variable still does, ``run`` raises SessionBusy. ``close()`` interrupts the command at once.

        With asyncio the interrupt comes a little later, at the latest when the session is used next. Iterate in
        ``contextlib.aclosing(...)`` to interrupt the command when you leave the loop.
        """
        options = options_given(locals())
        _refuse_terminal(stdin)
        return self._stream(self._request(command, {**options, "on_timeout": self._gentle}))

    @explained
    def events(
        self,
        *,
        pattern: Pattern | None = None,
        silence: float | None = None,
        after: int | None = None,
        timeout: float | None = None,
    ) -> EventsT:
        """Iterate over what happens to jobs, and to commands that were handed back, as it happens.

        The items are of the class ``Notice``. Jobs that run already count, and those that have ended unnoticed.

        * ``pattern``: also each line that matches this regular expression. A line that was printed before counts.
        * ``silence``: also if nothing was printed for this many seconds.
        * ``after``: begin after the notice with this number. The default is the last one that this session object has
          returned. Of those that came meanwhile, the latest are kept; ``dropped`` counts the others.
        * ``timeout``: end after this many seconds. None means no limit.

        It watches from this call on, and ends when the session is closed.
        """
        watch, until = Watch.of(pattern, silence), deadline(timeout, None)
        if after is not None and (type(after) is not int or after < 0):
            raise InvalidRequest(f"after must be the number of a notice, or 0, not {after!r:.100}")
        return self._events(watch, after, until)

    def _stream(self, request: R) -> OutputT:
        raise NotImplementedError

    def _events(self, watch: Watch, after: int | None, until: float | None) -> EventsT:
        raise NotImplementedError


class ThreadSession(_Streaming[R, Output, Generator["Notice"]]):
    """The interface of a session for threads."""

    _checked = staticmethod(checked)

    def __enter__(self) -> Self:
        return self

    @explained
    def run(
        self,
        command: Command,
        *,
        timeout: Seconds = ...,
        idle_timeout: Seconds = ...,
        on_timeout: OnTimeout | None = None,
        stdin: Stdin | EllipsisType = ...,
        tty: bool | None = None,
        merge_stderr: bool | None = None,
        isolated: bool = False,
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
        echo: bool = False,
        cwd: str | PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        patience: Seconds = ...,
        changes: bool = False,
        errexit: bool = False,
        idempotency_key: str | None = None,
        check: bool = False,
    ) -> Result:
        """Run a command and return its Result.

        ``command`` is any text that bash accepts. A str is sent as UTF-8; bytes are sent unchanged. In a list of words
        (``["git", "commit", "-m", message]``) each word becomes exactly one argument.

        Each command gets its own stdin, stdout and stderr, so the effect of ``exec >file`` ends with the command. All
        other state persists.

        Where ``timeout``, ``idle_timeout`` or ``stdin`` is ``...``, and where ``on_timeout``, ``tty``, ``merge_stderr``
        or ``limits`` is None, the session's own value applies.

        * ``timeout``: how many seconds the command may run. None means no limit.
        * ``patience``: how many seconds it may wait before it runs, for other commands, or while a person is attached.
          The default is as long as the timeout; None means no limit. After that SessionBusy is raised; nothing has run.
        * ``idle_timeout``: how many seconds it may run without printing anything. None means no limit.
        * ``on_timeout``: what happens at either limit. "interrupt" ends the command and keeps the shell. "kill" ends
          the shell as well. "yield" lets the command run and returns ``outcome="running"``, or "idle" at the idle
          limit. Continue with ``wait``, ``send`` or ``interrupt``.
        * ``stdin``: None is /dev/null. A str or bytes is the whole input. ``TTY`` is the session's terminal in cooked
          mode: if the command waits for input there, the call returns with ``outcome="input"``. Answer with ``send``,
          or end the command with ``interrupt``.
        * ``tty``: stdout is a terminal (columns, colours). False makes it a pipe, which is ten times as fast.
        * ``merge_stderr``: stderr goes to stdout, in the order in which the command wrote.
        * ``isolated``: run in a subshell. It sees the session's state and cannot change it. ``$$`` is still that of the
          session, and the session's jobs are not children of the subshell. The call waits until the process
          substitutions end, and up to 0.5 s for jobs that hold its output.
        * ``limits``: how much output is kept; see ``Limits``.
        * ``on_output``: called as ``on_output("stdout" or "stderr", data)`` when output arrives. With asyncio it may be
          a coroutine function; while it is awaited, no more output is read.
        * ``echo``: with ``stdin=TTY``, the terminal echoes what is typed.
        * ``cwd``, ``env``: the directory and more environment variables for this command only. Afterwards both are as
          before; everything else that the command changed persists. A relative path starts at the session's directory.
          If they cannot be set (no such directory, a readonly variable), the command does not run (``ran`` is False).
        * ``changes``: list in ``changes`` of the Result what the command has changed: variables, functions, aliases,
          traps, options, the directory and the umask. Only names are listed. Raises SnapshotUnavailable if bash does
          not list its state; then the command has not run.
        * ``errexit``: end the command where the first of its commands fails, as ``bash -e`` ends a script, and keep the
          shell. ``set -e`` is on during this command only.
        * ``idempotency_key``: a name for this call, chosen by its caller, with which the command runs once, whatever
          dies meanwhile. The same key again returns the first result (``replayed``), or joins the command while it
          runs. Raises OutcomeUnknown if it was begun and its result is lost, and KeyConflict if the key is that of
          another command. Only for sessions of a daemon (``connect``); see "Receipts" in the documentation.
        * ``check``: raise CommandFailed if the result is not ``ok`` (the status is not 0, the shell has ended, or the
          command was not run), and CommandTimeout at a time limit.

        A time limit is not an error unless you pass ``check``. The result always has the output so far. Ctrl-C, or
        cancelling the task, interrupts the command and keeps the shell.

        Raises InvalidRequest before anything runs, SessionBusy while a command that was handed back still runs, and
        after ``patience``, SessionClosed after ``close()``, and ShellUnavailable if bash cannot be started.
        """
        if (
            (timeout is ... and idle_timeout is ... and stdin is ... and patience is ...)
            and (on_timeout is None and tty is None and merge_stderr is None and limits is None)
            and (on_output is None and cwd is None and env is None and idempotency_key is None)
            and (isolated is echo is changes is errexit is check is False)
        ):
            return self._run(self._plain_request(command))
        options = options_given(locals())
        check_flag("check", options.pop("check", False))
        return self._checked(self._run(self._request(command, options)), check, command)

    def expect(self, pattern: Any, timeout: Seconds = ...) -> int:
        """Wait until the output of the running command matches a pattern, like pexpect's ``expect``.

        ``pattern`` is a regular expression, or a list of them. Returns the index of the one that matched, and sets
        ``before``, ``after`` and ``match`` as pexpect does. The next Result has this output, too.

        Raises pexpect.TIMEOUT after ``timeout`` seconds, and pexpect.EOF when the command has ended. Both are
        ShellSessionErrors, too.
        """
        return self._expect(pattern, timeout, exact=False)

    def expect_exact(self, pattern: Any, timeout: Seconds = ...) -> int:
        """Wait until the output contains a plain string, or one of a list; otherwise like ``expect``."""
        return self._expect(pattern, timeout, exact=True)

    @explained
    def read_output(
        self,
        id: str,
        stream: Stream = "stdout",
        *,
        lines: Range | None = None,
        bytes: Range | None = None,
        grep: str | None = None,
        tail: int | None = None,
        since: int | None = None,
        max_chars: int = MAX_CHARS,
        redact: Redact = False,
    ) -> str:
        """Return a part of a command's output as text of at most ``max_chars`` characters.

        ``id`` is that of its Result, or of a Job. The session keeps the last 20 short outputs, and the last 20 others,
        64 MiB together, in files that last as long as the session. It keeps the first 32 MiB of each stream. The
        command may still be running.

        * ``lines``: the lines from the first to the last, counted from 1. ``(200, None)`` goes to the end.
        * ``grep``: only the lines that match a Python regular expression, each as ``number:line``.
        * ``bytes``: the bytes from the first up to, but not including, the last, counted from 0.
        * ``tail``: the last lines, this many.
        * ``since``: only what is new since an earlier answer. While more may come, the answers to ``tail``, to
          ``since``, and about a job as a whole end with the number for the next one. Begin with 0.
        * ``redact``: show ``***`` for secrets; see ``Session``. Lines and bytes are then those of the masked text.

        Lines are as ``Result.for_model`` shows them, without escape sequences; bytes are decoded unchanged. Without any
        of these, the text begins with the first line. If it ends early, a mark names the call for the next page. The
        text of ``tail`` and ``since``, and that of a job, is cut in the middle. Of a job, the first and the last bytes
        are kept, as many as the call's ``limits`` say; a mark names the gap.

        Raises NoSuchOutput, which names the ids that are kept, and InvalidRequest.
        """
        return self.read_page(query_for(id, stream, lines, bytes, grep, max_chars, masker(redact), tail, since))

    def read_file(self, path: str | PathLike[str], *, into: BinaryIO | None = None) -> bytes:
        """Return the content of a file. It needs no shell, and works while a command runs.

        A relative path starts at the session's directory (``cwd``); ``~`` is not expanded. ``into``: a file object that
        gets the content piece by piece, for a file that is too large for memory; then the result is empty.

        Raises FileNotFoundError, PermissionError, IsADirectoryError and the like, and InvalidRequest for what is not a
        regular file. In a session with a sandbox it raises InvalidRequest: use a command there.
        """
        return self._transfer(reading(path, into))

    def write_file(self, path: str | PathLike[str], data: bytes | str | BinaryIO, *, parents: bool = False) -> None:
        """Replace the content of a file with ``data``, or make the file, with the umask of the session.

        A str is written as UTF-8. A binary file object is read to its end, piece by piece. ``parents``: make missing
        directories. The path and the errors are as for ``read_file``. The file is emptied first and then written, as
        by ``>`` of bash: if an error comes in between, the file has only a part.
        """
        return self._transfer(writing(path, data, parents))

    def why(self) -> Why:
        """Return what the running command waits for, as /proc shows it. ``str()`` of it is one line.

        It works while another thread, task or client is in ``run``, takes a tenth of a second, and changes nothing. It
        names processes and files, never arguments, and masks what ``redact`` names. ``kind`` is "nothing" if no command
        runs, and "unknown" where /proc does not say.
        """
        return self._why()

    def read_page(self, query: Query) -> str:
        """Return the part of an output that the query names."""
        raise NotImplementedError

    def _why(self) -> Why:
        raise NotImplementedError

    def _transfer(self, transfer: Transfer[T]) -> T:
        raise NotImplementedError

    def _run(self, request: R) -> Result:
        raise NotImplementedError

    def _expect(self, pattern: Any, timeout: Seconds, exact: bool) -> int:
        raise NotImplementedError


_DEFAULTS: Final[Mapping[str, Any]] = vars(ThreadSession.run)["__wrapped__"].__kwdefaults__


class LoopSession(_Streaming[R, AsyncOutput, AsyncGenerator["Notice"]]):
    """The interface of a session for asyncio: the same methods, as coroutine functions."""

    run = awaited(ThreadSession.run)
    expect = awaited(ThreadSession.expect)
    expect_exact = awaited(ThreadSession.expect_exact)
    read_output = awaited(ThreadSession.read_output)
    read_file = awaited(ThreadSession.read_file)
    write_file = awaited(ThreadSession.write_file)
    why = awaited(ThreadSession.why)

    async def __aenter__(self) -> Self:
        return self

    async def _checked(self, running: Awaitable[Result], check: bool, command: object) -> Result:
        return checked(await running, check, command)


# The streams of a job that each of its properties shows.
_SHOWN: Final = {"stdout": ("stdout", "terminal"), "stderr": ("stderr",)}


class AnyJob:
    """What one call left running: background processes, and their output since the call returned.

    ``id``: "j1", "j2" and so on, in the order in which the session's calls left them. ``command``: the text of the
    call. ``pids``: the processes that it left.
    """

    id: str
    command: str
    pids: tuple[int, ...]

    @property
    def running(self) -> bool:
        """Whether one of its processes lives, or any process holds its streams."""
        raise NotImplementedError

    @property
    def status(self) -> str:
        """ "running" or "ended"."""
        return "running" if self.running else "ended"

    @property
    def exit_code(self) -> int | None:
        """The exit status of its last process; 128 + n if signal n ended it. None while the job runs.

        Only the session's bash knows it. So it is also None while the session runs a command, after the shell's own
        ``wait``, after ``disown``, after a restart, and for a process that bash did not start itself (a daemon).
        """
        raise NotImplementedError

    @property
    def released(self) -> bool:
        """Whether it outlives the session; see ``release``."""
        raise NotImplementedError

    def alive(self) -> list[int]:
        """Return the pids of its processes that still live, orphans included."""
        raise NotImplementedError

    def release(self) -> None:
        """Let the job outlive the session: ``close`` and ``restart`` do not end it. ``jobs(released=True)`` lists it.

        The job must not depend on the session: it has to write to its own files, and ignore the hangup of the terminal.
        Start it with ``setsid CMD >FILE 2>&1 &``, or ``nohup``. Raises InvalidRequest if the job still depends on it,
        in a sandbox, and for processes of another user. Raises NotRunning if the job has ended.
        """
        raise NotImplementedError

    def kill(self) -> tuple[int, ...]:
        """Kill its processes, everything below them, and what else holds its streams. Returns the signalled pids."""
        raise NotImplementedError

    def searched_text(self) -> str:
        """Return the text that ``wait`` searches: the end of the call's own output, then the job's output."""
        return decoded(*self.kept("before")) + self.stdout + self.stderr

    def output(self, name: str) -> tuple[bytes, int]:
        """Return the output since the call returned, and how many of its bytes were omitted.

        ``name`` is "stdout", "stderr" or "terminal". Raises SessionClosed in a forked child, and InvalidRequest.
        """
        if name not in ("stdout", "stderr", "terminal"):
            raise InvalidRequest(f'the output of a job is "stdout", "stderr" or "terminal", not {name!r:.100}')
        return self.kept(name)[:2]

    def kept(self, name: str) -> tuple[bytes, int, int]:
        """Return what ``output`` returns, and the position at which bytes are missing.

        The stream "before" is the end of the call's own output.
        """
        raise NotImplementedError

    def text_of(self, name: str) -> tuple[str, int]:
        """Return the text of ``stdout`` or ``stderr``, and how many of its bytes were omitted."""
        kept = [self.kept(stream) for stream in _SHOWN[name]]
        return "".join(decoded(*one, marked=True) for one in kept), sum(omitted for _, omitted, _ in kept)

    @property
    def stdout(self) -> str:
        """What it wrote to its call's stdout. The latest job that runs also gets what is written to /dev/tty."""
        return self.text_of("stdout")[0]

    @property
    def stderr(self) -> str:
        """What it wrote to its call's stderr."""
        return self.text_of("stderr")[0]


def kept_streams(job: AnyJob) -> list[tuple[str, bytes, int, int]]:
    """What is kept of each stream of a job: its name, the bytes, how many are missing, and where."""
    return [(name, *job.kept(stream)) for name, streams in _SHOWN.items() for stream in streams]
