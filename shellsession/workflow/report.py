"""What a workflow did: the report, its events, and the report as a table, as JUnit XML and as Markdown.

All texts are masked. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict

from ..text import clean

Outcome = Literal["success", "failure", "skipped", "cancelled"]

# Characters of a step's output that a report has, half from its beginning and half from its end.
OUTPUT: Final = 1 << 16
_NOT_IN_XML: Final = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BACKTICKS: Final = re.compile("`+")
_MARKS: Final = {"success": "ok", "failure": "FAILED", "skipped": "skipped", "cancelled": "cancelled"}


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class StepReport(_Value):
    """How one step ended.

    ``step``: its number, from 1. ``id``, ``title``, ``line``: those of the step. ``outcome``: "cancelled" is by Ctrl-C.
    ``conclusion``: the outcome, or "success" if ``continue_on_error`` forgives a failure. ``exit_code``: of its last
    attempt, if bash has reported one. ``reason``: why it failed or was skipped. ``attempts``: how often it was run.
    ``output``: both streams in order, cut in the middle. ``outputs``: the variables that were read.
    """

    step: int
    id: str | None
    title: str
    line: int
    outcome: Outcome
    conclusion: Outcome
    exit_code: int | None = None
    reason: str = ""
    attempts: int = 0
    duration: float = 0.0
    output: str = ""
    outputs: Mapping[str, str] = {}
    resumed: bool = False


class Report(_Value):
    """How a workflow ended. ``outcome``: of the whole. ``steps``: one report for each step, those of finally last.

    ``applied``: how many paths of a branch were added, changed or removed in the directory itself. ``reason``: why the
    run has failed or was ended, if no step says it.
    """

    name: str
    path: str
    outcome: Outcome
    duration: float
    steps: tuple[StepReport, ...]
    applied: int = 0
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether the workflow has succeeded."""
        return self.outcome == "success"

    @property
    def failed(self) -> tuple[StepReport, ...]:
        """The steps because of which it has not."""
        return tuple(one for one in self.steps if one.conclusion in ("failure", "cancelled"))

    def __getitem__(self, step: str | int) -> StepReport:
        """The report of a step, by its id or by its number from 1. Raises KeyError."""
        for one in self.steps:
            if step in (one.id, one.step):
                return one
        raise KeyError(step)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """One row for each step: its number, its title, how it ended, and how long it took."""
        return [
            (str(one.step), one.title, described(one), "" if one.outcome == "skipped" else seconds(one.duration))
            for one in self.steps
        ]

    def to_markdown(self) -> str:
        """Return the report as Markdown: a table, and the output of each step that failed."""
        lines = [f"# {_cell(self.name)}: {self.outcome}", "", "| step | | result | time |", "|---|---|---|---|"]
        lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in self.rows()]
        lines += ["", _cell(self.reason)] * bool(self.reason)
        for one in self.failed:
            fence = "`" * (1 + max(2, *map(len, _BACKTICKS.findall(one.output)), 0))
            lines += [
                "",
                f"## {one.step}. {_cell(one.title)}",
                "",
                _cell(one.reason),
                "",
                fence,
                one.output.rstrip("\n"),
                fence,
            ]
        return "\n".join(lines) + "\n"

    def to_junit(self) -> str:
        """Return the report as JUnit XML, which CI servers read."""
        from xml.etree import ElementTree

        counts = {
            "tests": len(self.steps) + bool(self.reason),
            "failures": len(self.failed),
            "errors": int(bool(self.reason)),
            "skipped": sum(one.outcome == "skipped" for one in self.steps),
        }
        attributes = {"name": _xml(self.name), **{name: str(count) for name, count in counts.items()}}
        top = ElementTree.Element("testsuites", attributes | {"time": f"{self.duration:.3f}"})
        suite = ElementTree.SubElement(top, "testsuite", attributes | {"time": f"{self.duration:.3f}"})
        for one in self.steps:
            place = {"file": _xml(self.path), "line": str(one.line)} if self.path else {}
            named = {
                "classname": _xml(self.name),
                "name": _xml(f"{one.step}. {one.title}"),
                "time": f"{one.duration:.3f}",
            }
            case = ElementTree.SubElement(suite, "testcase", named | place)
            if one.conclusion in ("failure", "cancelled"):
                failure = ElementTree.SubElement(case, "failure", {"message": _xml(one.reason), "type": one.outcome})
                failure.text = _xml(one.output)
            elif one.outcome == "skipped":
                ElementTree.SubElement(case, "skipped", {"message": _xml(one.reason)})
            if one.output:
                ElementTree.SubElement(case, "system-out").text = _xml(one.output)
        if self.reason:
            case = ElementTree.SubElement(suite, "testcase", {"classname": _xml(self.name), "name": "the run itself"})
            ElementTree.SubElement(case, "error", {"message": _xml(self.reason), "type": self.outcome})
        ElementTree.indent(top)
        return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(top, encoding="unicode") + "\n"


def described(one: StepReport) -> str:
    """How a step ended, in a few words."""
    mark = "failed, allowed" if one.outcome == "failure" and one.conclusion == "success" else _MARKS[one.outcome]
    if one.resumed:
        mark += " before"
    if one.attempts > 1:
        mark += f", {one.attempts} attempts"
    return f"{mark}: {one.reason}" if one.reason else mark


def seconds(duration: float) -> str:
    """A duration in a few characters."""
    return f"{duration:.2f}s" if duration < 10 else f"{duration:.0f}s" if duration < 600 else f"{duration / 60:.0f}m"


def shortened(text: str) -> str:
    """The text, without its middle if it is too long for a report."""
    if len(text) <= OUTPUT:
        return text
    half = OUTPUT // 2
    return f"{text[:half]}\n[... {len(text) - OUTPUT} characters omitted ...]\n{text[-half:]}"


def _cell(text: str) -> str:
    return " ".join(clean(text).replace("|", "\\|").replace("<", "&lt;").split())


def _xml(text: str) -> str:
    """The text without characters that XML cannot have."""
    return _NOT_IN_XML.sub("\ufffd", clean(text))


class Event(_Value):
    """Something that happens while a workflow runs. ``kind``: which class it is, in JSON."""

    kind: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the event as values for JSON."""
        return {"event": self.kind, **self.model_dump(mode="json")}


class WorkflowStarted(Event):
    """The workflow begins. ``titles``: of all its steps. ``agent``: whose shell it is, if a daemon has it.

    ``not_restored``: what the shell of a resumed run lacks.
    """

    kind: ClassVar[str] = "workflow_started"
    name: str
    titles: tuple[str, ...]
    agent: str = ""
    not_restored: tuple[str, ...] = ()


class StepStarted(Event):
    """An attempt of a step begins."""

    kind: ClassVar[str] = "step_started"
    step: int
    title: str
    attempt: int


class StepOutput(Event):
    """A step has printed this; whole lines, if possible."""

    kind: ClassVar[str] = "step_output"
    step: int
    text: str


class StepRetried(Event):
    """An attempt has failed, and another one comes after ``wait`` seconds."""

    kind: ClassVar[str] = "step_retried"
    step: int
    reason: str
    wait: float


class StepEnded(Event):
    """A step has ended, or was skipped."""

    kind: ClassVar[str] = "step_ended"
    report: StepReport


class WorkflowEnded(Event):
    """The workflow has ended."""

    kind: ClassVar[str] = "workflow_ended"
    report: Report
