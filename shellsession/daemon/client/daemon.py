"""``Daemon``: what its sessions do, for threads. ``async_daemon`` has the same for asyncio.

Nothing here starts a daemon or opens a session.
"""

from __future__ import annotations

import builtins
import os
import weakref
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from ...errors import DaemonUnavailable, InvalidRequest, OutcomeUnknown, ProtocolError, ResultExpired
from ...watching import AgentClosed, AgentOpened, CommandBegan, CommandEnded, CommandOutput, Event, EventsMissed
from ..protocol.messages import field, from_part, only_part
from ..protocol.wire import Decoder, Message
from .exchange import Backend, Exchange
from .places import transport_of
from .remote import why_of

if TYPE_CHECKING:
    from ...agents import AgentInfo
    from ...models import Why

_ENDED: Final = "the daemon that was watched has ended, and every session with it: watch again once there is another"


class AnyDaemon:
    """What ``Daemon`` and ``AsyncDaemon`` share: the requests and their replies."""

    _backend_class = Backend

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        via: Sequence[str] | None = None,
        remote: str | None = None,
    ) -> None:
        self._transport, self._backend = transport_of(socket, via, remote), self._backend_class()
        weakref.finalize(self, self._backend.pool.close)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._transport}>"

    def disconnect(self) -> None:
        """Close the connection. The next method opens another one."""
        self._backend.pool.close()

    def _watch(self, agent: str | None) -> Any:
        if agent is not None and not isinstance(agent, str):
            raise InvalidRequest(f"agent must be a name or None, not {agent!r:.100}")
        return self._backend.iterate(self._events(agent))

    async def _list(self) -> builtins.list[AgentInfo]:
        from ...agents import AgentInfo  # imports asyncio, which nothing else here needs

        return [
            AgentInfo(**{name: one[name] for name in AgentInfo.__dataclass_fields__}) for one in await self._described()
        ]

    async def _described(self, lines: bool = False) -> builtins.list[dict[str, Any]]:
        return from_part((await self._read("list", lines=lines)).parts)

    async def _why(self, agent: str) -> Why:
        return why_of(await self._ask("why", agent=agent))

    async def _kill(self, agent: str) -> None:
        await self._ask("close", agent=agent)

    async def _approvals(self, agent: str | None = None) -> builtins.list[dict[str, Any]]:
        return from_part((await self._read("approvals", of=agent)).parts)

    async def _answer(self, question: str, decision: str, reason: str = "", prefix: str = "") -> dict[str, Any]:
        reply = await self._ask("answer", question=question, decision=decision, reason=reason, prefix=prefix)
        answered: dict[str, Any] = from_part(reply.parts)[0]
        return answered

    async def _events(self, agent: str | None) -> AsyncGenerator[Event]:
        known: tuple[int, int] | None = None
        totals, incarnation = {"events": 0, "bytes": 0}, ""
        while True:
            try:
                reply = await self._read("follow", incarnation, of=agent, **({} if known is None else {"known": known}))
            except DaemonUnavailable as error:
                raise (error if known is None else DaemonUnavailable(_ENDED)) from error
            incarnation = field(reply.header, "id", str).partition(".")[0]
            collection, last = field(reply.header, "collection", int), field(reply.header, "last", int)
            is_new = known is None or known[0] != collection
            if is_new and known is not None:
                yield EventsMissed(None, None)
            known = collection, last
            for header, parts in Decoder().feed(only_part(reply.parts)):
                events = [*_events_of(header, only_part(parts))]
                now = {name: field(header, name, int) for name in totals}
                if not is_new:
                    totals["events"] += len(events)
                    totals["bytes"] += sum(len(one.data) + one.omitted for one in events if type(one) is CommandOutput)
                    missed = [now[name] - totals[name] for name in totals]
                    if any(missed):
                        yield EventsMissed(*missed)
                totals = now
                for event in events:
                    yield event

    async def _read(self, verb: str, incarnation: str = "", **fields: object) -> Message:
        """The reply to a request that changes nothing: it is sent again if the reply, or the daemon, is lost.

        ``incarnation``: of the daemon that is meant. Without it, any will do.
        """
        try:
            return await self._ask(verb, incarnation, **fields)
        except (OutcomeUnknown, ResultExpired):
            return await self._ask(verb, incarnation, **fields)

    async def _ask(self, verb: str, incarnation: str = "", **fields: object) -> Message:
        exchange = Exchange(self._backend, self._transport, Message({"verb": verb, **fields}, ()), incarnation)
        try:
            while not exchange.done:
                message = await exchange.next()
        finally:
            exchange.close()
        return message


class Daemon(AnyDaemon):
    """The daemon of this user, with the sessions of all agents, or another one.

    ``socket``, ``via`` and ``remote`` are those of ``connect``. No method starts a daemon: each raises
    DaemonUnavailable if there is none.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def watch(self, agent: str | None = None) -> Iterator[Event]:
        """Iterate over what happens in the sessions of all agents, or in that of one, from the first event on.

        First come an ``AgentOpened`` for each session, and a ``CommandBegan`` for each command that runs. Events come
        up to 0.3 s late, and output is collected for a moment. A slow watcher delays nobody: it gets
        ``EventsMissed`` in place of what came too fast for it. The iterator ends with DaemonUnavailable when the daemon
        has ended; another one has other sessions.
        """
        events: Iterator[Event] = self._watch(agent)
        return events

    def described(self, lines: bool = False) -> builtins.list[dict[str, Any]]:
        # As ``admin.agents``; ``lines``: with the ``line`` that each agent has printed last, without secrets.
        return self._backend.give(self._described(lines))

    def why(self, agent: str) -> Why:
        """What the agent's command waits for, as ``Session.why``. Raises NoSuchAgent."""
        return self._backend.give(self._why(agent))

    def kill(self, agent: str) -> None:
        """Close the agent's session, and end everything that runs in it. Its record is deleted. Raises NoSuchAgent."""
        return self._backend.give(self._kill(agent))

    def approvals(self, agent: str | None = None) -> builtins.list[dict[str, Any]]:
        """The questions that wait for a person, the oldest first: of all agents, or of one.

        Each has ``id``, ``agent``, ``command`` (whole, with ``***`` for secrets), ``cwd``, ``asked`` and ``until``
        (seconds since the epoch; None: no limit). ``given`` has the variables and the input of the command, in lines.
        ``rules`` is what "accept_rule" remembers, as lists of words, and ``proposal`` the same in one line.
        """
        return self._backend.give(self._approvals(agent))

    def answer(self, question: str, decision: str, reason: str = "", prefix: str = "") -> dict[str, Any]:
        """Answer a question, by its id, and return it. Raises InvalidRequest if it has an answer, and inside a session.

        ``decision``: "accept"; "accept_session", which holds for the same text in the same directory until the session
        is closed; "accept_rule"; "decline" or "cancel". ``reason``: what the agent is told. ``prefix``: with
        "accept_rule", the first words of a rule. All commands that begin so are covered then.
        """
        return self._backend.give(self._answer(question, decision, reason, prefix))

    def list(self) -> builtins.list[AgentInfo]:
        """The state of every agent that has a session, as ``Agents.list``."""
        return self._backend.give(self._list())


def _events_of(header: dict[str, Any], data: bytes) -> Iterator[Event]:
    at = 0
    for one in field(header, "of", list):
        size = field(one, "size", int)
        piece, at = data[at : at + size], at + size
        match one.get("kind"):
            case "output":
                yield CommandOutput(one["agent"], one["stream"], piece, one["omitted"])
            case "opened":
                yield AgentOpened(one["agent"])
            case "closed":
                yield AgentClosed(one["agent"])
            case "began":
                yield CommandBegan(one["agent"], piece.decode("utf-8", "replace"))
            case "ended":
                reason = piece.decode("utf-8", "replace")
                yield CommandEnded(one["agent"], one["outcome"], one["exit_code"], reason, one["duration"])
            case kind:
                raise ProtocolError(f"the peer sent an event of an unknown kind, {kind!r:.40}")
