"""What all tool contracts share: the words in which a contract asks its host to act, and the reading of foreign calls.

Law: a contract is pure; it names what is to be done and is given what came of it, as a generator, and touches nothing.
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
from ..text import decoded, unfinished

P = TypeVar("P")
M = TypeVar("M", bound="Input")


class Dressed(Request):
    """A request with what its contract adds: ``command`` is what the model said, and what a policy judges.

    ``text``: what the session's bash runs instead, in a subshell where the request is isolated. ``reads``: what the
    contract makes of the Result before a policy masks it, as what bash says to the contract is none of the secrets';
    a Result is masked then, and what is none is the contract's own.
    """

    text: bytes | None = None
    reads: Callable[[Result], Any] | None = None


class Limited(Result):
    """A result that came under another time limit than its contract's: a policy's, in seconds."""

    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Restart:
    """A fresh bash for the next command, please; where none was started yet, none is now. Answered with None."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is at this path of the host, or at its working directory? Answered with a ``Place``."""

    path: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A path of the host, and what was found there."""

    path: str
    kind: Literal["directory", "other", "missing"]


@dataclass(frozen=True, slots=True)
class Programs:
    """A directory with this program under each of these names, and with these symbolic links (name and target), please.

    Commands may run what is in it. Answered with its path; the name of the directory begins with ``prefix``.
    """

    prefix: str
    names: tuple[str, ...]
    text: str
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Judge:
    """Would this request be refused, whoever says yes to it? Answered with None, or the refusal."""

    request: Request


@dataclass(frozen=True, slots=True)
class Ask:
    """Somebody's yes or no: a function, or a coroutine function, of these arguments. Answered with its answer."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Log:
    """A line for the agent's interaction log. Answered with None."""

    record: Mapping[str, object]


Action = Request | Restart | Look | Programs | Judge | Ask | Log
# A call told once, for threads and for asyncio: what it asks for, what it is given, and its payload.
Steps = Generator[Action, Any, P]


class BadCall(Exception):
    """The arguments of a call are not what the tool takes; each contract tells it in its own error."""


_SURROGATES: Final = re.compile("[\ud800-\udfff]")  # as Python has the bytes of a path that are none
_NAMED: Final = 40  # characters of a field's name that an error tells
_WRONG: Final = {"missing": "is missing", "extra_forbidden": "is unknown"}  # pydantic's names


class Input(BaseModel):
    """The arguments of a call: foreign data, taken by the letter."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, call: dict[str, Any]) -> dict[str, Any]:
        """Some providers fill in null for what the model left out."""
        fields = cls.model_fields
        return {
            name: value
            for name, value in call.items()
            if value is not None or name not in fields or fields[name].is_required()
        }

    @classmethod
    def read(cls: type[M], call: object) -> M:
        """The call's arguments, checked. Raises BadCall, with no value of the call in its text."""
        if not isinstance(call, Mapping):
            raise BadCall(f"the arguments are an object with fields, not {type(call).__name__}")
        try:
            return cls.model_validate(dict(call))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            field, said = ".".join(str(part) for part in first["loc"]), first["msg"]
            field = field if len(field) <= _NAMED else f"{field[:_NAMED]}..."
            said = _WRONG.get(first["type"], said.replace("Input should", "should"))
            raise BadCall(f"{field}: {said}; {cls._takes()}" if field else said) from None

    @classmethod
    def _takes(cls) -> str:
        """What a call may have, in words."""
        names = [f"{name}{'' if one.is_required() else ' (optional)'}" for name, one in cls.model_fields.items()]
        return f"the arguments are {', '.join(names)}" if names else "there are no arguments"


def without_default(schema: dict[str, Any]) -> None:
    """Of a field whose document names none."""
    del schema["default"]


class Contract(Generic[P]):
    """One documented tool: its definition, and what a call of it does."""

    name: ClassVar[str] = "bash"
    Input: ClassVar[type[Input]]
    persistent: bool = False
    lasts: ClassVar[bool] = False  # its session is not closed for being idle, unless the host gave an ``idle_ttl``
    shell: ClassVar[str] = "bash"  # what isolated calls run with ``-c``, as they see it in ``$0``
    cwd: str | None = None  # where isolated calls run; relative to the host's, which it is by default

    @property
    def description(self) -> str:
        """What the model is told; the live working directory, where the document wants it, is at
        ``{working_directory}``."""
        raise NotImplementedError

    def session_options(self, environ: Mapping[str, str]) -> dict[str, Any]:
        """How the agent's bash is started: pipes, and the host's environment with nothing added."""
        return {"tty": False, "agent_env": False, "env": dict(environ), "timeout": None}

    def steps(self, call: object) -> Steps[P]:
        """What a call does. Raises the contract's own errors, and no others."""
        raise NotImplementedError


def definition(contract: Contract[Any]) -> dict[str, Any]:
    """The tool as models are told of it: name, description, and its input as JSON schema."""
    schema = contract.Input.model_json_schema()
    schema.pop("title", None)
    schema.pop("description", None)  # pydantic's copy of the class's docstring, which is for us
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return {"name": contract.name, "description": contract.description, "input_schema": schema}


def to_path(name: str, value: object) -> str | None:
    """The path of a directory, given as text or as a path object. Raises InvalidRequest."""
    path = value if isinstance(value, str) else path_text(value)  # of a text no more: that there is none is told later
    if value is not None and (not path or "\0" in path):
        raise InvalidRequest(f"{name} is the path of a directory (str or Path), not {value!r}")
    return path


def display(path: str) -> str:
    """A path as text for people and models: what of it is no UTF-8 cannot be sent to a provider, and is replaced."""
    return _SURROGATES.sub("\ufffd", path)


def to_text(name: str, value: str) -> bytes:
    """The text as bash reads it. Raises BadCall for what no command line can hold."""
    if "\0" in value:
        raise BadCall(f"{name}: holds a NUL character, which bash cannot read")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise BadCall(f"{name}: holds half of a surrogate pair, which is no text") from None


def quoted(text: bytes) -> bytes:
    """One word of bash that means just this text."""
    return shlex.quote(text.decode("latin-1")).encode("latin-1")


def limited(result: Result, limit: float | None) -> Limited:
    """The result, which came under this time limit."""
    return Limited(**vars(result), limit=limit)


def limit_of(result: Result, usual: float | None) -> str:
    """The time limit under which it came, in seconds as people read them."""
    limit = result.limit if isinstance(result, Limited) else usual
    seconds = result.duration if limit is None else limit
    return str(int(seconds)) if seconds == int(seconds) else str(seconds)


def first(data: bytes, size: int) -> str:
    """The first bytes of a stream as text, without half a character at the cut."""
    head = data[:size]
    return head[: len(head) - len(unfinished(head))].decode("utf-8", "replace")


LOST: Final = "its state is lost, the next command starts in a fresh one"
KEPT: Final = "the shell, its directory and its variables are kept"


class CallError(ContractError):
    """The error of a call: ``stdout`` and ``stderr`` are what its command had printed, "" where none ran."""

    code = "contract_call"

    def __init__(self, message: str, stdout: str = "", stderr: str = "") -> None:
        super().__init__(message + "".join(_part(*part) for part in (("stdout", stdout), ("stderr", stderr))))
        self.message, self.stdout, self.stderr = message, stdout, stderr

    def __reduce__(self) -> tuple[type[CallError], tuple[object, ...]]:
        return type(self), (self.message, self.stdout, self.stderr)  # to cross processes with its output


def _part(name: str, text: str) -> str:
    return f"\n[{name}]\n{text.removesuffix(chr(10))}" if text else ""


def on_its_own(text: str, line: str) -> str:
    """The text, and the line after it on a line of its own; "" is none."""
    return f"{text}\n{line}" if text and line and not text.endswith("\n") else text + line


def shown(result: Result) -> tuple[str, str]:
    """Its stdout and stderr as text; where bytes were dropped, a line says how many."""
    stdout, stderr = (_whole(data, omitted, cut) for _, data, omitted, cut in streams_of(result))
    return stdout, stderr


def _whole(data: bytes, omitted: int, cut: int) -> str:
    if not omitted:
        return decoded(data, 0, 0)
    head, tail = decoded(data[:cut], omitted, cut), decoded(data[cut:], omitted, 0)
    return f"{head}\n[{omitted} bytes omitted]\n{tail}"


def ending(result: Result) -> str:
    """In words, how a command ended that did not simply exit; "" for one that did."""
    if result.outcome == "exited" and result.state_kept:
        return ""
    said = result.reason if result.outcome == "shell_exited" else _stopped(result)
    return said if result.state_kept else f"{said}; {LOST}"


def stopped(result: Result) -> str:
    """Why a command was ended that did not come to its own end, as one that reads the terminal; "" for one that did, or
    ran into its time limit, which is told elsewhere."""
    return "" if result.outcome in ("exited", "shell_exited", "timed_out") else _stopped(result)


def _stopped(result: Result) -> str:
    return f"the command was ended ({result.reason or result.outcome})"


def notice(result: Result, stateful: bool) -> str:
    """A line beside the output. It says why the command was stopped, or that it left running what may print more; and
    for who keeps state in the session's bash (``stateful``), that this one is gone. "" where there is nothing to say.
    """
    said = ending(result) if stateful and not result.state_kept else stopped(result)
    if result.outcome == "exited":
        said = said or result.reason
    return f"[{said}]\n" if said else ""
