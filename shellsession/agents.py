"""Agents: one session per agent, for threads; AsyncAgents is the same for asyncio.

Law: an agent's session is made when it is first needed, and never ended behind its back while anything runs in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from types import EllipsisType
from typing import Generic, Self, Unpack

from .any_session import Text
from .async_session import AsyncSession
from .engine.alarm import Alarm, LoopAlarm
from .engine.loop_waiting import to_its_end
from .engine.waiting import T
from .errors import SessionClosed, ShellUnavailable
from .models import Result
from .options import RunOptions, SessionOptions
from .registry import AgentInfo, Registry, S
from .session import Session


class _Agents(Generic[S]):
    """What both kinds of agents are made of."""

    _kind: type[S]

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

    def _find(self, agent: object) -> S | None:
        """The agent's session, if there is one: none is made. Raises SessionClosed."""
        return self._registry.find(agent)

    def _take_loss(self, agent: object) -> bool:
        """Has a session of this agent expired that somebody relied on? It is told once, or made up for."""
        return self._registry.take_loss(agent)

    def _forget(self, agent: object, session: S) -> None:
        """That one is closed, and is the agent's no more."""
        self._registry.forget(agent, session)

    def _watch(self) -> None:
        """See to it that somebody looks for sessions that are idle too long."""
        raise NotImplementedError


class Agents(_Agents[Session]):
    """One ``Session`` per agent: made at its first command, isolated from the others, safe from many threads.

    In a forked child its agents have no sessions yet, and get others than its parent's.
    """

    _kind = Session

    def __init__(
        self,
        max_sessions: int = 1000,
        idle_ttl: float | EllipsisType | None = ...,
        **session_options: Unpack[SessionOptions],
    ) -> None:
        super().__init__(max_sessions, idle_ttl, **session_options)
        self._alarm = Alarm()
        weakref.finalize(self, self._alarm.cancel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, agent: object, command: Text, **options: Unpack[RunOptions]) -> Result:
        """Run a command in the agent's session; ``options`` are those of ``Session.run``."""
        return self._do(agent, lambda session: session.run(command, **options))

    def restart(self, agent: object) -> None:
        """A fresh bash for the agent."""

        def restart(session: Session) -> None:
            self._take_loss(agent)
            session.restart()

        self._do(agent, restart)

    def _do(self, agent: object, verb: Callable[[Session], T]) -> T:
        while True:
            session = self.session(agent)
            try:
                return verb(session)
            except ShellUnavailable:
                self._registry.forget_unopened(agent, session)
                raise
            except SessionClosed:
                if not session.closed:  # another process's (a fork that Python was not told of)
                    raise
                # Its time was up just now, and nothing was run; or all were closed, which ``session`` tells.

    def close(self, agent: object = ...) -> None:
        """Close one agent's session (raises NoSuchAgent when it has none); without ``agent`` all of them, for good."""
        everyone = agent is ...
        sessions = self._registry.clear() if everyone else [self._registry.drop(agent)]
        if everyone:
            self._alarm.cancel()
        with ExitStack() as closing:  # all of them, whatever goes wrong with one
            if everyone:
                closing.callback(self._alarm.finish)  # one that is just being closed for its idleness, too
            for session in sessions:
                closing.callback(session.close)

    def _watch(self) -> None:
        if not self._alarm.is_set and (seconds := self._registry.next_look()) is not None:
            self._alarm.set(seconds, partial(_expire, weakref.ref(self)))


def _expire(agents: weakref.ref[Agents]) -> None:
    if (alive := agents()) is not None:
        registry = alive._registry
        try:
            with ExitStack() as closing:  # all of them, whatever goes wrong with one: its thread tells of that
                for session in registry.tired():
                    closing.callback(session._close_if_idle, registry.idle_ttl)
        finally:
            registry.drop_closed()
            alive._watch()


class AsyncAgents(_Agents[AsyncSession]):
    """As ``Agents``, for asyncio."""

    _kind = AsyncSession

    def __init__(
        self,
        max_sessions: int = 1000,
        idle_ttl: float | EllipsisType | None = ...,
        **session_options: Unpack[SessionOptions],
    ) -> None:
        super().__init__(max_sessions, idle_ttl, **session_options)
        self._alarm = LoopAlarm()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, agent: object, command: Text, **options: Unpack[RunOptions]) -> Result:
        """As ``Agents.run``."""
        return await self._do(agent, lambda session: session.run(command, **options))

    async def restart(self, agent: object) -> None:
        """As ``Agents.restart``."""

        async def restart(session: AsyncSession) -> None:
            self._take_loss(agent)
            await session.restart()

        await self._do(agent, restart)

    async def _do(self, agent: object, verb: Callable[[AsyncSession], Awaitable[T]]) -> T:
        while True:
            session = self.session(agent)
            try:
                return await verb(session)
            except ShellUnavailable:
                self._registry.forget_unopened(agent, session)
                raise
            except SessionClosed:
                if not session.closed:
                    raise

    async def close(self, agent: object = ...) -> None:
        """As ``Agents.close``. Who is cancelled meanwhile still leaves none of them open."""
        everyone = agent is ...
        sessions = self._registry.clear() if everyone else [self._registry.drop(agent)]
        if everyone:
            self._alarm.cancel()
        await to_its_end(self._end(sessions, everyone))

    async def _end(self, sessions: list[AsyncSession], everyone: bool) -> None:
        import asyncio

        ends = await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)
        if everyone:
            await self._alarm.finish()  # one that is just being closed for its idleness, too
        for fault in filter(None, ends):  # all are closed, whatever went wrong with one
            raise fault

    def _watch(self) -> None:
        if not self._alarm.is_set and (seconds := self._registry.next_look()) is not None:
            self._alarm.set(seconds, partial(_expire_in_loop, weakref.ref(self)))


async def _expire_in_loop(agents: weakref.ref[AsyncAgents]) -> None:
    if (alive := agents()) is not None:
        import asyncio

        registry = alive._registry
        tired = (session._close_if_idle(registry.idle_ttl) for session in registry.tired())
        ends = await asyncio.gather(*tired, return_exceptions=True)
        registry.drop_closed()
        alive._watch()
        for fault in filter(None, ends):  # the loop tells of it
            raise fault
