"""The daemon's server: it admits clients, serves each request once, and ends in order.

``Server`` knows neither sockets nor signals (see ``service``). A client that loses its connection sends its request
again on another one: then the server continues the request, or repeats its answer, but does not run it twice.

The requests about the daemon itself are carried out here; those about a session, in ``verbs``.
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
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from ...agents import AsyncAgents
from ...engine.kernel import proc
from ...engine.kernel.proc import namespaces
from ...errors import (
    CLOSED,
    DaemonUnavailable,
    InvalidRequest,
    LimitReached,
    OutcomeUnknown,
    ProtocolError,
    SessionBusy,
    ShellSessionError,
)
from ...models import VERSION
from ...policy.approval import Answerer
from ...redact import redact_data
from ...store import Store
from ..protocol.messages import from_error, from_result, to_part
from ..protocol.wire import PROTOCOL, Message, encode
from . import requests
from .approvals import described
from .audit import Audit
from .connection import LEFT, LOG, Answer, Connection, Incoming, Listener
from .inside import refuse_inside
from .journal import Journal
from .ledger import Claim, Ledger
from .shared import Sessions
from .verbs import refuse_from_inside, room_for, serve

_MAX_CONNECTIONS: Final = 1024
# Seconds that clients have to read the last answers when the daemon ends.
_LAST_ANSWERS: Final = 1.0
# Seconds for the states of all sessions, when the daemon ends.
_LAST_STATES: Final = 2.0
# Seconds that a client may take to come back on another connection.
_GRACE: Final = 2.0
_NOT_RUN: Final = "the daemon is ending, and this request was still queued: it was not run"
_NOT_AT_THE_END: Final = (
    *(
        requests.Open,
        requests.Start,
        requests.Run,
        requests.Restart,
        requests.Restore,
        requests.Fork,
        requests.OnBranch,
    ),
)
_NOT_WITHOUT_LEASE: Final = (*_NOT_AT_THE_END, requests.Send, requests.Type, requests.WriteFile, requests.Renew)


# The replies may be large, and are harmless to read anew: none is kept for a client that asks again.
_READ_ANEW: Final = (requests.ReadFile, requests.Follow)
# Agents that are described at a time: other requests are not to wait for all of them.
_AT_A_TIME: Final = 10
# Characters of a last line.
_LINE: Final = 300


class Lease:
    """The time that the daemon has until a client must renew it: ``seconds``, counted from now."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until = _time_passed() + seconds

    def renew(self, at: float | None = None) -> None:
        """Count from ``at`` (CLOCK_BOOTTIME), or from now. An earlier moment than that of the last call is ignored."""
        now = _time_passed()
        self._until = max(self._until, (now if at is None else min(at, now)) + self.seconds)

    @property
    def left(self) -> float:
        return max(0.0, self._until - _time_passed())


def _time_passed() -> float:
    """As ``time.monotonic``, but it counts on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Server:
    """Serves the connections of all clients, until it is stopped."""

    def __init__(
        self,
        agents: AsyncAgents,
        audit: Audit | None = None,
        defaults: Mapping[str, Any] | None = None,
        store: Store | None = None,
    ) -> None:
        self.agents, self._store = agents, store or Store()
        self.incarnation = secrets.token_hex(8)
        self._namespaces = namespaces()
        self._secret = secrets.token_bytes(32)
        self.stopping = asyncio.Event()
        self._journal = Journal(audit)
        self._ledger = Ledger(self.incarnation)
        self._connections: set[Connection] = set()
        # Connections that may be idle, the one idle for longest first. They are checked when room is needed.
        # (A plain dict would walk over every removed entry to find its first one.)
        self._maybe_idle: OrderedDict[Connection, None] = OrderedDict()
        self._no_clients = asyncio.Event()  # set while no client is connected
        self._no_clients.set()
        self._served: dict[str, Listener] = {}  # by the id of the request
        self.sessions = Sessions(agents, self._journal, self._store, defaults)
        self.lease: Lease | None = None  # none: the daemon lives until it is stopped
        self.lease_is_over = False
        self._started = time.monotonic()
        self._requests = 0

    # -- connections

    def admit(self, connection: Connection) -> ShellSessionError | None:
        """Greet a new client. Returns the error with which to refuse it, or None."""
        if len(self._connections) >= _MAX_CONNECTIONS and not self._make_room():
            return LimitReached(f"{_MAX_CONNECTIONS} clients are connected, the maximum: close one, or try again later")
        self._connections.add(connection)
        self.may_be_idle(connection)
        self._no_clients.clear()
        connection.number = self._ledger.admit()
        hello = {"protocol": PROTOCOL, "version": VERSION, "incarnation": self.incarnation, "pid": os.getpid()}
        hello["namespaces"] = self._namespaces
        connection.send(encode({**hello, "connection": connection.number, "key": self._key_of(connection.number)}))
        return None

    def _key_of(self, number: int) -> str:
        """The secret of a connection's client. On another connection it proves that a request is the client's own."""
        return hashlib.blake2b(b"%d" % number, key=self._secret, digest_size=16).hexdigest()

    def _check_owner(self, connection: Connection, request: requests.Envelope) -> None:
        """Refuse the id of another client's request: it would return that answer, and settle all ids before it."""
        if request.id.startswith(f"{self.incarnation}.{connection.number}."):
            return
        key = self._key_of(self._ledger.connection_of(request.id))
        if not hmac.compare_digest(key.encode(), request.key.encode()):
            raise ProtocolError(
                f"request {request.id} belongs to another connection, and was not run: count from 1 on yours, or send"
                " that connection's key to ask again"
            )

    def may_be_idle(self, connection: Connection) -> None:
        """Note that the connection may have become idle just now. It may also be gone."""
        if connection in self._connections:
            self._maybe_idle[connection] = None
            self._maybe_idle.move_to_end(connection)

    def _make_room(self) -> bool:
        """Close the connection that has been idle for longest, if there is one. Its client reconnects when it needs to.

        So clients that only keep sessions open never shut out another one, such as one that wants to end something.
        Each connection is checked once for each time that it may have become idle: the cost per client is constant.
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
                        self._limit_absence(listener)
            if not self._connections:
                self._no_clients.set()

    # -- requests

    def take(self, connection: Connection, message: Message) -> None:
        """Serve one message of a client, or send its answer again."""
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
            self._continue(connection, self._served[request.id])
        else:
            self._requests += 1
            listener = self._served[request.id] = Listener(request.id, connection, getattr(request, "agent", None))
            work = self._serve(Incoming(request, message.parts, connection, listener))
            listener.serve(work)
            self._limit_absence(listener)  # its client may have left meanwhile

    def _continue(self, connection: Connection, listener: Listener) -> None:
        """Continue to serve a request, which its client has sent again over this connection."""
        if connection.is_gone:  # read late: its client has moved on to a third connection
            left = connection
        else:
            left = listener.connection
            listener.reconnect(connection)
        self._limit_absence(listener)
        left.served()

    def _answer_again(self, connection: Connection, request: requests.Envelope, reply: bytes) -> None:
        connection.send(reply)
        shared = self.sessions.find(request.agent) if isinstance(request, requests.OfAgent) else None
        if shared is not None and not connection.is_gone:  # else read late: the client asks on another connection
            shared.deliveries.acknowledge(request.id)

    async def _serve(self, incoming: Incoming) -> None:
        """The task of one request: carry it out, keep its reply in the ledger, and send that."""
        request, listener = incoming.request.id, incoming.listener
        header, parts = await self._carry_out(incoming)
        listener.proceed()  # also if it was refused: no more notices
        reply = _encoded(request, header, parts)
        if isinstance(incoming.request, _READ_ANEW) or getattr(incoming.request, "lines", False):
            self._ledger.drop(request)
        else:
            self._ledger.settle(request, reply, time.monotonic(), listener.take_sent())
        del self._served[request]
        if LOG.isEnabledFor(logging.DEBUG):
            LOG.debug("%s", incoming.outline(header))
        listener.connection.send(reply)
        listener.abandon()  # nothing waits for a client that is gone any more
        listener.connection.served()

    async def _carry_out(self, incoming: Incoming) -> Answer:
        """The answer to a request. An error is an answer, too, and so is the end of a cancelled task."""
        try:
            self.check_lease()  # its timer is late if the process was stopped (SIGSTOP)
            if self.lease_is_over and isinstance(incoming.request, _NOT_WITHOUT_LEASE):
                raise DaemonUnavailable("the daemon's lease is over, as no client has renewed it: nothing was run")
            if self.stopping.is_set() and isinstance(incoming.request, _NOT_AT_THE_END):
                raise DaemonUnavailable("the daemon is ending, and begins nothing new: try again when it has ended")
            if isinstance(incoming.request, requests.OfAgent) and not isinstance(incoming.request, requests.Open):
                return await serve(self.sessions, incoming)
            return await _OF_DAEMON[type(incoming.request)](self, incoming)
        except ShellSessionError as error:
            return _error_answer(error)
        except asyncio.CancelledError:
            return _error_answer(self._why_cancelled(incoming.listener))
        except Exception:
            LOG.exception("a %s request failed; this is a bug in shellsession", incoming.request.verb)
            return _error_answer(
                ShellSessionError("the daemon failed at this request because of a bug in shellsession: see its log")
            )

    def _why_cancelled(self, listener: Listener) -> ShellSessionError:
        """The error of a request whose task was cancelled."""
        if listener.dropped is not None:
            return listener.dropped
        if not self.stopping.is_set():
            return ShellSessionError("the request was cancelled")
        if listener.waits_for:
            return DaemonUnavailable(_NOT_RUN)
        return OutcomeUnknown("the daemon ended while it ran this request: check what the command has done")

    def _limit_absence(self, listener: Listener) -> None:
        """If the client is gone, give it ``_GRACE`` seconds to come back. Its request goes on meanwhile."""
        if (connection := listener.connection).is_gone:
            asyncio.get_running_loop().call_later(_GRACE, self._abandon_if_absent, listener, connection)

    def _abandon_if_absent(self, listener: Listener, lost: Connection) -> None:
        """If the client has not come back, end its request if that is queued or only watches. A command runs on."""
        if listener.connection is lost and self._served.get(listener.request) is listener:
            listener.abandon()  # whatever only watches returns then
            listener.drop(SessionBusy(LEFT))

    async def cancel(self, request: str) -> Listener | None:
        """End a request that is being served. Returns its listener, or None if it is not served (any more)."""
        # A task that is cancelled before it has begun would never send its answer. It begins within a turn or two.
        while (listener := self._served.get(request)) is not None and not listener.task_begun:  # noqa: ASYNC110
            await asyncio.sleep(0)
        if listener is None or listener.task is asyncio.current_task():
            return None
        listener.task.cancel()
        await asyncio.wait([listener.task])
        return listener

    def served(self, request: str) -> Listener | None:
        """The listener of a request that is being served, or None."""
        return self._served.get(request)

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
            "state": self._store.path,
            "state_size": self._store.size,
            "state_fault": self._store.fault,
            "lease": None if self.lease is None else {"seconds": self.lease.seconds, "left": self.lease.left},
        }

    # -- the end

    def begin_lease(self, seconds: float) -> None:
        """End the daemon and its sessions, at once, when no client has renewed the lease for this many seconds."""
        self.lease = Lease(seconds)
        self._await_end_of_lease(self.lease)

    def _await_end_of_lease(self, lease: Lease) -> None:
        self.check_lease()
        if not self.lease_is_over:
            asyncio.get_running_loop().call_later(lease.left, self._await_end_of_lease, lease)

    def check_lease(self) -> None:
        """If the lease is over, kill every shell with all that runs in it, and ask the daemon to end."""
        if self.lease is None or self.lease_is_over or self.lease.left:
            return
        LOG.warning("no client has renewed the lease for %g s: ending all sessions at once", self.lease.seconds)
        self.lease_is_over = True
        for shared in self.sessions:
            shared.engine.kill_running(CLOSED)  # also an idle one: then its shutdown commands are not run
        self.stop()

    def stop(self) -> None:
        """Ask the daemon to end; ``finish`` and ``part`` do it. Queued requests are refused."""
        self.stopping.set()
        self.sessions.board.end()
        for listener in self._served.values():
            listener.drop(DaemonUnavailable(_NOT_RUN))

    async def finish(self, patience: float) -> None:
        """Give running commands this many seconds to end by themselves, then end every session."""
        tasks = [listener.task for listener in self._served.values()]
        tasks += [asyncio.create_task(shared.drain(patience)) for shared in self.sessions]
        if tasks and not self.lease_is_over:
            await asyncio.wait(tasks, timeout=patience)
        if keeping := [asyncio.create_task(shared.keep_state()) for shared in self.sessions]:
            await asyncio.wait(keeping, timeout=_LAST_STATES)
        try:
            await self.agents.close()  # running commands end, and their requests are answered
        except Exception:
            LOG.exception("a session could not be closed; this is a bug in shellsession")
        for shared in self.sessions:
            shared.note_shell_end()
        if left := [listener.task for listener in self._served.values()]:
            for task in left:
                task.cancel()
            await asyncio.wait(left)
        self._journal.write()

    async def part(self) -> None:
        """Close every connection, and wait for the clients to read their last answers."""
        for connection in list(self._connections):
            connection.close()
        with suppress(TimeoutError):  # clients that do not read
            await asyncio.wait_for(self._no_clients.wait(), _LAST_ANSWERS)


def _error_answer(error: ShellSessionError) -> Answer:
    header, parts = from_error(error)
    return Answer({"error": header}, parts)


def _encoded(request: str, header: dict[str, Any], parts: tuple[bytes, ...]) -> bytes:
    try:
        return encode({"id": request, **header}, *parts)
    except InvalidRequest as error:  # a result that is too large for a message
        return encode({"id": request, "error": from_error(error)[0]})


# -- requests about the daemon itself


async def _open(server: Server, incoming: Incoming) -> Answer:
    made = server.sessions.open(incoming.request)
    shared = server.sessions.of(incoming.request.agent)
    session, timeout = shared.session, shared.engine.options.timeout
    header: dict[str, Any] = {"value": made, "session": shared.number, "pid": session.pid, "timeout": timeout}
    if shared.is_continued:
        header["continues"] = True
    if session.policy is not None:  # tools mask in the client
        header["policy"] = session.policy.to_dict()
    if session.redact:
        header["redact"] = redact_data(session.redact)
    return Answer(header)


async def _cancel(server: Server, incoming: Incoming) -> Answer:
    request = incoming.request.request
    asker = server.served(request)
    if asker is None or asker.connection.pid != incoming.connection.pid:  # else it is the client's own
        refuse_inside(server.sessions, incoming.connection, "cancel", None if asker is None else asker.agent)
    served = await server.cancel(request)
    delivery = served.delivery if served is not None else await server.sessions.cancel_handed_back(request)
    if delivery is None:
        return Answer({"value": served is not None})
    result = delivery.deliver("" if incoming.request.reads else incoming.request.id)
    delivery.forget_output()
    header, parts = from_result(result)
    return Answer({"value": True, "result": header}, parts)


async def _list(server: Server, incoming: Incoming) -> Answer:
    sessions = {shared.agent: shared for shared in server.sessions}
    room, listed = room_for(len(sessions)), list[dict[str, Any]]()
    asks = {one.agent: one.id for one in reversed(server.sessions.approvals.waiting())}
    for info in server.agents.registry.infos():
        shared = sessions.get(info.agent)
        one = {**asdict(info), "cwd": info.cwd[:room]}
        one["command"], one["state_age"] = ("", None) if shared is None else (shared.command[:room], shared.state_age)
        one["question"] = asks.get(info.agent, "")
        if incoming.request.lines:
            one["line"] = "" if shared is None else shared.last_line[:_LINE]
        listed.append(one)
        if len(listed) % _AT_A_TIME == 0:
            await asyncio.sleep(0)
    return Answer({"value": None}, (to_part(listed),))


async def _follow(server: Server, incoming: Incoming) -> Answer:
    request, sessions = incoming.request, server.sessions
    if request.of is not None and (shared := sessions.find(request.of)) is not None:
        refuse_from_inside(shared.engine, shared.agent, "follow", incoming.connection.pid, watches=True)

    def look() -> list[tuple[str, bytes | None]]:
        found = [sessions.find(one.agent) for one in sessions if request.of in (None, one.agent)]
        return [(one.agent, one.running_command) for one in found if one is not None]

    known = None if request.known is None else tuple(request.known)
    return await sessions.board.after(request.of, known, incoming.listener, look)


async def _stats(server: Server, _: Incoming) -> Answer:
    return Answer({"value": server.stats()}, (to_part([*server.sessions.stored_ages().items()]),))


async def _renew(server: Server, incoming: Incoming) -> Answer:
    if server.lease is None:
        raise InvalidRequest("this daemon has no lease to renew: it was started without `serve --lease`")
    server.lease.renew(incoming.request.at)
    return Answer({"value": None})


async def _forget(server: Server, incoming: Incoming) -> Answer:
    refuse_inside(server.sessions, incoming.connection, incoming.request.verb)
    return Answer({"value": server.sessions.forget_ended(incoming.request.of)})


async def _approvals(server: Server, incoming: Incoming) -> Answer:
    request, approvals = incoming.request, server.sessions.approvals
    number = approvals.number
    if request.asks is not None:
        found = [] if (asked := approvals.asked_by(request.asks)) is None else [asked]
    elif request.since is None:
        found = approvals.waiting(request.of)
    else:
        incoming.listener.wait_for()
        number, found = await approvals.changes(request.since)
        found = [one for one in found if request.of in (None, one.agent)]
    return Answer({"value": number}, (to_part([described(one) for one in found]),))


async def _answer(server: Server, incoming: Incoming) -> Answer:
    request, client = incoming.request, incoming.connection.pid
    refuse_inside(server.sessions, incoming.connection, "an answer to a question", strict=True)
    shared = server.sessions.find(server.sessions.approvals.agent_of(request.question))
    by = Answerer(client, os.getuid(), proc.named_stat(client)[0])
    mask = str if shared is None else shared.secrets.mask
    answer = server.sessions.approvals.answer
    question = answer(request.question, request.decision, by, request.reason, mask, request.prefix)
    return Answer({"value": None}, (to_part([described(question)]),))


async def _remembered(server: Server, incoming: Incoming) -> Answer:
    refuse_inside(server.sessions, incoming.connection, "the list of remembered rules", strict=True)
    approvals = server.sessions.approvals
    if incoming.request.revoke is not None:
        approvals.revoke(incoming.request.revoke)
    return Answer({"value": None}, (to_part([one.to_dict() for one in approvals.remembered()]),))


async def _shutdown(server: Server, incoming: Incoming) -> Answer:
    refuse_inside(server.sessions, incoming.connection, "the end of the daemon")
    server.stop()
    return Answer({"value": None})


_OF_DAEMON: dict[type, Callable[[Server, Incoming], Awaitable[Answer]]] = {
    requests.Open: _open,
    requests.Cancel: _cancel,
    requests.List: _list,
    requests.Follow: _follow,
    requests.Stats: _stats,
    requests.Renew: _renew,
    requests.Forget: _forget,
    requests.Approvals: _approvals,
    requests.Answer: _answer,
    requests.Remembered: _remembered,
    requests.Shutdown: _shutdown,
}
