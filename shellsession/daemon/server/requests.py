"""What a client may ask of the daemon: each verb's fields, validated, as foreign data comes in here.

Law: a field that is not listed is refused, and what a field means is the session's to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from ... import models
from ...errors import InvalidRequest, VersionMismatch
from ...models import TTY, Limits, OnOverflow, OnTimeout
from ...sandbox import Sandbox
from ...signatures import RunOptions, options_given
from ..protocol.wire import ID_MAX, OUTPUT_MAX, PROTOCOL

_AGENT_MAX: Final = 256  # characters
Agent = Annotated[str, Field(min_length=1, max_length=_AGENT_MAX)]
RunT = TypeVar("RunT", bound="OfAgent")
# All are validated as one union, which is built at once: to build each by itself, too, takes 10 ms of a daemon's start.
_STRICT: Final = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Request(BaseModel):
    """What every request has: the protocol that its client speaks, and its id (see ``ledger``).

    ``key``: that of the connection on which it was first sent, where it comes again over another one.
    """

    model_config = _STRICT

    protocol: int
    id: Annotated[str, Field(max_length=ID_MAX)]
    key: Annotated[str, Field(max_length=64)] = ""


class OfAgent(Request):
    """``holder``: the name under which its client holds the session (see ``Hold``). ``turn_within``: where its turn has
    not come after so many seconds, it is given up.
    """

    agent: Agent
    turn_within: float | None = None
    holder: Annotated[str, Field(max_length=64)] | None = None


class LimitsFields(BaseModel):
    """``Limits``, as it crosses the wire."""

    model_config = _STRICT

    max_output: Annotated[int, Field(le=OUTPUT_MAX)]  # more of two streams is no message: nobody would hear of it
    spill: str | None
    spill_max: int
    on_overflow: OnOverflow

    def made(self) -> Limits:
        return Limits(self.max_output, self.spill, self.spill_max, self.on_overflow)


class SandboxFields(BaseModel):
    """``Sandbox``; its paths are absolute."""

    model_config = _STRICT

    write: list[str]
    hide: list[str]
    network: bool
    memory: int | None
    processes: int | None
    cpu: float | None

    def made(self) -> Sandbox:
        return Sandbox(self.write, self.hide, self.network, self.memory, self.processes, self.cpu)


class Open(OfAgent):
    """See to it that the agent has a session; if there is one, it stays as it is, and confined as was asked for.

    ``env`` is the client's own environment, or what it was told to replace it by (``inherited`` is False).
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
    startup: list[str] = []
    check_startup: bool = True
    size: Annotated[list[int], Field(min_length=2, max_length=2)] = [200, 50]
    bash: str = "bash"
    sandbox: SandboxFields | None = None


class Start(OfAgent):
    """``Session.open``: start bash now."""

    verb: Literal["start"]


def _with_options(kind: type[RunT]) -> type[RunT]:
    """The same, with a field for each option of ``run`` that it lacks; ``on_output`` is never sent."""
    types, known = get_type_hints(models.Request), {"on_output", *kind.model_fields}
    fields: dict[str, Any] = {name: (types[name], None) for name in models.OPTIONS if name not in known}
    return create_model(kind.__name__, __base__=kind, __doc__=kind.__doc__, **fields)


@_with_options
class Run(OfAgent):
    """``Session.run``. Parts: the command and, with ``stdin="bytes"``, the input. What is absent is the session's.

    ``live``: its output comes as events, too. ``tell``: so does what keeps it waiting for its turn, after a second.
    """

    verb: Literal["run"]
    stdin: Literal["tty", "bytes"] | None = None
    limits: LimitsFields | None = None
    live: bool = False
    tell: bool = False

    def given(self, data: bytes | None) -> RunOptions:
        """The options that were sent, as ``run`` takes them. ``data``: the part that holds the input."""
        options = {name: getattr(self, name) for name in self.model_fields_set.intersection(models.OPTIONS)}
        if self.stdin is not None:
            options["stdin"] = TTY if self.stdin == "tty" else data
        if self.limits is not None:
            options["limits"] = self.limits.made()
        return options_given(options)


class OfCommand(OfAgent):
    """``command``: which one is meant, by the id of the request that ran it; None: whichever runs."""

    command: Annotated[str, Field(max_length=ID_MAX)] | None = None


class Wait(OfCommand):
    """``so_far``: what it has printed before, since its last result, comes as events, too."""

    verb: Literal["wait"]
    timeout: float | None = None
    live: bool = False
    so_far: bool = False


class Poll(OfCommand):
    verb: Literal["poll"]


class Send(OfCommand):
    """Part: the text. ``so_far``: as in ``Wait``; ``tell``: as in ``Run``."""

    verb: Literal["send"]
    timeout: float | None = None
    live: bool = False
    tell: bool = False
    so_far: bool = False


class Type(OfCommand):
    """Part: the text."""

    verb: Literal["type"]


class Glimpse(OfCommand):
    """What the running command printed on its terminal that no ``expect`` has seen; waits for it."""

    verb: Literal["glimpse"]
    timeout: float | None = None


class Interrupt(OfCommand):
    verb: Literal["interrupt"]


class Restart(OfAgent):
    verb: Literal["restart"]


class Close(OfAgent):
    verb: Literal["close"]


class Jobs(OfAgent):
    verb: Literal["jobs"]


class JobOutput(OfAgent):
    """``Job.output``, of the job with that number in the list of ``jobs``."""

    verb: Literal["job_output"]
    job: int
    name: Literal["stdout", "stderr", "terminal"]


class KillJob(OfAgent):
    """``Job.kill``, of the job with that number in the list of ``jobs``."""

    verb: Literal["kill_job"]
    job: int


class Resize(OfAgent):
    """``Session.resize``; that of who holds the session ends with the hold."""

    verb: Literal["resize"]
    columns: int
    rows: int


class Info(OfAgent):
    verb: Literal["info"]


class Watch(OfAgent):
    """Hear what is run and printed in the agent's session from now on, until the connection ends."""

    verb: Literal["watch"]


class Hold(OfAgent):
    """Have the session for this connection alone: the others' verbs wait their turn, or are refused as busy.

    Who asks for it as well is next.
    """

    verb: Literal["hold"]
    others: Literal["wait", "refuse"] = "wait"


class Cancel(Request):
    """End a request that is being served, as a cancelled task does: its command dies, the shell lives.

    Any client may end any other's, as it may interrupt, restart or close its session; no key is asked for.
    ``reads``: its client looks at what came of it; else the next command is told of the shell that it cost.
    """

    verb: Literal["cancel"]
    request: Annotated[str, Field(max_length=ID_MAX)]
    reads: bool = False


class List(Request):
    verb: Literal["list"]


class Stats(Request):
    verb: Literal["stats"]


class Shutdown(Request):
    verb: Literal["shutdown"]


def _kinds(root: type[Request]) -> Iterator[type[Request]]:
    """Those that have a verb, which are no others' base."""
    for kind in root.__subclasses__():
        yield from _kinds(kind) if kind.__subclasses__() else (kind,)


_ANY_KIND: Any = Annotated[Union[*_kinds(Request)], Field(discriminator="verb")]
_ANY: TypeAdapter[Request] = TypeAdapter(_ANY_KIND)


def parse(header: dict[str, Any]) -> Request:
    """The request of that header; raises VersionMismatch and InvalidRequest."""
    spoken = header.get("protocol")
    if spoken != PROTOCOL:
        raise VersionMismatch(
            f"the client speaks protocol {spoken!r:.20}, this daemon {PROTOCOL}: end it with `shellsession stop`,"
            " and start one of the client's version"
        )
    try:
        return _ANY.validate_python(header)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["loc"][-1:] == ("agent",):
            raise InvalidRequest(f"an agent's name is text (Unicode) of 1 to {_AGENT_MAX} characters") from None
        # A name of the environment is shown up to a "=": behind it is what was meant as its value.
        where = ".".join(str(part).partition("=")[0] for part in first["loc"]) or "request"
        raise InvalidRequest(f"{where[:100]}: {first['msg'][:200]}") from None
