"""Reads a page in Markdown as a workflow: its blocks of bash, sh and console, in order.

A fence may have attributes after its language: ``{name=build timeout=30 skip}``, ``{timeout: 10s}`` or
``{"name": "build"}``. In a block of console each line that begins with ``$`` is a step, and the lines below it are what
it must print. Its exit status counts if there are none, or if the last one says it: ``[3]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final, TypeVar

from ..extras import missing
from .loading import Fault, checked, invalid
from .mistakes import Where
from .model import Definition

DefinitionT = TypeVar("DefinitionT", bound=Definition)

_SCRIPTS: Final = ("bash", "sh", "shell")
_DIALOGUES: Final = ("console", "shell-session")
_INFO: Final = re.compile(r"(?P<language>[\w-]+)[^{]*(?:\{(?P<attributes>[^}]*)\})?")
_ATTRIBUTE: Final = re.compile(
    r"""[\s,]*(?P<quote>["']?)(?P<name>[A-Za-z][\w-]*)(?P=quote)(?:\s*[=:]\s*(?P<value>"[^"]*"|'[^']*'|[^\s,"']+))?[\s,]*"""
)
# The attributes that are fields of a step, and how their values are read.
_FLAGS: Final = ("errexit", "background", "isolated", "continue-on-error")
_NUMBERS: Final = ("timeout", "retry")
_TEXTS: Final = ("name", "id", "working-directory", "if")
_ALLOWED: Final = (*_TEXTS, *_NUMBERS, *_FLAGS, "skip", "exit-code")
# A comment before a block that is not to be run.
_SKIP: Final = re.compile(r"<!--\s*(?:no-run|skip)\b")
_STATUS: Final = re.compile(r"\[(\d{1,3})\]")


def loads(text: str, path: str, kind: type[DefinitionT]) -> DefinitionT:
    """Return the workflow that a page is. Raises InvalidWorkflow and MissingExtra."""
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise missing("workflow", error) from error
    steps: list[dict[str, Any]] = []
    lines: dict[Where, int] = {(): 1, ("steps",): 1}
    faults: list[Fault] = []
    name, is_skipped = "", False
    tokens = MarkdownIt("commonmark").parse(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if not name and token.type == "inline" and before is not None and before.tag == "h1":
            name = token.content
        if token.type == "fence" and token.map is not None:
            line = token.map[0] + 1
            try:
                found = list(_steps(token.info, token.content, line, is_skipped))
            except Fault as fault:
                faults.append(fault)
                found = []
            for at, step in found:
                where: Where = ("steps", len(steps))
                lines |= {where: at, **{(*where, field): at for field in step}}
                steps.append(step)
        is_skipped = token.type == "html_block" and _SKIP.match(token.content.strip()) is not None
    if not steps:
        raise invalid(path, faults or [Fault(1, "the page must have a block of bash, sh or console")])
    value = {"name": name or PurePath(path).stem, "steps": steps}
    starts = {where: line + 1 for where, line in lines.items()}
    return checked(value, lines, starts, faults, path, kind)


def _steps(info: str, content: str, line: int, is_skipped: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each step of a block, and its line. Raises Fault."""
    found = _INFO.match(info.strip())
    if found is None or found["language"] not in (*_SCRIPTS, *_DIALOGUES):
        return
    step = _attributes(found["attributes"] or "", line)
    if step.pop("skip", False) or is_skipped:
        step["if"] = "false"
    if found["language"] in _SCRIPTS:
        if content.strip():
            yield line, {**step, "run": content.rstrip("\n")}
        return
    for at, command, shown in _dialogue(content):
        expect = {**step.get("expect", {})}
        if shown and (status := _STATUS.fullmatch(shown[-1])):
            expect["exit-code"] = int(status[1])
            shown = shown[:-1]
        if any(one.strip() for one in shown):
            expect = {"exit-code": None, **expect, "output": "\n".join(shown)}
        yield line + at, {**step, "run": command, **({"expect": expect} if expect else {})}


def _attributes(text: str, line: int) -> dict[str, Any]:
    """Return the fields of a step that the attributes of its fence give. Raises Fault."""
    step: dict[str, Any] = {"errexit": False}
    at = 0
    while at < len(text.rstrip()):
        if (found := _ATTRIBUTE.match(text, at)) is None or found.end() == at:
            raise Fault(line, f"{text[at:].strip()!r:.60} must be attributes such as {{name=build timeout=30 skip}}")
        at = found.end()
        name, value = found["name"], found["value"]
        if value is not None and value[0] in "\"'":
            value = value[1:-1]
        if name not in _ALLOWED:
            raise Fault(line, f"{name} is no attribute of a block: allowed are {', '.join(_ALLOWED)}")
        if name in (*_FLAGS, "skip"):
            if value not in (None, "true", "false"):
                raise Fault(line, f"{name}: must be true or false, not {value!r:.40}")
            step[name] = value != "false"
        elif value is None:
            raise Fault(line, f"{name}: must have a value: {name}=...")
        elif name == "exit-code":
            step["expect"] = {"exit-code": int(value) if value.isdecimal() else value}
        elif name in _NUMBERS and re.fullmatch(r"\d{1,9}(\.\d+)?", value):
            step[name] = float(value) if "." in value else int(value)
        else:
            step[name] = value
    return step


def _dialogue(content: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield each command of a dialogue: how far below the fence it is, its text, and the lines after it."""
    command: list[str] = []
    shown: list[str] = []
    begin = 0
    for at, line in enumerate(content.split("\n"), 1):
        if line.startswith("$ "):
            if command:
                yield begin, "\n".join(command), shown
            begin, command, shown = at, [line[2:]], []
        elif line.startswith("> ") and command and not shown:
            command.append(line[2:])
        elif command:
            shown.append(line)
    while shown and not shown[-1].strip():
        shown.pop()
    if command:
        yield begin, "\n".join(command), shown
