"""The daemon's heart: who is connected, which agents there are, and which requests are being served.

Law: a request is served once, whoever asks for it and how often; a client that goes takes nothing with it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from contextlib import suppress
from typing import Any, Final

from ..agents import AsyncAgents
from ..engine.spawn import AGENT_ENV
from ..errors import DaemonUnavailable, InvalidRequest, NoSuchAgent, OutcomeUnknown, SessionBusy, ShellSessionError
from ..models import VERSION
from ..policy.secrets import Secrets
from . import requests
from .asked import Asked
from .audience import Audience
from .audit import Audit
from .connection import LOG, Connection, too_many
from .desk import Desk
from .eager import begin
from .journal import Journal
from .ledger import Claim, Ledger
from .listener import LEFT, Listener
from .records import from_error
from .verbs import serve
from .wire import PROTOCOL, Message, encode

MAX_CONNECTIONS: Final = 1024
# How long clients have to take what they are told at the end, in seconds.
_LAST_WORDS: Final = 1.0
# How long a client that lost its connection may take to come back on another, in seconds.
_GRACE: Final = 2.0

_NOT_AT_THE_END: Final = (requests.Open, requests.Start, requests.Run, requests.Restart)


class Service:
    """One request that is being served."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.task: asyncio.Task[None] | None = None


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
        self._deserted = asyncio.Event()  # no client is connected
        self._deserted.set()
        self._served: dict[str, Service] = {}
        self._desks: dict[str, Desk] = {}
        self._audiences: dict[str, Audience] = {}  # of agents without a session
        self._started = time.monotonic()
        self._requests = 0

    # -- connections

    def admit(self, connection: Connection) -> ShellSessionError | None:
        """Greet a new client; or why it is refused."""
        if len(self._connections) >= self._max_connections:
            return too_many(self._max_connections)
        self._connections.add(connection)
        self._deserted.clear()
        connection.number = self._ledger.admit()
        hello = {"protocol": PROTOCOL, "version": VERSION, "incarnation": self.incarnation}
        connection.send(encode({**hello, "connection": connection.number, "pid": os.getpid()}))
        return None

    def leave(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._ledger.leave(connection.number)
            for service in self._served.values():
                if service.listener.connection is connection:
                    self._miss(service)
            if not self._connections:
                self._deserted.set()

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
            connection.send(claim)
            if isinstance(request, requests.OfAgent) and (desk := self._desks.get(request.agent)) is not None:
                desk.unheard.heard(request.id)
            connection.served()
        elif claim is Claim.RUNNING:
            if not connection.is_gone:  # else it was taken late, and has come again elsewhere
                self._served[request.id].listener.come_back(connection)
            self._miss(self._served[request.id])
            connection.served()
        else:
            self._requests += 1
            service = self._served[request.id] = Service(Listener(request.id, connection))
            asked = Asked(request, message.parts, connection, service.listener)
            work = self._serve(asked)
            service.task = begin(work) if at_once else asyncio.get_running_loop().create_task(work)
            self._miss(service)  # it may have been on its way while he left

    async def _serve(self, asked: Asked) -> None:
        request = asked.request.id
        header: dict[str, Any]
        try:
            if self.stopping.is_set() and isinstance(asked.request, _NOT_AT_THE_END):
                raise DaemonUnavailable("the daemon is ending, and takes up nothing more: try again when it has ended")
            header, parts = await serve(self, asked)
        except ShellSessionError as error:
            refusal, parts = from_error(error)
            header = {"error": refusal}
        except asyncio.CancelledError:
            header, parts = {"error": from_error(self._why_cancelled(asked.listener))[0]}, ()
        except Exception:
            LOG.exception("a %s request failed; this is a defect of ours", asked.request.verb)
            fault = ShellSessionError("the daemon failed at this request: its log says how")
            header, parts = {"error": from_error(fault)[0]}, ()
        asked.listener.waits = False  # also where it was refused: nothing more is told of it
        reply = _encoded(request, header, parts)
        self._ledger.settle(request, asked.listener.with_reply(reply), time.monotonic())
        del self._served[request]
        asked.listener.connection.send(reply)
        asked.connection.served()

    def _why_cancelled(self, listener: Listener) -> ShellSessionError:
        if listener.waits and listener.deserted.done():
            return SessionBusy(LEFT)
        if not self.stopping.is_set():
            return ShellSessionError("the request was cancelled")
        if listener.waits:
            return DaemonUnavailable("the daemon is ending, and its turn had not come: it was not run")
        return OutcomeUnknown("the daemon has ended while it ran this: look at what it was to do")

    def _miss(self, service: Service) -> None:
        """Give its client the time to come back, if he is gone. What he asked for goes on meanwhile."""
        connection = service.listener.connection
        if connection.is_gone:
            asyncio.get_running_loop().call_later(_GRACE, self._desert, service, connection)

    def _desert(self, service: Service, lost: Connection) -> None:
        """What only waits, or looks on, ends where its client has not come back; a command goes on."""
        listener = service.listener
        if listener.connection is lost and self._served.get(listener.request) is service:
            listener.desert()
            if listener.waits and service.task is not None:
                service.task.cancel()

    async def cancel(self, request: str) -> bool:
        """End a request that is being served; False when it is not (any more)."""
        await asyncio.sleep(0)  # a task that has not had its first turn would be thrown away, and its answer with it
        service = self._served.get(request)
        if service is None or service.task is None or service.task is asyncio.current_task():
            return False
        service.task.cancel()
        await asyncio.wait([service.task])
        return True

    # -- agents

    def open(self, request: requests.Open) -> bool:
        """See to it that the agent has a session; was it made now?"""
        desk = self._desks.get(request.agent)
        sandbox = None if request.sandbox is None else request.sandbox.made()
        if desk is not None and not desk.session.closed:
            if sandbox not in (None, desk.sandbox):
                raise InvalidRequest(
                    f"agent {request.agent!r} has a session already, which is not confined by this sandbox:"
                    " close that one first, or take another agent"
                )
            return False
        for closed in [one for one in self._desks.values() if one.session.closed]:  # their time was up
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
        self._desks[request.agent] = Desk(request.agent, session, known, self._journal, audience)
        return True

    def desk(self, agent: str) -> Desk:
        desk = self._desks.get(agent)
        if desk is not None and desk.session.closed:  # its time was up
            self.dismiss(desk)
            desk = None
        if desk is None:
            raise NoSuchAgent(
                f"agent {agent!r} has no session here: it was closed, was idle for too long, or never opened"
            )
        return desk

    def runs(self, agent: str) -> str:
        """The command that runs in the agent's session; "" while none does."""
        desk = self._desks.get(agent)
        return "" if desk is None else desk.command

    def dismiss(self, desk: Desk) -> None:
        """Its session is closed."""
        desk.give_up()
        if self._desks.get(desk.agent) is desk:
            del self._desks[desk.agent]
            self._audiences[desk.agent] = desk.audience
            self._audiences = {agent: audience for agent, audience in self._audiences.items() if audience}

    def stats(self) -> dict[str, Any]:
        infos = self.agents.list()
        return {
            "version": VERSION,
            "protocol": PROTOCOL,
            "incarnation": self.incarnation,
            "pid": os.getpid(),
            "uptime": time.monotonic() - self._started,
            "agents": len(infos),
            "running": sum(info.state == "running" for info in infos),
            "connections": len(self._connections),
            "requests": self._requests,
            "serving": len(self._served),
            "audit_fault": self._journal.fault,
        }

    # -- the end

    def stop(self) -> None:
        """Ask for the end; ``finish`` brings it. What waits for its turn is refused: it would be begun to be ended."""
        self.stopping.set()
        for service in self._served.values():
            if service.listener.waits and service.task is not None:
                service.task.cancel()

    async def finish(self, patience: float) -> None:
        """Give what runs so many seconds to end by itself, then end every session and every connection."""
        tasks = [service.task for service in self._served.values() if service.task is not None]
        tasks += [asyncio.create_task(desk.see_out(patience)) for desk in self._desks.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
        try:
            await self.agents.close()  # what runs in them comes back, and is answered
        except Exception:
            LOG.exception("a session did not end as it should; this is a defect of ours")
        for desk in self._desks.values():
            desk.give_up()
        if left := [service.task for service in self._served.values() if service.task is not None]:
            for task in left:
                task.cancel()
            await asyncio.wait(left)
        self._journal.write()
        for connection in list(self._connections):
            connection.close()
        with suppress(TimeoutError):  # of clients that do not read
            await asyncio.wait_for(self._deserted.wait(), _LAST_WORDS)


def _encoded(request: str, header: dict[str, Any], parts: tuple[bytes, ...]) -> bytes:
    try:
        return encode({"id": request, **header}, *parts)
    except InvalidRequest as error:  # a result that is too large for a message
        return encode({"id": request, "error": from_error(error)[0]})
