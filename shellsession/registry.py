"""Registry: which agent has which session, since when, and the present state of each.

Law: it is safe from many threads and waits for nothing; it closes no session, and only returns those to be closed.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import EllipsisType
from typing import Any, Final, Generic, TypeVar

from .base import Base
from .engine.processes import alive
from .errors import InvalidRequest, NoSuchAgent, SessionClosed, TooManySessions
from .models import State, check_seconds

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
