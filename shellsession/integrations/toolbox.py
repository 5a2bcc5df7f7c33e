"""Toolbox: a session's verbs as a model calls them; what several SDKs' tools are made of.

Law: no call outlasts ``patience``; a command that does is handed back running, and its own time limit still holds.
Only what other tasks of this process run in an ``AsyncSession`` is waited for to its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

from pydantic import Field, create_model

from ..async_session import Turns
from ..base import Base
from ..contracts.contract import KEPT, LOST, BadCall, Input, describe_ending, output_texts
from ..daemon.client import admin
from ..daemon.client.remote import TURN_WITHIN
from ..engine.io.loop import to_its_end
from ..errors import LATE, STILL_RUNS, InvalidRequest, NoSuchAgent, NotRunning, SessionBusy, ShellSessionError
from ..models import LONGEST, TTY, Limits, Result, check_seconds

if TYPE_CHECKING:
    from ..async_session import AsyncSession
    from ..daemon.client.async_session import AsyncRemoteSession
    from ..engine.verbs.command import Call, Job


# About 8 000 tokens: what models are given elsewhere, too, before it crowds out the task.
MAX_OUTPUT: Final = 30_000  # characters, of each stream
JOBS: Final = "; see `jobs`"
_NEXT: Final = "`wait` goes on waiting, `send` answers it if it is interactive, `interrupt` ends it"


def limits_for(max_output: object) -> Limits:
    """What is kept where so many characters of each stream are shown. Raises InvalidRequest."""
    if isinstance(max_output, bool) or not isinstance(max_output, int) or max_output < 0:
        raise InvalidRequest(f"max_output is a number of characters, 0 or more, not {max_output!r:.100}")
    return Limits(max_output=4 * max_output)  # a character is at most four bytes


def told(results: Sequence[Result], limit: int = MAX_OUTPUT, jobs: str = JOBS) -> str:
    """What a command did, as one text: the pieces of its output in their order, and how the last of them ended.

    ``jobs``: where the model may look for what was left running; "" where it has no such tool.
    """
    last = results[-1]
    stdout, stderr = streams(results, limit)
    parts = [stdout.removesuffix("\n")] if stdout else []
    if stderr:
        parts.append("[stderr]\n" + stderr.removesuffix("\n"))
    if said := _how(last):
        parts.append(f"[{said}]")
    if last.background:
        pids = ", ".join(str(pid) for pid in last.background)
        parts.append(f"[left running in the background: process {pids}{jobs}]")
    return "\n".join(parts) or "[no output]"


def _how(result: Result) -> str:
    """How a command ended, where it did not simply succeed; "" where it did."""
    if not result.ran:
        return f"not run: {result.reason}"
    match result.outcome:
        case "exited":
            return f"exit status {result.exit_code}" if result.exit_code else ""
        case "running":
            return f"still running after {_rounded(result.duration)} s: {_NEXT}"
        case "input":
            return "it waits for input: `send` answers it, `interrupt` ends it"
        case "timed_out" | "idle":
            kept = KEPT if result.state_kept else LOST
            return f"ended by its time limit after {_rounded(result.duration)} s; {kept}"
    return describe_ending(result)


def _rounded(seconds: float) -> str:
    """The seconds as people read them; never 0 for what took some time."""
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}" if seconds >= 0.1 else f"{seconds:.1g}"


def seen(job: Job) -> dict[str, Any]:
    """A job of this process as ``control.jobs`` tells of a daemon's."""
    omitted = {f"{name}_omitted": job.output(name)[1] for name in ("stdout", "stderr")}
    printed = {"stdout": job.stdout, "stderr": job.stderr}
    return {"status": job.status, "pids": job.pids, "command": job.command, **printed, **omitted}


def listed(jobs: Sequence[Mapping[str, Any]], limit: int) -> str:
    """What runs in the background, or did, as one text; of each the output, up to so many characters."""
    lines = []
    for job in jobs:
        pids = ", ".join(map(str, job["pids"]))
        lines.append(f"[{job['status']}: process {pids}: {job['command']}]")
        omitted = job["stdout_omitted"] + job["stderr_omitted"]
        if output := clipped(job["stdout"] + job["stderr"], limit, omitted).removesuffix("\n"):
            lines.append(output)
    return "\n".join(lines) or "[no jobs]"


def streams(results: Sequence[Result], limit: int) -> tuple[str, str]:
    """stdout and stderr of a command, each without its middle where that is longer than so many characters."""
    stdout, stderr = ("".join(pieces) for pieces in zip(*map(output_texts, results), strict=True))
    return (
        clipped(stdout, limit, sum(one.stdout_omitted for one in results)),
        clipped(stderr, limit, sum(one.stderr_omitted for one in results)),
    )


def clipped(text: str, limit: int, omitted: int) -> str:
    """The text, without its middle where it is longer than so many characters. ``omitted`` bytes were missing there
    before: what said so may go with it."""
    if len(text) <= limit:
        return text
    head, tail = limit // 2, limit - limit // 2
    more = f" and {omitted} bytes" if omitted else ""
    return f"{text[:head]}\n[{len(text) - limit} characters{more} omitted]\n{text[len(text) - tail :]}"


Progress = Callable[[float], Awaitable[object]]
# Who is told, every few seconds, for how many seconds the call of this task has waited.
PROGRESS: ContextVar[Progress | None] = ContextVar("progress", default=None)

_PAUSE: Final = 0.2  # seconds between two looks at whether a command still runs


async def in_turn(
    session: AsyncSession | AsyncRemoteSession, run: Callable[[], Awaitable[Result]], until: float, tick: float
) -> Result:
    """What comes of ``run``, which may begin until that moment. Raises SessionBusy where its turn does not come.

    The session is ours to wait for while somebody is with a command there; one that was handed back, for a moment or
    for long, makes it refuse what comes.
    """
    begun = time.monotonic()
    while True:
        TURN_WITHIN.set(max(until - time.monotonic(), 0.001))
        try:
            return await run()
        except SessionBusy as error:
            if str(error) != STILL_RUNS:
                raise
        await _until_free(session, begun, until, tick)


async def _until_free(session: AsyncSession | AsyncRemoteSession, begun: float, until: float, tick: float) -> None:
    told = time.monotonic()
    while session.state == "running":
        if (now := time.monotonic()) >= until:
            raise SessionBusy(STILL_RUNS)
        if now - told >= tick and (tell := PROGRESS.get()) is not None:
            await tell(now - begun)
            told = now
        await asyncio.sleep(min(_PAUSE, tick, max(until - now, 0.001)))


# The arguments as models are told of them; SDKs read these texts from the signatures.
Command = Annotated[str, Field(description="The bash command or script to run")]
Timeout = Annotated[float | None, Field(description="Seconds after which the command is ended")]
Interactive = Annotated[bool, Field(description="Give the command a terminal as its input, to be answered with send")]
Patience = Annotated[float | None, Field(description="How many seconds to wait at most")]
Typed = Annotated[str, Field(description="What to type; end it with a newline for Enter")]

_EARLIER: Final = "nothing was run, as an earlier command still runs: `wait` for it, `send` it input, or `interrupt` it"
# What to do about it by these verbs; of all else (a person sits there) the session says it itself.
_BUSY: Final = {STILL_RUNS: _EARLIER, LATE: _EARLIER}


def _arguments(verb: Callable[..., Awaitable[str]]) -> type[Input]:
    hints, fields = get_type_hints(verb, include_extras=True), dict[str, Any]()
    for name, one in signature(verb).parameters.items():
        if name != "self":
            fields[name] = (hints[name], ... if one.default is one.empty else one.default)
    return create_model(verb.__name__, __base__=Input, **fields)


def _check(name: str, seconds: object, more: str = "") -> None:
    """Refuse what is no time limit; a command that nobody waits for has one, so None is refused, too."""
    with suppress(InvalidRequest):
        check_seconds(name, seconds)
        if seconds is not None:
            return
    raise InvalidRequest(f"{name} is a positive number of seconds (at most {LONGEST:.0f}){more}")


class Toolbox:
    """The verbs of one session, each a coroutine function that takes what a model sends and returns text for it."""

    VERBS: Final = ("bash", "send", "wait", "interrupt", "restart", "jobs")

    def __init__(
        self,
        session: AsyncSession | AsyncRemoteSession,
        *,
        patience: float = 45.0,
        timeout: float = 600.0,
        max_output: int = MAX_OUTPUT,
        tick: float = 5.0,
        connect: Callable[[], Awaitable[AsyncRemoteSession]] | None = None,
    ) -> None:
        """``patience``: for how many seconds a call waits before it hands its command back (clients give up after about
        60). ``timeout``: seconds a command may run where the model names none. ``max_output``: characters of each
        stream that the model is shown. ``tick``: seconds between two words of progress. ``connect``: to have another
        session where somebody has closed this one; the call that finds that is told. Raises InvalidRequest.
        """
        for name, seconds in (("patience", patience), ("timeout", timeout), ("tick", tick)):
            _check(name, seconds)
        self._session, self._patience, self._timeout, self._tick = session, patience, timeout, tick
        self._brief = min(tick, patience / 2)  # how long a command runs at first: until then it waits for its turn
        self._max_output = max_output
        self._limits = limits_for(max_output)
        self._mine: Call | str | None = None  # the command that was handed back here: no other is ended for it
        self._deadline: float | None = None  # when that is to be ended
        self._connect = connect
        self._turns: Turns | None = None  # of calls, in the loop of now: models make several at once
        self._alarm: asyncio.TimerHandle | None = None
        self._late: asyncio.Task[Result | None] | None = None  # ends it then, for who asks afterwards

    def checked(self, verb: str, call: object) -> dict[str, Any]:
        """The arguments of a call of this verb. Raises InvalidRequest, which says what is wrong and what is allowed."""
        try:
            return dict(_arguments(getattr(type(self), verb)).read(call))
        except BadCall as error:
            raise InvalidRequest(str(error)) from None

    async def call(self, verb: str, call: object) -> str:
        """One of the verbs, with the arguments that a model sent. Raises ShellSessionError."""
        said: str = await getattr(self, verb)(**self.checked(verb, call))
        return said

    async def bash(self, command: Command, timeout: Timeout = None, interactive: Interactive = False) -> str:
        """Run a command in a bash that stays open: directory, variables and functions persist between calls.

        Returns its output and, unless it is 0, its exit status. A command that takes long is handed back running: go on
        with `wait`, `send` or `interrupt`.
        """
        seconds = self._timeout if timeout is None else timeout
        _check("timeout", seconds, f"; where none is named it is {self._timeout:g}")
        stdin = TTY if interactive else None
        brief = min(self._brief, seconds)
        async with self._alone(brief) as until:
            options: dict[str, Any] = {"stdin": stdin, "tty": interactive, "limits": self._limits}
            run = partial(self._session.run, command, timeout=brief, on_timeout="yield", **options)
            return await self._stay(self._begun(run, until, seconds), until, begins=True)

    async def wait(self, seconds: Patience = None) -> str:
        """Stay with the command that was handed back running, until it ends or needs input, or some time passes."""
        if seconds is not None:
            _check("seconds", seconds)
        async with self._alone() as until:
            if seconds is not None:
                until = min(until, time.monotonic() + seconds)
            return await self._stay(self._late_or(lambda: self._session.wait(self._next(until))), until)

    async def send(self, text: Typed) -> str:
        """Type into the running command's terminal, then stay with it as `wait` does."""
        async with self._alone() as until:
            return await self._stay(self._late_or(lambda: self._session.send(text, self._next(until))), until)

    async def interrupt(self) -> str:
        """End the running command; the shell, its directory and its variables are kept."""
        self._here()
        self._relax()
        self._deadline = None
        try:
            return told([await self._late_or(self._interrupt)], self._max_output)
        finally:
            self._mine = None

    async def restart(self) -> str:
        """Start a fresh bash: first directory and environment, nothing that was set before."""
        self._forget()
        if not await self._is_another():
            await self._session.restart()
        return "[a fresh bash was started]"

    async def jobs(self) -> str:
        """List what earlier commands left running in the background, and what that printed."""
        return listed(await self._jobs(), self._max_output // 10)

    def _forget(self) -> None:
        self._relax()
        self._deadline = self._late = self._mine = None

    async def _is_another(self) -> bool:
        """Has somebody closed the session, as an earlier call was told? Then this one has another."""
        if self._connect is None or not self._session.closed:
            return False
        self._forget()
        self._session = await self._connect()
        return True

    async def _jobs(self) -> list[dict[str, Any]]:
        session = self._session
        if isinstance(session, Base):
            return [seen(job) for job in session.jobs()]
        with suppress(NoSuchAgent):  # its session has expired, and its jobs with it
            # Many questions, each of which would keep the loop from all others.
            return await asyncio.to_thread(admin.jobs, session.agent, output=True, transport=session._transport)
        return []

    @asynccontextmanager
    async def _alone(self, least: float = 0.0) -> AsyncIterator[float]:
        """When the calls before it have been answered, and so many seconds are left; the moment at which its own
        patience ends."""
        until, turns = time.monotonic() + self._patience, self._here()
        try:
            async with asyncio.timeout(self._patience - least):
                await turns.take()
        except TimeoutError:
            raise SessionBusy("the command of another call still runs: ask again when that is answered") from None
        try:
            await self._is_another()
            await self._overdue()
        except BaseException:
            turns.give_up()
            raise
        # In a daemon it is behind other clients, too: what has not begun by then never does.
        token = TURN_WITHIN.set(max(until - self._brief - time.monotonic(), 0.001))
        try:
            yield until
        finally:
            with suppress(ValueError):  # collected long after its loop was closed, where the context is another
                TURN_WITHIN.reset(token)
            turns.give_up()
            if self._turns is turns and not turns.loop.is_closed():
                self._watch(turns.loop)  # also where it was refused, or its progress not told: the command may run on

    def _here(self) -> Turns:
        """Whose turn it is in this loop. What another one was to do, and has not, is to be done in this one."""
        loop = asyncio.get_running_loop()
        if self._turns is None or self._turns.loop is not loop:
            self._turns = Turns(loop)
            self._relax()
        late = self._late
        if late is not None and (late.cancelled() or not (late.done() or late.get_loop() is loop)):
            self._late, self._deadline = None, time.monotonic()
        return self._turns

    async def _begun(self, run: Callable[[], Awaitable[Result]], until: float, seconds: float) -> Result:
        """The first result of a command; its time limit counts from when its turn came."""
        if self._mine:  # the model is to say what becomes of it
            result = await run()
        else:
            result = await in_turn(self._session, run, until - self._brief, self._tick)
        self._deadline = time.monotonic() - result.duration + seconds
        return result

    async def _stay(self, first: Awaitable[Result], until: float, begins: bool = False) -> str:
        """Stay with a command until it ends or patience does; where its time limit passes, it is ended."""
        self._relax()
        begun, results = time.monotonic(), list[Result]()
        try:
            self._take(results, await first)
            deadline, self._late = self._deadline, None
            while results[-1].outcome == "running" and (now := time.monotonic()) < until:
                if deadline is not None and now >= deadline:
                    self._take(results, await self._time_out())
                    break
                if (tell := PROGRESS.get()) is not None:
                    await tell(now - begun)
                self._take(results, await self._session.wait(self._next(until)))
            if not results[-1].runs_on:
                self._deadline = None
            return told(results, self._max_output)
        except SessionBusy as error:
            raise SessionBusy(_BUSY.get(str(error), str(error))) from None
        except asyncio.CancelledError:  # a client that gives up leaves nothing running
            if results or not begins:  # else what was handed back before is not what it gives up
                self._deadline = None
                # What its own verb has ended already is not to be asked for: the next command is told of the shell.
                if self._session._handed == self._mine:
                    await to_its_end(self._end())
            raise

    def _take(self, results: list[Result], result: Result) -> None:
        results.append(result)
        self._mine = self._session._handed if result.runs_on else None

    async def _late_or(self, verb: Callable[[], Awaitable[Result]]) -> Result:
        """The end of the command that its time limit has ended, while nobody was told of that; or what the verb gives,
        which may be about another one by now."""
        late = None if self._late is None else await asyncio.shield(self._late)
        self._late = None
        return await verb() if late is None else late

    def _next(self, until: float) -> float:
        moment = until if self._deadline is None else min(until, self._deadline)
        return max(min(self._tick, moment - time.monotonic()), 0.001)

    async def _overdue(self) -> None:
        """End it now, where its time limit has passed while no loop ran."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._relax()
            self._strike()
        if self._late is not None:
            await asyncio.shield(self._late)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nobody may come back for it: its time limit holds all the same."""
        self._relax()
        if self._deadline is not None:
            self._alarm = loop.call_later(max(self._deadline - time.monotonic(), 0), self._strike)

    def _relax(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _strike(self) -> None:
        self._deadline = None
        self._late = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> Result | None:
        try:
            return await self._time_out() if self._mine else None
        except ShellSessionError:
            return None  # it has ended meanwhile, or its shell, or the session

    async def _time_out(self) -> Result:
        last = await self._interrupt()
        return replace(last, outcome="timed_out") if last.outcome == "interrupted" else last

    async def _interrupt(self) -> Result:
        """End the command that was handed back here; whichever runs, where none was. Raises NotRunning."""
        session, mine = self._session, self._mine
        if isinstance(session, Base):
            if mine and session._handed is not mine:
                raise NotRunning("there is no running command to interrupt: the one that was handed back has ended")
        elif mine:
            return await session._interrupt(str(mine))
        return await session.interrupt()
