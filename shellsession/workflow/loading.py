"""Reads a workflow from YAML, and says for each mistake the file, the line, the field, and what is allowed.

The values are those of YAML 1.2: ``on``, ``no``, ``0755`` and ``22:22`` are texts. A field that takes text gets it as
it is written, so ``run: true`` is a command. PyYAML's ``compose`` gives the lines; it constructs no objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import InvalidWorkflow
from ..extras import missing
from .expression import begins_expression
from .mistakes import Where, advice, described, fields_of, in_file, models_in, path_of
from .model import NO_EXPRESSION, Definition, faults_of

DefinitionT = TypeVar("DefinitionT", bound=Definition)

_LARGEST: Final = 1 << 20  # bytes of a file
_NODES: Final = 50_000  # values in a file, each alias counted as what it stands for
_DEEPEST: Final = 20
_SHOWN: Final = 20  # faults
_BLANK: Final = ("", "~", "null", "Null", "NULL")
_BOOLEAN: Final = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INTEGER: Final = re.compile(r"[-+]?\d+")
_NUMBER: Final = re.compile(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?")
# The fields whose values are not text.
_TYPED: Final = {
    *("timeout", "timeout-minutes", "count", "wait", "retry", "exit-code", "port", "continue-on-error", "background"),
    *("isolated", "required", "errexit"),
}


class Fault(Exception):
    """One mistake of a file, and its line."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line, self.text = line, text


class _Reader:
    """The values of a YAML document, and the line of each by its place."""

    def __init__(self) -> None:
        self.lines: dict[Where, int] = {(): 1}
        self.starts: dict[Where, int] = {}  # of the values
        self.faults: list[Fault] = []
        self._nodes = 0

    def value(self, node: Any, where: Where) -> Any:
        """Return the plain value of a node."""
        import yaml

        line = node.start_mark.line + 1
        self.lines.setdefault(where, line)
        self.starts[where] = line + (getattr(node, "style", None) in ("|", ">"))
        self._nodes += 1
        if self._nodes > _NODES or len(where) > _DEEPEST:
            raise Fault(line, f"the file must have at most {_NODES} values, not more than {_DEEPEST} deep")
        if node.tag not in _TAGS:
            raise Fault(line, f"the tag {node.tag} must not be here: write the value without it")
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node.value, node.style is None, where)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(one, (*where, index)) for index, one in enumerate(node.value)]
        return self._mapping(node, where)

    def _mapping(self, node: Any, where: Where) -> dict[str, Any]:
        import yaml

        found: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise Fault(line, "a name must be one word, not a list or a mapping")
            if key.value in found:
                self.faults.append(
                    Fault(line, f"{path_of((*where, key.value))}: must be here once: it is in an earlier line, too")
                )
                continue
            self.lines[(*where, key.value)] = line
            found[key.value] = self.value(value, (*where, key.value))
        return found


_TAGS: Final = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")} | {None, ""}


def _scalar(text: str, is_plain: bool, where: Where) -> Any:
    is_variable = where[:-1] == ("env",) or (len(where) == 4 and where[2] == "env")
    if not is_plain or (is_variable and text not in _BLANK):
        return text
    if text in _BLANK:
        return "" if is_variable else None
    if where[-1:] and where[-1] in _TYPED and where[:-1] != ("inputs",):
        if text in _BOOLEAN:
            return _BOOLEAN[text]
        if _INTEGER.fullmatch(text) and len(text) < 20:
            return int(text)
        if _NUMBER.fullmatch(text):
            return float(text)
    return text


def document(text: str) -> tuple[Any, _Reader]:
    """Return what a YAML text says, and the reader that knows its lines. Raises Fault and MissingExtra."""
    try:
        import yaml
    except ImportError as error:
        raise missing("workflow", error) from error
    if len(text) > _LARGEST:
        raise Fault(1, f"the file must have at most {_LARGEST} characters, not {len(text)}")
    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(filter(None, (error.context, error.problem)))
        raise Fault(1 if mark is None else mark.line + 1, f"this is not YAML: {said}") from None
    except yaml.YAMLError as error:  # a character that YAML does not allow
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        raise Fault(line, f"this is not YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise Fault(1, f"the file must have values at most {_DEEPEST} deep") from None
    if node is None:
        raise Fault(1, "the file must have steps:, not be empty")
    reader = _Reader()
    return reader.value(node, ()), reader


def loads(text: str, path: str, kind: type[DefinitionT]) -> DefinitionT:
    """Return the workflow in a YAML text. Raises InvalidWorkflow, and MissingExtra."""
    try:
        value, reader = document(text)
    except Fault as fault:
        raise invalid(path, [fault]) from None
    if not isinstance(value, dict):
        kind_found = "a list" if isinstance(value, list) else "a text"
        raise invalid(path, [Fault(1, f"a workflow must be a mapping with steps:, not {kind_found}")])
    return checked(value, reader.lines, reader.starts, reader.faults, path, kind)


def checked(
    value: Mapping[str, Any],
    lines: Mapping[Where, int],
    starts: Mapping[Where, int],
    faults: list[Fault],
    path: str,
    kind: type[DefinitionT],
) -> DefinitionT:
    """Return the workflow that these values make. ``lines``: of their names; ``starts``: of the values."""
    faults = [*faults, *_unknown_fields(value, kind, (), lines)]
    found: list[tuple[Where, str]] = []
    definition: DefinitionT | None = None
    try:
        definition = kind.model_validate(_known(value, kind), context={})
        found += faults_of(definition)
    except ValidationError as error:
        found += (described(one, kind) for one in error.errors(include_url=False))
    for where, text in found:
        line = _line(where, lines)
        if text == NO_EXPRESSION:
            run = str(_at(value, where))
            line = starts.get(where, line) + run.count("\n", 0, begins_expression(run))
        faults.append(Fault(line, f"{path_of(where)}: {text}" if where else text))
    if faults or definition is None:
        raise invalid(path, faults)
    placed = {
        part: tuple(
            step.model_copy(update={"line": _line((in_file(part), index), lines)})
            for index, step in enumerate(getattr(definition, part))
        )
        for part in ("steps", "finally_")
    }
    return definition.model_copy(update={**placed, "path": path})


def invalid(path: str, faults: list[Fault]) -> InvalidWorkflow:
    """Return the error with all faults, in the order of their lines."""
    ordered = sorted(faults, key=lambda fault: fault.line)
    lines = [f"{path}:{fault.line}: {fault.text}" for fault in ordered[:_SHOWN]]
    if len(ordered) > _SHOWN:
        lines.append(f"and {len(ordered) - _SHOWN} more")
    return InvalidWorkflow("\n".join(lines))


def _line(where: Where, lines: Mapping[Where, int]) -> int:
    while where not in lines:
        where = where[:-1]
    return lines[where]


def _at(value: Any, where: Where) -> Any:
    for part in where:
        value = value[part]
    return value


def _children(value: Any, kind: type[BaseModel]) -> Iterator[tuple[Where, Any, type[BaseModel]]]:
    """Yield what is in the value of a model and has a model itself: its place, its value, and its model."""
    fields = fields_of(kind)
    for name, given in value.items():
        for model, how in models_in(fields.get(name)):
            if how == "" and isinstance(given, dict):
                yield (name,), given, model
            elif how == "list" and isinstance(given, list):
                yield from (((name, index), one, model) for index, one in enumerate(given) if isinstance(one, dict))
            elif how == "mapping" and isinstance(given, dict):
                yield from (((name, key), one, model) for key, one in given.items() if isinstance(one, dict))


def _unknown_fields(
    value: Mapping[str, Any], kind: type[BaseModel], where: Where, lines: Mapping[Where, int]
) -> Iterator[Fault]:
    known = fields_of(kind)
    for name in value:
        if name not in known:
            place = (*where, name)
            yield Fault(_line(place, lines), f"{path_of(place)}: {advice(name, known)}")
    for place, one, model in _children(value, kind):
        yield from _unknown_fields(one, model, (*where, *place), lines)


def _known(value: Any, kind: type[BaseModel]) -> Any:
    """Return the value without the fields that its models lack, which are reported already."""
    found = {name: one for name, one in value.items() if name in fields_of(kind)}
    for place, one, model in _children(value, kind):
        name, *inside = place
        if inside:
            held = found[name] = found[name].copy()
            held[inside[0]] = _known(one, model)
        else:
            found[name] = _known(one, model)
    return found
