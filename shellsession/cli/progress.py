"""Shows a workflow while it runs: lines for a log, JSON for programs, and a live table on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Any, Final, Protocol

from ..errors import MissingExtra
from ..extras import missing
from ..text import clean
from ..workflow.report import (
    Event,
    Report,
    StepEnded,
    StepOutput,
    StepReport,
    StepRetried,
    StepStarted,
    WorkflowEnded,
    WorkflowStarted,
    described,
    seconds,
)
from .arguments import escaped, show, show_json, table, talk

# Lines of a failed step's output that are shown below the table.
_TAIL: Final = 30
_STYLES: Final = {"success": "green", "failure": "bold red", "skipped": "dim", "cancelled": "yellow"}
_SIGNS: Final = {"success": "✓", "failure": "✗", "skipped": "-", "cancelled": "✗"}


class Progress(Protocol):
    """Gets the events of a run. ``report`` is the last one's, once there is one."""

    report: Report | None

    def __call__(self, event: Event) -> None: ...

    def close(self) -> None:
        """Leave the screen as it is."""


def progress(json: bool) -> Progress:
    """Return the progress that suits stdout."""
    if json:
        return Json()
    if sys.stdout.isatty():
        try:
            return Live()
        except MissingExtra as error:
            talk(str(error))
    return Plain()


class Json:
    """One JSON object on a line for each event."""

    report: Report | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, WorkflowEnded):
            self.report = event.report
        show_json(event.to_dict())
        sys.stdout.flush()

    def close(self) -> None:
        pass


class Plain:
    """The title of each step, its output, how it ended; and a table at the end."""

    report: Report | None = None

    def __init__(self) -> None:
        self._count, self._is_in_line = 0, False

    def __call__(self, event: Event) -> None:
        match event:
            case WorkflowStarted():
                self._count = len(event.titles)
                _say_begin(event)
            case StepStarted():
                again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
                show(f"== {event.step}/{self._count} {escaped(event.title)}{again}")
            case StepOutput():
                sys.stdout.write(_printable(event.text))
                self._is_in_line = not event.text.endswith("\n")
            case StepRetried():
                self._end_line()
                show(f"-- {escaped(event.reason)}: again in {event.wait:g} s")
            case StepEnded(report=one) if one.outcome == "skipped":
                show(f"== {one.step}/{self._count} {escaped(one.title)}: {escaped(described(one))}")
            case StepEnded(report=one) if not one.resumed:
                self._end_line()
                show(f"-- {escaped(described(one))} ({seconds(one.duration)})")
            case WorkflowEnded():
                self.report = event.report
                show("", *table(("STEP", "TITLE", "RESULT", "TIME"), event.report.rows()))
        sys.stdout.flush()

    def _end_line(self) -> None:
        if self._is_in_line:
            print()
            self._is_in_line = False

    def close(self) -> None:
        self._end_line()


class Live:
    """A table that changes while the steps run: each with a sign, its time, and the last line of its output."""

    report: Report | None = None

    def __init__(self, console: Any = None) -> None:
        try:
            from rich.console import Console
            from rich.live import Live as Screen
        except ImportError as error:
            raise missing("workflow", error) from error
        self._console = console or Console(highlight=False)
        self._rows: list[tuple[str, StepReport | None]] = []
        self._running, self._begun, self._line, self._attempt = 0, 0.0, "", 1
        self._screen = Screen(get_renderable=self.table, console=self._console, refresh_per_second=8)

    def __call__(self, event: Event) -> None:
        match event:
            case WorkflowStarted():
                _say_begin(event)
                self._rows = [(title, None) for title in event.titles]
                self._screen.start()
            case StepStarted():
                self._running, self._begun, self._line = event.step, time.monotonic(), ""
                self._attempt = event.attempt
            case StepOutput():
                lines = [line for line in clean(event.text).splitlines() if line.strip()]
                self._line = lines[-1] if lines else self._line
            case StepEnded():
                self._running = 0
                self._rows[event.report.step - 1] = (event.report.title, event.report)
            case WorkflowEnded():
                self.report = event.report
                self._rows = [(one.title, one) for one in event.report.steps]
                self.close()
                for one in event.report.failed:
                    self._show_output(one)

    def table(self) -> Any:
        """The table as it is now."""
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        found = Table(box=None, show_header=False, padding=(0, 1), expand=False)
        found.add_column(no_wrap=True)
        found.add_column(no_wrap=True, justify="right", style="dim")
        for _ in range(2):
            found.add_column(no_wrap=True, overflow="ellipsis")
        found.add_column(no_wrap=True, justify="right")
        for number, (title, report) in enumerate(self._rows, 1):
            if report is not None:
                style = _STYLES[report.conclusion]
                sign, said = Text(_SIGNS[report.outcome], style), Text(escaped(described(report)), style)
                took = "" if report.outcome == "skipped" else seconds(report.duration)
            elif number == self._running:
                again = f"attempt {self._attempt}: " if self._attempt > 1 else ""
                sign, said = Spinner("dots", style="cyan"), Text(again + escaped(self._line), "dim")
                took = seconds(time.monotonic() - self._begun)
            else:
                sign, said, took = Text(" "), Text(""), ""
            found.add_row(sign, str(number), Text(escaped(title)), said, took)
        return found

    def _show_output(self, one: StepReport) -> None:
        from rich.text import Text

        lines = clean(one.output).splitlines()[-_TAIL:]
        self._console.print(Text(f"\n{one.step}. {escaped(one.title)}: {escaped(one.reason)}", "bold red"))
        self._console.print(Text("\n".join(map(escaped, lines))))

    def close(self) -> None:
        self._screen.stop()


def _say_begin(event: WorkflowStarted) -> None:
    for one in event.not_restored:
        talk(f"not restored: {one}")


def _printable(text: str) -> str:
    encoding = sys.stdout.encoding
    return text.encode(encoding, "backslashreplace").decode(encoding)
