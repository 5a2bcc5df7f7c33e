"""What the daemon does for its clients beside the verbs of sessions: it opens, cancels, lists, counts and ends.

Law: no request here waits for a command, but to cancel or to end it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from ...agents import AsyncAgents
from ...errors import (
    DaemonUnavailable,
    InvalidRequest,
    LimitReached,
    OutcomeUnknown,
    ProtocolError,
    SessionBusy,
    ShellSessionError,
)
from ...models import VERSION
from ..protocol.messages import from_error, from_result, to_part
from ..protocol.wire import PROTOCOL, Message, encode
from . import requests
from .audit import Audit
from .connection import LEFT, LOG, Answer, Connection, Incoming, Listener
from .journal import Journal
from .ledger import Claim, Ledger
from .shared import Sessions
from .verbs import room_for, serve


async def _open(server: Server, incoming: Incoming) -> Answer:
    made = server.sessions.open(incoming.request)
    session = server.sessions.of(incoming.request.agent).session
    return Answer({"value": made, "pid": session.pid, "timeout": session._defaults.timeout})


async def _cancel(server: Server, incoming: Incoming) -> Answer:
    request = incoming.request.request
    cancelled = await server.cancel(request)
    outcome = cancelled.outcome if cancelled is not None else await server.sessions.cancel_handed_back(request)
    if outcome is None:
        return Answer({"value": cancelled is not None})
    result = outcome.deliver("" if incoming.request.reads else incoming.request.id)
    outcome.forget_output()
    header, parts = from_result(result)
    return Answer({"value": True, "result": header}, parts)


async def _list(server: Server, _: Incoming) -> Answer:
    infos = server.agents.list()
    room = room_for(len(infos))
    runs = {shared.agent: shared.command[:room] for shared in server.sessions}
    listed = [{**asdict(info), "cwd": info.cwd[:room], "command": runs.get(info.agent, "")} for info in infos]
    return Answer({"value": None}, (to_part(listed),))


async def _stats(server: Server, _: Incoming) -> Answer:
    return Answer({"value": server.stats()})


async def _shutdown(server: Server, _: Incoming) -> Answer:
    server.stop()
    return Answer({"value": None})


OF_DAEMON: dict[type, Callable[[Server, Incoming], Awaitable[Answer]]] = {
    requests.Open: _open,
    requests.Cancel: _cancel,
    requests.List: _list,
    requests.Stats: _stats,
    requests.Shutdown: _shutdown,
}


_MAX_CONNECTIONS: Final = 1024
# How long clients have to take the last answers at the end, in seconds.
_LAST_WORDS: Final = 1.0
# How long a client that lost its connection may take to come back on another, in seconds.
_GRACE: Final = 2.0

_NOT_AT_THE_END: Final = (requests.Open, requests.Start, requests.Run, requests.Restart)


class Server:
    """Serves connections; it knows neither sockets nor signals (see ``service``)."""

    def __init__(self, agents: AsyncAgents, audit: Audit | None = None) -> None:
        self.agents = agents
        self.incarnation = secrets.token_hex(8)
        self._secret = secrets.token_bytes(32)
        self.stopping = asyncio.Event()
        self._journal = Journal(audit)
        self._ledger = Ledger(self.incarnation)
        self._connections: set[Connection] = set()
        # Those that may be idle, the one that has been for longest first; whether it is, is asked when room is needed.
        # (A plain dict would walk over all that was dropped to find its first entry.)
        self._maybe_idle: OrderedDict[Connection, None] = OrderedDict()
        self._no_clients = asyncio.Event()  # no client is connected
        self._no_clients.set()
        self._served: dict[str, Listener] = {}  # by its id
        self.sessions = Sessions(agents, self._journal)
        self._started = time.monotonic()
        self._requests = 0

    # -- connections

    def admit(self, connection: Connection) -> ShellSessionError | None:
        """Greet a new client; or why it is refused."""
        if len(self._connections) >= _MAX_CONNECTIONS and not self._make_room():
            return LimitReached(
                f"{_MAX_CONNECTIONS} clients are connected, the most there may be: close one, or try again later"
            )
        self._connections.add(connection)
        self.may_be_idle(connection)
        self._no_clients.clear()
        connection.number = self._ledger.admit()
        hello = {"protocol": PROTOCOL, "version": VERSION, "incarnation": self.incarnation, "pid": os.getpid()}
        connection.send(encode({**hello, "connection": connection.number, "key": self._key_of(connection.number)}))
        return None

    def _key_of(self, number: int) -> str:
        """What only the client of that connection knows: by it its requests are known on another connection."""
        return hashlib.blake2b(b"%d" % number, key=self._secret, digest_size=16).hexdigest()

    def _check_owner(self, connection: Connection, request: requests.Request) -> None:
        """Refuse another client's id: ids are counted up, so to use one ends all before it, and brings the answer."""
        if request.id.startswith(f"{self.incarnation}.{connection.number}."):
            return
        key = self._key_of(self._ledger.connection_of(request.id))
        if not hmac.compare_digest(key.encode(), request.key.encode()):
            raise ProtocolError(
                f"request {request.id} belongs to another connection, and was not run: count from 1 on yours, or send"
                " that connection's key to ask again"
            )

    def may_be_idle(self, connection: Connection) -> None:
        """Something that kept it busy has just ended. (Also called of one that is not, or no longer, connected.)"""
        if connection in self._connections:
            self._maybe_idle[connection] = None
            self._maybe_idle.move_to_end(connection)

    def _make_room(self) -> bool:
        """End what has been idle for longest, if anything is: its client comes again when it has something to ask.

        So who only keeps sessions open keeps nobody out, least of all who comes to look, or to end something. Each is
        looked at once for each time that it may have become idle: a flood of clients costs the same for each of them.
        """
        while self._maybe_idle:
            connection, _ = self._maybe_idle.popitem(last=False)
            if connection.is_idle:
                connection.close()
                return True
        return False

    def leave(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._maybe_idle.pop(connection, None)
            self._ledger.leave(connection.number)
            if connection.is_serving:
                for listener in self._served.values():
                    if listener.connection is connection:
                        self._await_reconnect(listener)
            if not self._connections:
                self._no_clients.set()

    # -- requests

    def take(self, connection: Connection, message: Message) -> None:
        """One message of a client: to be served, or its answer given again."""
        asked_for = message.header.get("id")
        try:
            request = requests.parse(message.header)
            self._check_owner(connection, request)
            claim = self._ledger.claim(request.id, time.monotonic())
        except ShellSessionError as error:
            connection.fail(error, asked_for if isinstance(asked_for, str) else "")
            connection.served()
            return
        if isinstance(claim, bytes):
            self._answer_again(connection, request, claim)
            connection.served()
        elif claim is Claim.RUNNING:
            listener = self._served[request.id]
            left = listener.connection
            if connection.is_gone:  # it was taken late, and has come again elsewhere
                left = connection
            else:
                listener.reconnect(connection)
            self._await_reconnect(listener)
            left.served()
        else:
            self._requests += 1
            listener = self._served[request.id] = Listener(request.id, connection)
            work = self._serve(Incoming(request, message.parts, connection, listener))
            listener.task = asyncio.get_running_loop().create_task(work)
            self._await_reconnect(listener)  # it may have been on its way while its client left

    def _answer_again(self, connection: Connection, request: requests.Request, reply: bytes) -> None:
        connection.send(reply)
        shared = self.sessions.find(request.agent) if isinstance(request, requests.OfAgent) else None
        if shared is not None and not connection.is_gone:  # else it was taken late: the client asks elsewhere
            shared.outcomes.acknowledge(request.id)

    async def _serve(self, incoming: Incoming) -> None:
        request = incoming.request.id
        incoming.listener.begun = True
        header: dict[str, Any]
        try:
            if self.stopping.is_set() and isinstance(incoming.request, _NOT_AT_THE_END):
                raise DaemonUnavailable("the daemon is ending, and takes up nothing more: try again when it has ended")
            if isinstance(incoming.request, requests.OfAgent) and not isinstance(incoming.request, requests.Open):
                header, parts = await serve(self.sessions, incoming)
            else:
                header, parts = await OF_DAEMON[type(incoming.request)](self, incoming)
        except ShellSessionError as error:
            refusal, parts = from_error(error)
            header = {"error": refusal}
        except asyncio.CancelledError:
            header, parts = {"error": from_error(self._why_cancelled(incoming.listener))[0]}, ()
        except Exception:
            LOG.exception("a %s request failed; this is a defect of ours", incoming.request.verb)
            fault = ShellSessionError("the daemon failed at this request: its log says how")
            header, parts = {"error": from_error(fault)[0]}, ()
        incoming.listener.queued = False  # also where it was refused: it is not notified any more
        reply = _encoded(request, header, parts)
        self._ledger.settle(request, reply, time.monotonic(), incoming.listener.take_sent())
        del self._served[request]
        if LOG.isEnabledFor(logging.DEBUG):
            LOG.debug("%s", incoming.outline(header))
        incoming.listener.connection.send(reply)
        incoming.listener.abandon()  # its output waits no more for a client that has gone
        incoming.listener.connection.served()

    def _why_cancelled(self, listener: Listener) -> ShellSessionError:
        if listener.late or (listener.queued and listener.abandoned.done()):
            return SessionBusy(listener.behind if listener.late else LEFT)
        if not self.stopping.is_set():
            return ShellSessionError("the request was cancelled")
        if listener.queued:
            return DaemonUnavailable("the daemon is ending, and its turn had not come: it was not run")
        return OutcomeUnknown("the daemon has ended while it ran this: look at what it was to do")

    def _await_reconnect(self, listener: Listener) -> None:
        """Give a client that is gone the time to come back. What it asked for goes on meanwhile."""
        if (connection := listener.connection).is_gone:
            asyncio.get_running_loop().call_later(_GRACE, self._abandon, listener, connection)

    def _abandon(self, listener: Listener, lost: Connection) -> None:
        """What only waits, or looks on, ends where its client has not come back; a command goes on."""
        if listener.connection is lost and self._served.get(listener.request) is listener:
            listener.abandon()
            listener.give_up()

    async def cancel(self, request: str) -> Listener | None:
        """End a request that is being served; returns its listener, None when it is not served (any more)."""
        # A task that has not had its first turn would be thrown away, and its answer with it. That takes a turn or two.
        while (listener := self._served.get(request)) is not None and not listener.begun:  # noqa: ASYNC110
            await asyncio.sleep(0)
        if listener is None or listener.task is asyncio.current_task():
            return None
        listener.task.cancel()
        await asyncio.wait([listener.task])
        return listener

    def stats(self) -> dict[str, Any]:
        states = [shared.session.state for shared in self.sessions if not shared.session.closed]
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
            "audit": self._journal.path,
            "audit_fault": self._journal.fault,
        }

    # -- the end

    def stop(self) -> None:
        """Ask for the end; ``finish`` and ``part`` bring it.

        What waits for its turn is refused: it would be begun to be ended.
        """
        self.stopping.set()
        for listener in self._served.values():
            listener.give_up()

    async def finish(self, patience: float) -> None:
        """Give what runs so many seconds to end by itself, then end every session."""
        tasks = [listener.task for listener in self._served.values()]
        tasks += [asyncio.create_task(shared.drain(patience)) for shared in self.sessions]
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
        try:
            await self.agents.close()  # what runs in them comes back, and is answered
        except Exception:
            LOG.exception("a session did not end as it should; this is a defect of ours")
        for shared in self.sessions:
            shared.lose()
        if left := [listener.task for listener in self._served.values()]:
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
