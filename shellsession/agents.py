"""Agents: one session per agent, for threads; AsyncAgents is the same for asyncio.

Law: an agent's session is made when it is first needed, and never ended behind its back while anything runs in it.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar

from .async_session import AsyncSession
from .base import Base, Text
from .engine.alarm import Alarm, LoopAlarm
from .engine.processes import alive
from .errors import InvalidRequest, NoSuchAgent, SessionClosed, ShellUnavailable, TooManySessions
from .models import Result, State, check_seconds
from .session import Session

S = TypeVar("S", bound=Base)
# No more idle agents are named in an error than a person reads.
_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """One agent's session as it is just now. ``age`` and ``idle`` are in seconds, ``jobs`` counts those that run.

    ``state``: "new" (no bash yet, or it was killed while idle), "idle", "running" (a command, also one that was handed
    back) or "closed".
    """

    agent: str
    pid: int | None
    state: State
    cwd: str
    command: str
    age: float
    idle: float
    jobs: int


class Entry(Generic[S]):
    """One agent: its session, and since when."""

    def __init__(self, name: str, session: S) -> None:
        self.name, self.session, self.made = name, session, time.monotonic()

    def info(self) -> AgentInfo:
        session, age = self.session, time.monotonic() - self.made
        jobs = sum(job.running for job in session.jobs())
        pid, state = session.pid, session.state
        if pid is not None and state == "idle" and not alive(pid):  # the next command gets a fresh one
            pid, state = None, "new"
        return AgentInfo(self.name, pid, state, session.cwd, session.command, age, session.idle, jobs)


class Registry(Generic[S]):
    """Who has which session: an agent is a name, or any object, which is then held weakly."""

    def __init__(self, max_sessions: int, idle_ttl: float | None) -> None:
        if isinstance(max_sessions, bool) or not isinstance(max_sessions, int) or max_sessions < 1:
            raise InvalidRequest(f"max_sessions is a number of sessions, 1 or more, not {max_sessions!r}")
        check_seconds("idle_ttl", idle_ttl)
        self.max_sessions, self.idle_ttl = max_sessions, idle_ttl
        self.closed = False
        self.lock = threading.RLock()  # reentrant: a collection can strike inside, and take an entry away
        self._entries: dict[str | int, Entry[S]] = {}

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
            if key not in self._entries and len(self._entries) >= self.max_sessions:
                self.drop_closed()
                if len(self._entries) >= self.max_sessions:
                    self._refuse()
            entry = self._entries[key] = Entry(_name(agent), make())
            if not isinstance(key, str):
                weakref.finalize(agent, _forget, weakref.ref(self), key).atexit = False
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

    def drop(self, agent: object) -> S:
        """Take the agent out; its session. Raises NoSuchAgent."""
        with self.lock:
            if (entry := self._entries.pop(_key(agent), None)) is None:
                raise NoSuchAgent(f"no session of agent {_name(agent)!r}: it has run nothing yet, or was closed")
            return entry.session

    def forget_unopened(self, agent: object, session: S) -> None:
        """Its bash could not be started: where it never had one it takes no place."""
        with self.lock:
            entry = self._entries.get(_key(agent))
            if entry is not None and entry.session is session and session._engine.last is None is session.pid:
                del self._entries[_key(agent)]

    def clear(self) -> list[S]:
        """Take all out, and let none in any more."""
        with self.lock:
            self.closed = True
            sessions = [entry.session for entry in self._entries.values()]
            self._entries.clear()
            return sessions

    def infos(self) -> list[AgentInfo]:
        self.drop_closed()
        with self.lock:
            entries = list(self._entries.values())
        return [entry.info() for entry in entries]

    def tired(self) -> list[S]:
        """Sessions that have been idle too long, by the look of them."""
        if self.idle_ttl is None:
            return []
        with self.lock:
            sessions = [entry.session for entry in self._entries.values()]
        return [session for session in sessions if session.idle >= self.idle_ttl]

    def drop_closed(self) -> None:
        with self.lock:
            for key, entry in list(self._entries.items()):
                if entry.session.closed:
                    del self._entries[key]

    def next_look(self) -> float | None:
        """In how many seconds one may have been idle too long; None while there is none."""
        with self.lock:
            idle = [entry.session.idle for entry in self._entries.values()]
        if self.idle_ttl is None or not idle:
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


def _forget(registry: weakref.ref[Registry[Any]], key: int) -> None:
    """The agent was collected: with the last reference to its session that one is closed, too."""
    if (alive := registry()) is not None:
        with alive.lock:
            alive._entries.pop(key, None)


class _Agents(Generic[S]):
    """What both kinds of agents are made of."""

    _kind: type[S]

    def __init__(self, max_sessions: int = 1000, idle_ttl: float | None = 3600.0, **session_options: Any) -> None:
        """``max_sessions``: how many agents may have sessions at a time. ``idle_ttl``: after so many seconds without a
        command, and without a job that runs, a session is closed (None: never). ``session_options`` are Session's.
        Raises InvalidRequest.
        """
        self._registry: Registry[S] = Registry(max_sessions, idle_ttl)
        self._options = session_options
        self._kind(**session_options)  # refuses bad options here, not at the first command

    def session(self, agent: object, **options: Any) -> S:
        """The agent's session, made now if there is none; its bash starts at the first command.

        ``agent``: a name (str), or any object that can be held weakly: its session is closed when it is collected.
        ``options`` (of Session) count when the session is made. Raises TooManySessions, and SessionClosed after
        ``close()``.
        """
        session = self._registry.take(agent, lambda: self._kind(**{**self._options, **options}))
        self._watch()
        return session

    def list(self) -> list[AgentInfo]:
        """Every agent that has a session."""
        return self._registry.infos()

    def _watch(self) -> None:
        """See to it that somebody looks for sessions that are idle too long."""
        raise NotImplementedError


class Agents(_Agents[Session]):
    """One ``Session`` per agent: made at its first command, isolated from the others, safe from many threads."""

    _kind = Session

    def __init__(self, max_sessions: int = 1000, idle_ttl: float | None = 3600.0, **session_options: Any) -> None:
        super().__init__(max_sessions, idle_ttl, **session_options)
        self._alarm = Alarm()
        weakref.finalize(self, self._alarm.cancel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, agent: object, command: Text, **options: Any) -> Result:
        """Run a command in the agent's session; ``options`` are those of ``Session.run``."""
        while True:
            session = self.session(agent)
            try:
                return session.run(command, **options)
            except ShellUnavailable:
                self._registry.forget_unopened(agent, session)
                raise
            except SessionClosed:
                if not session.closed:  # a forked child has its parent's
                    raise
                # Its time was up just now, and nothing was run; or all were closed, which ``session`` tells.

    def restart(self, agent: object) -> None:
        """A fresh bash for the agent."""
        self.session(agent).restart()

    def close(self, agent: object = None) -> None:
        """Close one agent's session (raises NoSuchAgent when it has none), or all of them, for good."""
        sessions = self._registry.clear() if agent is None else [self._registry.drop(agent)]
        if agent is None:
            self._alarm.cancel()
        with ExitStack() as closing:  # all of them, whatever goes wrong with one
            for session in sessions:
                closing.callback(session.close)

    def _watch(self) -> None:
        if not self._alarm.is_set and (seconds := self._registry.next_look()) is not None:
            self._alarm.set(seconds, partial(_expire, weakref.ref(self)))


def _expire(agents: weakref.ref[Agents]) -> None:
    if (alive := agents()) is not None:
        registry = alive._registry
        for session in registry.tired():
            session._retire(registry.idle_ttl)
        registry.drop_closed()
        alive._watch()


class AsyncAgents(_Agents[AsyncSession]):
    """As ``Agents``, for asyncio."""

    _kind = AsyncSession

    def __init__(self, max_sessions: int = 1000, idle_ttl: float | None = 3600.0, **session_options: Any) -> None:
        super().__init__(max_sessions, idle_ttl, **session_options)
        self._alarm = LoopAlarm()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, agent: object, command: Text, **options: Any) -> Result:
        """As ``Agents.run``."""
        while True:
            session = self.session(agent)
            try:
                return await session.run(command, **options)
            except ShellUnavailable:
                self._registry.forget_unopened(agent, session)
                raise
            except SessionClosed:
                if not session.closed:
                    raise

    async def restart(self, agent: object) -> None:
        """As ``Agents.restart``."""
        await self.session(agent).restart()

    async def close(self, agent: object = None) -> None:
        """As ``Agents.close``."""
        sessions = self._registry.clear() if agent is None else [self._registry.drop(agent)]
        if agent is None:
            self._alarm.cancel()
        import asyncio

        ends = await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)
        for fault in filter(None, ends):  # all are closed, whatever went wrong with one
            raise fault

    def _watch(self) -> None:
        if not self._alarm.is_set and (seconds := self._registry.next_look()) is not None:
            self._alarm.set(seconds, partial(_expire_in_loop, weakref.ref(self)))


async def _expire_in_loop(agents: weakref.ref[AsyncAgents]) -> None:
    if (alive := agents()) is not None:
        registry = alive._registry
        for session in registry.tired():
            await session._retire(registry.idle_ttl)
        registry.drop_closed()
        alive._watch()
