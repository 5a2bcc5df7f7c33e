"""The sessions of the daemon: one for each agent that has opened one, and who looks on at those that have none.

Law: one that is closed is nobody's any more, whoever closed it: its agent may open another.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from ..agents import AsyncAgents
from ..engine.environment import AGENT_ENV
from ..errors import InvalidRequest, NoSuchAgent, ShellSessionError
from ..models import Result
from ..policy.secrets import Secrets
from . import requests
from .audience import Audience
from .journal import Journal
from .shared import SharedSession


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
        """Its session is closed: who waits for a turn there is told, and who sits there."""
        shared.lose()
        shared.hold.end()
        self._agents._forget(shared.agent, shared.session)
        if self._shared.get(shared.agent) is shared:
            del self._shared[shared.agent]
            shared.audience.show("closed", {})
            self._audiences[shared.agent] = shared.audience
            self._audiences = {agent: audience for agent, audience in self._audiences.items() if audience}

    async def end_untold(self, request: str) -> Result | None:
        """End the command which that request handed back: its client gave up before it was told. None: it has none."""
        for shared in self:
            if command := shared.left_by(request):
                # Attended, as by any verb: a command that comes meanwhile begins when the outcome is settled.
                with shared.attending() as told, suppress(ShellSessionError):  # it has ended by itself
                    told.set_result(result := await shared.session.interrupt())
                    shared.next_result(command, result)
                    return shared.given_up(shared.outcomes.tell(command, result))
        return None

    def heard(self, result: Result) -> None:
        """Who gave the command up is told."""
        for shared in self:
            if shared.engine.untold is result:
                shared.engine.untold = None
