"""The base of all tool contracts: the actions they ask for, the check of a call's arguments, and shared wording.

A contract performs no I/O. Its ``steps`` is a generator that yields actions (run this request, look at that path) and
receives their results. ``tool.py`` performs them, for threads and for asyncio.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ..errors import ContractError, InvalidRequest
from ..models import Request, Result, path_text, streams_of
from ..text import LOST, decoded, reason_of, unfinished

P = TypeVar("P")
M = TypeVar("M", bound="Input")


class WrappedRequest(Request):
    """A request that its contract has wrapped. ``command`` is what the model wrote, and what a policy judges.

    ``text``: what the session's bash runs instead of ``command``; if the request is isolated, in a subshell.
    ``reads``: a function that the contract applies to the Result before a policy masks secrets in it. It must come
    first, as masking could change what bash reports to the contract. If it returns a Result, that one is masked; any
    other value goes to the contract unchanged.
    """

    text: bytes | None = None
    reads: Callable[[Result], Any] | None = None


class Limited(Result):
    """A result whose time limit, in seconds, was set by a policy instead of the contract."""

    limit: float | None = None


@dataclass(frozen=True, slots=True)
class FreshShell:
    """Action: give the next command a fresh bash; do nothing if none was started yet. The answer is None."""


@dataclass(frozen=True, slots=True)
class Look:
    """Action: look at this path of the host, or (None) at its working directory. The answer is a ``HostPath``."""

    path: str | None = None


@dataclass(frozen=True, slots=True)
class HostPath:
    """A path of the host, and what is there."""

    path: str
    kind: Literal["directory", "other", "missing"]


@dataclass(frozen=True, slots=True)
class Programs:
    """Action: make a directory with this program under each of these names, and with these links (name and target).

    Commands can run the programs. The answer is the path of the directory; its name begins with ``prefix``.
    """

    prefix: str
    names: tuple[str, ...]
    text: str
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Judge:
    """Action: check whether a policy refuses this request outright. The answer is None, or the refusal is raised."""

    request: Request


@dataclass(frozen=True, slots=True)
class Ask:
    """Action: call this function, or coroutine function, for a yes or no. The answer is what it returns."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Log:
    """Action: write a record to the agent's interaction log. The answer is None."""

    record: Mapping[str, object]


Action = Request | FreshShell | Look | Programs | Judge | Ask | Log
# One call, written once for threads and asyncio: it yields actions, receives their answers, and returns its payload.
Steps = Generator[Action, Any, P]


class BadCall(Exception):
    """The arguments of a call are not what the tool takes. Each contract turns this into its own error."""


_SURROGATES: Final = re.compile("[\ud800-\udfff]")  # how Python represents bytes of a path that are not UTF-8
_FIELD_NAME_MAX: Final = 40  # characters of a field's name that an error quotes
_PROBLEMS: Final = {"missing": "is missing", "extra_forbidden": "is unknown"}  # by pydantic's error type


class Input(BaseModel):
    """The arguments of a call, validated strictly: a model wrote them, and no type is converted."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, call: dict[str, Any]) -> dict[str, Any]:
        """Drop optional fields that are null: some providers fill in null for what the model left out."""
        fields = cls.model_fields
        return {
            name: value
            for name, value in call.items()
            if value is not None or name not in fields or fields[name].is_required()
        }

    @classmethod
    def read(cls: type[M], call: object) -> M:
        """Validate the arguments of a call. Raises BadCall, whose text contains no value of the call."""
        if not isinstance(call, Mapping):
            raise BadCall(f"the arguments must be an object with fields, not {type(call).__name__}")
        try:
            return cls.model_validate(dict(call))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            field, said = ".".join(str(part) for part in first["loc"]), first["msg"]
            field = field if len(field) <= _FIELD_NAME_MAX else f"{field[:_FIELD_NAME_MAX]}..."
            said = _PROBLEMS.get(first["type"], said.replace("Input should", "should"))
            raise BadCall(f"{field}: {said}; {cls._describe_arguments()}" if field else said) from None

    @classmethod
    def _describe_arguments(cls) -> str:
        """The arguments that a call may have, in words."""
        names = [f"{name}{'' if one.is_required() else ' (optional)'}" for name, one in cls.model_fields.items()]
        return f"the arguments are {', '.join(names)}" if names else "there are no arguments"


def without_default(schema: dict[str, Any]) -> None:
    """Remove the default from a field's JSON schema, where the document states none."""
    del schema["default"]


class Contract(Generic[P]):
    """One documented tool: its definition, and the steps of a call."""

    name: ClassVar[str] = "bash"
    Input: ClassVar[type[Input]]
    persistent: bool = False
    lasts: ClassVar[bool] = False  # the session is not closed for being idle, unless the host set an ``idle_ttl``
    wraps: ClassVar[bool] = False  # it writes words of its own around each command, also if it is persistent
    needs_host: ClassVar[bool] = False  # it works with files and variables of the host, which another machine lacks
    shell: ClassVar[str] = "bash"  # the ``$0`` of isolated calls, which run as ``bash -c``
    cwd: str | None = None  # where isolated calls run, relative to the host's working directory; None: there

    @property
    def description(self) -> str:
        """The description for the model. ``{working_directory}`` in it stands for the current working directory."""
        raise NotImplementedError

    def session_options(self, environ: Mapping[str, str]) -> dict[str, Any]:
        """The options of the agent's session: pipes instead of a terminal, and the host's environment unchanged."""
        return {"tty": False, "agent_env": False, "env": dict(environ), "timeout": None}

    def steps(self, call: object) -> Steps[P]:
        """The steps of a call. Raises only the contract's own errors."""
        raise NotImplementedError


def definition(contract: Contract[Any]) -> dict[str, Any]:
    """The contract's definition for the model."""
    return tool_definition(contract.name, contract.description, contract.Input)


def tool_definition(name: str, description: str, arguments: type[Input]) -> dict[str, Any]:
    """A tool's definition for the model: name, description, and the JSON schema of its input."""
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    schema.pop("description", None)  # pydantic copies the docstring of the class, which is not for the model
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return {"name": name, "description": description, "input_schema": schema}


def to_path(name: str, value: object) -> str | None:
    """The text of a directory's path, which may be a path object. Raises InvalidRequest."""
    path = value if isinstance(value, str) else path_text(value)  # whether it exists is checked at each call
    if value is not None and (not path or "\0" in path):
        raise InvalidRequest(f"{name} must be the path of a directory (str or Path), not {value!r}")
    return path


def display(path: str) -> str:
    """A path for people and models. Bytes that are not UTF-8 become U+FFFD, as no provider would accept them."""
    return _SURROGATES.sub("\ufffd", path)


def to_text(name: str, value: str) -> bytes:
    """The text as bytes for bash. Raises BadCall for characters that no command line can contain."""
    if "\0" in value:
        raise BadCall(f"{name}: contains a NUL character, which bash cannot read")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise BadCall(f"{name}: contains half of a surrogate pair, which is not text") from None


def quoted(text: bytes) -> bytes:
    """The text quoted as one word of bash."""
    return shlex.quote(text.decode("latin-1")).encode("latin-1")


def limit_of(result: Result, usual: float | None) -> str:
    """The time limit of the result, as a number of seconds for people; ``usual`` is the contract's."""
    limit = result.limit if isinstance(result, Limited) else usual
    seconds = result.duration if limit is None else limit
    return str(int(seconds)) if seconds == int(seconds) else str(seconds)


def first(data: bytes, size: int) -> str:
    """The first bytes of a stream as text, cut at a whole character."""
    head = data[:size]
    return head[: len(head) - len(unfinished(head))].decode("utf-8", "replace")


class CallError(ContractError):
    """The error of a call. ``stdout`` and ``stderr`` are what its command had printed; "" if none ran."""

    code = "contract_call"

    def __init__(self, message: str, stdout: str = "", stderr: str = "") -> None:
        super().__init__(message + "".join(_section(*part) for part in (("stdout", stdout), ("stderr", stderr))))
        self.message, self.stdout, self.stderr = message, stdout, stderr

    def __reduce__(self) -> tuple[type[CallError], tuple[object, ...]]:
        return type(self), (self.message, self.stdout, self.stderr)  # so that pickle keeps the output


def _section(name: str, text: str) -> str:
    return f"\n[{name}]\n{text.removesuffix(chr(10))}" if text else ""


def append_line(text: str, line: str) -> str:
    """The text, followed by this line on its own line; "" adds nothing."""
    return f"{text}\n{line}" if text and line and not text.endswith("\n") else text + line


def output_texts(result: Result) -> tuple[str, str]:
    """The stdout and stderr of a result as text; where bytes were dropped, a line says how many."""
    stdout, stderr = (_stream_text(data, omitted, cut) for _, data, omitted, cut in streams_of(result))
    return stdout, stderr


def _stream_text(data: bytes, omitted: int, cut: int) -> str:
    if not omitted:
        return decoded(data, 0, 0)
    head, tail = decoded(data[:cut], omitted, cut), decoded(data[cut:], omitted, 0)
    return f"{head}\n[{omitted} bytes omitted]\n{tail}"


def describe_ending(result: Result) -> str:
    """How the command ended, in words, and whether the state is lost; "" if it simply exited."""
    if result.outcome == "exited" and result.state_kept:
        return ""
    said = result.reason if result.outcome == "shell_exited" else _stop_reason(result)
    return said if result.state_kept else f"{said}; {LOST}"


def describe_stop(result: Result) -> str:
    """Why the command was stopped, for instance because it read the terminal.

    Returns "" if it ended by itself, or at its time limit, which each contract words itself.
    """
    return "" if result.outcome in ("exited", "shell_exited", "timed_out") else _stop_reason(result)


def _stop_reason(result: Result) -> str:
    said, _ = reason_of(result)  # the document fixes the text: what the command waits for has no place there
    return f"the command was ended ({said or result.outcome})"


def notice(result: Result, stateful: bool) -> str:
    """A line to add to the output, or "".

    It says why the command was stopped, or that it left a process running that may print more. If the contract keeps
    state in the session's bash (``stateful``), it also says that this state is lost.
    """
    said = describe_ending(result) if stateful and not result.state_kept else describe_stop(result)
    if result.outcome == "exited":
        said = said or result.reason
    return f"[{said}]\n" if said else ""
