"""Agents: one session per agent, for threads; AsyncAgents is the same for asyncio.

Law: an agent's session is made when it is first needed, and never ended behind its back while anything runs in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from types import EllipsisType
from typing import Any, Generic, Self, Unpack

from .any_session import Text
from .async_session import AsyncSession
from .engine.alarm import Alarm, LoopAlarm
from .engine.loop_waiting import to_its_end
from .errors import SessionClosed, ShellUnavailable
from .models import Result
from .options import RunOptions, SessionOptions
from .registry import AgentInfo, Registry, S
from .session import Session


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

    def run(self, agent: object, command: Text, **options: Unpack[RunOptions]) -> Result:
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

    async def run(self, agent: object, command: Text, **options: Unpack[RunOptions]) -> Result:
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
