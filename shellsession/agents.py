"""Agents: one session per agent, for threads; AsyncAgents is the same for asyncio.

Law: an agent's session is made when it is first needed, and never ended behind its back while anything runs in it.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import EllipsisType
from typing import Any, Final, Generic, Self, TypeVar, Unpack

from .async_session import AsyncSession
from .base import Base
from .engine.io.background import Alarm
from .engine.io.loop import LoopAlarm, to_its_end
from .engine.kernel.proc import alive
from .errors import InvalidRequest, NoSuchAgent, SessionClosed, ShellUnavailable, TooManySessions
from .models import Result, State, check_seconds
from .options import SessionOptions
from .session import Session
from .signatures import Command, RunOptions

S = TypeVar("S", bound=Base)
_registries: weakref.WeakSet[Registry[Any]] = weakref.WeakSet()  # all of this process
# So many names of agents are kept whose state was lost: a host may invent new ones for ever.
_LOSSES: Final = 100_000
_IDLE_TTL: Final = 3600.0  # seconds
# An error names no more idle agents than a person reads.
_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """The present state of one agent's session. ``age`` and ``idle`` are in seconds, ``jobs`` counts those that run.

    ``state``: "new" (no bash yet, or it was killed while idle), "idle", "running" (a command, also one that was handed
    back) or "closed". ``attached``: somebody sits there (``shellsession attach``), and its own calls wait.
    """

    agent: str
    pid: int | None
    state: State
    cwd: str
    command: str
    age: float
    idle: float
    jobs: int
    attached: bool = False


class Entry(Generic[S]):
    """One agent: its session, and since when. ``agent`` is a weak reference to an agent that is an object."""

    def __init__(self, name: str, session: S, agent: weakref.ref[object] | None) -> None:
        self.name, self.session, self.made, self.agent = name, session, time.monotonic(), agent

    def info(self) -> AgentInfo:
        session, age = self.session, time.monotonic() - self.made
        jobs = sum(job.running for job in session.jobs())
        pid, state, command, idle = session.pid, session.state, session.command, session.idle
        if state == "running" and idle:  # handed back, and ended since, but nobody has asked for its result
            state, command = "idle", ""
        if pid is not None and state == "idle" and not alive(pid):  # the next command gets a fresh one
            pid, state = None, "new"
        return AgentInfo(self.name, pid, state, session.cwd, command, age, idle, jobs, session.attached)


class Registry(Generic[S]):
    """Who has which session: an agent is a name, or any object, which is then held weakly."""

    def __init__(self, max_sessions: int, idle_ttl: float | EllipsisType | None) -> None:
        if isinstance(max_sessions, bool) or not isinstance(max_sessions, int) or max_sessions < 1:
            raise InvalidRequest(f"max_sessions is a number of sessions, 1 or more, not {max_sessions!r}")
        self._keeps_lasting = isinstance(idle_ttl, EllipsisType)
        ttl = _IDLE_TTL if isinstance(idle_ttl, EllipsisType) else idle_ttl
        check_seconds("idle_ttl", ttl)
        self.max_sessions, self.idle_ttl = max_sessions, ttl
        self.closed = False
        self.lock = threading.RLock()  # reentrant: a garbage collection inside may remove an entry
        self._entries: dict[str | int, Entry[S]] = {}
        # Agents whose state was lost, as their sessions had expired; an object is held weakly here, too.
        self._lost: dict[str | int, weakref.ref[object] | None] = {}
        _registries.add(self)

    def begin_anew(self) -> None:
        """In a forked child: the sessions are its parent's, and its agents get sessions of its own."""
        # First, as another thread of the parent may have held it, and a released entry may end an agent.
        self.lock = threading.RLock()
        self._entries, self._lost = {}, {}

    def find(self, agent: object) -> S | None:
        """The agent's session, if there is one. Raises SessionClosed."""
        key = _key(agent)
        with self.lock:
            if self.closed:
                raise SessionClosed("these agents were closed: make a new Agents")
            entry = self._entries.get(key)
            return None if entry is None or entry.session.closed else entry.session

    def take(self, agent: object, make: Callable[[], S]) -> S:
        """The agent's session, made now if there is none. Raises TooManySessions and SessionClosed."""
        key = _key(agent)
        with self.lock:
            if (session := self.find(agent)) is not None:
                return session
            self._drop_closed(key)
            if key not in self._entries and len(self._entries) >= self.max_sessions:
                self.drop_closed()
                if len(self._entries) >= self.max_sessions:
                    self._refuse()
            held = None if isinstance(key, str) else weakref.ref(agent, partial(_forget, weakref.ref(self), key))
            entry = self._entries[key] = Entry(_name(agent), make(), held)
            return entry.session

    def _refuse(self) -> None:
        idle = [info for info in self.infos() if info.state != "running" and not info.jobs]
        names = tuple(info.agent for info in sorted(idle, key=lambda info: -info.idle))
        said = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        raise TooManySessions(
            f"{self.max_sessions} agents have sessions, which is the limit (max_sessions): close one of the idle ones"
            f" ({said or 'there is none'}), or raise the limit",
            names,
        )

    def take_loss(self, agent: object) -> bool:
        """True, and only once, when a session of this agent has expired that somebody relied on."""
        key = _key(agent)
        with self.lock:
            self._drop_closed(key)
            return self._lost.pop(key, ...) is not ...

    def drop(self, agent: object) -> S:
        """Remove the agent, and return its session. Raises NoSuchAgent."""
        key = _key(agent)
        with self.lock:
            self._lost.pop(key, None)
            if (entry := self._entries.pop(key, None)) is None:
                raise NoSuchAgent(f"no session of agent {_name(agent)!r}: it has run nothing yet, or was closed")
            return entry.session

    def forget(self, agent: object, session: S) -> None:
        """Remove that session, if it is the agent's still."""
        with self.lock:
            if (entry := self._entries.get(_key(agent))) is not None and entry.session is session:
                del self._entries[_key(agent)]

    def forget_unopened(self, agent: object, session: S) -> None:
        """Remove a session whose bash could not be started, unless it had one before, or another caller starts one."""
        if session._engine.last is None is session.pid and not session._is_in_use():
            self.forget(agent, session)

    def clear(self) -> list[S]:
        """Remove and return all, and admit none any more."""
        with self.lock:
            self.closed = True
            sessions = [entry.session for entry in self._entries.values()]
            self._entries.clear()
            self._lost.clear()
            return sessions

    def infos(self) -> list[AgentInfo]:
        self.drop_closed()
        with self.lock:
            entries = list(self._entries.values())
        return [entry.info() for entry in entries]

    def tired(self) -> list[S]:
        """Sessions that seem to have been idle too long."""
        if self.idle_ttl is None:
            return []
        return [session for session in self._expiring() if session.idle >= self.idle_ttl]

    def _expiring(self) -> list[S]:
        """The sessions that are closed when they have been idle too long."""
        with self.lock:
            sessions = [entry.session for entry in self._entries.values()]
        return [session for session in sessions if not (self._keeps_lasting and session.lasts)]

    def drop_closed(self) -> None:
        with self.lock:
            for key in list(self._entries):
                self._drop_closed(key)

    def _drop_closed(self, key: str | int) -> None:
        if (entry := self._entries.get(key)) is None or not entry.session.closed:
            return
        engine = entry.session._engine
        if entry.session.relied_on and engine.expired and engine.last is not None:
            self._lost[key] = entry.agent
            if len(self._lost) > _LOSSES:
                del self._lost[next(iter(self._lost))]
        self._entries.pop(key, None)  # last: a collection may end the agent anywhere here, and remove its entry

    def next_look(self) -> float | None:
        """In how many seconds a session may have been idle too long; None while there is none."""
        if self.idle_ttl is None:
            return None
        idle = [session.idle for session in self._expiring()]
        if not idle:
            return None
        return max(self.idle_ttl - max(idle), self.idle_ttl / 20)  # the oldest may be kept by a job: not too often


def _key(agent: object) -> str | int:
    if isinstance(agent, str):
        return agent
    if agent is None or not type(agent).__weakrefoffset__:
        raise InvalidRequest(f"an agent is a name (str), or an object that can be held weakly, not {agent!r}")
    return id(agent)


def _name(agent: object) -> str:
    return agent if isinstance(agent, str) else f"<{type(agent).__name__} {id(agent):#x}>"


def _forget(registry: weakref.ref[Registry[Any]], key: int, _: weakref.ref[object]) -> None:
    """Remove an agent that was garbage collected: its session is closed with the last reference to it."""
    if (alive := registry()) is not None:
        with alive.lock:
            held = alive._entries.pop(key, None)
            alive._lost.pop(key, None)
        del held  # here, as the end of a bash takes its time, and all agents need the lock


def _after_fork() -> None:
    for registry in list(_registries):
        registry.begin_anew()


os.register_at_fork(after_in_child=_after_fork)


class _Attempt(Generic[S]):
    """One attempt at a verb in an agent's session. Where that turns out to be closed, nothing was run, and the block is
    left without an error: make another attempt.
    """

    def __init__(self, registry: Registry[S], agent: object, session: S) -> None:
        self._registry, self._agent, self._session = registry, agent, session

    def __enter__(self) -> S:
        return self._session

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> bool:
        if isinstance(error, ShellUnavailable):
            self._registry.forget_unopened(self._agent, self._session)
        # One that is not closed is another process's (a fork that Python was not told of).
        return isinstance(error, SessionClosed) and self._session.closed


class _Agents(Generic[S]):
    """What both kinds of agents have in common."""

    _kind: type[S]
    _alarm: Alarm | LoopAlarm

    def __init__(
        self,
        max_sessions: int = 1000,
        idle_ttl: float | EllipsisType | None = ...,
        **session_options: Unpack[SessionOptions],
    ) -> None:
        """``max_sessions``: how many agents may have sessions at a time. ``idle_ttl``: after so many seconds without a
        command, and without a job that runs, a session is closed (None: never). The default is 3600, and does not close
        the sessions of the ``strands`` tool, which last as long as their agents. ``session_options`` are Session's.
        Raises InvalidRequest.
        """
        self._registry: Registry[S] = Registry(max_sessions, idle_ttl)
        self._options = session_options
        self._kind(**session_options)  # refuses bad options here, not at the first command
        self._set_alarm()

    def session(self, agent: object, **options: Unpack[SessionOptions]) -> S:
        """The agent's session, made now if there is none; its bash starts at the first command.

        ``agent``: a name (str), or any object that can be held weakly: its session is closed when it is collected.
        ``options`` (of Session) count when the session is made. Raises TooManySessions, and SessionClosed after
        ``close()``.
        """
        given: SessionOptions = {**self._options, **options}
        session = self._registry.take(agent, lambda: self._kind(**given))
        self._watch()
        return session

    def list(self) -> list[AgentInfo]:
        """Every agent that has a session."""
        return self._registry.infos()

    def _attempt(self, agent: object) -> _Attempt[S]:
        return _Attempt(self._registry, agent, self.session(agent))

    def _find(self, agent: object) -> S | None:
        """The agent's session, if there is one: none is made. Raises SessionClosed."""
        return self._registry.find(agent)

    def _take_loss(self, agent: object) -> bool:
        """True, and only once, when a session of this agent has expired that somebody relied on."""
        return self._registry.take_loss(agent)

    def _forget(self, agent: object, session: S) -> None:
        """Forget that session, which is closed, if it is the agent's still."""
        self._registry.forget(agent, session)

    def _take_out(self, agent: object) -> Sequence[S]:
        """The session of one agent, to be closed, or of all (``...``), for good. Raises NoSuchAgent."""
        if agent is not ...:
            return [self._registry.drop(agent)]
        sessions = self._registry.clear()
        self._alarm.cancel()
        return sessions

    def _set_alarm(self) -> None:
        raise NotImplementedError

    def _watch(self) -> None:
        """Set the alarm that closes sessions which have been idle too long."""
        if not self._alarm.is_set and (seconds := self._registry.next_look()) is not None:
            self._alarm.set(seconds, partial(self._expire, weakref.ref(self)))

    @staticmethod
    def _expire(agents: Any) -> Any:
        """Close them; ``agents`` is a weak reference."""
        raise NotImplementedError


class Agents(_Agents[Session]):
    """One ``Session`` per agent: made at its first command, isolated from the others, safe from many threads.

    In a forked child its agents have no sessions yet, and get others than its parent's.
    """

    _kind = Session
    _alarm: Alarm

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, agent: object, command: Command, **options: Unpack[RunOptions]) -> Result:
        """Run a command in the agent's session; ``options`` are those of ``Session.run``."""
        while True:
            with self._attempt(agent) as session:
                return session.run(command, **options)

    def restart(self, agent: object) -> None:
        """Start a fresh bash for the agent."""
        while True:
            with self._attempt(agent) as session:
                self._take_loss(agent)
                return session.restart()

    def close(self, agent: object = ...) -> None:
        """Close one agent's session (raises NoSuchAgent when it has none); without ``agent`` all of them, for good."""
        sessions = self._take_out(agent)
        with ExitStack() as closing:  # all of them, whatever goes wrong with one
            if agent is ...:
                closing.callback(self._alarm.finish)  # one that is just being closed for its idleness, too
            for session in sessions:
                closing.callback(session.close)

    def _set_alarm(self) -> None:
        self._alarm = Alarm()
        weakref.finalize(self, self._alarm.cancel)

    @staticmethod
    def _expire(agents: weakref.ref[Agents]) -> None:
        if (alive := agents()) is not None:
            registry = alive._registry
            try:
                with ExitStack() as closing:  # all of them, whatever goes wrong with one: its thread reports that
                    for session in registry.tired():
                        closing.callback(session._close_if_idle, registry.idle_ttl)
            finally:
                registry.drop_closed()
                alive._watch()


class AsyncAgents(_Agents[AsyncSession]):
    """As ``Agents``, for asyncio."""

    _kind = AsyncSession
    _alarm: LoopAlarm

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, agent: object, command: Command, **options: Unpack[RunOptions]) -> Result:
        """As ``Agents.run``."""
        while True:
            with self._attempt(agent) as session:
                return await session.run(command, **options)

    async def restart(self, agent: object) -> None:
        """As ``Agents.restart``."""
        while True:
            with self._attempt(agent) as session:
                self._take_loss(agent)
                return await session.restart()

    async def close(self, agent: object = ...) -> None:
        """As ``Agents.close``. Where the task is cancelled meanwhile, all of them are closed all the same."""
        await to_its_end(self._end(self._take_out(agent), everyone=agent is ...))

    async def _end(self, sessions: Sequence[AsyncSession], everyone: bool) -> None:
        import asyncio

        ends = await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)
        if everyone:
            await self._alarm.finish()  # one that is just being closed for its idleness, too
        for fault in filter(None, ends):  # all are closed, whatever went wrong with one
            raise fault

    def _set_alarm(self) -> None:
        self._alarm = LoopAlarm()

    @staticmethod
    async def _expire(agents: weakref.ref[AsyncAgents]) -> None:
        if (alive := agents()) is not None:
            import asyncio

            registry = alive._registry
            tired = (session._close_if_idle(registry.idle_ttl) for session in registry.tired())
            ends = await asyncio.gather(*tired, return_exceptions=True)
            registry.drop_closed()
            alive._watch()
            for fault in filter(None, ends):  # the loop reports it
                raise fault
