"""How a command has ended, its result, and the messages about a lost shell or a failed startup command.

What ends a command says how in an ``Ending``, and ``conclude`` makes the final result of it, once. A command that runs
on is ``HandedBack``. ``answer`` is what the caller gets of either: it delivers the final result, or makes an
intermediate one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...models import Outcome, Result, command_text
from ...text import sentences, status
from ..kernel import proc
from .call import Call
from .core import Core
from .waits import reason_for

# How many characters of a failed startup command, and of its stderr, its error shows.
_SHOWN: Final = 200
_LAST_WORDS: Final = 500


@dataclass(frozen=True, slots=True)
class HandedBack:
    """A command that continues to run: why the caller gets it back, and the reason in words.

    ``matched``: see ``Result``.
    """

    outcome: Outcome
    reason: str = ""
    matched: bool = False


class Ending(NamedTuple):
    """How a command has ended.

    ``reason``: in words; by default that of its call. ``signal``: as in ``Result``; by default the last one that we
    sent. ``background``: what it left running. ``state_kept``: it has not cost the shell.
    """

    outcome: Outcome
    exit_code: int | None
    cwd: str
    reason: str = ""
    signal: int | None = None
    background: tuple[int, ...] = ()
    state_kept: bool = True


def conclude(call: Call, ending: Ending) -> Result:
    """Conclude a command that has ended, and return its result."""
    call.end(said := _result(call, ending, final=True))
    return said


def _result(call: Call, ending: Ending, final: bool, matched: bool = False) -> Result:
    stdout, stdout_omitted, stdout_cut = call.stdout.take(final)
    stderr, stderr_omitted, stderr_cut = call.stderr.take(final)
    out_file, err_file = call.spill_files()
    reason = ending.reason or call.reason
    return Result(
        stdout,
        stderr,
        ending.exit_code,
        ending.signal or call.signal,
        ending.cwd,
        time.monotonic() - call.started,
        ending.outcome,
        ending.state_kept,
        call.why(reason) if call.spills else reason,
        call.killed,
        ending.background,
        stdout_omitted,
        stderr_omitted,
        out_file,
        err_file,
        stdout_cut if stdout_omitted else 0,
        stderr_cut if stderr_omitted else 0,
        not call.not_run,
        call.id,
        call.keeps_output(final),
        matched,
        call.stdout.omitted_lines,
        call.stderr.omitted_lines,
        command_text(call.request.command),
    )


def answer(core: Core, call: Call, came: Result | HandedBack) -> Result:
    """Deliver the final result, and return it. If the command still runs, return its output since the last result."""
    if isinstance(came, Result):
        return call.delivery.deliver()
    cwd, reason = proc.link(f"/proc/{core.live().pid}/cwd"), reason_for(core, call, came.reason)
    return _result(call, Ending(came.outcome, None, cwd, reason), final=False, matched=came.matched)


def unread_ending(unread: Result) -> str:
    """Return the sentence for the reason of the next result: nobody has received the result of an earlier command."""
    how = status(unread.exit_code) if unread.outcome == "exited" else unread.reason or unread.outcome
    return f"nobody has read the result of the earlier command {unread.id} ({unread.command[:_SHOWN]!r}): {how}"


def with_reason(result: Result, *reasons: str) -> Result:
    """Return the result with these sentences before its own reason."""
    return result.__replace__(reason=sentences(*reasons, result.reason))


def startup_failure(text: str, came: Result) -> str:
    """Return the error message for a failed startup command: which one, how it ended, and the end of its stderr."""
    if came.outcome == "exited":
        how = f"failed with status {came.exit_code}"
        advice = "where it may fail, end it with `|| true` or pass check_startup=False"
    else:
        how = f"did not finish ({came.reason})"
        advice = "correct it, or try again"
    said = came.stderr.strip()[-_LAST_WORDS:]
    stderr = f", and its stderr ends with {said!r}" if said else ""
    return f"the startup command {text[:_SHOWN]!r} {how}{stderr}; {advice}"
