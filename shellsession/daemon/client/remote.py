"""A client's view of an agent's session in the daemon: what each verb does, for threads and for asyncio.

``Remote`` builds the requests, sends them through an ``Exchange``, and turns the replies into results. ``session`` and
``async_session`` add the signatures. ``opening`` builds the request that opens a session. It contains all the state
that the client means (directory, environment, umask, bash), so the daemon adds nothing of its own. ``RemoteJob`` is a
job in the daemon.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property, partial
from types import EllipsisType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from ...branch.changes import change_of
from ...branch.checkpoint import Checkpoint, name_of_checkpoint
from ...errors import (
    IN_CALLBACK,
    STILL_RUNS,
    DaemonUnavailable,
    InvalidRequest,
    NoSuchAgent,
    NotRunning,
    OutcomeUnknown,
    ResultExpired,
    SessionBusy,
    SessionClosed,
    ShellSessionError,
    ShellUnavailable,
)
from ...files import FileReply, FileRequest, Transfer, transfer_error
from ...models import (
    TTY,
    Limits,
    OnOutput,
    Request,
    Result,
    State,
    Stream,
    Terminal,
    Why,
    WhyKind,
    check_flag,
    check_seconds,
    command_bytes,
)
from ...notices import Notice, Watch
from ...observe import Observer, Observing, log_end
from ...options import Options, SessionOptions, absolute, check_size, scope_of
from ...paging import Piece, Query, Read, page
from ...patterns import as_data
from ...redact import Redact, redact_data, redact_from
from ...signatures import AnyJob, AnySession, Command, RunOptions, Seconds, T, deadline, fed, refuse_unknown
from ...state.snapshot import Snapshot, check_patterns, check_secrets
from ...state.values import Difference, Restored
from ..protocol.endpoint import lasting_name
from ..protocol.messages import closed_meanwhile, field, from_part, only_part, to_notice, to_part, to_result
from ..protocol.wire import OUTPUT_MAX, PARTS_MAX, Message
from .exchange import Backend, Exchange
from .link import Pool
from .places import transport_of
from .process_state import process_state, wire_text
from .transport import Transport

if TYPE_CHECKING:
    from ...engine.io.dialogue import Dialogue
    from ...policy.rules import Policy
    from ...policy.secrets import Secrets
    from ...sandbox import Sandbox

# The name of the agent of an attempt begins with as many characters of that of its session.
_NAME_SHOWN: Final = 200


def _path(path: str) -> str:
    """An absolute path for the wire."""
    return wire_text(os.fsencode(absolute(path)))


def limits_fields(limits: Limits) -> dict[str, object]:
    """``Limits`` for the wire. A relative spill starts in the client's directory. Raises InvalidRequest."""
    if limits.max_output > OUTPUT_MAX:
        raise InvalidRequest(
            f"limits: max_output is {limits.max_output}, but over the daemon at most {OUTPUT_MAX} bytes are possible:"
            " name a spill for more"
        )
    return {**vars(limits), "spill": None if limits.spill is None else _path(limits.spill)}


def _sandbox_fields(sandbox: Sandbox) -> dict[str, object]:
    """``Sandbox`` for the wire; ``~`` becomes the client's home."""
    write, hide = ([os.path.expanduser(path) for path in paths] for paths in sandbox.paths)
    limits = {"memory": sandbox.memory_bytes, "processes": sandbox.processes, "cpu": sandbox.cpu}
    others = {"network": sandbox.network, "pass_env": list(sandbox.pass_env), "missing_ok": sandbox.missing_ok}
    return {"write": write, "hide": hide, **others, **limits}


NO_SNAPSHOTS: Final = "snapshot= is for a session of this process: connect without it, then call restore()"
# The options of a session that a request has as they are named.
_AS_THEY_ARE: Final = {
    *("agent_env", "timeout", "on_timeout", "tty", "idle_timeout", "stdin", "merge_stderr", "check_startup"),
    *("size", "recover", "auto_checkpoints"),
}


def opening(options: SessionOptions, inherited: dict[str, Any] | None = None) -> dict[str, Any]:
    """The fields of a request that opens a session with these options, which are those of ``Session``.

    Directory, environment and umask are by default ``inherited``: those of this process. Raises InvalidRequest.
    """
    if options.get("snapshot") is not None:
        raise InvalidRequest(NO_SNAPSHOTS)
    made = Options.of(options)
    given: dict[str, Any] = {name: value for name, value in options.items() if name in _AS_THEY_ARE}
    fields = (process_state() if inherited is None else inherited) | given
    if "bash" in options:  # found on the client's PATH, not the daemon's
        from shutil import which  # 5 ms, and rarely needed

        fields["bash"] = _path(which(made.bash) or made.bash)
    for name, texts in (("startup", made.startup), ("shutdown", made.shutdown)):
        if texts:
            fields[name] = [wire_text(text) for text in texts]
    if made.stdin is TTY:
        fields["stdin"] = "tty"
    if made.cwd is not None:
        fields |= {"cwd": _path(made.cwd), "cwd_named": True}
    if made.env is not None:
        fields |= {"env": made.env, "inherited": False}
    if made.extra_env is not None:
        fields["extra_env"] = made.extra_env
    if options.get("limits") is not None:
        fields["limits"] = limits_fields(made.limits)
    if made.sandbox is not None:
        fields["sandbox"] = _sandbox_fields(made.sandbox)
    if made.policy is not None:
        if callable(made.policy.confirm):
            raise InvalidRequest(
                "policy: confirm= is a function of this process, which the daemon cannot call: leave it out there, and"
                ' call policy.check() before run(), or have the daemon ask (confirm="queue")'
            )
        fields["policy"] = made.policy.to_dict()
    for name, place in (("branch", made.branch), ("branch_dir", made.branch_dir)):
        if place is not None:
            fields[name] = _path(place)
    if made.redact is not False:
        fields["redact"] = redact_data(made.redact)
    return fields


def check_elsewhere(options: SessionOptions) -> None:
    """Raise InvalidRequest for a relative path, which would start in a directory of this machine."""
    paths: list[tuple[str, Any]] = [(name, options.get(name)) for name in ("cwd", "bash", "branch", "branch_dir")]
    if (limits := options.get("limits")) is not None:
        paths.append(("limits: spill", limits.spill))
    for name, path in paths:
        if path is not None and not os.path.isabs(os.fspath(path)):
            raise InvalidRequest(f"{name} is {path!r:.100}: a session elsewhere (via) needs an absolute path")


_STILL_ASKED: Final = (
    "the daemon has ended while a person was asked whether the command may run: nothing was run, and the question still"
    " waits (`shellsession approvals`); the same call again gets its answer"
)
# Seconds after which the daemon is asked for notices again.
_NOTICES_WITHIN: Final = 25.0
# The options of ``connect`` and ``aconnect``.
CONNECT_OPTIONS: Final = ("socket", "start", "create", "via", "remote", "idle_ttl", *SessionOptions.__annotations__)

# A request of ``run``, and the callback for its output.
PreparedRun = tuple[Message, OnOutput | None]

# True while the commands of this task are refused (StateLost), once, if the agent's last session has ended.
UNLESS_LOST: Final[ContextVar[bool]] = ContextVar("shellsession-unless-lost", default=False)
# How many seconds a request of this task may wait in the queue behind other clients. After that it is dropped unrun.
TURN_WITHIN: Final[ContextVar[float | None]] = ContextVar("shellsession-turn-within", default=None)

JobT = TypeVar("JobT", bound="RemoteJob")


class OpenStream:
    """The state of one ``stream``: ``active`` while somebody iterates over it."""

    active = False


def _report_of(reply: Message) -> Restored:
    undone = reply.header.get("value")
    differences = tuple(Difference(*map(str, one)) for one in from_part(reply.parts))
    return Restored(differences, undone if isinstance(undone, str) else "")


class Remote(AnySession[PreparedRun]):
    """One client's view of an agent's session in the daemon.

    A command that outlives its call (its time limit, or because it waits for input) is handed back: ``wait``, ``send``
    and the like then are about that command.
    """

    _backend_class = Backend

    def __init__(
        self, agent: str, transport: Transport, start: bool, opening: dict[str, Any], pool: Pool | None = None
    ) -> None:
        if not isinstance(agent, str):
            raise InvalidRequest(f"an agent's name must be a str, not {agent!r}")
        self.agent, self.transport, self._backend = agent, transport, self._backend_class()
        if pool is not None:  # one that sessions share
            self._backend.pool = pool
        self._start, self.opening = start, opening
        self._gentle = "kill" if opening.get("on_timeout") == "kill" else "interrupt"
        self._incarnation = ""  # of the daemon that has our session; "" while the session is to be opened
        self._number: int | None = None  # of the session in that daemon
        # The default that this client named. Without one, that of the session applies, whichever client opened it.
        self._own_timeout: Seconds = opening.get("timeout", ...)
        self._timeout: float | None = 120.0  # the default that applies
        self.opened_here = False  # did this client open the session, or was it there before?
        self.continues = False  # did it begin, when this client opened it, with the state of the agent's last one?
        self.handed_back = ""  # the id of the command that was handed back to this client; "" for none
        self._restored = Restored()  # the report of this client's last restore
        self._closed = False
        self._observers: list[Observing] = []
        self._noticed = 0  # the number of the last notice that the caller has got
        self._command = b""  # the text of the command that was handed back, if this client ran it
        self._policy: dict[str, Any] | None = opening.get("policy")
        self._redact = redact_from(opening.get("redact", False))
        self._dialogue: Dialogue | None = None
        # Called after a request has been in the daemon's queue for a second, with the reason.
        self.on_wait: Callable[[Message], None] | None = None
        self._on_output: OnOutput | None = None  # of the command that was handed back
        self._streams: list[tuple[weakref.ref[object], OpenStream]] = []
        self._in_callback: set[object] = set()  # the threads or tasks that run a callback
        if pool is None:
            weakref.finalize(self, self._backend.pool.close)

    @classmethod
    def for_arguments(
        cls,
        agent: str,
        socket: str | os.PathLike[str] | Transport | None,
        start: bool,
        options: SessionOptions,
        via: Sequence[str] | None = None,
        remote: str | None = None,
        create: bool = True,
        idle_ttl: Seconds = ...,
        defaults: Mapping[str, object] = MappingProxyType({}),
    ) -> Self:
        """The session for the arguments of ``connect``, not opened yet.

        ``defaults``: fields for a new session; one without them does as well.
        Opening it raises AlreadyOpen if the agent has a session that was opened with others of these options.
        """
        check_flag("start", start)
        check_flag("create", create)
        transport = transport_of(socket, via, remote)
        if not transport.is_local:
            check_elsewhere(options)
        fields = opening(options, None if transport.is_local else {})
        fields |= defaults
        if options:
            fields["exact"] = list(options)
        if not create:
            fields["create"] = False
        if idle_ttl is not ...:
            check_seconds("idle_ttl", idle_ttl)
            fields["idle_ttl"] = idle_ttl
        return cls(agent, transport, start, fields)

    @classmethod
    def like(cls, other: Remote, agent: str | None = None) -> Self:
        """The session that ``other`` is about, or that of another ``agent``, opened in the same way."""
        return cls(other.agent if agent is None else agent, other.transport, other._start, other.opening)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.agent!r} at {self.transport} {'closed' if self._closed else 'open'}>"

    def disconnect(self) -> None:
        """Close this client's connections; the session lives on."""
        self._backend.pool.close()

    # -- its present state

    def _ask_now(self, verb: str, **fields: object) -> Message:
        """The reply to a request that runs nothing. Blocks, also in asyncio; allowed in a callback."""
        raise NotImplementedError

    @property
    def is_opened(self) -> bool:
        """Has a daemon the session, as far as this client knows? Until then, ``opening`` may still change."""
        return bool(self._incarnation)

    @property
    def restored(self) -> Restored:
        """What the last restore of this client has done."""
        return self._restored

    @property
    def closed(self) -> bool:
        """Was the session closed, as far as this client knows?"""
        return self._closed

    @property
    def pid(self) -> int | None:
        """Bash's process id; None while there is no bash."""
        return None if self._closed else field(self._ask_now("info").header, "pid", int, type(None))

    @property
    def state(self) -> State:
        """As ``Session.state``."""
        state: State = "closed" if self._closed else self._info("state", str)
        return state

    @property
    def cwd(self) -> str:
        """As ``Session.cwd``."""
        return str(self._info("cwd", str))

    @property
    def command(self) -> str:
        """As ``Session.command``."""
        return "" if self._closed else only_part(self._ask_now("info").parts).decode("utf-8", "replace")

    @property
    def size(self) -> tuple[int, int]:
        """As ``Session.size``."""
        columns, rows = self._info("size", list)
        return columns, rows

    @property
    def policy(self) -> Policy | None:
        """The session's policy, whichever client opened it."""
        if self._policy is None:
            return None
        from ...policy.rules import Policy

        return Policy.from_dict(self._policy)

    @property
    def redact(self) -> Redact:
        """The session's redaction, whichever client opened it; for ``Result.for_model``."""
        return self._redact

    @cached_property
    def secrets(self) -> Secrets | None:
        """As ``Base.secrets``."""
        return self._known_secrets() if self._policy is not None or self._redact else None

    def _known_secrets(self, logged: bool = False) -> Secrets:
        """See ``policy.rules.secrets_of``. Of environments, this client knows its own."""
        from ...policy.rules import secrets_of

        environment = {**self.opening.get("env", {}), **self.opening.get("extra_env", {})}
        return secrets_of(self.policy, self._redact, environment, logged=logged)

    @property
    def has_terminal_stdin(self) -> bool:
        """As ``Base.has_terminal_stdin``, if this client has named it."""
        return self.opening.get("stdin") == "tty"

    @property
    def idle(self) -> float:
        """As ``Session.idle``."""
        return float(self._info("idle", float, int))

    def _info(self, name: str, *kinds: type) -> Any:
        return field(field(self._ask_now("info").header, "value", dict), name, *kinds)

    def _jobs(self, kind: type[JobT], released: bool) -> list[JobT]:
        check_flag("released", released)
        if self._closed:
            return []
        return [kind(self._ask_now, one) for one in from_part(self._ask_now("jobs", released=released).parts)]

    def resize(self, columns: int, rows: int) -> None:
        """As ``Session.resize``."""
        check_size((columns, rows))
        self._ask_now("resize", columns=columns, rows=rows)

    # -- requests and replies

    async def _exchange(self, request: Message, backend: Backend) -> AsyncGenerator[Message]:
        """Yield every event of a request and, last, its reply. Leaving the generator before that cancels the request.

        Opens the session first if necessary.
        """
        self._check_open()
        if not self._incarnation and request.header["verb"] != "open":
            await self._open_session(backend)
        if self._number is not None and request.header["verb"] != "open" and "agent" in request.header:
            request = Message({**request.header, "session": self._number}, request.parts)
        exchange = Exchange(backend, self.transport, request, self._incarnation, self._start)
        replied = False  # not ``exchange.done``: Ctrl-C may come after that, before the caller has the reply
        try:
            while not exchange.done:
                yield await exchange.next()
            replied = True
        except ShellSessionError as error:
            replied = True
            if exchange.asks and isinstance(error, OutcomeUnknown) and await self._still_asks(exchange.id, backend):
                error = DaemonUnavailable(_STILL_ASKED)
            self._forget_unknown(request, error)
            raise self._translate(error) from None
        finally:
            if not (replied or exchange.cancel_begun):
                try:  # not its own function: Ctrl-C could come during its call
                    self._forget_handed(await exchange.cancel())
                except BaseException:
                    if not exchange.cancel_begun:  # a second Ctrl-C came before that
                        self._forget_handed(await exchange.cancel())
                    raise
            exchange.close()

    async def _still_asks(self, request: str, backend: Backend) -> bool:
        """Does the next daemon know the question of a request that the last one had? Then its command has not begun."""
        message = Message({"verb": "approvals", "asks": request}, ())
        exchange = Exchange(backend, self.transport, message, start=self._start)
        try:
            return bool(from_part((await exchange.next()).parts))
        except ShellSessionError:
            return False
        finally:
            exchange.close()

    async def _open_session(self, backend: Backend, **more: object) -> None:
        """Open the session in the daemon, or use the one that is there. ``more``: of the request."""
        self._incarnation = ""
        if not self.transport.is_local:  # asked each time: the machine may have been replaced
            self.opening = {**await backend.blocking(self.transport.inherited), **self.opening}
        async with aclosing(self._exchange(self.message("open", **{**self.opening, **more}), backend)) as messages:
            *_, reply = [message async for message in messages]
        self._incarnation = field(reply.header, "id", str).partition(".")[0]
        self._number = field(reply.header, "session", int)
        self.opened_here = bool(reply.header.get("value"))
        self.continues = bool(reply.header.get("continues"))
        own, default = self._own_timeout, field(reply.header, "timeout", float, int, type(None))
        self._timeout = default if isinstance(own, EllipsisType) else own
        self._policy = reply.header.get("policy")
        self._redact = redact_from(reply.header.get("redact", False))
        vars(self).pop("secrets", None)
        if self.opened_here or self.handed_back.partition(".")[0] != self._incarnation:
            self.handed_back = ""  # a new session does not know it, and would refuse each request that names it

    async def _ask(
        self, request: Message, on_output: OnOutput | None = None, backend: Backend | None = None
    ) -> Message:
        """Send a request about the session, and return the reply. ``on_output`` is called with output as it comes.

        ``backend``: wait in another way than the session does. Without it, a request from a callback is refused.
        """
        if backend is None:
            backend = self._backend
            self._refuse_callbacks()
        async with aclosing(self._exchange(request, backend)) as messages:
            async for message in messages:
                match message.header.get("event"):
                    case "output" if on_output is not None:
                        caller = backend.caller()
                        self._in_callback.add(caller)
                        try:
                            await backend.await_callback(self._call_back(on_output, message))
                        finally:
                            self._in_callback.discard(caller)
                    case "waits" | "asks" if self.on_wait is not None:
                        self.on_wait(message)
        return message

    def _call_back(self, on_output: OnOutput, message: Message) -> object:
        return on_output(message.header["stream"], message.parts[0])

    def _refuse_callbacks(self) -> None:
        """Raise SessionBusy in a callback: the command whose output it got waits for the callback to return."""
        if self._backend.caller() in self._in_callback:
            raise SessionBusy(IN_CALLBACK)

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosed(f"the session of agent {self.agent!r} is closed: connect again for a new one")

    def _forget_unknown(self, request: Message, error: ShellSessionError) -> None:
        """Forget the command that was handed back if the daemon does not know it any more.

        That is NotRunning in reply to ``wait`` or ``poll``. In reply to a request that types something it only says
        that the command has ended; the result is still available.
        """
        if request.header["verb"] in ("wait", "poll") and isinstance(error, NotRunning):
            self._forget_handed(request.header.get("command", ""))

    def _forget_handed(self, command: str) -> None:
        """Note that a command has ended, and that its result was delivered or is lost."""
        if command == self.handed_back:
            self.handed_back = ""

    def _translate(self, error: ShellSessionError) -> ShellSessionError:
        """The error to raise for the daemon's ``error``. Records what it means for the session."""
        if isinstance(error, DaemonUnavailable | OutcomeUnknown | ShellUnavailable):
            self._incarnation = ""  # the next request opens a session again
        if isinstance(error, NoSuchAgent) and self._incarnation:  # else there was none to open (``create``)
            self._closed = True
            return SessionClosed(closed_meanwhile(self.agent))
        return error

    def message(self, verb: str, *parts: bytes, **fields: object) -> Message:
        """A request about this agent."""
        if (size := sum(map(len, parts))) > PARTS_MAX:
            raise InvalidRequest(
                f"{verb}: text and stdin have {size} bytes, but over the daemon at most {PARTS_MAX} are possible: write"
                " them to a file, and let the command read that"
            )
        if (seconds := TURN_WITHIN.get()) is not None:
            fields["turn_within"] = seconds
        return Message({"verb": verb, "agent": self.agent, **fields}, parts)

    def _of_command(self, verb: str, *parts: bytes, **fields: object) -> Message:
        """A request about the command that was handed back to this client, or else about the running one."""
        return self.message(verb, *parts, **fields, **({"command": self.handed_back} if self.handed_back else {}))

    # -- run and stream

    def _request(self, command: Command, given: RunOptions) -> PreparedRun:
        """The request of a ``run``. Raises InvalidRequest and SessionBusy."""
        # While the caller iterates over a ``stream``, this command would wait for that one for ever. A dropped iterator
        # does not count: asyncio ends it later, and the daemon queues this command behind it.
        if self._streams and any(stream.active and pieces() is not None for pieces, stream in self._streams):
            raise SessionBusy(STILL_RUNS)
        fields, text = dict[str, Any](given), command_bytes(command)
        if not isinstance(self._own_timeout, EllipsisType):
            fields.setdefault("timeout", self._own_timeout)
        stdin, on_output = fields.pop("stdin", ...), fields.pop("on_output", None)
        data = () if stdin in (..., None, TTY) else (fed(stdin),)
        fields |= scope_of(given)
        Request(text, on_output=on_output, **fields)  # raises for invalid values
        if "limits" in fields:
            if not self.transport.is_local:
                check_elsewhere({"limits": fields["limits"]})
            fields["limits"] = limits_fields(fields["limits"])
        if UNLESS_LOST.get():
            fields["unless_lost"] = True
        if stdin is not ...:
            fields["stdin"] = "bytes" if data else "null" if stdin is None else "tty"
        flags = {"live": on_output is not None, "tell": self.on_wait is not None}
        fields |= {name: True for name, is_set in flags.items() if is_set}
        return self.message("run", text, *data, **fields), on_output

    async def _question(
        self, command: str, cwd: str | None, stdin: Terminal | EllipsisType | None = ...
    ) -> dict[str, Any] | None:
        """The question to a person for which this command would wait; it waits from now on. None if it would not."""
        scope = {} if cwd is None else scope_of({"cwd": cwd})
        if stdin is not ...:
            scope["stdin"] = "tty" if stdin is TTY else "null"
        reply = await self._ask(self.message("run", command_bytes(command), ask_only=True, **scope))
        question: dict[str, Any] | None = field(reply.header, "value", dict, type(None))
        return question

    async def _answer(self, question: str, decision: str) -> None:
        with suppress(InvalidRequest):  # somebody else was first
            await self._ask(Message({"verb": "answer", "question": question, "decision": decision}, ()))

    def _run(self, prepared: PreparedRun) -> Any:
        return self._backend.give(self._run_prepared(*prepared))

    async def _run_prepared(self, request: Message, on_output: OnOutput | None) -> Result:
        try:
            reply = await self._ask(request, on_output)
        except (DaemonUnavailable, SessionClosed):  # the session has ended, and nothing was run
            if "unless_lost" not in request.header or not await self._continue():
                raise
            reply = await self._ask(request, on_output)
        return self._new_result(reply, request.parts[0], on_output)

    async def _continue(self) -> bool:
        """Open a session in place of one that has ended, if it goes on with its state. Returns whether it does."""
        if not self.opening.get("recover"):
            return False
        was_closed, self._closed = self._closed, False
        try:
            await self._open_session(self._backend, continued=True)
        except ShellSessionError:
            self.continues = False
        self._closed = was_closed and not self.continues
        return self.continues

    def _stream(self, prepared: PreparedRun) -> Any:
        """Iterate over the output of a command as it comes. ``run`` is refused meanwhile."""
        (header, parts), _ = prepared
        header = {name: value for name, value in header.items() if name != "tell"}
        stream = OpenStream()
        pieces = self._backend.iterate(self._pieces(Message({**header, "live": True}, parts), stream))
        known = [one for one in self._streams if one[0]() is not None]
        self._streams = [*known, (weakref.ref(pieces), stream)]
        return pieces

    async def _pieces(self, request: Message, stream: OpenStream) -> AsyncGenerator[tuple[Stream, bytes] | Result]:
        stream.active = True
        try:
            self._refuse_callbacks()
            async with aclosing(self._exchange(request, self._backend)) as messages:
                async for message in messages:
                    if message.header.get("event") == "output":
                        yield message.header["stream"], message.parts[0]
        finally:
            stream.active = False
        # After the ``finally``: leaving the generator here must cancel nothing.
        yield self._new_result(message, request.parts[0])

    def _new_result(self, reply: Message, command: bytes, on_output: OnOutput | None = None) -> Result:
        """The Result of a new command, whose callback and screen replace those of the last one."""
        earlier = self.handed_back
        self._dialogue, self._on_output, self._command = None, on_output, command
        result = self._take_result(reply)
        if not result.runs_on:
            self.handed_back = earlier  # that command has ended meanwhile, but its result is still available
        return result

    def _take_result(self, reply: Message) -> Result:
        """The Result in a reply. If its command runs on, ``wait`` and the like are about that from now on."""
        result = result_of(reply)
        self.handed_back = reply.header.get("command", "") if result.runs_on else ""
        if not result.runs_on:
            command, self._command = self._command, b""
            for observer in self._observers:
                observer.end(command, result)
            log_end(self.agent, result)
        return result

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` for each command whose end this client gets from now on."""
        self._observers.append(Observing(observer, self.agent, partial(self._known_secrets, logged=True)))

    # -- the other verbs

    def _events(self, watch: Watch, after: int | None, until: float | None) -> Any:
        number, fields = self._noticed if after is None else after, dict[str, Any]()
        if watch.pattern is not None:
            fields["pattern"] = as_data(watch.pattern)
        if watch.silence is not None:
            fields["silence"] = watch.silence
        first = self._ask_now("events", after=number, timeout=0.0, **fields)  # from now on the daemon watches
        return self._backend.iterate(self._notices(first, fields, until))

    async def _notices(self, reply: Message, fields: dict[str, Any], until: float | None) -> AsyncGenerator[Notice]:
        dropped = 0
        while True:
            dropped += field(reply.header, "dropped", int)
            for notice in map(to_notice, from_part(reply.parts)):
                self._noticed = notice.number
                yield notice.__replace__(dropped=notice.dropped + dropped)
                dropped = 0
            left = _NOTICES_WITHIN if until is None else min(_NOTICES_WITHIN, until - time.monotonic())
            if field(reply.header, "over", bool) or left <= 0:
                return
            request = self.message("events", after=field(reply.header, "last", int), timeout=left, **fields)
            try:
                reply = await self._ask(request)
            except SessionClosed:
                return
            except OutcomeUnknown:  # it says that a command may have run
                raise DaemonUnavailable(
                    "the daemon that had this session has ended, and its notices with it: connect again"
                ) from None

    def read_page(self, query: Query, read: Read = page) -> Any:
        """Return what ``read`` makes of the output that the query names."""
        return self._backend.give(self._read(query, read))

    async def _read(self, query: Query, read: Read) -> Any:
        """Return what ``read`` makes of an output. It is searched here: a bad pattern holds up nobody else."""
        reading, output = read(query), query.id
        wanted = next(reading)
        while True:
            begin, size = wanted
            request = self.message("read_output", output=output, stream=query.stream, begin=begin, size=size)
            header, parts = await self._ask(request)
            output, data = field(header, "output", str), only_part(parts)
            try:
                kept, size, grows = field(header, "kept", int), field(header, "size", int), field(header, "grows", bool)
                cut = field(header, "cut", int, type(None))
                wanted = reading.send(Piece(output, data, kept, size, cut, grows))
            except StopIteration as end:
                return end.value

    def _transfer(self, transfer: Transfer[Any]) -> Any:
        return self._backend.give(self._transfer_pieces(transfer))

    async def _transfer_pieces(self, transfer: Transfer[T]) -> T:
        blocking, reply = self._backend.blocking, None  # it may read or write the caller's file
        while (request := await blocking(partial(transfer.next, reply))) is not None:
            reply = await self._access(request)
        return transfer.result

    async def _access(self, request: FileRequest) -> FileReply:
        """Have the daemon carry out the request. Raises OSError as a session in this process does."""
        fields: dict[str, object] = {"path": wire_text(os.fsencode(request.path)), "begin": request.begin}
        if request.file is not None:
            fields["file"] = list(request.file)
        if request.data is None:
            message = self.message("read_file", **fields)
        else:
            message = self.message("write_file", request.data, parents=request.parents, **fields)
        try:
            header, parts = await self._ask(message, backend=self._backend)
        except ResultExpired:
            if request.data is not None:
                raise
            # The connection broke with the piece on its way. The daemon keeps none, so it reads that one again.
            return await self._access(request)
        if "errno" in header:
            raise transfer_error(field(header, "errno", int), request.name)
        path, file, size = field(header, "value", str), field(header, "file", list), field(header, "size", int)
        return FileReply(path, tuple(file), only_part(parts), size)

    async def _send_only(self, request: Message) -> None:
        await self._ask(request)

    async def _result(self, request: Message, on_output: OnOutput | None = None) -> Result:
        return self._take_result(await self._ask(request, on_output))

    async def _wait(self, verb: str, timeout: Seconds, idle: Seconds = ..., *parts: bytes, **given: object) -> Result:
        """Carry out ``wait`` or ``send``, which also types its part. ``given``: other fields of the request."""
        if idle is not ...:
            check_seconds("idle_timeout", idle)
            given["idle_timeout"] = idle
        return await self._result(self._wait_message(verb, timeout, *parts, **given), self._on_output)

    def _wait_message(self, verb: str, timeout: Seconds, *parts: bytes, **fields: object) -> Message:
        if self._on_output is not None:
            fields["live"] = True
        if verb == "send" and self.on_wait is not None:  # ``wait`` never queues
            fields["tell"] = True
        if (seconds := self._own_timeout if timeout is ... else timeout) is not ...:
            check_seconds("timeout", seconds)
            fields["timeout"] = seconds
        return self._of_command(verb, *parts, **fields)

    async def interrupt_command(self, command: str = "") -> Result:
        """End that command, or return its result if it has ended; without a name, end the running one.

        Raises NotRunning.
        """
        return await self._result(self.message("interrupt", **({"command": command} if command else {})))

    async def _restart(self, keep_state: bool) -> Restored:
        check_flag("keep_state", keep_state)
        return await self._restarted(self.message("restart", **({"keep_state": True} if keep_state else {})))

    async def _looked(self) -> Why:
        return why_of(await self._ask(self.message("why")))

    def _why(self) -> Any:
        return self._backend.give(self._looked())

    async def _snapshot(self, exclude: Sequence[str], secrets: Sequence[str]) -> Snapshot:
        wanted = [list(check_patterns(exclude)), list(check_secrets(secrets))]
        reply = await self._ask(self.message("snapshot", to_part(wanted)))
        return Snapshot.from_bytes(only_part(reply.parts))

    async def _on_branch(self, action: str, checkpoint: object = "", **flags: bool) -> Message:
        for name, flag in flags.items():
            check_flag(name, flag)
        given = {name: flag for name, flag in flags.items() if flag}
        name = name_of_checkpoint(checkpoint)
        return await self._ask(self.message("branch", action=action, name=name, **given))

    async def _checkpoints(self, action: str, checkpoint: object = "", **flags: bool) -> list[Checkpoint]:
        reply = await self._on_branch(action, checkpoint, **flags)
        return [Checkpoint(*one) for one in from_part(reply.parts)]

    async def _checkpoint(self, name: str, end_jobs: bool) -> Checkpoint:
        (made,) = await self._checkpoints("checkpoint", name, end_jobs=end_jobs)
        return made

    async def _rollback(self, checkpoint: Checkpoint | str, files_only: bool, end_jobs: bool) -> Restored:
        reply = await self._on_branch("rollback", checkpoint, files_only=files_only, end_jobs=end_jobs)
        self._restored = _report_of(reply)
        return self._restored

    async def _drop_checkpoint(self, checkpoint: Checkpoint | str) -> None:
        await self._checkpoints("drop", checkpoint)

    async def _act_on_branch(self, action: str, given: dict[str, Any]) -> Any:
        """Do what a method of ``BranchFiles`` does."""
        fields = {name: value for name, value in given.items() if name != "since" and value}
        reply = await self._ask(self.message("branch", action=action, name=given["since"], **fields))
        return only_part(reply.parts) if action == "patch" else tuple(map(change_of, from_part(reply.parts)))

    def _branch_path(self) -> str:
        return str(self._info("branch_path", str))

    def _of_attempt(self, options: RunOptions) -> str:
        """The name of the agent of an attempt. Raises TypeError for unknown options."""
        refuse_unknown(f"{type(self).__name__}.attempt", options, RunOptions.__annotations__)
        return f"{self.agent[:_NAME_SHOWN]}-attempt-{os.urandom(4).hex()}"

    async def _take_over(self, fork: Remote) -> Restored:
        restored = await self._restarted(self.message("take_over", fork=fork.agent))
        fork.disconnect()
        return restored

    async def _fork(self, agent: str, attempt: bool = False) -> Self:
        reply = await self._ask(self.message("fork", to=agent, **({"attempt": True} if attempt else {})))
        child = self.like(self, agent)
        if attempt:  # no daemon but this one knows it, so a later one must not open another session in its place
            child.opening = {**child.opening, "create": False}
        child._restored = _report_of(reply)
        return child

    async def _restore(self, snapshot: Snapshot) -> Restored:
        if not isinstance(snapshot, Snapshot):
            raise InvalidRequest(f"snapshot must be a Snapshot, not {type(snapshot).__name__}")
        return await self._restarted(self.message("restore", snapshot.to_bytes()))

    async def _restarted(self, request: Message) -> Restored:
        reply = await self._ask(request)
        self.handed_back = ""
        self._restored = _report_of(reply)
        return self._restored

    async def _close(self) -> None:
        if not self._closed:
            with self._closing():
                await self._ask(self.message("close"))
        self.disconnect()

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """The block in which the session is closed. It may be closed already, and no daemon is started for this."""
        start, self._start = self._start, False
        try:
            yield
        except (SessionClosed, NoSuchAgent):  # another client has closed it, or it ended with its daemon
            pass
        except (DaemonUnavailable, OutcomeUnknown):
            # A daemon elsewhere that cannot be reached may well be alive.
            if not self.transport.is_local:
                raise
            if (other := self.transport.reach()) is not None:
                other.close()
                raise
            self._forget_recorded()
        finally:
            self._start = start
        self._closed = True

    def _forget_recorded(self) -> None:
        """Have the next daemon know nothing of the agent: its session ended with the last one, and is closed."""
        from ...store import forget_recorded  # slow to import, and rarely needed

        with suppress(OSError):
            forget_recorded(lasting_name(str(self.transport)), self.agent)

    # -- expect

    def _screen(self, name: str) -> Any:
        return getattr(self._dialogue.screen, name) if self._dialogue else None

    def _expect(self, pattern: Any, timeout: Seconds, exact: bool) -> Any:
        return self._backend.give(self._search(pattern, timeout, exact))

    async def _search(self, pattern: Any, timeout: Seconds, exact: bool) -> int:
        """The index of the pattern that was found.

        The daemon sends what the command prints on its terminal, and pexpect searches it here.
        """
        if self._dialogue is None:
            from ...engine.io.dialogue import Dialogue  # imports pexpect: slow, and rarely needed

            self._dialogue = Dialogue()
        until = deadline(timeout, self._timeout)
        (header, parts), dialogue = self._of_command("glimpse"), self._dialogue
        expecter = dialogue.expecter(pattern, exact)
        index: int | None = expecter.existing_data()
        while index is None:
            left = None if until is None else max(0.001, until - time.monotonic())
            reply = await self._ask(Message({**header, "timeout": left}, parts))
            index = dialogue.search(expecter, only_part(reply.parts))
            has_ended = reply.header.get("value")
            if index is None and has_ended:
                index = expecter.eof()
            elif index is None and until is not None and time.monotonic() >= until:
                index = expecter.timeout()
        return index


class RemoteJob(AnyJob):
    """A job in the daemon: what one call left running. Each property asks the daemon."""

    def __init__(self, ask: Callable[..., Message], described: dict[str, Any]) -> None:
        self._ask = ask
        self.id: str = field(described, "id", str)
        self._released: bool = field(described, "released", bool)
        self.command: str = field(described, "command", str)
        self.pids: tuple[int, ...] = tuple(field(described, "pids", list))

    def __repr__(self) -> str:
        return f"RemoteJob({self.id}, {self.command!r}, pids={self.pids})"

    def _now(self) -> dict[str, Any]:
        """The daemon's present description of the job. A job that it has forgotten, or whose session, has ended."""
        try:
            described = from_part(self._ask("jobs", released=self._released).parts)
        except (SessionClosed, NoSuchAgent):
            if self._released:  # it lives on, and the agent's next session lists it
                raise
            described = []
        ours = (one for one in described if field(one, "id", str) == self.id)
        return next(ours, {"alive": [], "running": False, "exit_code": None})

    def alive(self) -> list[int]:
        """The pids of its processes that still live."""
        return list(field(self._now(), "alive", list))

    @property
    def running(self) -> bool:
        return bool(field(self._now(), "running", bool))

    @property
    def exit_code(self) -> int | None:
        code: int | None = field(self._now(), "exit_code", int, type(None))
        return code

    @property
    def released(self) -> bool:
        return self._released

    def kept(self, name: str) -> tuple[bytes, int, int]:
        message = self._ask("job_output", job=self.id, name=name)
        return only_part(message.parts), field(message.header, "value", int), field(message.header, "cut", int)

    def kill(self) -> tuple[int, ...]:
        return tuple(field(self._ask("kill_job", job=self.id).header, "value", list))

    def release(self) -> None:
        self._ask("release_job", job=self.id)
        self._released = True


def why_of(reply: Message) -> Why:
    """The Why in a reply."""
    value = field(reply.header, "value", dict)
    kind, text, comm = (field(value, name, str) for name in ("kind", "text", "comm"))
    return Why(cast(WhyKind, kind), text, field(value, "pid", int), comm)


def result_of(reply: Message) -> Result:
    """The Result in a reply."""
    return to_result(field(reply.header, "result", dict), reply.parts)
