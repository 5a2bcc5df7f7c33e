"""Says what is wrong with the fields of a workflow: where, and what is allowed there. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ..errors import InvalidWorkflow

# A place in a workflow: the names of fields and the indices of lists that lead to it.
Where = tuple[str | int, ...]

# What other runners have, and what to do instead.
_ELSEWHERE: Final = {
    "uses": "actions of others cannot run here: write their commands in run",
    "with": "only `uses` takes it: write commands in run, and values in env",
    "jobs": "a file is one job: put its steps at the top, and write one file for each job",
    "on": "a workflow starts when `shellsession workflow run` is called",
    "needs": "steps run one after the other: put them in order",
    "strategy": "there is no matrix: run the file once for each value, with --input",
    "matrix": "there is no matrix: run the file once for each value, with --input",
    "services": "start the service in a step with background: true",
    "container": "start the container in a step, or run shellsession in it",
    "runs-on": "it runs where its session is; --via leads to another machine",
    "permissions": "commands run as you; a sandbox or a policy of the session confines them",
    "concurrency": "steps run one after the other",
}
# Pydantic's own messages, where ours say more.
_MESSAGES: Final = {
    "missing": "is missing",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "tuple_type": "must be a list",
    "sequence_type": "must be a list",
    "sequence_str": "must be a list",
    "is_instance_of": "must be a list",
    "mapping_type": "must be a mapping of names to values",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
}


def invalid_call(kind: type[BaseModel], error: ValidationError) -> InvalidWorkflow:
    """Return the project's error for a model that cannot be made of these values."""
    faults = (described(one, kind) for one in error.errors(include_url=False))
    return InvalidWorkflow("\n".join(f"{path_of(where)}: {text}" if where else text for where, text in faults))


def path_of(where: Where) -> str:
    """Return a place as people write it: steps[2].env.X is of the second step."""
    return "".join(f"[{one + 1}]" if isinstance(one, int) else f".{one}" for one in where).removeprefix(".")


def described(error: Any, kind: type[BaseModel]) -> tuple[Where, str]:
    """Return the place of one of pydantic's errors, and what is wrong there. ``kind``: the model of the whole."""
    where = tuple(one for one in error["loc"] if one != "[key]")
    if error["type"] == "extra_forbidden":
        return where, advice(str(where[-1]), fields_of(_model_at(kind, where)))
    message = _MESSAGES.get(error["type"], error["msg"].removeprefix("Value error, "))
    if error["type"] in _MESSAGES and error["type"] != "missing":
        shown = error["input"]
        name = {list: "a list", tuple: "a list", dict: "a mapping", type(None): "nothing"}.get(type(shown))
        message += f", not {name or repr(shown)[:60]}"
    return where, message


def _model_at(kind: type[BaseModel], where: Where) -> type[BaseModel]:
    """Return the model that has the field at a place. ``kind``: that of the whole."""
    for part in where[:-1]:
        inner = fields_of(kind).get(part) if isinstance(part, str) else None
        kind = next((model for model, _ in models_in(inner)), kind)
    return kind


def in_file(name: str) -> str:
    """Return the name that a field has in a file."""
    return name.rstrip("_").replace("_", "-")


def fields_of(kind: type[BaseModel]) -> dict[str, Any]:
    """The fields of a model by their names in a file, with their types."""
    return {in_file(name): one.annotation for name, one in kind.model_fields.items() if not one.exclude}


def models_in(kind: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """Yield the model in a type, and how it is contained: "", "list" or "mapping"."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind, ""
    origin, inner = get_origin(kind), get_args(kind)
    for one in inner if origin in (Union, UnionType) else ():
        yield from models_in(one)
    if isinstance(origin, type) and issubclass(origin, Sequence) and inner:
        yield from ((model, "list") for model, _ in models_in(inner[0]))
    elif isinstance(origin, type) and issubclass(origin, Mapping) and len(inner) == 2:
        yield from ((model, "mapping") for model, _ in models_in(inner[1]))


def advice(name: str, known: Mapping[str, Any]) -> str:
    """Return what to do about a field that is none. ``known``: those that are allowed there."""
    if name in _ELSEWHERE:
        return f"is not supported: {_ELSEWHERE[name]}"
    close = difflib.get_close_matches(name, known, 1, 0.7)
    guess = f"did you mean {close[0]}? " if close else ""
    return f"is no field here: {guess}allowed are {', '.join(known)}"
