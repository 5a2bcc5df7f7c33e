"""What a workflow is: frozen pydantic models, with the names of GitHub Actions' fields in files. Pure.

In Python a name has ``_`` where a file has ``-``, and ``if_`` and ``finally_`` are the two that Python reserves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ..models import LONGEST
from ..patterns import compiled
from .expression import Expression, Name, begins_expression, condition, parts_of
from .mistakes import Where, in_file, invalid_call, path_of
from .transcript import check as check_lines

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_ID: Final = re.compile(r"[A-Za-z_][\w-]{0,99}", re.ASCII)
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)
_SHELLS: Final = ("bash", "sh")
_NAME_LENGTH: Final = 60
NO_EXPRESSION: Final = (
    "${{ }} must not be in run: its value would become code. Put it into env: (NAME: ${{ ... }}), and write $NAME here"
)


def seconds(value: object) -> object:
    """Return a span of time in seconds: a number, or a text such as 30s, 5m or 1h."""
    if isinstance(value, str) and (found := _SPAN.fullmatch(value)):
        value = float(found[1]) * _UNITS[found[2]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST:
        raise ValueError(f"must be a positive number of seconds, or such as 30s, 5m or 1h, not {value!r:.40}")
    return value


def _minutes(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST / 60:
        raise ValueError(f"must be a positive number of minutes, not {value!r:.40}")
    return value


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {_shown(value)}")
    return value


def _texts(value: object) -> object:
    """One text, or a list of them."""
    return (value,) if isinstance(value, str) else value


def _count(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise ValueError(f"must be a whole number from 1 to 1000, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list | tuple):
        return "a list"
    return "a mapping" if isinstance(value, Mapping) else f"{value!r:.60}"


def _pattern(value: object) -> object:
    if isinstance(value, str):
        compiled("it", value)
    return value


def _filled(value: str) -> str:
    parts_of(value)
    return value


def _place(value: str) -> str:
    if begins_expression(value) >= 0:
        raise ValueError(
            "${{ }} must not be here: it is for if, env and inputs. Write cd in run, with a variable of env"
        )
    return value


def _variable(value: object) -> object:
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise ValueError(f"must be the name of a variable (letters, digits and _), not {_shown(value)}")
    return value


Seconds = Annotated[float, BeforeValidator(seconds)]
Minutes = Annotated[float, BeforeValidator(_minutes)]
Text = Annotated[str, BeforeValidator(_text)]
Count = Annotated[int, BeforeValidator(_count)]
# A text that may have ${{ }} in it.
Filled = Annotated[Text, AfterValidator(_filled)]
Place = Annotated[Text, AfterValidator(_place)]
Pattern = Annotated[Text, BeforeValidator(_pattern)]
Variable = Annotated[str, BeforeValidator(_variable)]
OneOrMore = BeforeValidator(_texts)


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as _Explained
else:

    class _Explained(type(BaseModel)):
        """Raises the project's error where a call such as ``Step(run=5)`` is wrong."""

        def __call__(cls, *args: Any, **values: Any) -> Any:
            try:
                return super().__call__(*args, **values)
            except ValidationError as error:
                raise invalid_call(cls, error) from None


class Model(BaseModel, metaclass=_Explained):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=in_file, populate_by_name=True)


class Expect(Model):
    """What a step must do to succeed.

    ``exit_code``: its status (default 0; None: any). ``output_contains``: texts that its output must have.
    ``output_matches``: a regular expression that must be found in it; ``^`` and ``$`` match at lines. ``output``: all
    of its output, line by line. ``...`` in it stands for any text, and alone for any lines; a line may end with
    `` (glob)`` or `` (regex)``.
    """

    exit_code: StrictInt | None = 0
    output_contains: Annotated[tuple[Text, ...], OneOrMore] = ()
    output_matches: Pattern | None = None
    output: Text | None = None

    @field_validator("output")
    @classmethod
    def _lines(cls, value: str | None) -> str | None:
        check_lines(value or "")
        return value

    @field_validator("exit_code")
    @classmethod
    def _status(cls, value: int | None) -> int | None:
        if value is not None and not 0 <= value <= 255:
            raise ValueError(f"must be an exit status from 0 to 255, not {value}")
        return value


class Retry(Model):
    """How often to try a failed step again, and how many seconds to wait before each time."""

    count: Count
    wait: Seconds | None = None


class Ready(Model):
    """When a background step is ready; exactly one of the first three. ``timeout``: how long to wait for that.

    ``port``: something listens on this port of 127.0.0.1. ``file``: it exists. ``output``: a regular expression that
    its output matches.
    """

    port: StrictInt | None = None
    file: Place | None = None
    output: Pattern | None = None
    timeout: Seconds = 60.0

    @field_validator("port")
    @classmethod
    def _port(cls, value: int | None) -> int | None:
        if value is not None and not 0 < value < 65536:
            raise ValueError(f"must be a port from 1 to 65535, not {value}")
        return value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(one is not None for one in (self.port, self.file, self.output)) != 1:
            raise ValueError("must have exactly one of port, file and output")
        return self


class Input(Model):
    """A value that the caller of a workflow may give.

    Without ``default`` the caller must give it; or with ``required=False`` it is "".
    """

    description: Text = ""
    default: Filled | None = None
    required: StrictBool = True


def _retry(value: object) -> object:
    return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value


class Step(Model):
    """One step: a text for bash, and how it is run and judged.

    * ``run``: the text. It ends at its first failing command, as with ``bash -e``; ``errexit=False`` changes that.
    * ``id``: its name for expressions and the command line. ``name``: what people read.
    * ``if_``: an expression; the step is skipped unless it is true. The default is ``success()``.
    * ``env``: variables for this step only. ``working_directory``: for this step only; a relative one begins where the
      shell is.
    * ``timeout``, in seconds; ``timeout_minutes``. Without them, the session's limit applies.
    * ``shell``: "bash" switches ``pipefail`` on for this step; "sh" and None do not. All are the session's bash.
    * ``continue_on_error``: the workflow goes on, and succeeds, although this step fails.
    * ``expect``, ``retry``: see these classes. A number for ``retry`` is its ``count``.
    * ``background``: go on while it runs; it is ended at the end of the workflow. ``ready``: first wait for this.
    * ``isolated``: run it in a subshell, so that it does not change the shell.
    * ``outputs``: variables of the shell to read after it, for ``steps.ID.outputs.NAME``.
    """

    run: Text
    id: Text | None = None
    name: Text = ""
    if_: Text | None = None
    env: Mapping[Variable, Filled] = {}
    working_directory: Place | None = None
    timeout: Seconds | None = None
    timeout_minutes: Minutes | None = None
    shell: Text | None = None
    continue_on_error: StrictBool = False
    errexit: StrictBool = True
    expect: Expect = Expect()
    retry: Annotated[Retry | None, BeforeValidator(_retry)] = None
    background: StrictBool = False
    ready: Ready | None = None
    isolated: StrictBool = False
    outputs: tuple[Variable, ...] = ()
    line: int = Field(default=0, exclude=True)  # in its file; set by the loader

    @field_validator("run")
    @classmethod
    def _has_text(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must have a command")
        if begins_expression(value) >= 0:
            raise ValueError(NO_EXPRESSION)
        if "\0" in value:
            raise ValueError("must not contain a NUL character, which bash cannot read")
        return value

    @field_validator("id")
    @classmethod
    def _is_id(cls, value: str | None) -> str | None:
        if value is not None and not _ID.fullmatch(value):
            raise ValueError(f"must begin with a letter and have letters, digits, - and _ only, not {value!r:.60}")
        return value

    @field_validator("if_")
    @classmethod
    def _is_condition(cls, value: str | None) -> str | None:
        if value is not None:
            condition(value)
        return value

    @field_validator("shell")
    @classmethod
    def _is_shell(cls, value: str | None) -> str | None:
        return check_shell(value)

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if self.timeout is not None and self.timeout_minutes is not None:
            raise ValueError("timeout and timeout-minutes must not both be given")
        if self.ready is not None and not self.background:
            raise ValueError("ready needs background: true")
        if self.isolated and self.outputs:
            raise ValueError("outputs are variables of the shell, which a step with isolated: true cannot set")
        if self.background:
            given = [in_file(one) for one in ("expect", "retry", "isolated", "outputs") if one in self.model_fields_set]
            if given:
                raise ValueError(f"a step with background: true cannot have {given[0]}")
        return self

    @property
    def title(self) -> str:
        """What people read: the name, the id, or the first line of the text."""
        first = self.run.strip().split("\n", 1)[0]
        shown = first if len(first) <= _NAME_LENGTH else first[: _NAME_LENGTH - 1] + "…"
        return self.name or self.id or shown

    @property
    def limit(self) -> float | None:
        """Its own time limit in seconds; None if it has none."""
        return self.timeout if self.timeout_minutes is None else self.timeout_minutes * 60


def check_shell(value: str | None) -> str | None:
    if value is not None and value not in _SHELLS:
        raise ValueError(f"must be bash or sh, not {value!r:.40}: start another interpreter in run")
    return value


class RunDefaults(Model):
    """What each step has that does not name it."""

    shell: Literal["bash", "sh"] | None = None
    working_directory: Place | None = None
    timeout: Seconds | None = None

    @field_validator("shell", mode="before")
    @classmethod
    def _is_shell(cls, value: Any) -> Any:
        return check_shell(value)


class Defaults(Model):
    """The defaults of steps, under ``run`` as in GitHub Actions."""

    run: RunDefaults = RunDefaults()


# A list may be given, and a tuple is kept.
Steps = Annotated[Sequence[Step], AfterValidator(tuple)]


class Definition(Model):
    """Steps, and what they share.

    * ``steps``: run one after the other in one shell. ``finally_``: run after them, whatever has happened.
    * ``name``: what people read. ``env``: variables for every step.
    * ``inputs``: values that the caller gives, by name. In ``env`` and ``if`` they are ``${{ inputs.NAME }}``.
    * ``secrets``: names of variables whose values the caller gives. Each step has them; reports show ``***``.
    * ``defaults``: see that class.
    * ``branch``: a directory. What the steps write below it is applied to it when all have succeeded; until then it is
      on a branch. In Python, the session must have that branch: ``connect(..., branch=...)``.
    """

    name: Text = ""
    branch: Place | None = None
    steps: Steps
    finally_: Steps = ()
    env: Mapping[Variable, Filled] = {}
    inputs: Mapping[Text, Input] = {}
    secrets: Annotated[tuple[Variable, ...], OneOrMore] = ()
    defaults: Defaults = Defaults()
    path: str = Field(default="", exclude=True)  # its file; set by the loader

    @field_validator("steps")
    @classmethod
    def _has_steps(cls, value: Sequence[Step]) -> Sequence[Step]:
        if not value:
            raise ValueError("must have at least one step")
        return value

    @field_validator("inputs", mode="before")
    @classmethod
    def _inputs(cls, value: Any) -> Any:
        """An input may have no fields at all, or be its default."""
        if not isinstance(value, Mapping):
            return value
        for name in value:
            if not isinstance(name, str) or not _ID.fullmatch(name):
                raise ValueError(f"the name of an input must begin with a letter, not be {name!r:.60}")
        return {
            name: {} if one is None else {"default": one} if isinstance(one, str) else one
            for name, one in value.items()
        }

    @model_validator(mode="after")
    def _refers(self, info: ValidationInfo) -> Self:
        if info.context is None:  # else the loader asks for the faults, with their places
            for where, fault in faults_of(self):
                raise ValueError(f"{path_of(where)}: {fault}")
        return self

    @property
    def all_steps(self) -> tuple[Step, ...]:
        return (*self.steps, *self.finally_)


# The outputs of each step, by its id.
Outputs = Mapping[str, tuple[str, ...]]


def faults_of(definition: Definition) -> Iterator[tuple[Where, str]]:
    """Yield what the parts of a workflow refer to and the whole does not have: where, and what is wrong."""
    inputs = set[str]()
    for name, given in definition.inputs.items():
        yield from _unknown(parts_of(given.default or ""), ("inputs", name, "default"), inputs, None)
        inputs.add(name)
    for name, value in definition.env.items():
        yield from _unknown(parts_of(value), ("env", name), inputs, None)
    known = dict[str, tuple[str, ...]]()
    for part, steps in (("steps", definition.steps), ("finally", definition.finally_)):
        for index, step in enumerate(steps):
            where: Where = (part, index)
            if step.background and definition.branch is not None:
                yield (*where, "background"), "must not be used with branch: it would write while files are frozen"
            if step.if_ is not None:
                yield from _unknown([condition(step.if_)], (*where, "if"), inputs, known)
            for name, value in step.env.items():
                yield from _unknown(parts_of(value), (*where, "env", name), inputs, known)
            if step.id in known:
                yield (*where, "id"), f"must be the only one of its name: another step has the id {step.id}"
            if step.id is not None:
                known[step.id] = step.outputs


def _unknown(
    pieces: list[str | Expression] | list[Expression], where: Where, inputs: set[str], steps: Outputs | None
) -> Iterator[tuple[Where, str]]:
    for piece in pieces:
        for name in () if isinstance(piece, str) else piece.names:
            if fault := _fault(name, inputs, steps):
                yield where, f"{'.'.join(name)}: {fault}"


def _fault(name: Name, inputs: set[str], steps: Outputs | None) -> str:
    match name:
        case ("env", _):
            return ""
        case ("inputs", one):
            return "" if one in inputs else f"there is no such input; there is {_listed(inputs)}"
        case ("steps", one, "outcome" | "conclusion") | ("steps", one, "outputs", _):
            if steps is None:
                return "there are no steps yet: use it in the env or if of a step"
            if one not in steps:
                return f"no earlier step has this id; there is {_listed(steps)}"
            missing = set(name[3:]).difference(steps[one])
            return f"the step has no such output; there is {_listed(steps[one])}" if missing else ""
        case ("secrets", *_):
            return "a secret is a variable of each step: write $NAME in run"
    return "names are env.X, inputs.X, steps.ID.outcome and steps.ID.outputs.X"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
