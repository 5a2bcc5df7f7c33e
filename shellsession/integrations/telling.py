"""Telling: a Result as the text that a model reads.

Law: what a command printed comes first and unchanged but for a cut middle; what we say about it stands in brackets
after it, and names the verb that goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..models import Result, text_of

# About 8 000 tokens: what models are given elsewhere, too, before it crowds out the task.
MAX_OUTPUT: Final = 30_000  # characters, of each stream
_NEXT: Final = "`wait` goes on waiting, `send` answers it, `interrupt` ends it"


def told(results: Sequence[Result], limit: int = MAX_OUTPUT) -> str:
    """What a command did, as one text: the pieces of its output in their order, and how the last of them ended."""
    last = results[-1]
    stdout = clipped("".join(_shown(one.stdout_bytes, one.stdout_omitted, one.stdout_cut) for one in results), limit)
    stderr = clipped("".join(_shown(one.stderr_bytes, one.stderr_omitted, one.stderr_cut) for one in results), limit)
    parts = [stdout.removesuffix("\n")] if stdout else []
    if stderr:
        parts.append("[stderr]\n" + stderr.removesuffix("\n"))
    if said := ending(last):
        parts.append(f"[{said}]")
    if last.background:
        pids = ", ".join(str(pid) for pid in last.background)
        parts.append(f"[left running in the background: process {pids}; see `jobs`]")
    return "\n".join(parts) or "[no output]"


def ending(result: Result) -> str:
    """How a command ended, where it did not simply succeed; "" where it did."""
    match result.outcome:
        case "exited":
            return f"exit status {result.exit_code}" if result.exit_code else ""
        case "running":
            return f"still running after {result.duration:.0f} s: {_NEXT}"
        case "input":
            return "it waits for input: `send` answers it, `interrupt` ends it"
        case "timed_out" | "idle":
            return f"ended by its time limit after {result.duration:.0f} s; {_kept(result)}"
        case "shell_exited":
            status = "no status" if result.exit_code is None else f"status {result.exit_code}"
            return f"the shell ended with {status}; {_kept(result)}"
        case _:
            return f"{result.outcome}: {result.reason}; {_kept(result)}"


def _kept(result: Result) -> str:
    if result.state_kept:
        return "the shell, its directory and its variables are kept"
    return "the next command starts in a fresh shell, without this one's directory and variables"


def _shown(data: bytes, omitted: int, cut: int) -> str:
    """A piece of output, with a word at the place where bytes of it were dropped."""
    if not omitted:
        return text_of(data, 0, 0)
    gap = f"\n[... {omitted} bytes omitted ...]\n"
    return text_of(data[:cut], 1, cut) + gap + text_of(data[cut:], 1, 0)


def clipped(text: str, limit: int) -> str:
    """The text, without its middle where it is longer than so many characters."""
    if len(text) <= limit:
        return text
    head, tail = limit // 2, limit - limit // 2
    return f"{text[:head]}\n[... {len(text) - limit} characters omitted ...]\n{text[len(text) - tail :]}"
