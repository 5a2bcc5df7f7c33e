"""Toolbox: a session's verbs as a model calls them; what several SDKs' tools are made of.

Law: no call outlasts ``patience``; a command that does is handed back running, and its own time limit still holds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from ..errors import InvalidRequest, NotRunning, SessionBusy, ShellSessionError
from ..models import TTY, Limits, Result, check_seconds
from .telling import MAX_OUTPUT, clipped, told

if TYPE_CHECKING:
    from ..async_session import AsyncSession
    from ..daemon.async_client import AsyncRemoteSession

# The arguments as models are told of them; SDKs read these texts from the signatures.
Command = Annotated[str, Field(description="The bash command or script to run")]
Timeout = Annotated[float | None, Field(description="Seconds after which the command is ended")]
Interactive = Annotated[bool, Field(description="Give the command a terminal as its input, to be answered with send")]
Patience = Annotated[float | None, Field(description="How many seconds to wait at most")]
Typed = Annotated[str, Field(description="What to type; end it with a newline for Enter")]

Progress = Callable[[float], Awaitable[object]]
# Who is told, every few seconds, for how many seconds the call of this task has waited.
PROGRESS: ContextVar[Progress | None] = ContextVar("progress", default=None)
_TICK: Final = 5.0  # seconds between two words of progress


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
    ) -> None:
        """``patience``: for how many seconds a call waits before it hands its command back (clients give up after about
        60). ``timeout``: seconds a command may run where the model names none. ``max_output``: characters of each
        stream that the model is shown. Raises InvalidRequest.
        """
        for name, seconds in (("patience", patience), ("timeout", timeout)):
            if seconds is None:
                raise InvalidRequest(f"{name} is a number of seconds")
            check_seconds(name, seconds)
        self._session, self._patience, self._timeout, self._max_output = session, patience, timeout, max_output
        self._limits = Limits(max_output=4 * max_output)  # a character is at most four bytes
        self._deadline: float | None = None  # when the command is to be ended that was handed back
        self._busy = False
        self._alarm: asyncio.TimerHandle | None = None
        self._late: asyncio.Task[Result | None] | None = None  # ends it then, for who asks afterwards

    async def bash(self, command: Command, timeout: Timeout = None, interactive: Interactive = False) -> str:
        """Run a command in a bash that stays open: directory, variables and functions persist between calls.

        Returns its output and, unless it is 0, its exit status. A command that takes long is handed back running: go on
        with `wait`, `send` or `interrupt`.
        """
        seconds = self._timeout if timeout is None else timeout
        check_seconds("timeout", seconds)
        deadline = time.monotonic() + seconds
        stdin = TTY if interactive else None
        tick = min(_TICK, self._patience, seconds)
        run = self._session.run(
            command, timeout=tick, on_timeout="yield", stdin=stdin, tty=interactive, limits=self._limits
        )
        return await self._stay(run, self._patience, deadline)

    async def wait(self, seconds: Patience = None) -> str:
        """Stay with the command that was handed back running, until it ends or needs input, or some time passes."""
        check_seconds("seconds", seconds)
        patience = self._patience if seconds is None else min(seconds, self._patience)
        return await self._stay(self._session.wait(self._tick(patience)), patience, self._deadline)

    async def send(self, text: Typed) -> str:
        """Type into the running command's terminal, then stay with it as `wait` does."""
        send = self._session.send(text, self._tick(self._patience))
        return await self._stay(send, self._patience, self._deadline)

    async def interrupt(self) -> str:
        """End the running command; the shell, its directory and its variables are kept."""
        self._relax()
        self._deadline = None
        return told([await self._or_late(self._session.interrupt())], self._max_output)

    async def restart(self) -> str:
        """Start a fresh bash: first directory and environment, nothing that was set before."""
        self._relax()
        self._deadline = self._late = None
        await self._session.restart()
        return "[a fresh bash was started]"

    async def jobs(self) -> str:
        """List what earlier commands left running in the background, and what that printed."""
        lines = []
        for job in self._session.jobs():
            pids = ", ".join(str(pid) for pid in job.pids)
            lines.append(f"[{job.status}: process {pids}: {job.command}]")
            omitted = sum(job.output(stream)[1] for stream in ("stdout", "stderr"))
            if output := clipped(job.stdout + job.stderr, self._max_output // 10, omitted).removesuffix("\n"):
                lines.append(output)
        return "\n".join(lines) or "[no jobs]"

    async def _stay(self, first: Awaitable[Result], patience: float, deadline: float | None) -> str:
        """Stay with a command until it ends or patience does; where its time limit passes, it is ended."""
        if self._busy:
            first.close()  # type: ignore[attr-defined]  # each verb of a session is a coroutine, never started here
            raise SessionBusy("another call is with this session's command: wait for its answer")
        self._busy = True
        try:
            self._relax()
            begun, results = time.monotonic(), [await self._or_late(first)]
            self._deadline, self._late = deadline, None
            while results[-1].outcome == "running" and (now := time.monotonic()) < begun + patience:
                if deadline is not None and now >= deadline:
                    results.append(await self._time_out())
                    break
                if (tell := PROGRESS.get()) is not None:
                    await tell(now - begun)
                results.append(await self._session.wait(self._tick(begun + patience - now)))
            if results[-1].outcome not in ("running", "input"):
                self._deadline = None
            return told(results, self._max_output)
        finally:
            self._busy = False
            self._watch()  # also where the call was refused, or given up: the command may run on

    async def _or_late(self, verb: Awaitable[Result]) -> Result:
        """What the verb gives; where no command runs any more, the end of the one that its time limit has ended."""
        try:
            return await verb
        except NotRunning:
            late, self._late, self._deadline = self._late, None, None
            if late is None or (result := await asyncio.shield(late)) is None:
                raise
            return result

    def _tick(self, patience: float) -> float:
        left = patience if self._deadline is None else self._deadline - time.monotonic()
        return max(min(_TICK, patience, left), 0.001)

    def _watch(self) -> None:
        """Nobody may come back for it: its time limit holds all the same."""
        if self._deadline is not None:
            loop = asyncio.get_running_loop()
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
            return await self._time_out()
        except ShellSessionError:
            return None  # it has ended meanwhile, or its shell, or the session

    async def _time_out(self) -> Result:
        last = await self._session.interrupt()
        return replace(last, outcome="timed_out") if last.outcome == "interrupted" else last
