"""The sessions of the daemon's agents, and how many clients share one of them.

A session runs one command at a time, but any number of clients may send requests to it. ``Sessions`` opens and finds
the session of each agent. ``SharedSession`` keeps the order of the requests, and gives the end of a command to every
client that waits for it. ``Fanout`` sends the output of a command to its client and to the watchers, ``Audience``.
``Reservation`` gives one client exclusive use. A hold ends with its holder's connection, or with the session.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

from ...agents import STATE_IS_LOST, WAS_IDLE, AsyncAgents
from ...async_session import AsyncSession
from ...engine.bash.spawn import for_agent
from ...engine.io.output import without_output
from ...engine.io.streams import FULL_PAUSE
from ...engine.io.threads import Steps, drive
from ...engine.verbs.delivery import Delivery, joined, together
from ...engine.verbs.recovery import Recovering
from ...engine.verbs.results import Ending, conclude, unread_ending, with_reason
from ...engine.verbs.state import check_snapshot
from ...errors import (
    CLOSED,
    ENDED,
    HELD,
    NOT_YOURS,
    AlreadyOpen,
    InvalidRequest,
    NoSuchAgent,
    NotRunning,
    PolicyRefused,
    ReceiptUnavailable,
    SessionBusy,
    SessionClosed,
    ShellSessionError,
    ShellUnavailable,
    StateLost,
)
from ...models import TTY, Request, Result, Stream, check_seconds
from ...observe import Tap
from ...options import Options, Rules, commands_of
from ...policy.secrets import Secrets
from ...state.snapshot import Snapshot
from ...store import LIFETIME, StoredAgent, packed
from ...text import ago, text_of
from ..protocol.wire import encode
from . import requests
from .approvals import Approvals, described
from .board import Board
from .connection import LOG, Listener
from .deliveries import Deliveries, end_of
from .journal import Begun, Journal
from .receipts import OUTPUT, Receipts, bounded, unavailable
from .syncs import Syncs

if TYPE_CHECKING:
    from ...branch.branch import Branch
    from ...engine.verbs.call import Call
    from ...engine.verbs.engine import Engine
    from ...engine.verbs.session_job import SessionJob
    from ...policy.approval import Question
    from ...store import Store
    from .connection import Connection

# The running command, as a waiting client sees it, is cut to this many characters.
_SHOWN: Final = 200
# Seconds from the end of a command to the moment when the state of its shell is stored.
_KEEP_AFTER: Final = 1.0
# ... or this many times the processor time that the last one took, up to this many seconds.
_KEEP_BACK_OFF: Final = 20
_KEEP_LATEST: Final = 60.0
_BRANCH_IN_USE: Final = "the last session of the agent is still being closed, and uses its branch: try again later"
# How many agents are remembered whose sessions have ended.
_ENDED_MAX: Final = 10_000
# In the reason of the first result of an agent whose last session ended with an earlier daemon.
_ENDED_WITH_DAEMON: Final = "this is a new session: the last one ended with its daemon"
_STATE_IS_OLDER: Final = ", and the state that was kept is older than its last command"
_JOBS_ENDED: Final = ", and so did any background jobs"
_NOT_BROUGHT_BACK: Final = ", and the state that was kept could not be brought back"
# Seconds between two looks at what a command with a receipt has printed.
_PROGRESS: Final = 1.0
_CHECKPOINT_MAX: Final = 1 << 20
# A new watcher gets this many bytes of the earlier output; the last line of an agent is looked for in as many.
_TAIL: Final = 2000


class Sessions:
    """The shared session of each agent. The commands that they run are written into ``journal``.

    ``defaults``: fields of ``requests.Open`` for new sessions, where the client names none.
    """

    def __init__(
        self, agents: AsyncAgents, journal: Journal, store: Store, defaults: Mapping[str, Any] | None = None
    ) -> None:
        self._agents, self._journal, self._store, self._defaults = agents, journal, store, defaults or {}
        given = {name: value for name, value in self._defaults.items() if name in Rules._fields}
        # Those of an agent for which no client has named others.
        self._rules = requests.RulesFields(**given).made() if given else Rules()
        self._receipts, self._syncs = Receipts(store, LIFETIME), Syncs(store.sync)
        self.approvals = Approvals(store)
        self._shared: dict[str, SharedSession] = {}
        self._opened = 0  # how many sessions so far
        # Of agents whose session has ended: the jobs that live on, and how many jobs there were.
        self._released: dict[str, tuple[list[SessionJob], int]] = {}
        # The last session of each agent on a branch, as long as it exists: until it is closed, it uses the branch.
        self._last = WeakValueDictionary[str, AsyncSession]()
        self._ended: dict[str, int] = {}  # the number of the last session, of agents whose rules outlive it
        self._audiences: dict[str, Audience] = {}  # the watchers of agents without a session
        self.board = Board()

    def __iter__(self) -> Iterator[SharedSession]:
        return iter(tuple(self._shared.values()))

    def find(self, agent: str) -> SharedSession | None:
        """The agent's session, or None."""
        shared = self._shared.get(agent)
        if shared is not None and shared.session.closed:  # it was idle for too long
            self.dismiss(shared)
            return None
        return shared

    def of(self, agent: str, number: int | None = None) -> SharedSession:
        """The agent's session; with a number, only that one. Raises NoSuchAgent."""
        if (shared := self.find(agent)) is None or number not in (None, shared.number):
            raise NoSuchAgent(_no_session(agent) + self._left_of(agent))
        return shared

    def open(self, request: requests.Open) -> bool:
        """Open the agent's session if it has none. True if this one is new.

        A new session starts in the directory of the last one, if that has ended and the request names none.
        """
        if (shared := self.find(request.agent)) is not None:
            _check_same(request, shared.engine.options)
            self._set_idle_ttl(shared.session, request)
            shared.engine.touch()  # else it could be closed as idle before the next request
            return False
        for closed in [one for one in self if one.session.closed]:  # they were idle for too long
            self.dismiss(closed)
        if self._store.unreadable:
            raise ShellUnavailable(
                f"no session can be opened: {self._store.unreadable}, and agents may have rules in it; repair it or"
                " move it away, and start the daemon again"
            )
        named, registry = request.made(), self._agents.registry
        before = self._store.get(request.agent) or StoredAgent()
        if not request.create or (request.continued and not before.is_current):
            if not before.cwd:
                raise NoSuchAgent(_no_session(request.agent))
            is_kept = self._store.snapshot(request.agent) is not None
            raise StateLost(_loss(before, is_kept) + "; recover=True brings its variables and functions back" * is_kept)
        if registry.rules(request.agent) == Rules():  # an earlier daemon may have had the session
            registry.keep_rules(request.agent, requests.rules_in_record(request.agent, before.rules, named))
        kept = registry.keep_rules(request.agent, named)  # also if the session cannot be opened now
        before = before._replace(rules=requests.record_with(request.agent, before.rules, named))
        if before != StoredAgent():
            self._store.put(request.agent, before)
        if self._defaults:
            request = request.with_defaults(self._defaults)
        rules = self._rules.next(kept)
        is_visible = rules.sandbox is None or rules.sandbox.shows(before.cwd)
        if before.cwd and is_visible and not request.cwd_named and _can_enter(before.cwd):
            request = request.model_copy(update={"cwd": before.cwd})
        elif rules.branch is not None and not request.cwd_named:
            from ...branch.branch import first_directory

            request = request.model_copy(update={"cwd": first_directory(rules.branch, request.cwd)})
        if not request.cwd:
            raise InvalidRequest(
                "the directory that this runs in was removed: change to another one, or name one with cwd= or --cwd"
            )
        env = request.env
        if request.inherited and rules.sandbox is not None:
            env = rules.sandbox.environment(env)
        if request.inherited and request.agent_env:
            env = for_agent(env)
        given = {**dict(request), "env": env, **rules._asdict()}
        given["limits"] = None if request.limits is None else request.limits.made()
        given["stdin"] = None if request.stdin is None else TTY
        if rules.branch is not None and request.branch_dir is None:
            given["branch_dir"] = self._branch_dir(request.agent)
        options = Options.of(given)
        session = self._agents.take(request.agent, options.rules, lambda _: AsyncSession.of(options))
        self._set_idle_ttl(session, request)
        session.engine.inherit(*self._released.pop(request.agent, ([], 0)))
        secrets = () if rules.policy is None else rules.policy.secrets
        known = Secrets({**request.env, **(request.extra_env or {})}, named=secrets, redact=rules.redact)
        shared = self._add(request.agent, session, known, before.rules)
        if before.cwd:
            was = "" if before.cwd == request.cwd else f", and the last one was in {before.cwd}"
            shared.comes_back = self._bring_back(shared, request.cwd)
            shared.lost = f"{_loss(before, bool(shared.comes_back))}; it starts in {request.cwd}{was}"
            shared.is_elsewhere = bool(was) and not request.cwd_named
            shared.is_continued = bool(shared.comes_back) and before.is_current
        return True

    def _add(self, agent: str, session: AsyncSession, secrets: Secrets, rules: str) -> SharedSession:
        """Share a new session of the agent. ``rules``: of the agent, for its record."""
        audience = self._audiences.pop(agent, None) or Audience(agent, self.board)
        self._opened += 1
        receipts = self._receipts, self._syncs
        shared = SharedSession(agent, self._opened, session, secrets, self._journal, self._store, receipts, audience)
        shared.rules, shared.approvals = rules, self.approvals
        if session.engine.branch is not None:
            shared.last_session, self._last[agent] = self._last.get(agent), session
        self._shared[agent] = shared
        self.board.opened(agent)
        return shared

    def fork(
        self, parent: SharedSession, agent: str, attempt: bool, snapshot: Snapshot, branch: Branch | None
    ) -> SharedSession:
        """Open a session for an unknown agent, with the state, the options and the rules of another one.

        ``attempt``: record nothing of this session, and ask a person in the name of the other agent. ``branch``: the
        fork of the other one's branch.

        Raises AlreadyOpen and TooManySessions.
        """
        if agent == parent.agent:
            raise InvalidRequest(f"a fork needs another name than that of its session, {agent!r}")
        known = self.find(agent) or self._store.get(agent)
        if known or self._agents.registry.rules(agent) != Rules():
            raise AlreadyOpen(
                f"agent {agent!r} cannot be the fork of {parent.agent!r}: it has a session, or a record;"
                f" `shellsession kill {agent}` forgets it, or use another name"
            )
        options = parent.engine.options.__replace__(snapshot=snapshot)
        kept = Rules() if attempt else options.rules  # when it is closed
        session = self._agents.take(agent, kept, lambda _: AsyncSession.of(options))
        session.engine.start_with(parent.engine.environment(), branch)
        session.idle_ttl = parent.session.idle_ttl
        rules = "" if attempt else parent.rules
        if rules:
            self._store.put(agent, StoredAgent(rules=rules))
        shared = self._add(agent, session, parent.secrets, rules)
        if attempt:
            shared.asks_as, shared.is_forgotten = parent.asks_as, True
            parent.asks_as.attempts.add(shared)
        return shared

    def keep_branch(self, shared: SharedSession) -> None:
        """Let a later session of an agent find its branch, if that is a fork. Raises BranchUnavailable."""
        if (branch := shared.engine.branch) is not None:
            branch.keep(self._branch_dir(shared.agent))

    def _branch_dir(self, agent: str) -> str:
        from ...branch.branch import directory_of

        return directory_of(f"{self._store.path}\0{agent}")

    def _forget_fork(self, agent: str) -> None:
        from ...branch.branch import forget_fork

        forget_fork(self._branch_dir(agent))

    def _left_of(self, agent: str) -> str:
        """What the agent's last session has left on its branch, in words; "" if nothing."""
        from ...branch.branch import base_of

        if self.find(agent) is not None or not (base := base_of(self._branch_dir(agent))):
            return ""
        again = shlex.join(["shellsession", "run", "-s", agent, "--branch", base, "true"])
        return f"; what it wrote on its branch is kept, and `{again}` opens it again"

    def discard(self, agent: str) -> bool:
        """Remove the layers that an agent without a session has left. False if there are none. Raises ApplyFailed."""
        from ...branch.branch import remove_left

        return self.find(agent) is None and remove_left(self._branch_dir(agent))

    def _bring_back(self, shared: SharedSession, cwd: str) -> str:
        """Let a new session start with the state of the last one, if that was kept. Returns what to say; or ""."""
        engine = shared.engine
        if not isinstance(engine, Recovering) or (data := self._store.snapshot(shared.agent)) is None:
            return ""
        try:
            snapshot = Snapshot.from_bytes(data)
            check_snapshot(snapshot, engine.options)
        except ShellSessionError as error:
            LOG.warning("the state of agent %r cannot be brought back: %s", shared.agent, error)
            return ""
        engine.kept = shared.stored = snapshot.moved(cwd)
        return f"its variables and functions come back as they were {ago(time.time() - snapshot.at)}"

    def _set_idle_ttl(self, session: AsyncSession, request: requests.Open) -> None:
        if "idle_ttl" in request.model_fields_set:
            check_seconds("idle_ttl", request.idle_ttl)
            session.idle_ttl = request.idle_ttl
            self._agents.check_anew()

    def forget(self, agent: str, number: int | None = None) -> bool:
        """Forget the record, the sandbox, the policy and the redaction of an agent that is closed.

        True if that was all that there was of it: its session had ended, or could not be opened. With the number of a
        session, nothing is forgotten unless that was the agent's last one, and has ended.
        """
        if number is not None and (self.find(agent) is not None or self._ended.get(agent) != number):
            return False
        self._ended.pop(agent, None)
        if (before := self._store.get(agent)) is not None and before.rules and self.find(agent) is None:
            self._forget_fork(agent)
        had_record = self._store.forget(agent) | self._receipts.forget(agent) | self._store.forget_checkpoint(agent)
        return (self._agents.registry.forget_rules(agent) or had_record) and self.find(agent) is None

    def begin_to_close(self, shared: SharedSession) -> None:
        """Forget the agent of a session that is about to be closed: another one may be opened while it ends."""
        shared.is_forgotten = True
        if shared.engine.branch is not None:
            shared.engine.branch.forget()
        self.forget(shared.agent)
        self.approvals.end_session(shared.agent)

    def forget_ended(self, agent: str | None) -> int:
        """Forget one agent, or every agent, that has no session. Returns how many. Raises InvalidRequest."""
        if agent is None:
            known = {*self._store.agents(), *self._receipts.agents, *self._store.checkpoints(), *self.approvals.agents}
            return sum(self.find(one) is None and self._forget_ended(one) for one in known)
        if self.find(agent) is not None:
            raise InvalidRequest(
                f"agent {agent!r} has a session: close it (`shellsession kill`), which forgets it, too"
            )
        return int(self._forget_ended(agent))

    def _forget_ended(self, agent: str) -> bool:
        return self.approvals.forget(agent) | self.forget(agent)

    def stored_ages(self) -> dict[str, float]:
        """How many seconds ago each agent that has a stored state, but no session, was last used."""
        return {agent: age for agent, age in self._store.snapshot_ages().items() if self.find(agent) is None}

    def dismiss(self, shared: SharedSession) -> None:
        """Remove a closed session: refuse the requests that are queued for it, and notify the watchers."""
        shared.note_shell_end()
        shared.hold.end()
        shared.asks_as.attempts.discard(shared)
        if self._shared.get(shared.agent) is shared:
            self.approvals.end_session(shared.agent)
        self._agents.registry.forget(shared.agent, shared.session)
        record = None if shared.is_forgotten else self._store.get(shared.agent)
        if record is not None and record.cwd and shared.engine.expired:
            self._store.put(shared.agent, record._replace(expired=True))
        if record is not None or self._agents.registry.rules(shared.agent) != Rules():
            self._ended[shared.agent] = shared.number
            if len(self._ended) > _ENDED_MAX:
                del self._ended[next(iter(self._ended))]
        if self._shared.get(shared.agent) is shared:
            del self._shared[shared.agent]
            if shared.last_session is not None:  # no request has got past it: it may use the branch, and this one not
                self._last[shared.agent] = shared.last_session
            if released := [job for job in shared.engine.jobs if job.released and job.running]:
                self._released[shared.agent] = released, shared.engine.jobs_made
            shared.audience.show("closed", {})
            self.board.closed(shared.agent)
            self._audiences[shared.agent] = shared.audience
            self._audiences = {agent: audience for agent, audience in self._audiences.items() if audience}
        shared.is_forgotten = True  # a state that is still being encoded is not that of the agent's next session

    async def cancel_handed_back(self, request: str) -> Delivery | None:
        """End the command that was handed back to that request, whose client has given up. None if there is none."""
        for shared in self:
            if (delivery := shared.owned_by(request)) is not None:
                # ``attending``, as for any verb: a command that comes meanwhile begins once the ending is settled.
                with shared.attending() as ending, suppress(ShellSessionError):  # raised if it has ended by itself
                    result = await shared.session.interrupt()
                    ending.set_result(result)
                    shared.next_result(delivery, result)
                    return shared.settle_cancelled(delivery, result)
        return None


def _nothing() -> Steps[None]:
    yield from ()


def _can_enter(directory: str) -> bool:
    return os.path.isdir(directory) and os.access(directory, os.X_OK)


def _no_session(agent: str) -> str:
    return f"agent {agent!r} has no session here: it was closed, was idle for too long, or never opened"


def _loss(record: StoredAgent, is_kept: bool) -> str:
    """What is lost of an agent's last session, in words. ``is_kept``: a state of its shell comes back, or can."""
    lost = WAS_IDLE if record.expired else _ENDED_WITH_DAEMON
    if not (is_kept and record.is_current):
        lost += _STATE_IS_OLDER if is_kept else STATE_IS_LOST
    elif not record.expired:  # a session with jobs is not idle
        lost += _JOBS_ENDED
    if record.running:
        lost += f"; {record.running[:_SHOWN]!r} was running then: check what it has done"
    return lost


def _is_in(request: requests.Open, cwd: str | None) -> bool:
    """Is the request's directory this one? Asks the system only if the client wants to know."""
    return "cwd" not in request.exact or os.path.realpath(request.cwd) == os.path.realpath(cwd or "")


def _check_same(request: requests.Open, options: Options) -> None:
    """Raise AlreadyOpen unless a session with these options is what the request names."""
    lacking = options.rules.lacks(request.made())
    limits, variables = request.limits, (options.extra_env or {}).items()
    branch = "no branch" if options.branch is None else f"a branch of {options.branch}"
    for name, differs, how in (
        ("sandbox", "sandbox" in lacking, "which is not confined by this sandbox"),
        ("policy", "policy" in lacking, "which does not have this policy"),
        ("redact", "redact" in lacking, "which does not redact these secrets"),
        ("branch", "branch" in lacking, f"which has {branch}"),
        ("cwd", not _is_in(request, options.cwd), f"which was opened in {options.cwd}"),
        ("env", not request.inherited and request.env != options.env, "which was opened with another environment"),
        ("extra_env", not (request.extra_env or {}).items() <= variables, "which was opened without these variables"),
        ("startup", commands_of("startup", request.startup) != options.startup, "which began with other commands"),
        ("limits", limits is not None and limits.made() != options.limits, "which has other limits of output"),
        ("branch_dir", request.branch_dir != options.branch_dir, f"which has its branch in {options.branch_dir}"),
        ("auto_checkpoints", "auto_checkpoints" in lacking, "which keeps fewer checkpoints"),
        ("recover", request.recover and not options.recover, "which was opened without recover=True"),
    ):
        if differs and (name in Rules._fields or name in request.exact):
            raise AlreadyOpen(
                f"agent {request.agent!r} already has a session, {how}: leave these options out to use it as it is,"
                " close it first, or use another agent"
            )


class SharedSession:
    """One agent's session, with its queue, its watchers, its holder and the results that are still to be delivered."""

    def __init__(
        self,
        agent: str,
        number: int,
        session: AsyncSession,
        secrets: Secrets,
        journal: Journal,
        store: Store,
        receipts: tuple[Receipts, Syncs],
        audience: Audience,
    ) -> None:
        self.agent, self.number, self.session, self.audience = agent, number, session, audience
        self.engine = session.engine  # the whole daemon takes it from here
        self.fanout = Fanout(self.engine, audience)
        self.engine.taps.append(self.fanout)
        self.secrets, self._journal, self._store = secrets, journal, store
        self._command_of_person: bytes | None = None  # the last command, if a person typed it
        self._unfinished: Unfinished | None = None
        self._attending: list[asyncio.Future[Result]] = []  # one for each verb in the session, the oldest first
        self.hold = Reservation(session, self.engine)
        self.deliveries = Deliveries()
        self.opened = False  # True once bash has started
        self.last_session: AsyncSession | None = None  # of its agent, while that may still use the branch of this one
        self.rules = ""  # of the agent, for its record
        self.is_forgotten = False  # nothing of it is recorded: it is being closed, or is an attempt
        self.lost = ""  # what is lost of the agent's last session, until somebody was told
        self.comes_back = ""  # ... and what comes back with its first command
        self.is_elsewhere = False  # it starts in a directory that is not the last one, and that nobody has named
        self.is_continued = False  # what comes back is the state after the last command
        self._unread: Result | None = None  # how the last command ended, if its client left before that
        self.owner: Connection | None = None  # of the client that last got a result
        self.engine.adapt(tells_unread=False, on_rollback=partial(receipts[0].forget_after, agent))
        self.users = 0  # verbs in the session or queued for it: while there are any, a failed start does not remove it
        self.turn = asyncio.Lock()  # for commands: the oldest request gets it first
        self._checks: set[asyncio.Task[None]] = set()  # at most one, see ``_notice_end``
        self._keeping: asyncio.Task[None] | None = None  # it will write the state to the store
        self.stored: Snapshot | None = None  # what the store has
        self._keep_cost = 0.0  # seconds of processor time, of the last time
        self.printed: Result | None = None  # by a command with a receipt that was handed back
        # The last request with a receipt, how many commands bash had got before, and its key.
        self._with_receipt = "", 0, ""
        self._read_by_key = ""  # the last request whose result a client has read by its key
        self.receipts, self._syncs = receipts
        self.approvals: Approvals  # of the daemon
        self.asks_as: SharedSession = self  # it asks a person in the name of this one; an attempt: of its parent
        self.attempts = set[SharedSession]()  # of its agent
        session.is_needed = self._is_needed
        policy = self.engine.options.policy
        self.has_queue = policy is not None and policy.confirm == "queue"  # its questions wait in the daemon
        session._on_change(self.check_end)

    def _is_needed(self) -> bool:
        """Is it needed: by a person who is attached or asked, an unused answer, an attempt, or a queued request?"""
        has_attempts = any(not one.session.closed for one in self.attempts)
        waits = self.last_session is not None and self.users > 0
        return self.session.attached or has_attempts or waits or self.approvals.has_asked(self.agent)

    @property
    def is_attempt(self) -> bool:
        """Is it a fork for one command, which somebody tries?"""
        return self.asks_as is not self

    async def until_branch_is_free(self, listener: Listener) -> None:
        """Wait until the agent's last session no longer uses the branch of this one."""
        if (last := self.last_session) is not None:
            listener.wait_for(_BRANCH_IN_USE)
            await last.do(_nothing())
            listener.proceed()
            self.engine.touch()  # else it could be closed as idle before the request begins
            self.last_session = None

    # -- queued requests

    def notify_queued(self, listener: Listener) -> None:
        """If the request is still queued, tell its client which command runs, and for how long."""
        if listener.waits_for:
            call = self.engine.current
            seconds = None if call is None else time.monotonic() - call.started
            event = {"id": listener.request, "event": "waits", "held": self.session.attached, "seconds": seconds}
            listener.connection.send(encode(event, self.command[:_SHOWN].encode("utf-8", "replace")))

    def announce(self, question: Question, listener: Listener) -> None:
        """Tell the asker, and those who watch the agent, that a person is asked."""
        asked = described(question)
        listener.connection.send(encode({"id": listener.request, "event": "asks", "question": asked}))
        self.asks_as.audience.show("asks", {"question": asked})

    # -- watchers

    def watch(self, connection: Connection) -> tuple[str, bool]:
        """Add a watcher. Returns the running command, and whether a person typed it."""
        self.audience.join(connection)
        return self.command, self._running[1]

    @property
    def output_tail(self) -> bytes:
        """The end of the running command's output, from the start of a line."""
        if (call := self.engine.current) is None:
            return b""
        printed = bytes(call.unseen) if call.terminal else call.stdout.peek()[0]
        tail = printed[-_TAIL:]
        return tail if len(printed) <= _TAIL else tail.partition(b"\n")[2] or tail

    @property
    def last_line(self) -> str:
        """The last line of the last command's output that is not blank, without secrets; "" if there is none.

        A line whose beginning is no longer kept is left out: half a secret in it would not be found.
        """
        printed = self.fanout.printed.replace(b"\r", b"\n")
        text = text_of(printed if len(printed) < _TAIL else printed.partition(b"\n")[2])
        secrets = self.session.secrets
        lines = (text if secrets is None else secrets.mask(text)).split("\n")
        return next((line for line in map(str.strip, reversed(lines)) if line), "")

    # -- commands and their ends

    def note_author(self, command: bytes, by_person: bool) -> None:
        """Note the author of a command that is about to run."""
        if not self.deliveries.last.runs_on:  # else this command is refused, and the earlier one still runs
            self._command_of_person = command if by_person else None

    def _with_author(self, command: bytes) -> tuple[bytes, bool]:
        """The command, and whether a person typed it."""
        return command, command == self._command_of_person

    @property
    def _running(self) -> tuple[bytes, bool]:
        call = self.engine.current
        return (b"", False) if call is None else self._with_author(call.request.command)

    @property
    def running_command(self) -> bytes | None:
        """The running command; None while none runs."""
        call = self.engine.current
        return None if call is None else call.request.command

    @property
    def command(self) -> str:
        """The text of the running command; "" while none runs."""
        return self._running[0].decode("utf-8", "replace")

    @contextmanager
    def attending(self) -> Iterator[asyncio.Future[Result]]:
        """Mark that a verb is in the session. Other clients get the end of the command there from this future.

        A command begins only when no verb is in the session: its result could be taken for that of the one before.
        """
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._attending.append(result)
        try:
            yield result
        finally:
            self._attending.remove(result)
            result.cancel()  # does nothing once it is set

    @property
    def is_taken(self) -> bool:
        """Does a command or a person use the session, so that the next command has to wait?"""
        return self.session.attached or self.turn.locked() or bool(self._in_session)

    @property
    def _in_session(self) -> list[asyncio.Future[Any]]:
        """Everything that is in the session: the verbs, the oldest first, then the check of ``_notice_end``."""
        return [*self._attending, *self._checks]

    async def until_unattended(self, until: float | None = None) -> bool:
        """Wait until nothing is in the session, or until that moment. True if nothing is."""
        while in_session := self._in_session:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return False
            await asyncio.wait(in_session[:1], timeout=left)
        return True

    async def share_end(self, until: float | None, listener: Listener, command: str | None) -> Result | None:
        """The end of a command that another client already waits for, or its state at the moment ``until``.

        ``command`` names the command, if the client knows it. Returns None if no client is in the session: then the
        caller waits there itself. Two clients cannot do that, as the second would depend on the first.
        """
        while True:
            if (end := self.deliveries.take(command, listener.missed_by)) is not None:
                return end
            if not self._attending:
                return None
            ending = self._attending[0]
            if not await self.until_answered(until, listener):
                return self.engine.running_elsewhere()
            if ending.cancelled() or ending.result().runs_on:  # that verb has returned, but the command has not ended
                continue
            if listener.missed_by:  # this client has gone: what is kept is for one that is still here
                return ending.result()
            # If the client that waited first has gone, the end is kept, with what that client has missed.
            return self.deliveries.take(None) or ending.result()

    @property
    def is_attended(self) -> bool:
        """Is a verb in the session?"""
        return bool(self._attending)

    async def until_answered(self, until: float | None, listener: Listener) -> bool:
        """Wait until the verb that is in the session has its result. False if the time is up, or this client left."""
        left = None if until is None else max(0.0, until - time.monotonic())
        ending = self._attending[0]
        either: set[asyncio.Future[Any]] = {ending, listener.abandoned}
        await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        return ending.done()

    async def until_handed_back(self, until: float | None) -> None:
        """Wait until the command that another client runs is handed back: input is for that one, and no later one.

        Raises SessionBusy if it is not handed back in time, and NotRunning if it has ended.
        """
        if self._attending and self.engine.handed_back is None:
            ending = self._attending[0]
            await asyncio.wait([ending], timeout=None if until is None else max(0.0, until - time.monotonic()))
            if not ending.done():
                raise SessionBusy(NOT_YOURS)
            if ending.cancelled() or not ending.result().runs_on:
                raise NotRunning(ENDED)

    async def type(self, data: bytes, until: float | None) -> None:
        """Type into the terminal of the handed-back command, also while another client waits for that command."""
        engine = self.engine
        while engine.attended is not None and engine.attended is engine.handed_back:
            drive(engine.type(b""))  # raises if the command has no terminal, and has the shell check that soon
            data = engine.put(engine.attended, data)
            engine.live().wake()
            if not data or (until is not None and time.monotonic() >= until):
                return
            await asyncio.sleep(FULL_PAUSE)
        await self.session.do(engine.type(data, until))

    def begin(
        self,
        command: bytes,
        request: str,
        client: int,
        viewer: Connection | None,
        key: str = "",
        approval: Mapping[str, Any] | None = None,
    ) -> Delivery | None:
        """Prepare to run a command of that client. ``viewer``: the connection of the person who typed it.
        ``approval``: who has said yes, for the audit log.

        None: an earlier command still runs, so this one is refused, and the other one stays the last.
        """
        if self.engine.handed_back is not None:
            return None
        self.fanout.announce(*self._with_author(command), viewer)
        last = self.deliveries.last
        # A client that is still there may ask later. A lost shell is reported by itself.
        has_left = self.owner is None or self.owner.is_gone
        if has_left and last.is_due and last.loss is None and last.name != self._read_by_key:
            self._unread = last.result
        self._journal.begin(
            self.agent,
            Begun(command, self.secrets, time.time(), client, self._running_id, self._note_running, key, approval),
        )
        return self.deliveries.begin(request)

    def not_begun(self) -> None:
        """Note that the command that was prepared does not run."""
        self._journal.end(self.agent)
        request, begun, _ = self._with_receipt
        if self.receipts.runs(request):
            (self.receipts.drop if self.engine.begun == begun else self.receipts.lose)(request)

    async def write_receipt(self, key: str, digest: bytes, request: str) -> None:
        """Write the receipt of a command that is about to be sent to bash, and wait until the disk has it.

        Raises ReceiptUnavailable, and ShellUnavailable if there is no bash to send it to.
        """
        await self.session.open()  # a rollback goes back to this moment, so the receipt must be of a later one
        self.receipts.send(self.agent, key, digest, request, self.session.pid or 0, time.time())
        self._with_receipt, self.printed = (request, self.engine.begun, key), None
        try:
            await self._syncs.synced()
        except OSError as error:
            raise ReceiptUnavailable(unavailable(error)) from error
        asyncio.get_running_loop().call_later(_PROGRESS, self._note_progress, request, b"")

    def _note_progress(self, request: str, before: bytes) -> None:
        """Note the end of what a command has printed, again and again until it ends or is handed back."""
        if not self.receipts.runs(request) or self.engine.handed_back is not None:
            return
        call, tail = self.engine.current, self.output_tail
        if call is not None and tail != before:
            so_far = self.engine.running_elsewhere()
            omitted = max(0, call.stdout.total - len(tail))
            self._note(request, so_far.__replace__(stdout_bytes=tail, stdout_omitted=omitted))
        asyncio.get_running_loop().call_later(_PROGRESS, self._note_progress, request, tail)

    def _note_in_receipt(self, delivery: Delivery, result: Result) -> None:
        """Note a result of a command in its receipt, if it has one, after what was printed before, without secrets."""
        if self.receipts.runs(delivery.name):
            # At the ends of a piece that is cut off here, a part of a secret may be left. So more is cut off later.
            so_far = bounded(joined(self.printed, result) if self.printed else result, 2 * OUTPUT)
            self.printed = so_far if so_far.still_running else None
            self._note(delivery.name, so_far)

    def _note(self, request: str, result: Result) -> None:
        masked, mask = self.secrets.mask_result(result), self.secrets.mask
        # Of the end of its own shell it is no news.
        recovered = "" if result.state_kept else masked.recovered
        changes = {"reason": mask(result.reason), "cwd": mask(result.cwd), "recovered": recovered}
        self.receipts.note(request, masked.__replace__(command="", **changes))

    def note_read(self, key: str) -> None:
        """Note that a client has read the result of the command with that key."""
        if key == self._with_receipt[2]:
            self._read_by_key = self._with_receipt[0]

    def with_news(self, result: Result) -> Result:
        """The result of a command. Its reason says, once, what the agent does not know yet of what was before."""
        unread, self._unread = self._unread, None
        if not (self.lost or unread):
            return result
        lost, self.lost = self.lost, ""
        return with_reason(result, lost, "" if unread is None else unread_ending(unread))

    async def check_lost(self) -> None:
        """Raise StateLost, once, if the agent's last session has ended and this one does not continue with its state.

        It does not if its directory is another one, if the state is older than the last command, or if bash cannot
        have it.
        """
        if not self.lost:
            return
        why = ""
        if self.is_continued and not self.is_elsewhere:
            with self.attending():
                await self.session.open()
            if isinstance(self.engine, Recovering) and self.engine.kept is not None:
                return
            self.is_continued, why = False, _NOT_BROUGHT_BACK
        elif self.comes_back:
            why = f"; {self.comes_back}"
        lost, self.lost = self.lost, ""
        raise StateLost(f"{lost}{why}; nothing was run: check the directory, and call again")

    def forget_record(self) -> None:
        """Forget the agent's directory and state: somebody has asked for a fresh shell. Its rules stay."""
        self.lost, self.stored, self.is_continued = "", None, False
        self._store.forget(self.agent)
        if self.rules:
            self._store.put(self.agent, StoredAgent(rules=self.rules))

    def _running_id(self) -> str:
        call = self.engine.current
        return "" if call is None else call.id

    def _note_running(self, text: str) -> None:
        self._record(self.session.cwd, text)

    def _record(self, cwd: str, running: str = "") -> None:
        if not self.is_forgotten:
            self._store.put(self.agent, StoredAgent(cwd, running, rules=self.rules, is_current=self._is_current))

    @property
    def state_age(self) -> float | None:
        """How many seconds ago the state was taken that the store has; None if it has none."""
        return None if self.stored is None else time.time() - self.stored.at

    @property
    def _is_current(self) -> bool:
        """Whether the store has the state after the last command. The first command after that is recorded at once."""
        engine = self.engine
        return isinstance(engine, Recovering) and engine.is_kept and engine.kept is self.stored

    def first_result(self, delivery: Delivery, command: bytes, result: Result, known: Result) -> None:
        """Note the first result of a command: its end, or the part until it was handed back.

        ``known``: the same without the news, which its receipt must not tell again.
        """
        if result.runs_on and (call := self.engine.handed_back) is not None:
            delivery.hand_back()
            self._unfinished = Unfinished(command, call, without_output(result))
        else:
            self._log_end(command, result)
        self._note_in_receipt(delivery, known)

    def next_result(self, delivery: Delivery, result: Result) -> None:
        """Note a later result of a command. Does nothing if another verb has noted its end already."""
        if (unfinished := self._unfinished) is None or not delivery.runs_on:
            return
        so_far = together(unfinished.before, result)
        self._note_in_receipt(delivery, result)
        if result.runs_on:
            self._unfinished = unfinished._replace(before=without_output(so_far))
        else:
            self._unfinished = None
            delivery.end(result)
            self.deliveries.keep(delivery)
            self._log_end(unfinished.command, so_far)

    def settle_cancelled(self, delivery: Delivery, result: Result) -> Delivery:
        """Note the ending of a command that its client has cancelled: it is for that client alone.

        If this ended the shell, the next command reports that, unless the client has read the ending by then.
        """
        delivery.end(result)
        delivery.withdraw()
        delivery.abandon()
        self.engine.note_loss(delivery)
        return delivery

    def check_end(self) -> None:
        """Look whether the command that was handed back has ended, or waits for input, unless a verb waits for it.

        This is called at each change of the session, and now and then while somebody reads its notices.
        """
        if self.engine.handed_back is not None and not self._in_session:
            self._checks.add(check := asyncio.create_task(self._notice_end()))
            check.add_done_callback(self._checks.discard)

    async def _notice_end(self) -> None:
        """Notice that a handed-back command has ended, so that the session is free although no client waits for it."""
        with suppress(ShellSessionError):
            if self.engine.handed_back is not None:
                await self.session.do(self.engine.look())
            if (result := self.engine.due) is not None:
                self.next_result(self.deliveries.last, result)

    def _log_end(self, command: bytes, result: Result) -> None:
        self.audience.show("result", end_of(result))
        before = self._store.get(self.agent) or StoredAgent()
        # As the session is closed, bash was where it is known to have been. Otherwise a fresh one starts there.
        self._record(before.cwd or result.cwd if self.engine.closed and not result.state_kept else result.cwd)
        self._plan_to_keep()
        self._journal.note(self.agent, command, self.secrets, without_output(result), *self._journal.end(self.agent))

    def note_restored(self) -> None:
        """Note that the shell has the state that a client has restored."""
        self._record(self.session.cwd)
        self._plan_to_keep()

    def _plan_to_keep(self) -> None:
        if self.engine.options.recover and self._keeping is None:
            self._keeping = asyncio.create_task(self._keep_soon())

    async def _keep_soon(self) -> None:
        await asyncio.sleep(max(_KEEP_AFTER, min(_KEEP_BACK_OFF * self._keep_cost, _KEEP_LATEST)))
        self._keeping, begun = None, time.thread_time()
        await self.keep_state()
        self._keep_cost = time.thread_time() - begun

    async def keep_state(self) -> None:
        """Write the state of an idle shell to the store, for the next session of the agent."""
        engine = self.engine
        if isinstance(engine, Recovering) and not self.is_forgotten:
            with suppress(ShellSessionError):
                if self.session.state == "idle" and not self.session.is_in_use():
                    await self.session.do(engine.keep())
            kept = engine.kept
            if kept is None or kept is self.stored or self.is_forgotten:
                return
            # In a thread: a state of 10 MB takes half a second, and other agents would wait.
            data = await asyncio.to_thread(_packed, kept)
            if not data:
                LOG.warning("the state of agent %r is too large to be stored", self.agent)
            # Not after a restart meanwhile. What was not written is written after the next command.
            if engine.kept is kept and not self.is_forgotten and self._store.put_snapshot(self.agent, data):
                self.stored = kept
                if (record := self._store.get(self.agent)) is not None:
                    self._store.put(self.agent, record._replace(is_current=self._is_current))

    def checkpoint(self) -> tuple[bytes, bytes]:
        """What a client keeps for the agent, and the state with it; empty if there is none."""
        return self._store.checkpoint(self.agent)

    async def put_checkpoint(self, data: bytes, snapshot: Snapshot | None) -> None:
        """Keep a client's bytes and, if it is given, a state. Raises InvalidRequest and ShellSessionError."""
        if len(data) > _CHECKPOINT_MAX:
            raise InvalidRequest(f"a checkpoint must have at most {_CHECKPOINT_MAX} bytes, not {len(data)}")
        state = None
        if snapshot is not None and not (state := await asyncio.to_thread(_packed, snapshot)):
            raise InvalidRequest("the state of the shell is too large to be kept")
        if not self.is_forgotten:
            try:
                self._store.put_checkpoint(self.agent, data, state)
            except OSError as error:
                raise ShellSessionError(f"the checkpoint could not be written: {error}") from error

    def log_refusal(
        self, command: bytes, error: PolicyRefused, client: int, approval: Mapping[str, Any] | None = None
    ) -> None:
        """Note in the audit log that the session's policy, or a person, has refused a command."""
        self._journal.note(self.agent, command, self.secrets, str(error), client, approval=approval)

    def unread(self, command: str) -> bytes:
        """The input that was typed for that command, and that it had not read when it ended."""
        return self.engine.unread_input if command == self.deliveries.last.name != "" else b""

    def owned_by(self, request: str) -> Delivery | None:
        """The running command, if it was handed back to that request last and no request waits for it."""
        last = self.deliveries.last
        return last if last.runs_on and last.owner == request and not self._attending else None

    async def drain(self, seconds: float) -> None:
        """Wait so long for the handed-back command, if there is one."""
        if (delivery := self.deliveries.last).runs_on and seconds > 0:
            with suppress(ShellSessionError):
                self.next_result(delivery, await self.session.wait(seconds))

    def note_shell_end(self, why: str = CLOSED) -> None:
        """Note that the session's shell has ended, and the handed-back command with it."""
        if (unfinished := self._unfinished) is not None:
            call = unfinished.call  # it has no result if the shell was given up in the middle of a verb
            end = call.delivery.result
            ending = Ending("shell_exited", None, unfinished.before.cwd, why, state_kept=False)
            end = end or conclude(call, ending)
            self.next_result(self.deliveries.last, end)
        self.deliveries.release()


def _packed(snapshot: Snapshot) -> bytes:
    return packed(snapshot.for_file().to_bytes())


class Unfinished(NamedTuple):
    """A command that was handed back and still runs. ``before``: the sum of its results so far, without output."""

    command: bytes
    call: Call
    before: Result


class Reservation:
    """The exclusive use of one session by one client."""

    def __init__(self, session: AsyncSession, engine: Engine) -> None:
        self._session, self._engine = session, engine
        self._holder: str | None = None
        self._connection: Connection | None = None  # the holder's: the hold ends with it
        self._refuses = False
        self._size_before: tuple[int, int] | None = None  # of the terminal, until its holder changed it
        self._freed = asyncio.Event()

    async def enter(self, request: requests.OfAgent, listener: Listener) -> None:
        """Wait until no other client holds the session. Raises SessionBusy and SessionClosed.

        A request to hold the session always waits; it is never refused. A request about a command means the one that
        ran when the request came: if that has ended meanwhile, this raises NotRunning, whatever runs then.
        """
        listener.wait_for(HELD)
        meant = self._engine.current
        while self._holder not in (None, request.holder):
            if self._refuses and not isinstance(request, requests.Hold):
                raise SessionBusy(HELD)
            await self._freed.wait()
        if self._engine.closed:
            raise SessionClosed(CLOSED)
        if isinstance(request, requests.OfCommand) and self._engine.current is not meant:
            raise NotRunning(ENDED)
        listener.proceed()

    def take(self, holder: str, refuse: bool, connection: Connection) -> None:
        """Give one client exclusive use, until that connection ends."""
        self._holder, self._refuses, self._connection = holder, refuse, connection
        self._session.attached = True
        self._freed.clear()
        connection.on_close(lambda: self._free(connection))

    def resize(self, holder: str | None, columns: int, rows: int) -> None:
        """Resize the terminal. The size that a holder sets ends with the hold; a former holder changes nothing."""
        if holder not in (None, self._holder):
            return
        before = self._session.size
        self._session.resize(columns, rows)
        self._size_before = None if holder is None else self._size_before or before

    def _free(self, connection: Connection) -> None:
        if self._connection is connection:
            self.end()

    def end(self) -> None:
        """End the hold, also because the session has ended; the requests that wait continue."""
        self._holder = self._connection = None
        self._session.attached = False
        size, self._size_before = self._size_before, None
        if size is not None and not self._session.closed:
            self._session.resize(*size)
        self._freed.set()


class Fanout(Tap):
    """Sends the output of each command, as it comes, to the request that waits for it and to the watchers.

    It pauses the command while a client that must get every byte is slow.
    """

    def __init__(self, engine: Engine, audience: Audience) -> None:
        self._engine, self._audience, self._board = engine, audience, audience.board
        self._announced = b""
        self._viewer: Connection | None = None
        self._held_back: asyncio.Task[None] | None = None
        self.listener: Listener | None = None
        self.printed = b""  # the end of the last command's output, of both streams

    def announce(self, command: bytes, person: bool, viewer: Connection | None) -> None:
        """Show the watchers a command that is about to run.

        ``viewer``: the connection of the person who typed it, which must miss nothing.
        """
        self._announced, self._viewer = command, viewer
        self._audience.show("command", {"person": person}, command)

    def begin(self, id: str, request: Request) -> None:
        if request.command is not self._announced:  # it was to be refused, but the earlier command has ended meanwhile
            self.announce(request.command, False, None)
        self.printed = b""
        if self._board.is_watched:
            self._board.began(self._audience.agent, request.command)

    def end(self, command: bytes, result: Result) -> None:
        self._announced, self._viewer = b"", None
        if self._board.is_watched:
            self._board.ended(self._audience.agent, result)

    def output(self, id: str, stream: Stream, data: bytes) -> None:
        self.printed = data[-_TAIL:] if len(data) >= _TAIL else (self.printed + data)[-_TAIL:]
        if self._board.is_watched:
            self._board.output(self._audience.agent, stream, data)
        self._audience.show("output", {"stream": stream}, data)
        if self.listener is not None and not self.listener.send_output(stream, data):
            self._hold_back(self.listener.until_taken)
        elif self._viewer is not None and self._viewer.congested:
            self._hold_back(self._viewer.drain)

    def _hold_back(self, until_taken: Callable[[], Awaitable[None]]) -> None:
        """Stop reading the command's output until its client has caught up.

        Neither the command's end nor the next request waits for that.
        """
        call = self._engine.last
        if call is not None and (self._held_back is None or self._held_back.done()):
            call.pause()
            self._held_back = asyncio.create_task(self._read_on(until_taken, call))

    async def _read_on(self, until_taken: Callable[[], Awaitable[None]], call: Call) -> None:
        await until_taken()
        self._engine.go_on(call)


class Audience:
    """The clients that watch one agent. They stay when the agent gets another session."""

    def __init__(self, agent: str, board: Board) -> None:
        self.agent, self.board = agent, board
        self._watchers: set[Connection] = set()

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def join(self, connection: Connection) -> None:
        """Add a watcher, until its connection ends."""
        if connection not in self._watchers:
            self._watchers.add(connection)
            connection.on_close(lambda: self._watchers.discard(connection))

    def show(self, event: str, fields: dict[str, object], *parts: bytes) -> None:
        """Send an event to every watcher."""
        if self._watchers:
            data = encode({"event": event, "agent": self.agent, **fields}, *parts)
            droppable = len(parts[0]) if event == "output" else 0
            for watcher in tuple(self._watchers):
                watcher.offer(data, droppable)
