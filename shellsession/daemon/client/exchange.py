"""One request to the daemon and its reply, over as many connections as it takes; how it is waited for, and cancelled.

Law: a request is sent again only under its own id, so that it never runs twice. A cancellation is never cancelled.
"""

from __future__ import annotations

import time
from _contextvars import ContextVar
from _thread import get_ident

from ...engine.io.threads import Poller, Steps, Wait, drive
from ...errors import DaemonUnavailable, OutcomeUnknown, ProtocolError, ResultExpired, ShellSessionError
from ..protocol.messages import field, only_part, to_error, to_result
from ..protocol.wire import PROTOCOL, Message, encode
from .link import Link, Pool
from .transport import ConnectionLost

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
    from contextvars import Token
    from typing import Any, Final, Self, TypeVar

    from ...models import Result
    from .transport import Transport

    T = TypeVar("T")


# How often a daemon may close a new connection before it has the request. One that is ending does so to who comes last.
_ATTEMPTS: Final = 5
# For how many seconds a request that was sent is sent again, while nobody at the socket takes it; and the pauses
# between two attempts, of which each is twice the last.
_TRIED: Final = 30.0
_PAUSE, _LONGEST_PAUSE = 0.01, 0.5
# For how many seconds a caller who leaves at once still waits until the cancellation is sent, which takes 0.3 ms where
# the daemon is not stopped.
_SENT_WITHIN: Final = 1.0
_UNKNOWN: Final = "look at what the command was to do, and run it again only if that is not done"
_GONE: Final = "if that daemon has ended, so has the session, and the next command gets a fresh shell"


class Backend:
    """How a session waits. This one blocks its thread, so that no ``await`` of a verb suspends; asyncio has another.

    It keeps the idle connections, as each is waited for in its own way.
    """

    def __init__(self) -> None:
        self.pool = Pool()

    def caller(self) -> object:
        """The current thread or task."""
        return get_ident()

    def give(self, verb: Coroutine[Any, Any, T]) -> T:
        """What the caller of a verb gets: here its result, in asyncio the coroutine itself."""
        try:
            verb.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        raise AssertionError("a verb was suspended in a thread")

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        """What the caller of ``stream`` gets."""
        try:
            while True:
                try:
                    item = self.give(anext(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self.give(items.aclose())

    async def connect(self, transport: Transport, start: bool) -> Link:
        """A new connection. Raises DaemonUnavailable."""
        return Link(transport.connect(start), Poller())

    async def drive(self, steps: Steps[T], poller: Any) -> T:
        """Run steps to their end; ``poller``: of their connection."""
        return drive(steps, poller)

    async def settle(self, answer: object) -> None:
        """Await what a callback returned, where that is possible."""

    async def until_done(self, cancellation: Cancellation) -> None:
        """Wait for the end of a cancellation, also while the task is cancelled."""
        cancellation.done.wait()


class Cancelled:
    """The outcome of a request that is cancelled (Ctrl-C, a cancelled task) within this ``with`` block.

    The daemon is asked for it only where this is open: it may be megabytes, and most callers never look.
    """

    def __init__(self) -> None:
        self.request = ""  # its id, once it is sent
        self.ended = False  # the daemon has ended it: where there is no result, nothing was begun for it
        self.result: Result | None = None

    def __enter__(self) -> Self:
        self._before: Token[Cancelled | None] = _CANCELLED.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CANCELLED.reset(self._before)

    def note(self, reply: Message) -> None:
        """Keep what the daemon replied to the cancellation."""
        if reply.header.get("value"):
            self.ended = True
            if (header := reply.header.get("result")) is not None:
                self.result = to_result(header, reply.parts)


# Of this thread or task, as several may use one session.
_CANCELLED: Final[ContextVar[Cancelled | None]] = ContextVar("shellsession-cancelled", default=None)


class Exchange:
    """One request and its reply.

    ``expected``: the incarnation of the daemon that has the session; another one has lost it. ``start``: a daemon may
    be started for it.
    """

    def __init__(
        self, backend: Backend, transport: Transport, request: Message, expected: str = "", start: bool = False
    ) -> None:
        self._backend, self.transport, self._request = backend, transport, request
        self._expected, self._start = expected, start
        # A cancellation is never cancelled itself, and its outcome says nothing of the request that it cancels.
        self.cancelled = request.header["verb"] == "cancel"
        self.outcome = None if self.cancelled else _CANCELLED.get()
        self.on_sent: Callable[[], object] | None = None
        self._sent = self._resent = False
        self.id = ""  # of the request, once it was sent
        self._key = ""  # by which the daemon recognises it on another connection
        self.done = False  # the reply has come
        self._attempts = 0  # in a row that failed before anybody took the request
        self._tried = 0.0  # when the first of them failed
        self._pause = self._since = 0.0  # before the next; and when the last began
        self._received = 0  # bytes of its output
        self._link: Link | None = backend.pool.take(expected)

    async def next(self) -> Message:
        """The next event, or the reply, after which it is ``done``.

        Raises the error that the daemon replies, VersionMismatch, OutcomeUnknown, and DaemonUnavailable when the
        session is gone with its daemon (and nothing was run).
        """
        while True:
            if (link := self._link) is None:
                try:
                    # None is started for a request that was sent to one.
                    link = await self._backend.connect(self.transport, self._start and not self.id)
                except DaemonUnavailable as error:
                    raise self._unreachable(error) from error
                self._link = link
            if (message := await self._backend.drive(self._attempt(link), link.poller)) is not None:
                return message

    async def cancel(self) -> str:
        """Have the daemon end what it does for the request, or drop it from the queue.

        Returns the id of the command that this ended, if the request was about one that had been handed back. Nothing
        is awaited before it is begun: a second Ctrl-C ends the loop.
        """
        self.close()
        if not self.id:
            return ""
        cancellation = Cancellation(self)
        try:
            await self._backend.until_done(cancellation)
        finally:
            cancellation.sent.wait(_SENT_WITHIN)
        return str(self._request.header.get("command", "")) if cancellation.has_ended else ""

    def close(self) -> None:
        """Close its connection, if it has one."""
        if self._link is not None:
            self._link.close()
        self._link, self._sent = None, False

    def _attempt(self, link: Link) -> Steps[Message | None]:
        """The next message, over that connection; None when it needs another."""
        try:
            if not self._sent:
                yield from self._send(link)
            message = yield from link.receive()
            while not self._is_new(message):
                message = yield from link.receive()
        except ConnectionLost as lost:
            yield from self._pause_after(lost)
            return None
        if "event" not in message.header:
            self.done = True
            self._backend.pool.give_back(link)
            self._link = None
            if "error" in message.header:
                raise to_error(field(message.header, "error", dict), message.parts)
        return message

    def _send(self, link: Link) -> Steps[None]:
        if not link.hello:
            try:
                # A second attempt waits without a limit: the request may be running.
                yield from link.greet(patient=bool(self.id))
            except DaemonUnavailable as error:
                raise self._unreachable(error) from error
        if self.id and not self.id.startswith(link.incarnation + "."):
            raise OutcomeUnknown(f"the daemon that ran this has ended, and another is there now: {_UNKNOWN}; {_GONE}")
        if self._expected not in ("", link.incarnation):
            raise DaemonUnavailable(
                "the daemon that held this session has ended, and its state is gone with it; nothing was run: ask again"
                " for a fresh session"
            )
        self._resent = bool(self.id)
        if not self._resent:
            self.id, self._key = link.next_id(), link.key
        self._sent = True
        if self.outcome is not None:
            self.outcome.request = self.id
        header = {"protocol": PROTOCOL, "id": self.id, **self._request.header}
        if self._resent:
            header["key"] = self._key
        yield from link.send(encode(header, *self._request.parts))
        self._attempts = 0  # the daemon is alive and has it: its outcome will be known
        if self.on_sent is not None:
            self.on_sent()

    def _is_new(self, message: Message) -> bool:
        """False for output that has come over an earlier connection. Raises ProtocolError and ResultExpired."""
        if message.header.get("id") not in (self.id, None):  # None: the daemon did not understand the request
            raise ProtocolError("the peer sent an answer to something that was not asked: end that daemon")
        if message.header.get("event") != "output":
            return True
        at = field(message.header, "at", int)
        field(message.header, "stream", str)
        size = len(only_part(message.parts))
        if at > self._received:
            raise ResultExpired(
                f"{at - self._received} bytes of output came while the connection was lost, and are no longer kept:"
                f" what was received ends before them; the command itself is not concerned: {_UNKNOWN}"
            )
        if at < self._received:
            return False
        self._received = at + size
        return True

    def _pause_after(self, lost: ConnectionLost) -> Steps[None]:
        """Close the connection, and pause before the next attempt. Raises DaemonUnavailable and OutcomeUnknown after
        too many of them.
        """
        if lost.untouched and not self._resent:
            self.id = ""
        self.close()
        now = time.monotonic()
        if now - self._since > _LONGEST_PAUSE:
            self._pause = 0.0
        self._attempts += 1
        if self._attempts == 1:
            self._tried = now
        if now - self._tried >= _TRIED if self.id else self._attempts == _ATTEMPTS:
            unavailable = DaemonUnavailable(
                f"the daemon at {self.transport} takes connections and ends them at once: it may be another user's,"
                " or is ending; try again, or name another socket"
            )
            raise self._unreachable(unavailable) from lost
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause or _PAUSE)
        self._since = now + self._pause
        while time.monotonic() < self._since:
            yield Wait(until=self._since)

    def _unreachable(self, error: DaemonUnavailable) -> ShellSessionError:
        """What it means for this request that no connection could be made or kept."""
        return OutcomeUnknown(f"the daemon was lost while it ran this: {_UNKNOWN}; {_GONE}") if self.id else error


def cancel_request(
    transport: Transport, request: str, outcome: Cancelled | None, on_sent: Callable[[], object] | None = None
) -> bool:
    """Have the daemon end what it does for a request, or drop it from the queue; ``outcome`` keeps what came of that.

    Returns True where a command was ended so. Where the daemon is gone, so is what it did.
    """
    backend = Backend()
    message = Message({"verb": "cancel", "request": request, "reads": outcome is not None}, ())
    exchange = Exchange(backend, transport, message)
    exchange.on_sent = on_sent
    try:
        reply = backend.give(exchange.next())
    except ShellSessionError:
        return False
    finally:
        exchange.close()
        backend.pool.close()
    if outcome is not None:
        outcome.note(reply)
    return "result" in reply.header


class Cancellation:
    """Cancels a request from a thread, which no second Ctrl-C interrupts and no end of a loop cancels."""

    def __init__(self, exchange: Exchange) -> None:
        import threading  # neither is needed by a command line that nobody interrupts

        from ...engine.kernel.signals import undisturbed

        self._exchange = exchange
        self.sent, self.done = threading.Event(), threading.Event()
        self.has_ended = False  # it ended a command
        self._on_done: Callable[[], object] = lambda: None
        try:
            with undisturbed():
                threading.Thread(target=self._run, name="shellsession-end-request", daemon=True).start()
        except RuntimeError:  # no more threads, or the interpreter ends
            self._run()
        exchange.cancelled = True

    def _run(self) -> None:
        exchange = self._exchange
        try:
            self.has_ended = cancel_request(exchange.transport, exchange.id, exchange.outcome, self.sent.set)
        finally:
            self.sent.set()
            self.done.set()
            self._on_done()

    def when_done(self, call: Callable[[], object]) -> None:
        """Have that called in its thread at its end; at once, perhaps again, where that has come."""
        self._on_done = call
        if self.done.is_set():
            call()
