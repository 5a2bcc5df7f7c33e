"""One agent in the daemon: its session, who hears its output, who holds it, and what the log gets of it.

Law: each command is one line of the audit log, when it has come to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ..async_session import AsyncSession
from ..errors import SessionBusy, ShellSessionError
from ..models import Result, Stream
from .audit import Secrets
from .journal import Journal
from .wire import encode

if TYPE_CHECKING:
    from .connection import Connection

_UNFINISHED = ("running", "input")


class Speaker:
    """Where the output of one command goes while it comes: to the request that stays with it, and to who looks on."""

    def __init__(self, desk: Desk, command: bytes) -> None:
        self._desk, self._command = desk, command
        self._begun = False
        self.listener: Listener | None = None

    def begin(self) -> None:
        """Who looks on is told of the command, once."""
        if not self._begun:
            self._begun = True
            self._desk.show("command", {}, self._command)

    def __call__(self, stream: Stream, data: bytes) -> Awaitable[None] | None:
        self.begin()
        self._desk.show("output", {"stream": stream}, data)
        return None if self.listener is None else self.listener.hear(stream, data)


class Listener:
    """A request whose client hears the output live."""

    def __init__(self, request: str, connection: Connection) -> None:
        self.request, self.connection = request, connection

    def hear(self, stream: Stream, data: bytes) -> Awaitable[None] | None:
        self.connection.send(encode({"id": self.request, "event": "output", "stream": stream}, data))
        return self.connection.drain() if self.connection.congested else None


class Desk:
    """One agent's session and all that the daemon knows of it."""

    def __init__(self, agent: str, session: AsyncSession, secrets: Secrets, journal: Journal) -> None:
        self.agent, self.session = agent, session
        self.watchers: set[Connection] = set()
        self.speaker: Speaker | None = None  # of the command that was handed back
        self._secrets, self._journal = secrets, journal
        self._unfinished: tuple[bytes, Result] | None = None
        self._runs: list[asyncio.Future[Result]] = []  # being served, the oldest first
        self._unheard: Result | None = None  # of a run whose client has gone
        self._holder: str | None = None
        self._refuses = False
        self._freed = asyncio.Event()

    # -- who may use it

    async def enter(self, holder: str | None) -> None:
        """Wait for the turn of who is not the holder. Raises SessionBusy."""
        while self._holder not in (None, holder):
            if self._refuses:
                raise SessionBusy("somebody holds this session for himself (attach): try again when he has left")
            await self._freed.wait()

    def hold(self, holder: str, refuse: bool, connection: Connection) -> None:
        """Give it to one client alone, until that connection ends."""
        self._holder, self._refuses = holder, refuse
        self._freed.clear()
        connection.when_it_ends(lambda: self._free(holder))

    def _free(self, holder: str) -> None:
        if self._holder == holder:
            self._holder = None
            self._freed.set()

    # -- who looks on

    def watch(self, connection: Connection) -> None:
        self.watchers.add(connection)
        connection.when_it_ends(lambda: self.watchers.discard(connection))

    def show(self, event: str, fields: dict[str, object], *parts: bytes) -> None:
        if self.watchers:
            data = encode({"event": event, "agent": self.agent, **fields}, *parts)
            droppable = len(parts[0]) if event == "output" else 0
            for watcher in tuple(self.watchers):
                watcher.offer(data, droppable)

    # -- its commands

    @contextmanager
    def running(self) -> Iterator[asyncio.Future[Result]]:
        """While a run is served: who else waits for it gets its result from that future."""
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._runs.append(result)
        self._unheard = None
        try:
            yield result
        finally:
            self._runs.remove(result)
            result.cancel()  # does nothing once it is set

    def unheard(self, result: Result) -> None:
        """The client that ran a command has gone: who comes to wait for it gets the result."""
        self._unheard = result

    async def along(self, seconds: float | None) -> Result | None:
        """What a run came to, or how it is after so many seconds, for another client than its own; None: none runs."""
        if self._unheard is not None:
            result, self._unheard = self._unheard, None
            return result
        if not self._runs or self._unfinished is not None:
            return None
        run = self._runs[0]
        await asyncio.wait([run], timeout=seconds)
        if run.done():
            self._unheard = None
            return None if run.cancelled() else run.result()
        reason = "another client runs it: what it prints comes with its result"
        return Result(b"", b"", None, None, self.session.cwd, 0.0, "running", reason=reason)

    def begin(self, command: bytes) -> Speaker:
        """A command is to be run."""
        speaker = Speaker(self, command)
        if self.session.state != "running":  # else it queues, and begins some time later
            speaker.begin()
        return speaker

    def ran(self, command: bytes, result: Result, speaker: Speaker) -> None:
        """A command has its first result, the whole or a piece of it."""
        speaker.begin()
        if result.outcome in _UNFINISHED:
            self._unfinished, self.speaker = (command, _counted(result)), speaker
        else:
            self._ended(command, result)

    def went_on(self, result: Result) -> None:
        """A verb that stayed with what was handed back has a result (perhaps one that another verb has told of)."""
        if self._unfinished is None:
            return
        command, before = self._unfinished
        together = _together(before, result)
        if result.outcome in _UNFINISHED:
            self._unfinished = command, _counted(together)
        else:
            self._unfinished = self.speaker = None
            self._ended(command, together)

    def _ended(self, command: bytes, result: Result) -> None:
        self.show("result", {"exit_code": result.exit_code, "outcome": result.outcome, "reason": result.reason})
        self._journal.note(self.agent, command, self._secrets, _counted(result))

    def last_result(self, command: bytes | None = None) -> Result | None:
        """What came of the command begun last (if it is this very one): who asked for it was cancelled meanwhile."""
        call = self.session._engine.last
        if call is None or (command is not None and call.request.command is not command):
            return None
        return call.result

    async def see_out(self, seconds: float) -> None:
        """Stay with a command that was handed back, if there is one, for so long."""
        if self._unfinished is not None and seconds > 0:
            with suppress(ShellSessionError):
                self.went_on(await self.session.wait(seconds))

    def give_up(self) -> None:
        """The session ends, and with it what ran in it."""
        if self._unfinished is not None:
            command, before = self._unfinished
            self._unfinished = self.speaker = None
            self._ended(command, replace(before, outcome="shell_exited", exit_code=None))


def _counted(result: Result) -> Result:
    """The log wants the sizes, not the bytes."""
    if not (result.stdout_bytes or result.stderr_bytes):
        return result
    return replace(
        result,
        stdout_bytes=b"",
        stderr_bytes=b"",
        stdout_omitted=result.stdout_omitted + len(result.stdout_bytes),
        stderr_omitted=result.stderr_omitted + len(result.stderr_bytes),
    )


def _together(before: Result, now: Result) -> Result:
    return replace(
        now,
        stdout_omitted=now.stdout_omitted + before.stdout_omitted,
        stderr_omitted=now.stderr_omitted + before.stderr_omitted,
    )
