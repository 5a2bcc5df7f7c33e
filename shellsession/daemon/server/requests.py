"""The requests of the daemon: the fields of each verb, and their validation.

Requests come from other processes, so every field is checked, and an unknown field is refused. Only the types are
checked here: the session itself checks the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, Union, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from ... import models, notices
from ...errors import InvalidRequest, VersionMismatch
from ...models import TTY, Limits, OnOverflow, OnTimeout
from ...options import Rules, place_of
from ...patterns import from_data
from ...policy.approval import Decision
from ...redact import redact_data, redact_from
from ...sandbox import Sandbox
from ...search import TOO_SLOW, SearchTooSlow, limited
from ...signatures import RunOptions, options_given
from ..protocol.wire import ID_MAX, OUTPUT_MAX, PROTOCOL

if TYPE_CHECKING:
    from ...policy.rules import Policy

_AGENT_MAX: Final = 256  # characters
Agent = Annotated[str, Field(min_length=1, max_length=_AGENT_MAX)]
JobId = Annotated[str, Field(max_length=64)]
RunT = TypeVar("RunT", bound="OfAgent")
# ``defer_build``: the requests are validated as one union. Building each by itself as well would add 10 ms to a start.
_STRICT: Final = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Envelope(BaseModel):
    """The fields of every request: the client's version of the protocol, and the request's id (see ``ledger``).

    ``key``: in a request that is sent again over another connection, the key of the first connection.
    """

    model_config = _STRICT

    protocol: int
    id: Annotated[str, Field(max_length=ID_MAX)]
    key: Annotated[str, Field(max_length=64)] = ""


class OfAgent(Envelope):
    """A request about an agent's session.

    ``session``: its number, from the reply to ``Open``. If the agent has another session by now, the request is
    refused: that one may have other rules. Without a number it is about whichever session there is. ``turn_within``:
    drop the request if it has waited this many seconds in the queue. ``holder``: the name under which the client holds
    the session (see ``Hold``).
    """

    agent: Agent
    session: int | None = None
    turn_within: float | None = None
    holder: Annotated[str, Field(max_length=64)] | None = None


class LimitsFields(BaseModel):
    """``Limits`` on the wire."""

    model_config = _STRICT

    max_output: Annotated[int, Field(le=OUTPUT_MAX)]  # two streams of more would not fit into a message
    spill: str | None
    spill_max: int
    on_overflow: OnOverflow

    def made(self) -> Limits:
        return Limits(self.max_output, self.spill, self.spill_max, self.on_overflow)


class SandboxFields(BaseModel):
    """``Sandbox`` on the wire; its paths are absolute."""

    model_config = _STRICT

    write: list[str]
    hide: list[str]
    network: bool
    memory: int | None
    processes: int | None
    cpu: float | None
    pass_env: list[str]
    missing_ok: bool

    @classmethod
    def of(cls, sandbox: Sandbox) -> SandboxFields:
        fields = {name: getattr(sandbox, name) for name in cls.model_fields}
        lists = {name: list(value) for name, value in fields.items() if isinstance(value, tuple)}
        return cls.model_validate(fields | lists)

    def made(self) -> Sandbox:
        return Sandbox(**dict(self))


class RulesFields(BaseModel):
    """The rules of an agent as a client names them, and as its record keeps them."""

    model_config = _STRICT

    sandbox: SandboxFields | None = None
    policy: dict[str, Any] | None = None  # as ``Policy.to_dict`` makes it; ``Policy.from_dict`` checks it
    redact: bool | list[str | list[str | int]] = False  # as ``redact_data`` makes it
    branch: str | None = None
    auto_checkpoints: int = 0

    @classmethod
    def of(cls, rules: Rules) -> RulesFields:
        sandbox = None if rules.sandbox is None else SandboxFields.of(rules.sandbox)
        policy = None if rules.policy is None else rules.policy.to_dict()
        redact, branch, most = redact_data(rules.redact), rules.branch, rules.auto_checkpoints
        return RulesFields(sandbox=sandbox, policy=policy, redact=redact, branch=branch, auto_checkpoints=most)

    def made(self) -> Rules:
        """Raises InvalidRequest."""
        sandbox = None if self.sandbox is None else self.sandbox.made()
        try:
            with limited():
                policy = None if self.policy is None else _policy_of(self.policy)
                redact, branch = redact_from(self.redact), place_of(self.branch, "branch")
                return Rules(sandbox, policy, redact, branch, self.auto_checkpoints)
        except SearchTooSlow:
            raise InvalidRequest(f"policy, redact: compiling the patterns {TOO_SLOW}") from None


def _policy_of(given: Mapping[str, Any]) -> Policy:
    from ...policy.rules import Policy  # 13 ms, which most daemons need not spend

    return Policy.from_dict(given)


class Open(OfAgent, RulesFields):
    """Open the agent's session if there is none. An existing one stays as it is.

    It must have the sandbox, the policy and the redaction that are requested, and the options whose names are in
    ``exact``. Else the request is refused (AlreadyOpen).

    ``env``: the client's own environment, or the one that replaces it (then ``inherited`` is False). ``cwd_named``: the
    caller named ``cwd``; otherwise it is the client's own directory. Without ``create`` only an open session is used;
    otherwise StateLost or NoSuchAgent is raised. With ``continued`` a new one is opened only if the state after the
    agent's last command is stored; the reply then says that it ``continues``.
    """

    verb: Literal["open"]
    cwd: str
    env: dict[str, str]
    inherited: bool
    umask: Annotated[int, Field(ge=0, le=0o777)]
    extra_env: dict[str, str] | None = None
    agent_env: bool = True
    timeout: float | None = 120.0
    on_timeout: OnTimeout = "interrupt"
    tty: bool = True
    limits: LimitsFields | None = None
    idle_timeout: float | None = None
    stdin: Literal["tty"] | None = None
    merge_stderr: bool = False
    startup: list[str] = []
    check_startup: bool = True
    shutdown: list[str] = []
    size: Annotated[list[int], Field(min_length=2, max_length=2)] = [200, 50]
    bash: str = "bash"
    recover: bool = False
    branch_dir: str | None = None
    idle_ttl: float | None = None  # if it is sent, for this session from now on
    cwd_named: bool = False
    create: bool = True
    continued: bool = False
    exact: list[str] = []

    def with_defaults(self, defaults: Mapping[str, Any]) -> Open:
        """The request with the daemon's options for a new session, where the client named none."""
        sent = self.model_dump(exclude_unset=True)
        if "cwd" in defaults and not self.cwd_named:
            del sent["cwd"]
        fields = {**defaults, **sent}
        if "extra_env" in defaults:
            fields["extra_env"] = {**defaults["extra_env"], **(self.extra_env or {})}
        return Open(**fields)


class Start(OfAgent):
    """``Session.open``: start bash now."""

    verb: Literal["start"]


def _with_options(kind: type[RunT]) -> type[RunT]:
    """The same request, with a field for each option of ``run`` that it lacks. ``on_output`` is never sent."""
    types, known = get_type_hints(models.Request), {"on_output", *kind.model_fields}
    fields: dict[str, Any] = {name: (types[name], None) for name in models.OPTIONS if name not in known}
    return create_model(kind.__name__, __base__=kind, __doc__=kind.__doc__, **fields)


@_with_options
class Run(OfAgent):
    """``Session.run``. Parts: the command and, with ``stdin="bytes"``, the input. Options have the session's defaults.

    ``stdin="null"`` is /dev/null.

    ``live``: send output as events as well. ``tell``: after a second in the queue, send the reason as an event.
    ``unless_lost``: raise StateLost, once, if the agent's last session has ended with its state, or with a part of it.
    If its directory is gone as well, any request does that. ``ask_only``: run nothing; the reply's value is the
    question to a person that the same request without it would wait for, or None.
    """

    verb: Literal["run"]
    stdin: Literal["tty", "bytes", "null"] | None = None
    limits: LimitsFields | None = None
    patience: float | None = None
    live: bool = False
    tell: bool = False
    unless_lost: bool = False
    ask_only: bool = False
    idempotency_key: Annotated[str, Field(min_length=1, max_length=models.KEY_MAX)] | None = None

    def given(self, data: bytes | None) -> RunOptions:
        """The options that were sent, as ``run`` takes them. ``data``: the part with the input."""
        options = {name: getattr(self, name) for name in self.model_fields_set.intersection(models.OPTIONS)}
        if self.stdin is not None:
            options["stdin"] = {"tty": TTY, "bytes": data, "null": None}[self.stdin]
        if self.limits is not None:
            options["limits"] = self.limits.made()
        return options_given(options)


class OfCommand(OfAgent):
    """A request about a command: ``command`` is the id of the request that ran it, or None for the running one."""

    command: Annotated[str, Field(max_length=ID_MAX)] | None = None


class Wait(OfCommand):
    """``Session.wait``. ``so_far``: also send earlier output, since the last result, as events."""

    verb: Literal["wait"]
    timeout: float | None = None
    idle_timeout: float | None = None
    until: str | None = None
    live: bool = False
    so_far: bool = False


class Poll(OfCommand):
    """``Session.poll``."""

    verb: Literal["poll"]


class Why(OfAgent):
    """``Session.why``."""

    verb: Literal["why"]


class Send(OfCommand):
    """``Session.send``. Part: the text. ``so_far``: as in ``Wait``; ``tell``: as in ``Run``."""

    verb: Literal["send"]
    timeout: float | None = None
    idle_timeout: float | None = None
    keys: list[str] = []
    live: bool = False
    tell: bool = False
    so_far: bool = False


class Type(OfCommand):
    """``Session.type``. Part: the text."""

    verb: Literal["type"]


class Glimpse(OfCommand):
    """Wait for terminal output of the running command that no ``expect`` has seen yet."""

    verb: Literal["glimpse"]
    timeout: float | None = None


class Interrupt(OfCommand):
    """``Session.interrupt``."""

    verb: Literal["interrupt"]


class Restart(OfAgent):
    """``Session.restart``. The reply's part lists what was not restored."""

    verb: Literal["restart"]
    keep_state: bool = False


class TakeSnapshot(OfAgent):
    """``Session.snapshot``. Its part has the arguments, which may be secrets. The reply's part is the snapshot."""

    verb: Literal["snapshot"]


class Fork(OfAgent):
    """Open a session for the agent ``to``, with the state and the options of this one.

    ``attempt``: for a command that a client tries on a branch. Closing the session removes what it has written.
    """

    verb: Literal["fork"]
    to: Agent
    attempt: bool = False


class TakeOver(OfAgent):
    """Continue with the files and the shell of the agent ``fork``, which is a fork, and close its session.

    The reply is that of a restore.
    """

    verb: Literal["take_over"]
    fork: Agent


class Restore(OfAgent):
    """``Session.restore``. Its part is the snapshot. The reply's part lists what was not restored."""

    verb: Literal["restore"]


class Checkpoint(OfAgent):
    """The bytes that a client keeps for the agent, with the state of its shell; see ``client.checkpoint``.

    ``put``: replace them. Parts: the bytes, and the secrets that the state must not contain. ``with_state``: replace
    the state, too. The reply's parts are the bytes and the state.
    """

    verb: Literal["checkpoint"]
    put: bool = False
    with_state: bool = False


class OnBranch(OfAgent):
    """The branch of the agent's files: ``Session.checkpoint`` and the verbs after it, and ``Session.branch``.

    ``name``: of a checkpoint. The reply's part is the patch for ``patch``, else a list: of checkpoints, of what was not
    restored, or of changes.
    """

    verb: Literal["branch"]
    action: Literal["checkpoint", "rollback", "checkpoints", "drop", "diff", "patch", "apply", "discard"]
    name: str = ""
    paths: list[str] | None = None
    overwrite: bool = False
    files_only: bool = False
    end_jobs: bool = False


class Close(OfAgent):
    """``Session.close``. With ``unused``, a session whose bash has started, or is asked for, stays open."""

    verb: Literal["close"]
    unused: bool = False


class Jobs(OfAgent):
    """``Session.jobs``."""

    verb: Literal["jobs"]
    released: bool = False


class JobOutput(OfAgent):
    """``Job.output`` of the job with that id."""

    verb: Literal["job_output"]
    job: JobId
    name: Literal["stdout", "stderr", "terminal", "before"]


class ReadOutput(OfAgent):
    """Some bytes of a kept output, for ``Session.read_output``. ``output``: its id; "" is the latest that has any."""

    verb: Literal["read_output"]
    output: Annotated[str, Field(max_length=ID_MAX)]
    stream: Literal["stdout", "stderr"]
    begin: Annotated[int, Field(ge=0)]
    size: Annotated[int, Field(ge=0)]


class OfFile(OfAgent):
    """A request about a piece of a file, as in ``FileRequest``."""

    path: str
    begin: Annotated[int, Field(ge=0, lt=1 << 63)]
    file: list[int] | None = None


class ReadFile(OfFile):
    """A piece for ``Session.read_file``."""

    verb: Literal["read_file"]


class WriteFile(OfFile):
    """A piece of ``Session.write_file``. Part: the bytes."""

    verb: Literal["write_file"]
    parents: bool = False


class KillJob(OfAgent):
    """``Job.kill`` of the job with that id."""

    verb: Literal["kill_job"]
    job: JobId


class ReleaseJob(OfAgent):
    """``Job.release`` of the job with that id."""

    verb: Literal["release_job"]
    job: JobId


class Resize(OfAgent):
    """``Session.resize``. From the holder of the session it lasts until the end of the hold."""

    verb: Literal["resize"]
    columns: int
    rows: int


class Info(OfAgent):
    """The session's present state: its pid, command, directory and so on."""

    verb: Literal["info"]


class Watch(OfAgent):
    """Send the agent's commands and their output as events from now on, until the connection ends."""

    verb: Literal["watch"]


class Events(OfAgent):
    """``Session.events``: the notices after a number, as soon as there is one, or after ``timeout`` seconds.

    The reply's part lists them. Its header has the number of the last notice that was looked at (``last``), how many
    were ``dropped`` before the first one, and whether the session is closed (``over``).
    """

    verb: Literal["events"]
    after: Annotated[int, Field(ge=0)]
    timeout: Annotated[float, Field(ge=0)]
    pattern: str | list[str | int] | None = None  # as ``patterns.as_data`` makes it
    silence: float | None = None

    def watch(self) -> notices.Watch:
        """Raises InvalidRequest."""
        try:
            with limited():
                return notices.Watch.of(
                    None if self.pattern is None else from_data("pattern", self.pattern), self.silence
                )
        except SearchTooSlow:
            raise InvalidRequest(f"pattern: compiling it {TOO_SLOW}") from None


class Hold(OfAgent):
    """Give this connection exclusive use of the session. Requests of other clients queue, or are refused as busy.

    A second client that sends this is the next holder.
    """

    verb: Literal["hold"]
    others: Literal["wait", "refuse"] = "wait"


class Cancel(Envelope):
    """Cancel a request that is being served: its command is ended, the shell lives on.

    Any client may cancel any request without a key, as it may also interrupt, restart or close any session. ``reads``:
    the client reads the outcome. Otherwise, if the shell was lost, the next command reports that.
    """

    verb: Literal["cancel"]
    request: Annotated[str, Field(max_length=ID_MAX)]
    reads: bool = False


class List(Envelope):
    """The description of each session. ``lines``: with the last line that it printed."""

    verb: Literal["list"]
    lines: bool = False


class Follow(Envelope):
    """What happens in the sessions of the agent ``of``, or of all, after the events that the client knows.

    ``known``: the ``collection`` and the ``last`` of the reply before; without it, the reply has the present state.
    """

    verb: Literal["follow"]
    of: Agent | None = None
    known: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None


class Stats(Envelope):
    """The daemon's version, pid, uptime and counters."""

    verb: Literal["stats"]


class Renew(Envelope):
    """Renew the daemon's lease (see ``Lease``). ``at``: it counts from that moment, not from now."""

    verb: Literal["renew"]
    at: float | None = None


class Forget(Envelope):
    """Forget the record and the rules of the agent ``of`` that has no session, or of all of them. Replies how many."""

    verb: Literal["forget"]
    of: str | None = None


class Approvals(Envelope):
    """The questions that wait for a person, oldest first; of the agent ``of``, or of the request ``asks`` alone.

    With ``since``, a number from an earlier reply: those that have changed after it, once there are any. The reply's
    value is the number of the last change.
    """

    verb: Literal["approvals"]
    of: str | None = None
    asks: Annotated[str, Field(max_length=ID_MAX)] | None = None
    since: Annotated[int, Field(ge=0)] | None = None


class Answer(Envelope):
    """The answer to a question."""

    verb: Literal["answer"]
    question: Annotated[str, Field(max_length=64)]
    decision: Decision
    reason: Annotated[str, Field(max_length=4096)] = ""
    prefix: Annotated[str, Field(max_length=4096)] = ""


class Remembered(Envelope):
    """The answers that last. ``revoke``: forget the one with that id before."""

    verb: Literal["remembered"]
    revoke: Annotated[str, Field(max_length=64)] | None = None


class Shutdown(Envelope):
    """End the daemon."""

    verb: Literal["shutdown"]


class RecordedRules(RulesFields):
    """The rules of an agent in its record, which never has the values of ``Policy.secrets``."""

    lacks_secrets: bool = False


def record_with(agent: str, before: str, named: Rules) -> str:
    """The rules of an agent for its record: those of ``before``, and in their place those that are named now."""
    if named == Rules():
        return before
    fields: dict[str, Any] = {name: getattr(RulesFields.of(named), name) for name in named.options()}
    if named.policy is not None:
        fields["lacks_secrets"] = bool(fields["policy"].get("secrets"))
        fields["policy"] = {**fields["policy"], "secrets": []}
    return _record_of(agent, before).model_copy(update=fields).model_dump_json(exclude_defaults=True)


def rules_in_record(agent: str, record: str, named: Rules) -> Rules:
    """The rules of an agent's record.

    Raises InvalidRequest for those of another version, which must not be dropped, and where the record lacks secrets of
    a policy and no other policy is ``named``.
    """
    found = _record_of(agent, record)
    if found.lacks_secrets and named.policy is None:
        raise InvalidRequest(
            f"agent {agent!r} had a policy with secrets=, whose values are not recorded: name the policy again, or drop"
            " it (`shellsession forget`)"
        )
    return found.made()


def _record_of(agent: str, record: str) -> RecordedRules:
    try:
        (found := RecordedRules.model_validate_json(record or "{}")).made()
    except (ValidationError, InvalidRequest):
        raise InvalidRequest(
            f"the rules that agent {agent!r} had under an earlier daemon cannot be read by this version:"
            " `shellsession forget` drops them; name them again then"
        ) from None
    return found


def _kinds(root: type[Envelope]) -> Iterator[type[Envelope]]:
    """Yield the classes that have a verb: those without subclasses."""
    for kind in root.__subclasses__():
        yield from _kinds(kind) if kind.__subclasses__() else (kind,)


_ANY_KIND: Any = Annotated[Union[*_kinds(Envelope)], Field(discriminator="verb")]
_ANY: TypeAdapter[Envelope] = TypeAdapter(_ANY_KIND)


def parse(header: dict[str, Any]) -> Envelope:
    """The request with that header. Raises VersionMismatch and InvalidRequest."""
    version = header.get("protocol")
    if version != PROTOCOL:
        raise VersionMismatch(
            f"the client speaks protocol {version!r:.20}, this daemon {PROTOCOL}: end the daemon with"
            " `shellsession stop`, and start one of the client's version"
        )
    try:
        return _ANY.validate_python(header)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["loc"][-1:] == ("agent",):
            raise InvalidRequest(f"an agent's name is text (Unicode) of 1 to {_AGENT_MAX} characters") from None
        # The name of a variable is shown only up to a "=": a secret value may follow.
        where = ".".join(str(part).partition("=")[0] for part in first["loc"]) or "request"
        raise InvalidRequest(f"{where[:100]}: {first['msg'][:200]}") from None
