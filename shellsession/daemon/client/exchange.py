"""One request to the daemon and its reply: sending it, sending it again after a lost connection, and cancelling it.

``Exchange`` handles one request. If the connection is lost, it sends the request again over another one, under the same
id. The daemon recognises the id, so the request never runs twice. ``Retries`` says when. ``Cancellation`` cancels a
request from its own thread, so that nothing cancels the cancellation; ``CancelOutcome`` keeps what the daemon
replies to that. ``Backend`` is how a session waits: here in a thread; the asyncio client has another.
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


# Attempts with a request that no daemon has. A daemon that is ending closes new connections before it reads them.
_ATTEMPTS: Final = 5
# A request that a daemon may have is sent again for this many seconds.
_RETRY_SECONDS: Final = 30.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5  # seconds between two attempts
# After a second Ctrl-C the caller still waits this many seconds until the cancellation is sent. That takes 0.3 ms,
# unless the daemon is stopped (SIGSTOP).
_SENT_WITHIN: Final = 1.0
_UNKNOWN: Final = "check whether the command has done its work, and run it again only if it has not"
_ASK_AGAIN: Final = (
    "call again with the same idempotency key: the next daemon returns the result, or says what is known"
)
_GONE: Final = "if that daemon has ended, so has the session, and the next command gets a fresh shell"


class Backend:
    """How a session waits. This one blocks its thread: an ``await`` never suspends. Asyncio has another.

    It owns the idle connections, as each backend waits for them in its own way.
    """

    def __init__(self) -> None:
        self.pool = Pool()

    def caller(self) -> object:
        """The current thread or task."""
        return get_ident()

    def give(self, verb: Coroutine[Any, Any, T]) -> T:
        """Turn a verb's coroutine into what its caller gets: here the result, in asyncio the coroutine itself."""
        try:
            verb.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        raise AssertionError("a verb was suspended in a thread")

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        """Turn the generator of ``stream`` into what its caller gets: here a plain one."""
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

    async def blocking(self, call: Callable[[], T]) -> T:
        """Call a function that may block."""
        return call()

    async def drive(self, steps: Steps[T], poller: Any) -> T:
        """Run the steps of a connection to their end, with its ``poller``."""
        return drive(steps, poller)

    async def await_callback(self, answer: object) -> None:
        """Await what a callback returned, if that is an awaitable and this backend can wait for one."""

    async def until_done(self, cancellation: Cancellation) -> None:
        """Wait for the end of a cancellation, even if the task is cancelled meanwhile."""
        cancellation.done.wait()


class CancelOutcome:
    """What became of a request that was cancelled (Ctrl-C, a cancelled task) in the ``with`` block of this object.

    Outside such a block the daemon does not send the outcome: it may be megabytes, and most callers do not need it.
    """

    def __init__(self) -> None:
        self.request = ""  # the id, once the request is sent
        self.ended = False  # the daemon has ended the request; without a result, it had not started anything
        self.result: Result | None = None

    def __enter__(self) -> Self:
        self._before: Token[CancelOutcome | None] = _CANCEL_OUTCOME.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CANCEL_OUTCOME.reset(self._before)

    def note(self, reply: Message) -> None:
        """Keep the daemon's reply to the cancellation."""
        if reply.header.get("value"):
            self.ended = True
            if (header := reply.header.get("result")) is not None:
                self.result = to_result(header, reply.parts)


# A context variable, as several threads or tasks may use one session.
_CANCEL_OUTCOME: Final[ContextVar[CancelOutcome | None]] = ContextVar("shellsession-cancel-outcome", default=None)


class Retries:
    """When to send one request again after its connection was lost, and when to give up."""

    _failures = 0  # in a row, before a daemon took the request
    _first_failure = 0.0
    _pause = 0.0  # the length of the last one
    _pause_ended = float("-inf")

    def reset(self) -> None:
        """Note that a daemon has the request: its outcome will be known."""
        self._failures = 0

    def next_moment(self, is_sent: bool) -> float | None:
        """Note a failure. Returns the moment of the next attempt, or None to give up.

        ``is_sent``: a daemon may have the request, so giving up leaves its outcome unknown.
        """
        now = time.monotonic()
        self._failures += 1
        if self._failures == 1:
            self._first_failure = now
        if is_sent and now - self._first_failure >= _RETRY_SECONDS:
            return None
        if not is_sent and self._failures == _ATTEMPTS:
            return None
        is_first_in_a_while = now - self._pause_ended > _LONGEST_PAUSE
        self._pause = _SHORTEST_PAUSE if is_first_in_a_while else min(_LONGEST_PAUSE, 2 * self._pause)
        self._pause_ended = now + self._pause
        return self._pause_ended


class Exchange:
    """One request and its reply.

    The request gets its ``id`` when it is first sent, and keeps it: from then on a daemon may have the request. If the
    daemon got no byte of it, the request loses that id, and its next sending is the first.

    ``expected``: the incarnation of the daemon that holds the session; any other daemon does not have it. ``start``:
    start a daemon if there is none.
    """

    def __init__(
        self, backend: Backend, transport: Transport, request: Message, expected: str = "", start: bool = False
    ) -> None:
        self._backend, self.transport, self._request = backend, transport, request
        self._expected, self._start = expected, start
        # The outcome of a cancellation is not that of the request which it cancels.
        self.outcome = None if request.header["verb"] == "cancel" else _CANCEL_OUTCOME.get()
        self.cancel_begun = False  # ``Cancellation`` has begun: whoever leaves the exchange need not cancel it
        self.on_sent: Callable[[], object] | None = None
        self.id = ""
        self._key = ""  # proves to the daemon, on another connection, that the request is ours
        self._link: Link | None = backend.pool.take(expected)
        self._sent_over_link = False
        self._retries = Retries()
        self._received = 0  # bytes of output
        self.done = False  # the reply has come
        self.asks = False  # a person was asked whether the command may run

    async def next(self) -> Message:
        """The next event, or the reply, which ends the exchange (``done``).

        Raises the error in the daemon's reply, VersionMismatch, OutcomeUnknown, or DaemonUnavailable if the session has
        ended with its daemon (and nothing was run).
        """
        while True:
            if (link := self._link) is None:
                try:
                    # No daemon is started for a request that was already sent to one.
                    link = await self._backend.connect(self.transport, self._start and not self.id)
                except DaemonUnavailable as error:
                    raise self._unreachable(error) from error
                self._link = link
            if (message := await self._backend.drive(self._attempt(link), link.poller)) is not None:
                return message

    async def cancel(self) -> str:
        """Have the daemon cancel the request: end its command, or drop it from the queue.

        Returns the id of the command that this ended, if the request was about a command from an earlier call. The
        cancellation starts before the first await, as a second Ctrl-C may end the loop there.
        """
        self.close()
        if not self.id:
            return ""
        cancellation = Cancellation(self)
        try:
            await self._backend.until_done(cancellation)
        finally:
            cancellation.sent.wait(_SENT_WITHIN)
        return str(self._request.header.get("command", "")) if cancellation.ended_command else ""

    def close(self) -> None:
        """Close the connection of this exchange, if it has one."""
        if self._link is not None:
            self._link.close()
        self._link, self._sent_over_link = None, False

    def _attempt(self, link: Link) -> Steps[Message | None]:
        """The next message over this connection; None when the exchange needs another connection."""
        try:
            if not self._sent_over_link:
                yield from self._send(link)
            message = yield from link.receive()
            while not self._accept(message):
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
        """Send the request over a connection, after its greeting."""
        if not link.hello:
            try:
                # A request that a daemon may have waits without a limit, as it may be running. But nobody here can
                # look at a daemon elsewhere.
                yield from link.greet(patient=bool(self.id) and self.transport.is_local)
            except DaemonUnavailable as error:
                raise self._unreachable(error) from error
        self._check_daemon(link)
        is_first = not self.id
        if is_first:
            self.id, self._key = link.next_id(), link.key
        self._sent_over_link = True
        if self.outcome is not None:
            self.outcome.request = self.id
        header = {"protocol": PROTOCOL, "id": self.id, **self._request.header}
        if not is_first:
            header["key"] = self._key
        try:
            yield from link.send(encode(header, *self._request.parts))
        except ConnectionLost as lost:
            if is_first and lost.untouched:
                self.id = ""
            raise
        self._retries.reset()
        if self.on_sent is not None:
            self.on_sent()

    def _check_daemon(self, link: Link) -> None:
        """Raise an error if this is another daemon than the one that got the request, or that holds the session."""
        if self.id and not self.id.startswith(link.incarnation + "."):
            raise OutcomeUnknown(
                f"the daemon that ran this has ended, and another one runs now: {self._advice}; {_GONE}"
            )
        if self._expected not in ("", link.incarnation):
            raise DaemonUnavailable(
                "the daemon that held this session has ended, and its state is lost; nothing was run: run the command"
                " again for a fresh session"
            )

    def _accept(self, message: Message) -> bool:
        """Check a message, and count its output. False for output that came before, over an earlier connection.

        Raises ProtocolError, and ResultExpired if output is missing in front of it.
        """
        if message.header.get("id") not in (self.id, None):  # None: the daemon did not understand the request
            raise ProtocolError("the daemon replied to a request that was never sent: stop it")
        if message.header.get("event") != "output":
            self.asks = self.asks or message.header.get("event") == "asks"
            return True
        at = field(message.header, "at", int)
        field(message.header, "stream", str)
        size = len(only_part(message.parts))
        if at > self._received:
            raise ResultExpired(
                f"{at - self._received} bytes of output came while the connection was lost, and are no longer kept:"
                f" the output received so far ends before them; the command itself is not affected: {_UNKNOWN}"
            )
        if at < self._received:
            return False
        self._received = at + size
        return True

    def _pause_after(self, lost: ConnectionLost) -> Steps[None]:
        """Close the connection, and wait for the moment of the next attempt.

        After too many attempts, raises OutcomeUnknown if the request may have run, else DaemonUnavailable.
        """
        self.close()
        moment = self._retries.next_moment(is_sent=bool(self.id))
        if moment is None:
            unavailable = DaemonUnavailable(
                f"the daemon at {self.transport} accepts connections and closes them at once: it is ending, or belongs"
                " to another user; try again, or name another socket"
            )
            raise self._unreachable(unavailable) from lost
        while time.monotonic() < moment:
            yield Wait(until=moment)

    def _unreachable(self, error: DaemonUnavailable) -> ShellSessionError:
        """The error when no connection could be made or kept: OutcomeUnknown if the request was sent, or ``error``."""
        return OutcomeUnknown(f"the daemon was lost while it ran this: {self._advice}; {_GONE}") if self.id else error

    @property
    def _advice(self) -> str:
        """What to do if the outcome is unknown. A daemon elsewhere may have a successor that lacks its receipts."""
        return _ASK_AGAIN if "idempotency_key" in self._request.header and self.transport.is_local else _UNKNOWN


def cancel_request(
    transport: Transport, request: str, outcome: CancelOutcome | None, on_sent: Callable[[], object] | None = None
) -> bool:
    """Have the daemon cancel a request: end its command, or drop it from the queue. ``outcome`` keeps the reply.

    Returns True if this ended a command. False also where the daemon has ended: then its commands have, too.
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
    """Cancels a request from its own thread. Neither a second Ctrl-C nor the end of a loop stops that."""

    def __init__(self, exchange: Exchange) -> None:
        import threading  # here, as a command line that nobody interrupts needs neither

        from ...engine.kernel.signals import signals_deferred

        self._exchange = exchange
        self.sent, self.done = threading.Event(), threading.Event()
        self.ended_command = False
        self._on_done: Callable[[], object] = lambda: None
        try:
            with signals_deferred():
                threading.Thread(target=self._run, name="shellsession-end-request", daemon=True).start()
        except RuntimeError:  # no more threads, or the interpreter ends
            self._run()
        exchange.cancel_begun = True

    def _run(self) -> None:
        exchange = self._exchange
        try:
            self.ended_command = cancel_request(exchange.transport, exchange.id, exchange.outcome, self.sent.set)
        finally:
            self.sent.set()
            self.done.set()
            self._on_done()

    def when_done(self, call: Callable[[], object]) -> None:
        """Call back at the end of the cancellation, in its thread; if that has ended, at once (perhaps twice)."""
        self._on_done = call
        if self.done.is_set():
            call()
