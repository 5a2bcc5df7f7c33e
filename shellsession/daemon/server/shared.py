"""Who has an agent's session alone, and how the others wait until that client leaves.

Law: it ends with its holder's connection, however that ends, or with the session; then the size is as it was found.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...agents import AsyncAgents
from ...async_session import AsyncSession
from ...engine.bash.spawn import AGENT_ENV
from ...engine.io.output import counted
from ...engine.io.streams import FULL_PAUSE
from ...engine.io.threads import drive
from ...engine.verbs.delivery import Delivery, together
from ...engine.verbs.ending import result as ended_with_shell
from ...errors import (
    CLOSED,
    ENDED,
    HELD,
    LATE,
    NOT_YOURS,
    InvalidRequest,
    NoSuchAgent,
    NotRunning,
    SessionBusy,
    SessionClosed,
    ShellSessionError,
)
from ...models import Result, Stream
from ...policy.secrets import Secrets
from ...sandbox import Sandbox
from ..protocol.wire import encode
from . import requests
from .connection import Listener
from .journal import Journal
from .outcomes import Outcomes, end_of

if TYPE_CHECKING:
    from ...engine.verbs.command import Call
    from ...engine.verbs.verbs import Engine
    from .connection import Connection


class Hold:
    """On one session, by one client at a time."""

    def __init__(self, session: AsyncSession, engine: Engine) -> None:
        self._session, self._engine = session, engine
        self._holder: str | None = None
        self._connection: Connection | None = None  # with which it ends
        self._refuses = False
        self._found: tuple[int, int] | None = None  # the terminal's size, which its holder has changed
        self._freed = asyncio.Event()

    async def enter(self, request: requests.OfAgent, listener: Listener) -> None:
        """Wait for the turn of who is not the holder. Raises SessionBusy and SessionClosed.

        Who asks to hold it then is never refused. What is for the command that was there before: NotRunning where that
        has ended since, whatever runs by then.
        """
        listener.queued, listener.behind = True, HELD
        meant = self._engine.current
        while self._holder not in (None, request.holder):
            if self._refuses and not isinstance(request, requests.Hold):
                raise SessionBusy(HELD)
            await self._freed.wait()
        if self._engine.closed:
            raise SessionClosed(CLOSED)
        if isinstance(request, requests.OfCommand) and self._engine.current is not meant:
            raise NotRunning(ENDED)
        listener.queued, listener.behind = False, LATE

    def take(self, holder: str, refuse: bool, connection: Connection) -> None:
        """Give it to one client alone, until that connection ends."""
        self._holder, self._refuses, self._connection = holder, refuse, connection
        self._session.attached = True
        self._freed.clear()
        connection.on_close(lambda: self._free(connection))

    def resize(self, holder: str | None, columns: int, rows: int) -> None:
        """Its holder's size ends with the hold, anybody else's stays; who holds it no more has nothing to say."""
        if holder not in (None, self._holder):
            return
        before = self._session.size
        self._session.resize(columns, rows)
        self._found = None if holder is None else self._found or before

    def _free(self, connection: Connection) -> None:
        if self._connection is connection:
            self.end()

    def end(self) -> None:
        """Nobody holds it any more, or it is there no more: who waits goes on."""
        self._holder = self._connection = None
        self._session.attached = False
        found, self._found = self._found, None
        if found is not None and not self._session.closed:
            self._session.resize(*found)
        self._freed.set()


class Audience:
    """Of one agent, whichever session it has."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._watchers: set[Connection] = set()

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def join(self, connection: Connection) -> None:
        """That client looks on from now on, until its connection ends."""
        if connection not in self._watchers:
            self._watchers.add(connection)
            connection.on_close(lambda: self._watchers.discard(connection))

    def show(self, event: str, fields: dict[str, object], *parts: bytes) -> None:
        """Send it to all of them."""
        if self._watchers:
            data = encode({"event": event, "agent": self._agent, **fields}, *parts)
            droppable = len(parts[0]) if event == "output" else 0
            for watcher in tuple(self._watchers):
                watcher.offer(data, droppable)


class Fanout:
    """Where the output of one command goes while it comes: to the request that stays with it, and to who looks on."""

    def __init__(
        self, engine: Engine, audience: Audience, command: bytes, person: bool, viewer: Connection | None
    ) -> None:
        self._engine, self._audience, self._command, self._person = engine, audience, command, person
        self._viewer = viewer  # of the person who typed it, and is to miss nothing
        self._held_back: asyncio.Task[None] | None = None
        self.begun = False
        self.listener: Listener | None = None

    def begin(self) -> None:
        """Show the command to the watchers, once."""
        if not self.begun:
            self.begun = True
            self._audience.show("command", {"person": self._person}, self._command)

    def __call__(self, stream: Stream, data: bytes) -> None:
        self.begin()
        self._audience.show("output", {"stream": stream}, data)
        if self.listener is not None and not self.listener.send_output(stream, data):
            self._hold_back(self.listener.taken)
        elif self._viewer is not None and self._viewer.congested:
            self._hold_back(self._viewer.drain)

    def _hold_back(self, taken: Callable[[], Awaitable[None]]) -> None:
        """Read no more of the command until its client has taken what there is. Its end, and who comes next, do not
        wait for that."""
        call = self._engine.last
        if call is not None and (self._held_back is None or self._held_back.done()):
            self._engine.pause(call)
            self._held_back = asyncio.create_task(self._read_on(taken, call))

    async def _read_on(self, taken: Callable[[], Awaitable[None]], call: Call) -> None:
        await taken()
        self._engine.go_on(call)


# Characters of a command that are shown to a client which waits for its end.
_SHOWN: Final = 200
# Bytes of its output that a new watcher is shown.
_TAIL: Final = 2000


class Unfinished(NamedTuple):
    """A command that was handed back and runs, and the results of it so far, counted."""

    command: bytes
    call: Call
    before: Result


class SharedSession:
    """One agent's session and all that the daemon knows of it."""

    def __init__(
        self, agent: str, session: AsyncSession, secrets: Secrets, journal: Journal, audience: Audience
    ) -> None:
        self.agent, self.session, self.audience = agent, session, audience
        self.engine = session._engine  # all rooms of the daemon take it from here
        self.fanout: Fanout | None = None  # of the command that was handed back
        self._secrets, self._journal = secrets, journal
        self._typed_line: bytes | None = None  # by a person
        self._unfinished: Unfinished | None = None
        self._attending: list[asyncio.Future[Result]] = []  # verbs that are in the session, the oldest first
        self.hold = Hold(session, self.engine)
        self.outcomes = Outcomes()
        self.opened = False  # has it had a bash?
        self.users = 0  # verbs that are in it, or wait for their turn: it is not given up under one
        self.turn = asyncio.Lock()  # of commands: the oldest request first
        self._looks: set[asyncio.Task[None]] = set()  # one, while it is seen whether what was handed back has ended
        session._on_change(self._look_at_end)

    @property
    def sandbox(self) -> Sandbox | None:
        """What its session is confined to."""
        return self.engine.options.sandbox

    # -- who may use it

    def notify_queued(self, listener: Listener) -> None:
        """Notify a client whose request waits for its turn, if it does: of the command it waits for, and since when."""
        if listener.queued:
            call = self.engine.current
            seconds = None if call is None else time.monotonic() - call.started
            event = {"id": listener.request, "event": "waits", "held": self.session.attached, "seconds": seconds}
            listener.connection.send(encode(event, self.command[:_SHOWN].encode("utf-8", "replace")))

    # -- who looks on

    def watch(self, connection: Connection) -> tuple[str, bool]:
        """The command that runs, and whether a person typed it; the connection gets all that happens from now on."""
        self.audience.join(connection)
        return self.command, self._running[1]

    @property
    def shown(self) -> bytes:
        """The last part of what the running command has printed, from the start of a line."""
        if (call := self.engine.current) is None:
            return b""
        printed = bytes(call.unseen) if call.terminal else call.stdout.peek()[0]
        tail = printed[-_TAIL:]
        return tail if len(printed) <= _TAIL else tail.partition(b"\n")[2] or tail

    # -- its commands

    def is_next(self, command: bytes, by_person: bool) -> None:
        """A command is about to be run."""
        if not self.outcomes.last.runs_on:  # else it is refused, and that other one still shown
            self._typed_line = command if by_person else None

    def _with_author(self, command: bytes) -> tuple[bytes, bool]:
        """A command, and whether a person typed it."""
        return command, command == self._typed_line

    @property
    def _running(self) -> tuple[bytes, bool]:
        call = self.engine.current
        return (b"", False) if call is None else self._with_author(call.request.command)

    @property
    def command(self) -> str:
        """The text of the running command; "" while none runs."""
        return self._running[0].decode("utf-8", "replace")

    @contextmanager
    def attending(self) -> Iterator[asyncio.Future[Result]]:
        """While a verb is in the session: who else waits for the command there gets its end from this future.

        A command begins when no verb is in the session: its result must not be taken for that of the last one.
        """
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._attending.append(result)
        try:
            yield result
        finally:
            self._attending.remove(result)
            result.cancel()  # does nothing once it is set

    @property
    def _with_it(self) -> list[asyncio.Future[Any]]:
        """Who is in the session: verbs, the oldest first, and a look at whether what was handed back has ended."""
        return [*self._attending, *self._looks]

    async def until_unattended(self, until: float | None = None) -> bool:
        """Wait until nobody is in the session, or for the moment; is nobody?"""
        while with_it := self._with_it:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return False
            await asyncio.wait(with_it[:1], timeout=left)
        return True

    async def share_end(self, until: float | None, listener: Listener, command: str | None) -> Result | None:
        """The end of a command that another client stays with, or how it is at that moment; of that very one, if it is
        named.

        None: nobody stays with any. Two cannot: the second would have to wait for the first, dead or alive.
        """
        while True:
            if (end := self.outcomes.take(command, listener.missed_by)) is not None:
                return end
            if not self._attending:
                return None
            stay = self._attending[0]
            left = None if until is None else max(0.0, until - time.monotonic())
            ends: set[asyncio.Future[Any]] = {stay, listener.abandoned}
            await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not stay.done():
                return self.session._elsewhere()
            if not stay.cancelled() and not (result := stay.result()).runs_on:
                if listener.missed_by:  # what one client has missed is kept for another that is there
                    return result
                return self.outcomes.take(None) or result  # the former if the client that waited first has gone

    async def until_handed_back(self, until: float | None) -> None:
        """Wait for the command that a client is in to be handed back: what is typed is for that one, and no later one.

        Raises SessionBusy when it was not by that moment, NotRunning when it has ended.
        """
        if self._attending and self.engine.handed_back is None:
            stay = self._attending[0]
            await asyncio.wait([stay], timeout=None if until is None else max(0.0, until - time.monotonic()))
            if not stay.done():
                raise SessionBusy(NOT_YOURS)
            if stay.cancelled() or not stay.result().runs_on:
                raise NotRunning(ENDED)

    async def type(self, data: bytes, until: float | None) -> None:
        """Type into the terminal of what was handed back. Who stays with that only looks on: nobody waits for it."""
        engine = self.engine
        while engine.attended is not None and engine.attended is engine.handed_back:
            drive(engine.type(b""))  # refuses what no terminal has; and has it soon looked at, once it is woken
            shell = engine.live()
            data = data[shell.keyboard.type(data) :]
            shell.wake()
            if not data or (until is not None and time.monotonic() >= until):
                return
            await asyncio.sleep(FULL_PAUSE)
        await self.session._do(self.session._mine().type(data, until))

    def begin(self, command: bytes, request: str, viewer: Connection | None) -> tuple[Fanout, Delivery]:
        """A command is to be run. ``viewer``: the connection of the person who typed it."""
        fanout = Fanout(self.engine, self.audience, *self._with_author(command), viewer)
        if self.engine.handed_back is not None:  # it is refused, and that other one stays the last
            return fanout, Delivery()
        fanout.begin()
        return fanout, self.outcomes.begin(request)

    def first_result(self, outcome: Delivery, command: bytes, result: Result, fanout: Fanout) -> None:
        """A command has its first result, the whole or a piece of it."""
        fanout.begin()
        if result.runs_on and (call := self.engine.handed_back) is not None:
            outcome.hand_back()
            self._unfinished, self.fanout = Unfinished(command, call, counted(result)), fanout
        else:
            self._log_end(command, result)

    def next_result(self, outcome: Delivery, result: Result) -> None:
        """A verb that waited for a command has a result of it; another verb may have noted the same ending."""
        if (unfinished := self._unfinished) is None or not outcome.runs_on:
            return
        so_far = together(unfinished.before, result)
        if result.runs_on:
            self._unfinished = unfinished._replace(before=counted(so_far))
        else:
            self._unfinished = self.fanout = None
            outcome.end(result)
            self.outcomes.keep(outcome)
            self._log_end(unfinished.command, so_far)

    def cancel(self, outcome: Delivery, result: Result) -> Delivery:
        """The client of a command has cancelled it: the ending is only for that client.

        The next command reports a shell that it cost, unless that client reads the ending before.
        """
        outcome.end(result)
        outcome.withdraw()
        outcome.abandon()
        self.engine.note_loss(outcome)
        return outcome

    def _look_at_end(self) -> None:
        if self.engine.handed_back is not None and not self._looks:
            self._looks.add(look := asyncio.create_task(self._notice_end()))
            look.add_done_callback(self._looks.discard)

    async def _notice_end(self) -> None:
        """What was handed back may have ended: nobody needs to wait for it before the session is free again."""
        with suppress(ShellSessionError):
            if (result := await self.session._look()) is not None:
                self.next_result(self.outcomes.last, result)

    def _log_end(self, command: bytes, result: Result) -> None:
        self.audience.show("result", end_of(result))
        self._journal.note(self.agent, command, self._secrets, counted(result))

    def unread(self, command: str) -> bytes:
        """What was typed for that command, which has ended, and not read before its end."""
        return self.engine.unread if command == self.outcomes.last.name != "" else b""

    def owned_by(self, request: str) -> Delivery | None:
        """The command that was handed back to that request last, while no other request waits for it."""
        last = self.outcomes.last
        return last if last.runs_on and last.owner == request and not self._attending else None

    async def drain(self, seconds: float) -> None:
        """Stay with a command that was handed back, if there is one, for so long."""
        if (outcome := self.outcomes.last).runs_on and seconds > 0:
            with suppress(ShellSessionError):
                self.next_result(outcome, await self.session.wait(seconds))

    def lose(self, why: str = CLOSED) -> None:
        """The session ends, and with it what ran in it."""
        if (unfinished := self._unfinished) is not None:
            call = unfinished.call  # without a result where its shell was given up in the middle of a verb
            end = call.delivery.result
            end = end or ended_with_shell(call, "shell_exited", None, unfinished.before.cwd, False, why)
            self.next_result(self.outcomes.last, end)
        self.outcomes.release()


class Sessions:
    """Of ``agents``; what they run is written into ``journal``."""

    def __init__(self, agents: AsyncAgents, journal: Journal) -> None:
        self._agents, self._journal = agents, journal
        self._shared: dict[str, SharedSession] = {}
        self._audiences: dict[str, Audience] = {}  # of agents without a session

    def __iter__(self) -> Iterator[SharedSession]:
        return iter(tuple(self._shared.values()))

    def find(self, agent: str) -> SharedSession | None:
        """The agent's session, if there is one."""
        shared = self._shared.get(agent)
        if shared is not None and shared.session.closed:  # its time was up
            self.dismiss(shared)
            return None
        return shared

    def of(self, agent: str) -> SharedSession:
        """The agent's session. Raises NoSuchAgent."""
        if (shared := self.find(agent)) is None:
            raise NoSuchAgent(
                f"agent {agent!r} has no session here: it was closed, was idle for too long, or never opened"
            )
        return shared

    def open(self, request: requests.Open) -> bool:
        """See to it that the agent has a session; was it made now?"""
        sandbox = None if request.sandbox is None else request.sandbox.made()
        if (shared := self.find(request.agent)) is not None:
            if sandbox not in (None, shared.sandbox):
                raise InvalidRequest(
                    f"agent {request.agent!r} has a session already, which is not confined by this sandbox:"
                    " close that one first, or take another agent"
                )
            shared.engine.idle_since = time.monotonic()  # who has come for it is to find it
            return False
        for closed in [one for one in self if one.session.closed]:  # their time was up
            self.dismiss(closed)
        if not request.cwd:
            raise InvalidRequest(
                "the directory that this runs in was removed: go to another, or name one by cwd= or --cwd"
            )
        if not os.path.isdir(request.cwd):
            raise InvalidRequest(f"cwd {request.cwd!r} is not a directory")
        env = {**request.env, **AGENT_ENV} if request.inherited and request.agent_env else request.env
        session = self._agents.session(
            request.agent,
            cwd=request.cwd,
            env=env,
            extra_env=request.extra_env,
            agent_env=request.agent_env,
            timeout=request.timeout,
            on_timeout=request.on_timeout,
            tty=request.tty,
            limits=None if request.limits is None else request.limits.made(),
            startup=request.startup,
            check_startup=request.check_startup,
            size=(request.size[0], request.size[1]),
            bash=request.bash,
            sandbox=sandbox,
        )
        session._engine.options = replace(session._engine.options, umask=request.umask)
        known = Secrets({**request.env, **(request.extra_env or {})})
        audience = self._audiences.pop(request.agent, None) or Audience(request.agent)
        self._shared[request.agent] = SharedSession(request.agent, session, known, self._journal, audience)
        return True

    def dismiss(self, shared: SharedSession) -> None:
        """Its session is closed: refuse who waits for a turn there, and notify who sits there."""
        shared.lose()
        shared.hold.end()
        self._agents._registry.forget(shared.agent, shared.session)
        if self._shared.get(shared.agent) is shared:
            del self._shared[shared.agent]
            shared.audience.show("closed", {})
            self._audiences[shared.agent] = shared.audience
            self._audiences = {agent: audience for agent, audience in self._audiences.items() if audience}

    async def cancel_handed_back(self, request: str) -> Delivery | None:
        """End the command that was handed back to that request: its client gave up before. None: there is none."""
        for shared in self:
            if (outcome := shared.owned_by(request)) is not None:
                # Attended, as by any verb: a command that comes meanwhile begins when the outcome is settled.
                with shared.attending() as ending, suppress(ShellSessionError):  # it has ended by itself
                    ending.set_result(result := await shared.session.interrupt())
                    shared.next_result(outcome, result)
                    return shared.cancel(outcome, result)
        return None
