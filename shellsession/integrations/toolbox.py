"""``Toolbox``: a session's verbs as a model calls them, which the tools of several SDKs are built on.

A call waits for its command for ``patience`` seconds at most. If the command still runs then, the call hands it back
running: it returns the output so far, and later calls go on with the command. The command's own time limit still holds.
Commands that other tasks of this process run in an ``AsyncSession`` are waited for to their end.

First come functions that write results as text, then ``in_turn``, then the class.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from inspect import signature
from types import EllipsisType
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypedDict, get_type_hints

from pydantic import Field, create_model

from ..async_session import permitted
from ..contracts.cancel import in_own_thread
from ..contracts.contract import BadCall, Input, tool_definition
from ..daemon.client import admin
from ..daemon.client.async_session import AsyncRemoteSession
from ..daemon.client.remote import TURN_WITHIN, UNLESS_LOST
from ..daemon.protocol.messages import from_part
from ..engine.io.jobs import wait_for
from ..engine.io.loop import TaskLine, TaskPlace, to_its_end
from ..engine.verbs.delivery import joined
from ..engine.wire import is_blank
from ..errors import (
    IS_CLOSED,
    LATE,
    NOT_YOURS,
    STILL_RUNS,
    DaemonUnavailable,
    InvalidRequest,
    NoSuchAgent,
    SessionBusy,
    SessionClosed,
    ShellSessionError,
)
from ..keys import check_keys
from ..models import (
    LONGEST,
    TTY,
    Limits,
    OnOutput,
    Request,
    Result,
    Stream,
    Terminal,
    check_flag,
    check_seconds,
    omitted_lines,
    streams_of,
    to_bytes,
)
from ..notices import Notice
from ..options import check_policy, refuse_queue
from ..paging import NOTHING_NEW, Query, check_chars, everything, is_job, newest, page, query_for, whole
from ..signatures import AnyJob, explained, kept_streams
from ..text import (
    LISTED,
    MAX_CHARS,
    clean,
    edited,
    ending,
    escaped,
    fitted,
    left_running,
    report,
    shared,
    some_words,
    waits,
)
from .binding import AwaitedSession, Reopen, awaited_session
from .search import search
from .time_limit import TimeLimit

if TYPE_CHECKING:
    from ..engine.verbs.call import Call
    from ..policy.rules import Policy
    from ..policy.secrets import Secrets


JOBS: Final = "; see `jobs`"
_JOB_LINE: Final = 300  # characters of the line about a job: its command may be long
_MORE: Final = 40  # characters of the line about jobs that are not listed
_LEAST_MARK: Final = 40  # characters of a mark alone, where there is no room for output
_NEXT: Final = "`wait` goes on waiting, `send` answers it if it is interactive, `interrupt` ends it"
# Part of the reason for a command that reads the terminal, and the advice if it was not interactive.
_READS_TERMINAL: Final = "waits for input from the terminal"
_RUN_AGAIN: Final = "; to answer it, run it again with interactive=true, then call `send`"


def limits_for(max_chars: int) -> Limits:
    """The output limit of a session for a model that gets ``max_chars`` characters. Raises InvalidRequest."""
    check_chars(max_chars)
    return Limits(max_output=4 * max_chars)  # a character is at most four bytes


def describe(
    results: Sequence[Result],
    limit: int = MAX_CHARS,
    jobs: str = JOBS,
    secrets: Secrets | None = None,
    more: Sequence[str] = (),
) -> str:
    """A command's results as one text: its output in order, how it ended, and what it left running.

    ``jobs``: names the tool that lists running jobs; "" if the model has only one tool, and none that reads the rest.
    ``secrets``: those to mask. ``more``: other notes.
    """
    result = functools.reduce(joined, results)
    notes = [_describe_end(result, limit)]
    if jobs and _READS_TERMINAL in result.reason and not result.runs_on:
        notes[0] += _RUN_AGAIN
    if result.background:
        notes.append(left_running(result.background) + jobs)
    notes += more
    id = result.id if jobs and result.output_kept else ""
    if secrets is None:
        streams = streams_of(result)
    else:
        streams, notes = secrets.streams(result), [*map(secrets.mask, notes)]
    return report(streams, notes, limit, id=id, lines=omitted_lines(result))


def _describe_end(result: Result, room: int) -> str:
    """How a command ended, and what the model may do where it has not; "" if it succeeded. ``room``: see ``waits``."""
    match result.outcome:
        case "running" if result.matched:
            return f"it has printed the text of `until`, and is still running: {_NEXT}"
        case "running" | "idle" if result.runs_on:
            return f"{ending(result, room)}: {_NEXT}"
        case "input" if result.runs_on:
            return f"it waits for input: `send` answers it, `interrupt` ends it{waits(result, room)}"
    return ending(result, room)


def _goes_on(result: Result) -> bool:
    """Whether there is nothing to report yet: the command runs, and has not printed what `wait` waits for."""
    return result.outcome == "running" and not result.matched


def _last_line(results: Sequence[Result], secrets: Secrets | None) -> str:
    """The end of the last line that the command has printed, with secrets masked, or "" if it has printed none."""
    for result in reversed(results):
        for data in (result.stderr_bytes, result.stdout_bytes):
            text = clean(data[-_TAIL:].decode("utf-8", "replace"))
            lines = (text if secrets is None else secrets.mask(text)).split("\n")
            if line := next((line for line in reversed(lines) if line.strip()), ""):
                return line[-_LINE_MAX:]
    return ""


class _JobText(NamedTuple):
    """A job's id, whether it has ended, a line about it, and its streams as ``shared`` takes them."""

    id: str
    ended: bool
    line: str
    streams: list[tuple[str, bytes, int, int]]


def _read_job(job: AnyJob, secrets: Secrets | None) -> _JobText:
    """What is shown of a job, without secrets."""
    status = job.status  # first: once it has ended, all its output is there
    ended = status == "ended"
    if (code := job.exit_code) is not None:
        status += f", exit status {code}"
    line = f"[{job.id}, {status}: process {', '.join(map(str, job.pids[:LISTED]))}: {job.command}]"
    streams = kept_streams(job)
    if secrets is not None:
        line, streams = (
            secrets.mask(line),
            [
                (name, *edited(secrets.starred(data, omitted, cut), omitted, cut, secrets.mask))
                for name, data, omitted, cut in streams
            ],
        )
    return _JobText(job.id, ended, line, streams)


def list_jobs(jobs: Sequence[_JobText], room: int) -> tuple[str, set[str]]:
    """The jobs as one text of at most ``room`` characters, and the ids of the ended ones that it lists.

    It has a line for each job, and the output that there is room for. A job whose line has no room, or not at least a
    mark for its output, is not listed.
    """
    longest = min(_JOB_LINE, room // 2)
    jobs = [job._replace(line=f"{job.line[:longest]}...]") if len(job.line) > longest + 4 else job for job in jobs]
    needs = [
        len(job.line) + 1 + sum(1 + min(len(data) + omitted, _LEAST_MARK) for _, data, omitted, _ in job.streams)
        for job in jobs
    ]
    while needs and sum(needs) > room - _MORE * (len(needs) < len(jobs)):
        needs.pop()
    listed = jobs[: len(needs)]
    lines = [job.line for job in listed]
    more = [f"[{len(jobs) - len(listed)} more: name a job]"] * (len(listed) < len(jobs))
    streams = [stream for job in listed for stream in job.streams if stream[1] or stream[2]]
    texts = iter(shared(streams, max(0, room - len("\n".join((*lines, *more))) - len(streams))))
    parts = []
    for job in listed:
        shown = [next(texts).removesuffix("\n") for stream in job.streams if stream[1] or stream[2]]
        parts += [job.line, *filter(None, shown)]
    return "\n".join((*parts, *more)) or "[no jobs]", {job.id for job in listed if job.ended}


def _jobs_of(session: AsyncRemoteSession) -> list[_JobText]:
    """The jobs of a daemon's session. Raises NoSuchAgent."""
    with admin.Visit(session.agent, None, session.transport) as visit:
        both = (*visit.jobs(released=True), *visit.jobs())
        return [_read_job(job, session.secrets) for job in both]


Progress = Callable[[float, str], Awaitable[object]]
# A function that this task's call awaits every few seconds, with the seconds that it has waited so far and the last
# line of output.
PROGRESS: ContextVar[Progress | None] = ContextVar("progress", default=None)

_LINE_MAX: Final = 500  # characters of the last line that a progress report shows
_TAIL: Final = 4000  # bytes that are searched for that line: more, so that a secret in it is found whole
_END_OF_JOB: Final = 1.0  # seconds that a killed job has to end
_PAUSE: Final = 0.2  # seconds between two checks whether a command still runs


async def in_turn(session: AwaitedSession, run: Callable[..., Awaitable[Result]], until: float, tick: float) -> Result:
    """Await ``run`` as soon as the session is free. Raises SessionBusy if it is not free at the time ``until``.

    While another caller waits for its command, the session queues ``run`` by itself. While a command is handed back
    running, the session refuses ``run``; this function then waits and tries again.
    """
    begun = time.monotonic()
    while True:
        patience = max(until - time.monotonic(), 0.001)
        TURN_WITHIN.set(patience)
        try:
            return await run(patience=patience)
        except SessionBusy as error:
            if str(error) != STILL_RUNS:
                raise
        await _until_free(session, begun, until, tick)


async def _until_free(session: AwaitedSession, begun: float, until: float, tick: float) -> None:
    reported = time.monotonic()
    while session.state == "running":
        if (now := time.monotonic()) >= until:
            raise SessionBusy(STILL_RUNS)
        if now - reported >= tick and (report := PROGRESS.get()) is not None:
            await report(now - begun, "")
            reported = now
        await asyncio.sleep(min(_PAUSE, tick, max(until - now, 0.001)))


# The types of the verbs' arguments. SDKs read the descriptions from the signatures and give them to the model.
Command = Annotated[str, Field(description="The bash command or script to run")]
Timeout = Annotated[float | None, Field(description="Seconds after which the command is ended")]
Interactive = Annotated[bool, Field(description="Give the command a terminal as its input, to be answered with send")]
Patience = Annotated[float | None, Field(description="How many seconds to wait at most")]
JobId = Annotated[str | None, Field(description="The id of one job, such as j1, or of one of its processes")]
AwaitedText = Annotated[str | None, Field(description="Wait until the command has printed this text")]
UntilText = Annotated[str | None, Field(description="Wait until the job has printed this text")]
JobPatience = Annotated[
    float | None, Field(description="How many seconds to wait at most for its end, or for the text")
]
KillJob = Annotated[bool, Field(description="Kill the job")]
OutputId = Annotated[
    str, Field(description="The id that the note about omitted output names, such as c17; or a job's, such as j1")
]
StreamName = Annotated[Stream, Field(description="Which output to read")]
_LINES: Final = "[first, last], such as [200, 300]; [200, null] goes to the end"
_BYTES: Final = "[first, end], such as [0, 4096]; [4096, null] goes to the end"
Lines = Annotated[list[int | None] | None, Field(description=f"Which lines, counted from 1: {_LINES}")]
Bytes = Annotated[list[int | None] | None, Field(description=f"Which bytes, counted from 0: {_BYTES}")]
Pattern = Annotated[str | None, Field(description="A regular expression: only the lines that match it, with numbers")]
Tail = Annotated[int | None, Field(description="How many of the last lines")]
Since = Annotated[int | None, Field(description="Only what is new: the number that the last answer gave")]
MonitoredText = Annotated[str | None, Field(description="Tell when a line with this text was printed")]
Silence = Annotated[float | None, Field(description="Tell when nothing was printed for this many seconds")]
MostNotices = Annotated[int, Field(description="After this many notices the monitor ends")]
NewName = Annotated[str, Field(description="A name for it; by default one that is free")]
ToCheckpoint = Annotated[str, Field(description="The name of the checkpoint; by default: before the last such command")]
SinceCheckpoint = Annotated[str, Field(description="What was written after this checkpoint; by default: all")]
AsPatch = Annotated[bool, Field(description="Show the lines that were added and removed, as `git diff` does")]
TextToType = Annotated[str, Field(description="What to type")]
Keys = Annotated[
    list[str] | None, Field(description='Keys to press after the text, by name: ["C-c"], ["Up", "Enter"], ["Escape"]')
]
Enter = Annotated[
    bool, Field(description="Press Enter after the text, unless keys are named; false to type a single character")
]

_LOOK: Final = 0.001  # seconds for which a call looks for notices, and for which ``await_notice`` waits
_LISTEN: Final = 1.0
_NOTICES: Final = 10  # notices before one result, at most, and characters of the text of one
_NOTICE: Final = 300
_MONITORS: Final = 8
_TOLD: Final = 100
_NO_PATTERN: Final[Mapping[str, str]] = {}
_UNCHANGED: Final = "[no file has changed]"
_NOTHING: Final = "[nothing: there is no such part, or no line matches]"
_EARLIER: Final = (
    "an earlier command is still running, so nothing was run: `wait` for it, `send` it input, or `interrupt` it; to run"
    " others at the same time, start it again with `&`"
)
# Wording of the library's errors that names its functions and options, and wording that names those of the model. A
# test of each fails if the library's wording changes.
_MODEL_WORDING: Final = {
    STILL_RUNS: _EARLIER,
    LATE: _EARLIER,
    NOT_YOURS: f"{NOT_YOURS}; call again when that call has returned",
    "run it with stdin=TTY": "`wait` for it, or `interrupt` it and run it again with interactive=true",
    "lines is (first, last), from 1 on, with None for the end": f"lines is {_LINES}",
    "lines: should be a valid list": f"lines is {_LINES}",
    "bytes is (first, last), from 0 on, with None for the end": f"bytes is {_BYTES}",
    "bytes: should be a valid list": f"bytes is {_BYTES}",
    "none was handed back running": "none was handed back running; `bash` runs a command",
    "it has ended, and nothing was typed": "it has ended, and nothing was typed; `wait` returns what is left to report",
    "mend that, or run it without a key": "tell the user to mend that, or to make these tools with receipts=False",
    "each command needs its own key": "call again",
    "kill it, or pass end_jobs=True": "or kill it with `jobs`",
    "only a session with auto_checkpoints=N can take back a command": "this session cannot take back a single command",
    "open it with branch=": "there is nothing to roll back or to show",
}
# Words with the key of a call, of which a model knows nothing: another call has another one.
_KEY_WORDING: Final = (
    (re.compile("run it with another key than '[^']*' if need be"), "call again to run it anew if need be"),
    (re.compile(" with the key '[^']*'"), ""),
)
_CONNECT_AGAIN: Final = "connect again for a new one"
_FRESH: Final = "its directory, variables and jobs are lost; call again, and a fresh bash is used"
_NO_OTHER: Final = "its directory, variables and jobs are lost, and no tool can open another one: tell the user"


@functools.cache
def _arguments(verb: Callable[..., Awaitable[str]]) -> type[Input]:
    hints, fields = get_type_hints(verb, include_extras=True), dict[str, Any]()
    for name, one in signature(verb).parameters.items():
        if name != "self":
            fields[name] = (hints[name], ... if one.default is one.empty else one.default)
    return create_model(verb.__name__, __base__=Input, **fields)


def _check(name: str, seconds: object, more: str = "") -> None:
    """Refuse a value that is not a time limit. None is refused, too, as a handed-back command needs a limit."""
    with suppress(InvalidRequest):
        check_seconds(name, seconds)
        if seconds is not None:
            return
    raise InvalidRequest(f"{name} must be a positive number of seconds (at most {LONGEST:.0f}){more}")


# No time limit that a model means in seconds is this long and a multiple of 1000; one in milliseconds is.
_LEAST_MS: Final = 100_000


def _refuse_milliseconds(seconds: float) -> None:
    if seconds >= _LEAST_MS and seconds % 1000 == 0:
        raise InvalidRequest(
            f"timeout is in seconds, and {seconds:.0f} are {seconds / 3600:.0f} hours: did you mean"
            f" {seconds / 1000:.0f}?"
        )


def _for_model(message: str) -> str:
    for words, others in _MODEL_WORDING.items():
        message = message.replace(words, others)
    for pattern, others in _KEY_WORDING:
        message = pattern.sub(others, message)
    return message


class _Habits(Input):
    """Arguments of ``bash`` that models know from other tools. No definition names them, as each word of one costs."""

    description: str | None = None
    run_in_background: bool = False
    workdir: str | None = None


_TO_BACKGROUND: Final = "\n\n} &"  # the last line of the command may end in a backslash
_HAS_ENDED: Final = "it has ended already: `wait $!` returns its exit status"


async def _started(first: Awaitable[Result]) -> Result:
    """The first result of a command in the background, which says so if no job is left of it."""
    result = await first
    if not result.ok or result.background:
        return result
    return replace(result, reason="; ".join(filter(None, (result.reason, _HAS_ENDED))))


class _Monitor:
    """What a model has asked to be told of. ``left``: this many notices. ``number``: of the last one that was read."""

    def __init__(self, id: str | None, watch: dict[str, Any], left: int, number: int) -> None:
        self.id, self.watch, self.left, self.number = id, watch, left, number

    def sees(self, notice: Notice) -> bool:
        """Whether the notice is of the job of this monitor, or of no monitor."""
        return self.id in (None, notice.id) or notice.kind not in ("printed", "silent")


class ToolOptions(TypedDict, total=False):
    """The options of the tools of each SDK; ``Toolbox`` explains them."""

    patience: float
    timeout: float
    max_chars: int
    tick: float
    on_output: OnOutput | None
    policy: Policy | None
    receipts: bool
    monitor: bool
    checkpoints: bool


class Toolbox:
    """The verbs of one session as coroutine functions that take a model's arguments and return text for it."""

    VERBS: Final = ("bash", "send", "wait", "interrupt", "restart", "jobs", "read_output")
    _OF_BRANCH: Final = ("checkpoint", "rollback", "diff")
    _ALL: Final = (*VERBS, "monitor", *_OF_BRANCH)

    @explained
    def __init__(
        self,
        where: Any,
        agent: object = None,
        *,
        patience: float = 45.0,
        timeout: float = 600.0,
        max_chars: int = MAX_CHARS,
        tick: float = 5.0,
        on_output: OnOutput | None = None,
        policy: Policy | None = None,
        receipts: bool = True,
        monitor: bool = False,
        checkpoints: bool = False,
        connect: Reopen | None = None,
    ) -> None:
        """``where``: a session of any kind; or ``Agents`` or ``AsyncAgents``, with the name of the ``agent``.

        ``patience``: seconds that a call waits before it hands its command back (clients give up after about 60).
        ``timeout``: seconds that a command may run if the model names no limit. ``max_chars``: the longest text that
        the model gets. ``tick``: seconds between two progress reports. ``on_output``: called with output while a call
        waits, as that of ``run``. ``policy``: which commands these tools may run, besides the session's own policy.
        ``receipts``: in a session of a daemon, a command whose call has a key runs once, even if its call is repeated.
        ``monitor``: also offer the tool with which a model asks to be told what a job prints while it does other work.
        ``checkpoints``: also offer the tools with which a model keeps, brings back and compares the files of the
        session's branch (``branch=``). ``connect``: makes a new session when this one was closed or has expired; the
        call that meets the closed session fails, and says that its state is lost. Raises InvalidRequest.
        """
        session, reopen = awaited_session(where, agent)
        for name, seconds in (("patience", patience), ("timeout", timeout), ("tick", tick)):
            _check(name, seconds)
        self._session, self._patience, self._timeout, self._tick = session, patience, timeout, tick
        self._first_wait = min(tick, patience / 2)  # part of the patience reserved for the first wait for a new command
        self._max_chars = self._all_chars = max_chars
        self._limits = limits_for(max_chars)
        self._handed_back: Call | str | None = None  # the command handed back here: time limits end no other
        self._limit = TimeLimit()  # of that command
        check_policy(policy)
        refuse_queue(policy)
        check_flag("receipts", receipts)
        check_flag("monitor", monitor)
        check_flag("checkpoints", checkpoints)
        self._receipts = receipts
        self.verbs = (*self.VERBS, *("monitor",) * monitor, *self._OF_BRANCH * checkpoints)
        self._monitors: list[_Monitor] = []
        self._told = deque[Notice](maxlen=_TOLD)  # the latest notices of monitors, also of those that have ended
        self._noticed = 0  # the number of the last notice of the session that a monitor has read
        self._on_output, self._policy = on_output, policy
        self._connect = connect or reopen
        self._relied_on = False  # the model has run a command in this session
        self._told_loss = False  # the model was told that the daemon's session has ended, and has run nothing since
        self._watched = set[str]()  # ids of the jobs whose end the model was not told
        self._known = set[str]()  # and of all that were left
        self._line: TaskLine | None = None  # of the calls in the current loop: models make several at once

    @classmethod
    def definition(cls, verb: str) -> dict[str, Any]:
        """A verb as a tool for a model: its name, its description, and the JSON schema of its arguments."""
        method = cls._method(verb)
        return tool_definition(verb, inspect.getdoc(method) or "", _arguments(method))

    @classmethod
    def _method(cls, verb: str) -> Callable[..., Awaitable[str]]:
        """The method of a verb. Raises InvalidRequest for any other name: models invent some."""
        if verb not in cls._ALL:
            raise InvalidRequest(f"there is no tool {verb!r:.100}; the tools are {', '.join(cls.VERBS)}")
        method: Callable[..., Awaitable[str]] = getattr(cls, verb)
        return method

    def checked(self, verb: str, call: object) -> dict[str, Any]:
        """The validated arguments of a call. Raises InvalidRequest with the reason and the valid arguments."""
        if verb not in self.verbs:
            raise InvalidRequest(f"there is no tool {verb!r:.100}; the tools are {', '.join(self.verbs)}")
        method, habits = self._method(verb), _Habits()
        try:
            if verb == "bash" and isinstance(call, Mapping):
                habits = _Habits.read({name: call[name] for name in _Habits.model_fields if name in call})
                call = {name: value for name, value in call.items() if name not in _Habits.model_fields}
            arguments = dict(vars(_arguments(method).read(call)))
            if habits.run_in_background and not is_blank(to_bytes("command", arguments["command"])):
                arguments["command"] = f"{{ {arguments['command']}{_TO_BACKGROUND}"
            return arguments if habits.workdir is None else {**arguments, "workdir": habits.workdir}
        except BadCall as error:
            raise InvalidRequest(_for_model(str(error))) from None

    async def call(self, verb: str, call: object, key: str | None = None) -> str:
        """Call a verb with the arguments that a model sent. Raises ShellSessionError.

        ``key``: the idempotency key of the call, as ``call_key`` makes it. Only ``bash`` uses it, see ``receipts``.
        """
        arguments = self.checked(verb, call)
        if verb == "bash":
            text: str = await self.bash_in(arguments.pop("workdir", None), **arguments, key=key)
        else:
            text = await getattr(self, verb)(**arguments)
        return await self.noticed(verb, text)

    async def noticed(self, verb: str, text: str) -> str:
        """The text of a call, after the notices that are due, each once."""
        lines = list[str]()
        for monitor in tuple(self._monitors):
            with suppress(ShellSessionError):  # the session is closed or lost, which the next call reports
                events = self._session.events(**monitor.watch, after=monitor.number, timeout=_LOOK)
                async for notice in events:
                    monitor.number = notice.number
                    self._noticed = max(self._noticed, notice.number)
                    if self._concerns(monitor, notice, verb):
                        lines.append(self._line_of(monitor, notice))
                        self._told.append(notice)
                    if len(lines) == _NOTICES or monitor not in self._monitors:
                        break
                await events.aclose()
        return "\n".join((*lines, text))

    async def notices(self) -> list[Notice]:
        """The notices of the session that are kept: those of each monitor, and those of none."""
        found = {notice.number: notice for notice in self._told}
        with suppress(ShellSessionError):
            for monitor in self._listened:
                async for notice in self._session.events(**monitor.watch, after=0, timeout=_LOOK):
                    if monitor.sees(notice):
                        found[notice.number] = notice
        return [found[number] for number in sorted(found)]

    async def await_notice(self, after: int) -> int:
        """Wait for a second for a notice that ``notices`` lists, after that number. Returns its number, or ``after``.

        Raises ShellSessionError.
        """
        if (told := max((notice.number for notice in self._told), default=0)) > after:
            return told
        looks = [asyncio.ensure_future(self._await_notice(monitor, after)) for monitor in self._listened]
        try:
            for look in asyncio.as_completed(looks):
                if (number := await look) != after:
                    return number
            return after
        finally:
            for one in looks:
                one.cancel()
            await asyncio.gather(*looks, return_exceptions=True)

    async def _await_notice(self, monitor: _Monitor, after: int) -> int:
        async with aclosing(self._session.events(**monitor.watch, after=after, timeout=_LISTEN)) as events:
            async for notice in events:
                if monitor.sees(notice):
                    return notice.number
        return after

    @property
    def _listened(self) -> list[_Monitor]:
        """The monitors; in place of none, one that watches for nothing of its own."""
        return [*self._monitors] or [_Monitor(None, {}, 0, 0)]

    def _concerns(self, monitor: _Monitor, notice: Notice, verb: str) -> bool:
        """Whether the model is to be told. The end of a job may be known already, and so may that of a command."""
        if monitor.id not in (None, notice.id):
            return False
        if notice.kind in ("printed", "silent"):
            return True
        if is_job(notice.id):
            known = notice.id not in self._watched
            self._watched.discard(notice.id)
            return not known
        return verb in ("jobs", "read_output", "monitor") and self._handed_back is not None

    def _line_of(self, monitor: _Monitor, notice: Notice) -> str:
        """A notice as a line for the model. It counts as one of its monitor."""
        monitor.left -= 1
        ends = notice.kind in ("ended", "lost", "limit")
        if not monitor.left or (ends and monitor.id == notice.id):
            self._monitors.remove(monitor)
        who = f"job {notice.id}" if is_job(notice.id) else "the running command"
        what = {"printed": "has printed: ", "input": "waits for input: ", "silent": ""}.get(notice.kind, "has ended: ")
        text = some_words(notice.text, _NOTICE, from_end=notice.kind == "input")
        said = text.replace("it has", "has") if notice.kind == "silent" else what + text
        more = f" ({notice.dropped} more before this were dropped)" if notice.dropped else ""
        last = "; this was the last notice of this monitor" if not monitor.left else ""
        return f"[notice: {who} {said}{more}{last}]"

    async def monitor(
        self, job: JobId = None, text: MonitoredText = None, silence: Silence = None, most: MostNotices = 3
    ) -> str:
        """Be told what a background job, or the running command, does while you do other work; do not poll for it.

        Each notice is at the beginning of a later result, once: that it has printed a line with `text`, was silent for
        `silence` seconds, or has ended. Without `job`: of all jobs and the running command.
        """
        if silence is not None:
            _check("silence", silence)
        if most < 1:
            raise InvalidRequest(f"most must be a positive number of notices, not {most}")
        if job is not None and job not in (known := [one.id for one in self._session.jobs()]):
            raise InvalidRequest(f"there is no job {job!r:.100}: the jobs are {', '.join(known) or 'none'}")
        if len(self._monitors) >= _MONITORS:
            raise InvalidRequest(f"there are {_MONITORS} monitors already: wait until one has told its notices")
        # A model's regular expression could take forever.
        watch: dict[str, Any] = {} if text is None else {"pattern": re.escape(text)}
        if silence is not None:
            watch["silence"] = silence
        self._max_chars = min(self._max_chars, max(self._all_chars // 2, self._all_chars - _NOTICES * _NOTICE))
        self._monitors.append(_Monitor(job, watch, most, self._noticed))
        return "[you are told at the beginning of a later result]"

    async def bash(self, command: Command, timeout: Timeout = None, interactive: Interactive = False) -> str:
        """Run a command in a bash that stays open: directory, variables and functions persist between calls.

        `exit` and `exec` end that bash and lose this state: use them inside `( ... )`.
        Returns its output and, unless it is 0, its exit status. A command that takes long is handed back running:
        continue with `wait`, `send` or `interrupt`.
        """
        return await self.bash_in(None, command, timeout, interactive)

    async def bash_in(
        self,
        workdir: str | None,
        command: str,
        timeout: float | None = None,
        interactive: bool = False,
        key: str | None = None,
    ) -> str:
        """As ``bash``, with a directory for this command only; None is that of the session. ``key``: see ``call``."""
        if timeout is not None:
            _check("timeout", timeout, f"; by default it is {self._timeout:g}")
            _refuse_milliseconds(timeout)
        seconds = await self._permitted(command, self._timeout if timeout is None else timeout, workdir)
        first_wait = min(self._first_wait, seconds)
        async with self._exclusive(first_wait) as until:
            options: dict[str, Any] = {"limits": self._limits}
            if (stdin := self._stdin(interactive)) is not ...:
                options |= {"stdin": stdin, "tty": interactive}
            if workdir is not None:
                options["cwd"] = workdir
            if self._on_output is not None:
                options["on_output"] = self._on_output
            if key is not None and self._receipts and isinstance(self._session, AsyncRemoteSession):
                options["idempotency_key"] = key
            run = partial(self._session.run, command, timeout=first_wait, on_timeout="yield", **options)
            first = self._run_first(run, until, seconds)
            if command.endswith(_TO_BACKGROUND):
                first = _started(first)
            return await self._follow(first, until, begins=True)

    def _stdin(self, interactive: bool) -> Terminal | EllipsisType | None:
        return ... if self._session.has_terminal_stdin and not interactive else TTY if interactive else None

    @property
    def queue(self) -> bool:
        """Whether questions of its session wait in the daemon."""
        policy = self._session.policy
        return policy is not None and policy.confirm == "queue"

    async def question(self, workdir: str | None, command: str, interactive: bool) -> dict[str, Any] | None:
        """The question to a person for which ``bash_in`` would wait, which waits from now on; None if it would not."""
        if not isinstance(self._session, AsyncRemoteSession):
            return None
        return await self._session._question(command, workdir, self._stdin(interactive))

    async def answer(self, question: str, action: str) -> None:
        """Answer a question as a user has done: "accept", "decline" or "cancel"."""
        if isinstance(self._session, AsyncRemoteSession):
            await self._session._answer(question, action)

    async def _permitted(self, command: str, seconds: float, workdir: str | None) -> float:
        """Return the time limit under which the policies let the command run. Raises PolicyRefused."""
        if self._policy is None and self._session.policy is None:
            return seconds
        request = Request(to_bytes("command", command), timeout=seconds, cwd=workdir)
        if self._policy is not None:
            try:
                request = await permitted(self._policy, request, self._session.cwd)
            except ShellSessionError as error:
                self._reword(error)
                raise
        if (policy := self._session.policy) is not None:  # the session judges the command itself, piece by piece
            return policy.limit(request.timeout) or seconds
        return request.timeout or seconds

    async def wait(self, seconds: Patience = None, until: AwaitedText = None) -> str:
        """Wait for the running command until it ends, needs input, or the time is up.

        With `until`: or until it prints that text.
        """
        # A model's regular expression could take forever.
        pattern = {} if until is None else {"until": re.escape(until)}
        if seconds is not None:
            _check("seconds", seconds)
        async with self._exclusive() as end:
            if seconds is not None:
                end = min(end, time.monotonic() + seconds)
            first = self._timed_out_or(lambda: self._session.wait(self._next_wait(end), **pattern))
            return await self._follow(first, end, pattern=pattern)

    async def send(self, text: TextToType = "", keys: Keys = None, enter: Enter = True) -> str:
        """Type into the running command's terminal (interactive=true) and press Enter, then wait as `wait` does."""
        names = check_keys(keys or [])
        typed = text + "\n" if enter and not names and not text.endswith("\n") else text
        async with self._exclusive() as until:
            return await self._follow(
                self._timed_out_or(lambda: self._session.send(typed, self._next_wait(until), keys=names)), until
            )

    async def interrupt(self) -> str:
        """End the running command; the shell, its directory and its variables are kept."""
        self._own_line()
        self._limit.lift()
        try:
            return await self._described([await self._timed_out_or(self._interrupt)])
        except ShellSessionError as error:
            self._reword(error)
            raise
        finally:
            self._handed_back = None

    async def restart(self) -> str:
        """Start a fresh bash, in the first directory and with the first environment; nothing set since then is kept."""
        self._forget_command()
        try:
            if not await self._reconnect_if_closed():
                await self._session.restart()
        except ShellSessionError as error:
            self._reword(error)
            raise
        self._relied_on = False
        return "[a fresh bash was started]"

    async def checkpoint(self, name: NewName = "") -> str:
        """Keep the files and the shell as they are now, for `rollback`. It takes milliseconds: use it before risks."""
        async with self._exclusive():
            made = await self._session.checkpoint(name)
        return f"[checkpoint {made.name}: rollback brings these files and this shell back]"

    async def rollback(self, checkpoint: ToCheckpoint = "") -> str:
        """Bring the files, and the shell with its directory and variables, back to a checkpoint.

        Without one, take back the last command that wrote files. What was written since then is lost.
        """
        async with self._exclusive():
            restored = await self._session.rollback(checkpoint)
            self._forget_command()
        undone = f"the command `{restored.undone}`" if restored.undone else "the last command that wrote files"
        back = f"as at checkpoint {checkpoint}" if checkpoint else f"as before {undone}"
        lines = [f"[the files and the shell are {back}]"]
        lines += [f"[not restored: {one.kind} {one.name}: {one.reason}]" for one in restored.not_restored]
        return self._shown("\n".join(lines))

    async def diff(self, since: SinceCheckpoint = "", patch: AsPatch = False) -> str:
        """List the files that commands have added, changed and removed, or show what has changed in them."""
        async with self._exclusive():
            found = await self._session.branch.diff(since, patch=patch)
        if isinstance(found, bytes):
            return self._shown(found.decode("utf-8", "replace")) or _UNCHANGED
        said = [f"not applied: {one.skipped}" if one.skipped else one.note for one in found]
        lines = [
            f"{one.kind} {escaped(one.path)}" + f" ({more})" * bool(more) for one, more in zip(found, said, strict=True)
        ]
        return self._shown("\n".join(lines)) or _UNCHANGED

    def _shown(self, text: str) -> str:
        """A text for the model, with secrets masked, and cut in the middle if it is too long."""
        secrets = self._session.secrets
        return fitted((text if secrets is None else secrets.mask(text)).encode(), 0, 0, self._max_chars)

    async def jobs(
        self, job: JobId = None, until: UntilText = None, seconds: JobPatience = None, kill: KillJob = False
    ) -> str:
        """List what earlier commands left running in the background, and what it has printed.

        With the id of a job: show that job's output, after waiting for it, or kill it.
        """
        if job is None:
            if until is not None or seconds is not None or kill:
                raise InvalidRequest("name the job: call jobs without arguments to list the ids")
            text, told = list_jobs(await self._jobs(), self._max_chars)
            self._watched -= told
            return text
        if seconds is not None:
            _check("seconds", seconds)
        known = (*self._session.jobs(), *self._session.jobs(released=True))
        if (found := next((one for one in known if job == one.id or job in map(str, one.pids)), None)) is None:
            raise InvalidRequest(f"there is no job {job!r:.100}: call jobs without arguments to list them")
        notes = []
        if kill:
            found.kill()
            await wait_for(found, _END_OF_JOB)
        elif until is not None or seconds is not None:
            limit = self._patience if seconds is None else min(seconds, self._patience)
            pattern = None if until is None else re.escape(until)  # a model's regular expression could take forever
            if not await wait_for(found, limit, pattern) and until is not None:
                notes = [f"[it has not printed {until!r:.200}]"]
        room = self._max_chars - sum(len(note) + 1 for note in notes)
        text, told = list_jobs([_read_job(found, self._session.secrets)], room)
        self._watched -= told
        return "\n".join([text, *notes])

    async def read_output(
        self,
        id: OutputId,
        stream: StreamName = "stdout",
        lines: Lines = None,
        bytes: Bytes = None,
        grep: Pattern = None,
        tail: Tail = None,
        since: Since = None,
    ) -> str:
        """Read a part of the output of a command or job: lines, those that match, the last ones, or what is new."""
        try:
            query = query_for(id, stream, lines, bytes, grep, self._max_chars, None, tail, since)._replace(json=True)
            if is_job(id) and all(part is None for part in (lines, bytes, grep, tail, since)):
                query = query._replace(since=0)
            text = await self._read(query)
            if is_job(id) and (not text or text.startswith(NOTHING_NEW)):
                other = "stdout" if stream == "stderr" else "stderr"
                there = await self._read(query._replace(stream=other, since=None, tail=1))
                if there and not there.startswith(NOTHING_NEW):
                    text = f'{text or _NOTHING}\n[stream="{other}" has some]'
            return text or _NOTHING
        except ShellSessionError as error:
            self._reword(error)
            raise

    async def _read(self, query: Query) -> str:
        while True:
            secrets = self._session.secrets
            masked = query if secrets is None else query._replace(mask=secrets.mask, starred=secrets.starred)
            is_newest = query.grep is None and (query.since is not None or query.tail is not None)
            read = whole if query.grep is not None else everything if is_newest else page
            found = await self._session.read_page(masked, read)
            if secrets is self._session.secrets:  # a client of a daemon knows them once it is connected
                break
        if query.grep is not None:
            return await to_its_end(in_own_thread(search, query, found))
        if is_newest:  # in a thread: to mask megabytes takes seconds
            return await to_its_end(in_own_thread(newest, masked, found))
        text: str = found
        return text

    async def _described(self, results: Sequence[Result]) -> str:
        left = any(result.background for result in results)
        latest, ends = await self._job_ends(left) if left or self._watched else ("", [])
        jobs = f"{JOBS} ({latest})" if latest else JOBS
        return describe(results, self._max_chars, jobs, self._session.secrets, ends)

    async def _job_ends(self, left: bool) -> tuple[str, list[str]]:
        """The id of the job that a command has ``left``, if it has, and a note about those that have ended."""
        latest, states = "", await self._job_states()
        ended = [id for id, (running, _) in states.items() if id in self._watched and not running]
        self._watched.intersection_update(states.keys() - ended)
        if left:  # the last job is new, even if it has ended meanwhile; others may be of earlier clients
            latest = next(reversed(states), "")
            self._watched.update(id for id in states.keys() - self._known if states[id][0] or id == latest)
            self._known.update(states)
        codes = [f"{id}{'' if states[id][1] is None else f' (exit status {states[id][1]})'}" for id in ended[:LISTED]]
        more = [f"{len(ended) - LISTED} more"] * (len(ended) > LISTED)
        return latest, [f"ended in the background: job {', '.join((*codes, *more))}"] * bool(ended)

    async def _job_states(self) -> dict[str, tuple[bool, int | None]]:
        """Whether each job runs, and its exit status, by id; the oldest first."""
        session = self._session
        with suppress(ShellSessionError):  # the session is closed or lost: its jobs have ended with it
            if not isinstance(session, AsyncRemoteSession):
                # Of the others no exit status is needed, and to ask for one takes a millisecond each.
                return {
                    job.id: (job.running, job.exit_code if job.id in self._watched else None) for job in session.jobs()
                }
            reply = await session.ask(session.message("jobs", released=False))
            return {one["id"]: (one["running"], one["exit_code"]) for one in from_part(reply.parts)}
        return {}

    def _forget_command(self) -> None:
        self._monitors.clear()
        self._watched.clear()
        self._known.clear()
        self._limit.forget()
        self._handed_back = None

    async def _reconnect_if_closed(self) -> bool:
        """If the session was closed or has expired, connect to a new one and return True."""
        if self._connect is None or not self._session.closed:
            return False
        self._forget_command()
        self._session, self._noticed = await self._connect(), 0
        self._told.clear()
        return True

    async def _jobs(self) -> list[_JobText]:
        session = self._session
        if not isinstance(session, AsyncRemoteSession):
            return [_read_job(job, session.secrets) for job in (*session.jobs(released=True), *session.jobs())]
        with suppress(NoSuchAgent):  # its session has expired, and its jobs with it
            # In a thread: this makes many blocking requests.
            return await asyncio.to_thread(_jobs_of, session)
        return []

    @asynccontextmanager
    async def _exclusive(self, least: float = 0.0) -> AsyncIterator[float]:
        """Wait until earlier calls are done, then run the block alone. Yields the moment when the patience ends.

        ``least``: seconds of the patience that must be left. Raises SessionBusy if they are not.
        """
        until, line = time.monotonic() + self._patience, self._own_line()
        try:
            place = await line.take(TaskPlace(self._patience - least))
        except SessionBusy:
            raise SessionBusy(
                "another call still waits for its command: call again when that one has returned"
            ) from None
        try:
            if await self._reconnect_if_closed() and self._relied_on:  # the command may be one for its directory
                self._relied_on = False
                raise SessionClosed(f"nothing was run, as this session was closed or has expired: {_FRESH}")
            await self._limit.enforce(self._end)
        except BaseException:
            line.leave(place)
            raise
        # In a daemon the call queues behind other clients, too. If it has not begun by then, it never does.
        before = TURN_WITHIN.get(), UNLESS_LOST.get()
        TURN_WITHIN.set(max(until - self._first_wait - time.monotonic(), 0.001))
        UNLESS_LOST.set(not self._told_loss)
        try:
            yield until
        except ShellSessionError as error:
            self._reword(error)
            raise
        finally:
            # Not reset(): after its loop was closed, this may be collected in another context.
            TURN_WITHIN.set(before[0])
            UNLESS_LOST.set(before[1])
            line.leave(place)
            if self._line is line and not line.loop.is_closed():
                # Also after an error of this call: an earlier command may still run.
                self._limit.set_alarm(line.loop, self._end)

    def _reword(self, error: ShellSessionError) -> None:
        """Raise the library's error in words for the model, which knows only this toolbox's verbs, without secrets."""
        text = str(error)
        # Not OutcomeUnknown: that of a key says nothing about the shell.
        self._told_loss = self._told_loss or isinstance(error, DaemonUnavailable | SessionClosed)
        if isinstance(error, SessionClosed):
            self._relied_on = False  # this error says what is lost
            new = _FRESH if self._connect else _NO_OTHER
            text = text.replace(IS_CLOSED, f"this session is closed: {new}").replace(_CONNECT_AGAIN, new)
        text = _for_model(text)
        if (secrets := self._session.secrets) is not None:
            text = secrets.mask(text)
        if text != str(error):
            raise type(error)(text) from None

    def _own_line(self) -> TaskLine:
        """The line of calls in this loop."""
        loop = asyncio.get_running_loop()
        if self._line is None or self._line.loop is not loop:
            self._line = TaskLine(loop)
            self._limit.stop_alarm()
        self._limit.enter(loop)
        return self._line

    async def _run_first(self, run: Callable[..., Awaitable[Result]], until: float, seconds: float) -> Result:
        """Start a command and return its first result. Its time limit counts from its start, not from the call."""
        if self._handed_back:  # do not wait for that command: the model must decide about it, so this call is refused
            result = await run()
        else:
            result = await in_turn(self._session, run, until - self._first_wait, self._tick)
        self._limit.begin(time.monotonic() - result.duration + seconds)
        self._relied_on, self._told_loss = True, False
        return result

    async def _follow(
        self, first: Awaitable[Result], until: float, begins: bool = False, pattern: Mapping[str, str] = _NO_PATTERN
    ) -> str:
        """Wait for a command until it ends or the patience does. At its time limit, end it. Returns the text.

        ``pattern``: the option of ``wait`` for what it may print.
        """
        self._limit.stop_alarm()
        begun, results = time.monotonic(), list[Result]()
        try:
            self._add_result(results, await first)
            deadline = self._limit.deadline
            while _goes_on(results[-1]) and (now := time.monotonic()) < until:
                if deadline is not None and now >= deadline:
                    self._add_result(results, await self._time_out())
                    break
                if (report := PROGRESS.get()) is not None:
                    await report(now - begun, _last_line(results, self._session.secrets))
                self._add_result(results, await self._session.wait(self._next_wait(until), **pattern))
            if not results[-1].runs_on:
                self._limit.lift()
            return await self._described(results)
        except asyncio.CancelledError:  # when a client gives up, its command must not run on
            if results or not begins:  # otherwise an earlier command is handed back, which this call must not end
                self._limit.lift()
                # If the verb has ended the command already, do not: the next command reports what became of the shell.
                if self._session.handed_back == self._handed_back:
                    await to_its_end(self._end())
            raise

    def _add_result(self, results: list[Result], result: Result) -> None:
        results.append(result)
        self._handed_back = self._session.handed_back if result.runs_on else None

    async def _timed_out_or(self, verb: Callable[[], Awaitable[Result]]) -> Result:
        """The result of a command that ended at its time limit while no call waited, or else the result of ``verb``.

        The verb is not called in the first case, as it might act on another command.
        """
        ended = await self._limit.ended()
        return await verb() if ended is None else ended

    def _next_wait(self, until: float) -> float:
        return max(min(self._tick, self._limit.left(until)), 0.001)

    async def _end(self) -> Result | None:
        try:
            return await self._time_out() if self._handed_back else None
        except ShellSessionError:
            return None  # the command, its shell or the session has ended meanwhile

    async def _time_out(self) -> Result:
        last = await self._interrupt()
        return replace(last, outcome="timed_out") if last.outcome == "interrupted" else last

    async def _interrupt(self) -> Result:
        """Interrupt the command that was handed back here or, if there is none, the running one. Raises NotRunning."""
        handed_back = self._handed_back
        return await (self._session.interrupt_command(handed_back) if handed_back else self._session.interrupt())
