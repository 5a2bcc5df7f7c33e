"""``Agents``: one session per agent, for threads. ``AsyncAgents`` is the same for asyncio.

An agent's session is made when it is first needed. A session that has been idle for ``idle_ttl`` seconds is closed, but
never while anything runs in it. ``Registry`` maps agents to sessions; ``_Agents`` is the common base class.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import EllipsisType
from typing import Any, Final, Generic, Literal, Self, TypeVar, Unpack

from .async_session import AsyncSession
from .base import Base
from .engine.io.alarm import Alarm
from .engine.io.loop import LoopAlarm, to_its_end
from .engine.kernel.proc import alive
from .engine.verbs.results import with_reason
from .errors import AlreadyOpen, InvalidRequest, NoSuchAgent, SessionClosed, ShellUnavailable, TooManySessions
from .models import Result, State, check_seconds
from .observe import Observer
from .options import Rules, SessionOptions
from .session import Session
from .signatures import Command, RunOptions, refuse_unknown

S = TypeVar("S", bound=Base)
_registries: weakref.WeakSet[Registry[Any]] = weakref.WeakSet()  # all registries of this process
# Where a loss is reported: in a result of ``Agents.run``, and by a tool.
_Report = Literal["run", "tool"]
# How many agents without a session are remembered: a host may use new names forever.
_KEPT_MAX: Final = 100_000
_IDLE_TTL: Final = 3600.0  # seconds
# In the reason of the first result after an agent's session has expired.
WAS_IDLE: Final = "this is a new session: the last one was closed after being idle for too long"
STATE_IS_LOST: Final = ", and its state is lost"
EXPIRED: Final = WAS_IDLE + STATE_IS_LOST
# How many idle agents an error names: no more than a person reads.
_IDLE_NAMES_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """The present state of one agent's session.

    ``state``: "new" (no bash yet, or bash was killed while idle), "idle", "running" (a command, also one that was
    handed back) or "closed". ``age``, ``idle``: seconds. ``jobs``: the number of running jobs. ``attached``: a person
    uses the session (``shellsession attach``), and the agent's own calls wait. ``running_for``: for how many seconds
    the command has been running; None if none runs.
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
    running_for: float | None = None


class AgentRecord(Generic[S]):
    """What is known of one agent, from its first name until it is closed or collected.

    It is open while it has a session, expired once that was closed for being idle and somebody is still to be told,
    and closed otherwise; then only its rules are kept. ``held``: a weak reference, if the agent is an object.
    """

    def __init__(self, name: str, held: weakref.ref[object] | None) -> None:
        self.name, self.held = name, held
        self.rules = Rules()  # those that were named, for this session and the next one
        self.losses: frozenset[_Report] = frozenset()  # where it is still to be told that a session has expired
        self.session: S | None = None
        self._made = 0.0

    def open(self, session: S) -> S:
        """Note the agent's new session, and return it. What is lost of an earlier one is still to be told."""
        self.session, self._made = session, time.monotonic()
        return session

    def settle(self) -> None:
        """Note that the session has been closed, if it has."""
        if (session := self.session) is None or not session.closed:
            return
        self.session = None
        if session.engine.expired and session.engine.last is not None:
            self.losses |= {"run", "tool"} if session.relied_on else {"run"}

    def info(self) -> AgentInfo | None:
        """The present state of its session; None if it has none."""
        if (session := self.session) is None:
            return None
        age, jobs = time.monotonic() - self._made, sum(job.running for job in session.jobs())
        pid, state, command, idle = session.pid, session.state, session.command, session.idle
        if state == "running" and idle:  # handed back, and ended since, but its result was not collected yet
            state, command = "idle", ""
        if pid is not None and state == "idle" and not alive(pid):  # the next command gets a fresh bash
            pid, state = None, "new"
        call = session.engine.current if state == "running" else None
        running_for = None if call is None else time.monotonic() - call.started
        return AgentInfo(self.name, pid, state, session.cwd, command, age, idle, jobs, session.attached, running_for)


class Registry(Generic[S]):
    """Maps agents to their records. An agent is a name or an object; for an object, only a weak reference is kept."""

    def __init__(self, max_sessions: int, idle_ttl: float | EllipsisType | None) -> None:
        if isinstance(max_sessions, bool) or not isinstance(max_sessions, int) or max_sessions < 1:
            raise InvalidRequest(f"max_sessions must be a number of sessions, 1 or more, not {max_sessions!r}")
        self._spares_lasting = isinstance(idle_ttl, EllipsisType)
        ttl = _IDLE_TTL if isinstance(idle_ttl, EllipsisType) else idle_ttl
        check_seconds("idle_ttl", ttl)
        self.max_sessions, self.idle_ttl = max_sessions, ttl
        self.closed = False
        self.lock = threading.RLock()  # reentrant: a garbage collection while it is held may remove a record
        self._open: dict[str | int, AgentRecord[S]] = {}
        self._others: dict[str | int, AgentRecord[S]] = {}  # without a session; the oldest first
        _registries.add(self)

    def reset_after_fork(self) -> None:
        """Forget all sessions in a forked child: they belong to the parent, and agents get new ones here."""
        # The lock first: a thread of the parent may have held it, and dropping a session may collect an agent.
        self.lock = threading.RLock()
        for key, record in [*self._others.items(), *self._open.items()]:
            record.session, record.losses = None, frozenset()
            self._open.pop(key, None)
            self._put(key, record)

    def find(self, agent: object) -> S | None:
        """The agent's session, if there is one. Raises SessionClosed."""
        key = _key(agent)
        with self.lock:
            if self.closed:
                raise SessionClosed("these agents were closed: make a new Agents")
            record = self._open.get(key)
            return None if record is None or record.session is None or record.session.closed else record.session

    def take(self, agent: object, named: Rules, make: Callable[[Rules], S]) -> S:
        """The agent's session, made now if it has none. Raises AlreadyOpen, TooManySessions and SessionClosed.

        ``named``: the rules that the caller names. ``make`` gets those of the agent.
        """
        key = _key(agent)
        with self.lock:
            if (session := self.find(agent)) is not None:
                _refuse_others(agent, named, session)
                return session
            rules = self.keep_rules(agent, named)
            if len(self._open) >= self.max_sessions:
                self.settle()
                if len(self._open) >= self.max_sessions:
                    self._raise_too_many()
            session = make(rules)
            record = self._others.pop(key, None) or self._new(agent)
            self._open[key] = record
            return record.open(session)

    def rules(self, agent: object) -> Rules:
        """The rules that were named for the agent and have applied since it was last closed."""
        with self.lock:
            record = self._get(_key(agent))
            return Rules() if record is None else record.rules

    def keep_rules(self, agent: object, named: Rules) -> Rules:
        """Keep what a caller names for the agent, also if no session can be made now, and return the agent's rules."""
        key = _key(agent)
        with self.lock:
            record = self._get(key) or self._new(agent)
            record.rules = record.rules.next(named)
            self._put(key, record)
            return record.rules

    def forget_rules(self, agent: object) -> bool:
        """Forget the rules of an agent that is closed. True if it had any."""
        key = _key(agent)
        with self.lock:
            if (record := self._get(key)) is None or record.rules == Rules():
                return False
            record.rules = Rules()
            self._put(key, record)
            return True

    def _new(self, agent: object) -> AgentRecord[S]:
        held = None
        if not isinstance(agent, str):
            held = weakref.ref(agent, partial(_forget_collected, weakref.ref(self), id(agent)))
        return AgentRecord(_name(agent), held)

    def _get(self, key: str | int) -> AgentRecord[S] | None:
        """The agent's record, if anything is known of it."""
        if (record := self._open.get(key)) is None:
            return self._others.get(key)
        record.settle()
        if record.session is None and self._open.pop(key, None) is not None:  # else its agent was just collected
            self._put(key, record)
        return record

    def _put(self, key: str | int, record: AgentRecord[S]) -> None:
        """Keep a record as the youngest one, if it has no session and there is anything to keep."""
        self._others.pop(key, None)
        if record.session is None and (record.losses or record.rules != Rules()):
            self._others[key] = record
            if len(self._others) > _KEPT_MAX:
                self._others.pop(next(iter(self._others)), None)

    def _raise_too_many(self) -> None:
        idle = [info for info in self.infos() if info.state != "running" and not info.jobs]
        names = tuple(info.agent for info in sorted(idle, key=lambda info: -info.idle))
        shown = ", ".join(names[:_IDLE_NAMES_MAX]) + (", ..." if len(names) > _IDLE_NAMES_MAX else "")
        raise TooManySessions(
            f"{self.max_sessions} agents have sessions, which is the limit (max_sessions): close an idle one"
            f" ({shown or 'there is none now'}), or raise the limit",
            names,
        )

    def take_loss(self, agent: object, report: _Report = "tool") -> bool:
        """True once after a session of this agent expired: for "tool" if one relied on its state, for "run" if anything
        had run in it."""
        key = _key(agent)
        with self.lock:
            if (record := self._get(key)) is None or report not in record.losses:
                return False
            record.losses -= {report}
            self._put(key, record)
            return True

    def forget_loss(self, agent: object) -> None:
        """Report no loss: its agent has requested a fresh shell."""
        key = _key(agent)
        with self.lock:
            if (record := self._get(key)) is not None:
                record.losses = frozenset()
                self._put(key, record)

    def drop(self, agent: object) -> list[S]:
        """Remove the agent, and return its session if it has one. Raises NoSuchAgent if nothing is known of it."""
        key = _key(agent)
        with self.lock:
            if (record := self._get(key)) is None:
                raise NoSuchAgent(f"agent {_name(agent)!r} has no session: it has run nothing yet, or was closed")
            self._open.pop(key, None)
            self._others.pop(key, None)
            return [] if record.session is None else [record.session]

    def forget(self, agent: object, session: S) -> None:
        """Remove this session, if it is still the agent's. It is closed, or could not start."""
        key = _key(agent)
        with self.lock:
            record = self._open.get(key)
            if record is None or record.session is not session:
                return
            record.settle()
            record.session = None
            if self._open.pop(key, None) is not None:
                self._put(key, record)

    def clear(self) -> list[S]:
        """Remove and return all sessions, and make no more."""
        with self.lock:
            self.closed = True
            sessions = self.sessions()
            self._open.clear()
            self._others.clear()
            return sessions

    def infos(self) -> Iterator[AgentInfo]:
        """Yield the state of every agent that has a session, as it is then."""
        self.settle()
        with self.lock:
            records = list(self._open.values())
        yield from (info for record in records if (info := record.info()) is not None)

    def idle_too_long(self) -> list[S]:
        """The sessions that seem to have been idle for ``idle_ttl`` seconds; each must check that under its lock."""
        return [session for session in self.sessions() if session.idle >= self.ttl_of(session)]

    def ttl_of(self, session: S) -> float:
        """After how many idle seconds the session is closed: its own ``idle_ttl``, or that of all."""
        ttl = session.idle_ttl
        if isinstance(ttl, EllipsisType):
            ttl = None if self._spares_lasting and session.lasts else self.idle_ttl
        return math.inf if ttl is None else ttl

    def sessions(self) -> list[S]:
        """All sessions."""
        with self.lock:
            records = list(self._open.values())
            return [record.session for record in records if record.session is not None]

    def settle(self) -> None:
        """Note which sessions have been closed."""
        with self.lock:
            for key in list(self._open):
                self._get(key)

    def seconds_until_check(self) -> float | None:
        """Seconds until a session can have been idle for too long; None if there is none."""
        left = [
            max(ttl - session.idle, ttl / 20)  # not too often: a job may keep one alive
            for session in self.sessions()
            if (ttl := self.ttl_of(session)) != math.inf
        ]
        return min(left, default=None)


def _key(agent: object) -> str | int:
    if isinstance(agent, str):
        return agent
    if agent is None or not type(agent).__weakrefoffset__:
        raise InvalidRequest(f"an agent must be a name (str), or an object that allows weak references, not {agent!r}")
    return id(agent)


def _name(agent: object) -> str:
    return agent if isinstance(agent, str) else f"<{type(agent).__name__} {id(agent):#x}>"


def _forget_collected(registry: weakref.ref[Registry[Any]], key: int, _: weakref.ref[object]) -> None:
    """Remove an agent that was garbage collected. Dropping the last reference to its session closes it."""
    if (alive := registry()) is not None:
        with alive.lock:
            records = alive._open.pop(key, None), alive._others.pop(key, None)
        del records  # outside the lock, which all agents need: ending a bash takes time


def _after_fork() -> None:
    for registry in list(_registries):
        registry.reset_after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _refuse_others(agent: object, named: Rules, session: Base) -> None:
    """Raise AlreadyOpen if another sandbox, policy or redaction is named than the session has."""
    for name in session.engine.options.rules.lacks(named):
        raise AlreadyOpen(
            f"agent {_name(agent)!r} has a session without this {name} already: close it, or leave out {name}="
        )


class _Agents(Generic[S]):
    """The common base class of Agents and AsyncAgents."""

    _kind: type[S]
    _alarm: Alarm | LoopAlarm

    def __init__(
        self,
        max_sessions: int = 1000,
        idle_ttl: float | EllipsisType | None = ...,
        **session_options: Unpack[SessionOptions],
    ) -> None:
        """``max_sessions``: how many agents may have sessions at a time.
        ``idle_ttl``: a session is closed after this many seconds without a command or a running job (None: never). The
        default is 3600, but spares the sessions of the ``strands`` tool, which live as long as their agents.
        ``session_options``: the options of Session. Raises InvalidRequest.
        """
        own = ("max_sessions", "idle_ttl")
        refuse_unknown(type(self).__name__, session_options, (*own, *SessionOptions.__annotations__))
        self.registry: Registry[S] = Registry(max_sessions, idle_ttl)
        self.options = session_options
        self._observers: tuple[Observer, ...] = ()
        self._kind(**session_options)  # raises for bad options now, not at the first command
        self._set_alarm()

    def session(self, agent: object, **options: Unpack[SessionOptions]) -> S:
        """The agent's session, made now if it has none. Its bash starts at the first command.

        ``agent``: a name (str), or any object that allows weak references; when the object is collected, its session is
        closed. ``options`` (those of Session) apply only when the session is made. Until the agent is closed, each next
        session has the ``sandbox``, ``policy`` and ``redact`` of the last, unless ``options`` name others; None and
        False name none. Raises AlreadyOpen if ``options`` name others than those of the open session, TooManySessions,
        and SessionClosed after ``close()``.
        """
        if options:
            refuse_unknown(f"{type(self).__name__}.session", options, SessionOptions.__annotations__)
        others: Any = {name: value for name, value in options.items() if name not in Rules._fields}

        def make(rules: Rules) -> S:
            merged: SessionOptions = {**self.options, **others, **rules.options()}
            return self._kind(**merged)

        return self.take(agent, Rules.of(options), make)

    def take(self, agent: object, named: Rules, make: Callable[[Rules], S]) -> S:
        """The agent's session. If it has none, ``make`` makes it, with the agent's rules; see ``Registry.take``."""

        def made(rules: Rules) -> S:
            session = make(rules)
            session.engine.adapt(agent=_name(agent))
            for observer in self._observers:
                session.observe(observer)
            return session

        session = self.registry.take(agent, named, made)
        self._schedule_check()
        return session

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` for each command of all sessions that ends from now on."""
        self._observers += (observer,)
        for session in self.registry.sessions():
            session.observe(observer)

    def list(self) -> list[AgentInfo]:
        """The state of every agent that has a session."""
        return [*self.registry.infos()]

    @contextmanager
    def _attempt(self, agent: object) -> Iterator[S]:
        """Yield the agent's session for one attempt to use it.

        If it turns out to be closed, nothing was run: the block ends without an error, and the caller tries again.
        """
        session = self.session(agent)
        try:
            yield session
        except ShellUnavailable:
            # Not one that ran before, or that another caller is starting.
            if session.engine.last is None and session.pid is None and not session.is_in_use():
                self.registry.forget(agent, session)
            raise
        except SessionClosed:
            # One that is not closed belongs to the parent of a fork that bypassed Python's os.fork.
            if not session.closed:
                raise

    def _with_loss(self, agent: object, result: Result) -> Result:
        """Return the result. Its ``reason`` says, once, that the agent's previous session has expired."""
        if not self.registry.take_loss(agent, "run"):
            return result
        return with_reason(result, EXPIRED)

    def _remove(self, agent: object) -> Sequence[S]:
        """Remove one agent, or (``...``) all for good, and return the sessions to close. Raises NoSuchAgent."""
        if agent is not ...:
            return self.registry.drop(agent)
        sessions = self.registry.clear()
        self._alarm.cancel()
        return sessions

    def _set_alarm(self) -> None:
        raise NotImplementedError

    def check_anew(self) -> None:
        """Note that the ``idle_ttl`` of a session has changed: the alarm may be set for a later moment."""
        self._alarm.cancel()
        self._schedule_check()

    def _schedule_check(self) -> None:
        """Set the alarm that closes idle sessions, unless it is set already."""
        if not self._alarm.is_set and (seconds := self.registry.seconds_until_check()) is not None:
            self._alarm.set(seconds, partial(self._expire, weakref.ref(self)))

    @staticmethod
    def _expire(agents: Any) -> Any:
        """Close the sessions that have been idle too long. ``agents`` is a weak reference to this object."""
        raise NotImplementedError


class Agents(_Agents[Session]):
    """One ``Session`` per agent, made at its first command. All methods are safe from many threads.

    In a forked child, the agents get sessions of their own, not those of the parent.
    """

    _kind = Session
    _alarm: Alarm

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, agent: object, command: Command, **options: Unpack[RunOptions]) -> Result:
        """Run a command in the agent's session. ``options`` are those of ``Session.run``.

        If the agent's last session was closed for being idle, the ``reason`` of this result says so.
        """
        while True:
            with self._attempt(agent) as session:
                return self._with_loss(agent, session.run(command, **options))

    def restart(self, agent: object) -> None:
        """Start a fresh bash for the agent."""
        while True:
            with self._attempt(agent) as session:
                self.registry.forget_loss(agent)
                session.restart()
                return

    def close(self, agent: object = ...) -> None:
        """Close one agent's session, or without ``agent`` all of them, for good. Raises NoSuchAgent."""
        sessions = self._remove(agent)
        with ExitStack() as closing:  # closes every session, even if closing another one raises
            if agent is ...:
                closing.callback(self._alarm.finish)  # waits for the alarm, which may be closing an idle session
            for session in sessions:
                closing.callback(session.close)

    def _set_alarm(self) -> None:
        self._alarm = Alarm()
        weakref.finalize(self, self._alarm.cancel)

    @staticmethod
    def _expire(agents: weakref.ref[Agents]) -> None:
        if (alive := agents()) is not None:
            registry = alive.registry
            try:
                with ExitStack() as closing:  # closes every session, even if one raises; the alarm's thread reports it
                    for session in registry.idle_too_long():
                        closing.callback(session.close_if_idle, registry.ttl_of(session))
            finally:
                registry.settle()
                alive._schedule_check()


class AsyncAgents(_Agents[AsyncSession]):
    """One ``AsyncSession`` per agent: as ``Agents``, for asyncio."""

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
                return self._with_loss(agent, await session.run(command, **options))

    async def restart(self, agent: object) -> None:
        """As ``Agents.restart``."""
        while True:
            with self._attempt(agent) as session:
                self.registry.forget_loss(agent)
                await session.restart()
                return

    async def close(self, agent: object = ...) -> None:
        """As ``Agents.close``. If the task is cancelled meanwhile, the sessions are closed all the same."""
        await to_its_end(self._end(self._remove(agent), everyone=agent is ...))

    async def _end(self, sessions: Sequence[AsyncSession], everyone: bool) -> None:
        import asyncio

        ends = await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)
        if everyone:
            await self._alarm.finish()  # waits for the alarm, which may be closing an idle session
        for fault in filter(None, ends):  # raise the first error, now that all sessions are closed
            raise fault

    def _set_alarm(self) -> None:
        self._alarm = LoopAlarm()

    @staticmethod
    async def _expire(agents: weakref.ref[AsyncAgents]) -> None:
        if (alive := agents()) is not None:
            import asyncio

            registry = alive.registry
            closing = (session.close_if_idle(registry.ttl_of(session)) for session in registry.idle_too_long())
            ends = await asyncio.gather(*closing, return_exceptions=True)
            registry.settle()
            alive._schedule_check()
            for fault in filter(None, ends):  # the loop reports it
                raise fault
