"""The daemon's heart: who is connected, which agents there are, and which requests are being served.

Law: a request is served once, whoever asks for it and how often; a client that goes takes nothing with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from contextlib import suppress
from typing import Any, Final

from ..agents import AsyncAgents
from ..engine.environment import AGENT_ENV
from ..errors import DaemonUnavailable, InvalidRequest, NoSuchAgent, OutcomeUnknown, SessionBusy, ShellSessionError
from ..models import VERSION, Result
from ..policy.secrets import Secrets
from . import requests
from .audience import Audience
from .audit import Audit
from .connection import LOG, Connection, too_many
from .eager import begin
from .incoming import Incoming
from .journal import Journal
from .ledger import Claim, Ledger
from .listener import LATE, LEFT, Listener
from .records import from_error
from .shared import SharedSession
from .verbs import serve
from .wire import PROTOCOL, Message, encode

MAX_CONNECTIONS: Final = 1024
# How long clients have to take what they are told at the end, in seconds.
_LAST_WORDS: Final = 1.0
# How long a client that lost its connection may take to come back on another, in seconds.
_GRACE: Final = 2.0

_NOT_AT_THE_END: Final = (requests.Open, requests.Start, requests.Run, requests.Restart)


class ServedRequest:
    """One request that is being served."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.task: asyncio.Task[None] | None = None
        self.begun = False


class Server:
    """Serves connections; it knows neither sockets nor signals (see ``service``)."""

    def __init__(self, agents: AsyncAgents, audit: Audit | None = None, max_connections: int = MAX_CONNECTIONS) -> None:
        self.agents = agents
        self.incarnation = secrets.token_hex(8)
        self.stopping = asyncio.Event()
        self._journal = Journal(audit)
        self._max_connections = max_connections
        self._ledger = Ledger(self.incarnation)
        self._connections: set[Connection] = set()
        self._no_clients = asyncio.Event()  # no client is connected
        self._no_clients.set()
        self._served: dict[str, ServedRequest] = {}
        self._sessions: dict[str, SharedSession] = {}
        self._audiences: dict[str, Audience] = {}  # of agents without a session
        self._started = time.monotonic()
        self._requests = 0

    # -- connections

    def admit(self, connection: Connection) -> ShellSessionError | None:
        """Greet a new client; or why it is refused."""
        if len(self._connections) >= self._max_connections:
            return too_many(self._max_connections)
        self._connections.add(connection)
        self._no_clients.clear()
        connection.number = self._ledger.admit()
        hello = {"protocol": PROTOCOL, "version": VERSION, "incarnation": self.incarnation}
        connection.send(encode({**hello, "connection": connection.number, "pid": os.getpid()}))
        return None

    def leave(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._ledger.leave(connection.number)
            for served in self._served.values():
                if served.listener.connection is connection:
                    self._await_reconnect(served)
            if not self._connections:
                self._no_clients.set()

    # -- requests

    def take(self, connection: Connection, message: Message, at_once: bool = False) -> None:
        """One message of a client: to be served, or its answer given again."""
        asked_for = message.header.get("id")
        try:
            request = requests.parse(message.header)
            claim = self._ledger.claim(request.id, time.monotonic())
        except ShellSessionError as error:
            connection.fail(error, asked_for if isinstance(asked_for, str) else "")
            connection.served()
            return
        if isinstance(claim, bytes):
            self._answer_again(connection, request, claim)
            connection.served()
        elif claim is Claim.RUNNING:
            if not connection.is_gone:  # else it was taken late, and has come again elsewhere
                self._served[request.id].listener.reconnect(connection)
            self._await_reconnect(self._served[request.id])
            connection.served()
        else:
            self._requests += 1
            served = self._served[request.id] = ServedRequest(Listener(request.id, connection))
            incoming = Incoming(request, message.parts, connection, served.listener)
            work = self._serve(incoming)
            served.task = begin(work) if at_once else asyncio.get_running_loop().create_task(work)
            self._await_reconnect(served)  # it may have been on its way while its client left

    def _answer_again(self, connection: Connection, request: requests.Request, reply: bytes) -> None:
        connection.send(reply)
        shared = self._sessions.get(request.agent) if isinstance(request, requests.OfAgent) else None
        if shared is not None and not connection.is_gone:  # else it was taken late: the client asks elsewhere
            shared.hear(request.id)

    async def _serve(self, incoming: Incoming) -> None:
        request = incoming.request.id
        self._served[request].begun = True
        header: dict[str, Any]
        try:
            if self.stopping.is_set() and isinstance(incoming.request, _NOT_AT_THE_END):
                raise DaemonUnavailable("the daemon is ending, and takes up nothing more: try again when it has ended")
            header, parts = await serve(self, incoming)
        except ShellSessionError as error:
            refusal, parts = from_error(error)
            header = {"error": refusal}
        except asyncio.CancelledError:
            header, parts = {"error": from_error(self._why_cancelled(incoming.listener))[0]}, ()
        except Exception:
            LOG.exception("a %s request failed; this is a defect of ours", incoming.request.verb)
            fault = ShellSessionError("the daemon failed at this request: its log says how")
            header, parts = {"error": from_error(fault)[0]}, ()
        incoming.listener.queued = False  # also where it was refused: nothing more is told of it
        reply = _encoded(request, header, parts)
        self._ledger.settle(request, incoming.listener.with_reply(reply), time.monotonic())
        del self._served[request]
        if LOG.isEnabledFor(logging.DEBUG):
            LOG.debug("%s", incoming.outline(header))
        incoming.listener.connection.send(reply)
        incoming.listener.abandon()  # what is still to be told of its output waits for no client that has gone
        incoming.connection.served()

    def _why_cancelled(self, listener: Listener) -> ShellSessionError:
        if listener.late or (listener.queued and listener.abandoned.done()):
            return SessionBusy(LATE if listener.late else LEFT)
        if not self.stopping.is_set():
            return ShellSessionError("the request was cancelled")
        if listener.queued:
            return DaemonUnavailable("the daemon is ending, and its turn had not come: it was not run")
        return OutcomeUnknown("the daemon has ended while it ran this: look at what it was to do")

    def _await_reconnect(self, served: ServedRequest) -> None:
        """Give a client that is gone the time to come back. What it asked for goes on meanwhile."""
        connection = served.listener.connection
        if connection.is_gone:
            asyncio.get_running_loop().call_later(_GRACE, self._abandon, served, connection)

    def _abandon(self, served: ServedRequest, lost: Connection) -> None:
        """What only waits, or looks on, ends where its client has not come back; a command goes on."""
        listener = served.listener
        if listener.connection is lost and self._served.get(listener.request) is served:
            listener.abandon()
            if listener.queued and served.task is not None:
                served.task.cancel()

    def pass_over(self, listener: Listener) -> None:
        """Its turn was to have come by now: what still waits for it is given up."""
        served = self._served.get(listener.request)
        if served is not None and served.task is not None and listener.queued:
            listener.late = True
            served.task.cancel()

    async def cancel(self, request: str) -> Listener | None:
        """End a request that is being served, and tell whose it was; None when it is not served (any more)."""
        # A task that has not had its first turn would be thrown away, and its answer with it. That takes a turn or two.
        while (served := self._served.get(request)) is not None and not served.begun:  # noqa: ASYNC110
            await asyncio.sleep(0)
        if served is None or served.task is None or served.task is asyncio.current_task():
            return None
        served.task.cancel()
        await asyncio.wait([served.task])
        return served.listener

    async def end_untold(self, request: str) -> Result | None:
        """End the command which that request handed back: its client gave up before it was told. None: it has none."""
        for shared in list(self._sessions.values()):
            if shared.is_left(request):
                # Attended, as by any verb: a command that comes meanwhile begins when the outcome is settled.
                with shared.attending() as told, suppress(ShellSessionError):  # it has ended by itself
                    told.set_result(result := await shared.session.interrupt())
                    shared.next_result(request, result)
                    return shared.outcomes.tell(request, result)
        return None

    # -- agents

    def open(self, request: requests.Open) -> bool:
        """See to it that the agent has a session; was it made now?"""
        shared = self._sessions.get(request.agent)
        sandbox = None if request.sandbox is None else request.sandbox.made()
        if shared is not None and not shared.session.closed:
            if sandbox not in (None, shared.sandbox):
                raise InvalidRequest(
                    f"agent {request.agent!r} has a session already, which is not confined by this sandbox:"
                    " close that one first, or take another agent"
                )
            shared.session._engine.idle_since = time.monotonic()  # who has come for it is to find it
            return False
        for closed in [one for one in self._sessions.values() if one.session.closed]:  # their time was up
            self.dismiss(closed)
        if not request.cwd:
            raise InvalidRequest(
                "the directory that this runs in was removed: go to another, or name one by cwd= or --cwd"
            )
        if not os.path.isdir(request.cwd):
            raise InvalidRequest(f"cwd {request.cwd!r} is not a directory")
        env = {**request.env, **AGENT_ENV} if request.inherited and request.agent_env else request.env
        session = self.agents.session(
            request.agent,
            cwd=request.cwd,
            env=env,
            extra_env=request.extra_env,
            agent_env=request.agent_env,
            timeout=request.timeout,
            on_timeout=request.on_timeout,
            tty=request.tty,
            limits=None if request.limits is None else request.limits.made(),
            startup=(f"umask {request.umask:04o}", *request.startup),
            size=(request.size[0], request.size[1]),
            bash=request.bash,
            sandbox=sandbox,
        )
        known = Secrets({**request.env, **(request.extra_env or {})})
        audience = self._audiences.pop(request.agent, None) or Audience(request.agent)
        self._sessions[request.agent] = SharedSession(request.agent, session, known, self._journal, audience)
        return True

    def shared(self, agent: str) -> SharedSession:
        shared = self._sessions.get(agent)
        if shared is not None and shared.session.closed:  # its time was up
            self.dismiss(shared)
            shared = None
        if shared is None:
            raise NoSuchAgent(
                f"agent {agent!r} has no session here: it was closed, was idle for too long, or never opened"
            )
        return shared

    def runs(self, agent: str) -> str:
        """The command that runs in the agent's session; "" while none does."""
        shared = self._sessions.get(agent)
        return "" if shared is None else shared.command

    def dismiss(self, shared: SharedSession) -> None:
        """Its session is closed."""
        shared.lose()
        if self._sessions.get(shared.agent) is shared:
            del self._sessions[shared.agent]
            self._audiences[shared.agent] = shared.audience
            self._audiences = {agent: audience for agent, audience in self._audiences.items() if audience}

    def stats(self) -> dict[str, Any]:
        states = [shared.session.state for shared in self._sessions.values() if not shared.session.closed]
        return {
            "version": VERSION,
            "protocol": PROTOCOL,
            "incarnation": self.incarnation,
            "pid": os.getpid(),
            "uptime": time.monotonic() - self._started,
            "agents": len(states),
            "running": states.count("running"),
            "connections": len(self._connections),
            "requests": self._requests,
            "serving": len(self._served),
            "audit_fault": self._journal.fault,
        }

    # -- the end

    def stop(self) -> None:
        """Ask for the end; ``finish`` and ``part`` bring it.

        What waits for its turn is refused: it would be begun to be ended.
        """
        self.stopping.set()
        for served in self._served.values():
            if served.listener.queued and served.task is not None:
                served.task.cancel()

    async def finish(self, patience: float) -> None:
        """Give what runs so many seconds to end by itself, then end every session."""
        tasks = [served.task for served in self._served.values() if served.task is not None]
        tasks += [asyncio.create_task(shared.drain(patience)) for shared in self._sessions.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
        try:
            await self.agents.close()  # what runs in them comes back, and is answered
        except Exception:
            LOG.exception("a session did not end as it should; this is a defect of ours")
        for shared in self._sessions.values():
            shared.lose()
        if left := [served.task for served in self._served.values() if served.task is not None]:
            for task in left:
                task.cancel()
            await asyncio.wait(left)
        self._journal.write()

    async def part(self) -> None:
        """End every connection."""
        for connection in list(self._connections):
            connection.close()
        with suppress(TimeoutError):  # of clients that do not read
            await asyncio.wait_for(self._no_clients.wait(), _LAST_WORDS)


def _encoded(request: str, header: dict[str, Any], parts: tuple[bytes, ...]) -> bytes:
    try:
        return encode({"id": request, **header}, *parts)
    except InvalidRequest as error:  # a result that is too large for a message
        return encode({"id": request, "error": from_error(error)[0]})
