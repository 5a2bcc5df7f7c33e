"""Telling: a Result, and what runs in the background, as the text that a model reads.

Law: what a command printed comes first and unchanged but for a cut middle; what we say about it stands in brackets
after it, and names the verb that goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..contracts.failing import KEPT, LOST, ending, shown
from ..errors import InvalidRequest
from ..models import Limits, Result

if TYPE_CHECKING:
    from ..engine.jobs import Job

# About 8 000 tokens: what models are given elsewhere, too, before it crowds out the task.
MAX_OUTPUT: Final = 30_000  # characters, of each stream
JOBS: Final = "; see `jobs`"
_NEXT: Final = "`wait` goes on waiting, `send` answers it if it is interactive, `interrupt` ends it"


def limits_for(max_output: object) -> Limits:
    """What is kept where so many characters of each stream are shown. Raises InvalidRequest."""
    if isinstance(max_output, bool) or not isinstance(max_output, int) or max_output < 0:
        raise InvalidRequest(f"max_output is a number of characters, 0 or more, not {max_output!r:.100}")
    return Limits(max_output=4 * max_output)  # a character is at most four bytes


def told(results: Sequence[Result], limit: int = MAX_OUTPUT, jobs: str = JOBS) -> str:
    """What a command did, as one text: the pieces of its output in their order, and how the last of them ended.

    ``jobs``: where the model may look for what was left running; "" where it has no such tool.
    """
    last = results[-1]
    stdout, stderr = streams(results, limit)
    parts = [stdout.removesuffix("\n")] if stdout else []
    if stderr:
        parts.append("[stderr]\n" + stderr.removesuffix("\n"))
    if said := _how(last):
        parts.append(f"[{said}]")
    if last.background:
        pids = ", ".join(str(pid) for pid in last.background)
        parts.append(f"[left running in the background: process {pids}{jobs}]")
    return "\n".join(parts) or "[no output]"


def _how(result: Result) -> str:
    """How a command ended, where it did not simply succeed; "" where it did."""
    if not result.ran:
        return f"not run: {result.reason}"
    match result.outcome:
        case "exited":
            return f"exit status {result.exit_code}" if result.exit_code else ""
        case "running":
            return f"still running after {_rounded(result.duration)} s: {_NEXT}"
        case "input":
            return "it waits for input: `send` answers it, `interrupt` ends it"
        case "timed_out" | "idle":
            kept = KEPT if result.state_kept else LOST
            return f"ended by its time limit after {_rounded(result.duration)} s; {kept}"
    return ending(result)


def _rounded(seconds: float) -> str:
    """The seconds as people read them; never 0 for what took some time."""
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}" if seconds >= 0.1 else f"{seconds:.1g}"


def seen(job: Job) -> dict[str, Any]:
    """A job of this process as ``control.jobs`` tells of a daemon's."""
    omitted = {f"{name}_omitted": job.output(name)[1] for name in ("stdout", "stderr")}
    printed = {"stdout": job.stdout, "stderr": job.stderr}
    return {"status": job.status, "pids": job.pids, "command": job.command, **printed, **omitted}


def listed(jobs: Sequence[Mapping[str, Any]], limit: int) -> str:
    """What runs in the background, or did, as one text; of each the output, up to so many characters."""
    lines = []
    for job in jobs:
        pids = ", ".join(map(str, job["pids"]))
        lines.append(f"[{job['status']}: process {pids}: {job['command']}]")
        omitted = job["stdout_omitted"] + job["stderr_omitted"]
        if output := clipped(job["stdout"] + job["stderr"], limit, omitted).removesuffix("\n"):
            lines.append(output)
    return "\n".join(lines) or "[no jobs]"


def streams(results: Sequence[Result], limit: int) -> tuple[str, str]:
    """stdout and stderr of a command, each without its middle where that is longer than so many characters."""
    stdout, stderr = ("".join(pieces) for pieces in zip(*map(shown, results), strict=True))
    return (
        clipped(stdout, limit, sum(one.stdout_omitted for one in results)),
        clipped(stderr, limit, sum(one.stderr_omitted for one in results)),
    )


def clipped(text: str, limit: int, omitted: int) -> str:
    """The text, without its middle where it is longer than so many characters. ``omitted`` bytes were missing there
    before: what said so may go with it."""
    if len(text) <= limit:
        return text
    head, tail = limit // 2, limit - limit // 2
    more = f" and {omitted} bytes" if omitted else ""
    return f"{text[:head]}\n[{len(text) - limit} characters{more} omitted]\n{text[len(text) - tail :]}"
