"""Waits for the process substitutions that still hold a command's output after bash has given its mark.

Bash waits neither for a process substitution (`> >(tee log)`) nor for a job (`server &`). Both may still hold the
command's streams. The output of a process substitution belongs to the command, so the call waits for it. /proc tells
them apart: a process substitution reads a pipe into which nobody can write any more. So may a job (`echo x | job &`),
but a job ignores SIGINT. Since bash 5.3 a process substitution ignores it as well; the call waits for both there.
"""

from __future__ import annotations

import math
import signal
import time
from typing import Final, Literal

from ..bash.shell import Shell
from ..io.threads import Steps, Wait
from ..kernel import activity, proc
from . import collect
from .call import Call
from .collect import DEAD, INTERRUPT, MARK, What

# Seconds that a call waits after the mark. A process substitution of an isolated command has the whole time limit.
_SUBSTITUTIONS: Final = 5.0
_JOBS: Final = 0.5  # of an isolated command; others do not wait for jobs
_TICK: Final = 0.01
# A fork of bash may not have its pipe as stdin yet. Until it has, it uses less processor time than this, in seconds.
_FORK: Final = 0.05
_IGNORES_SIGINT_SINCE: Final = 503  # bash's version
LEFT_RUNNING: Final = (
    "processes that the command left running still hold its output: what they print from now on is not in this result"
)
_Kind = Literal["substitution", "either", "job"]


def wait_for_end(shell: Shell, call: Call, until: float | None) -> Steps[What]:
    """Collect output after the mark. Returns MARK when the call need not wait any longer, or what happened before."""
    now = time.monotonic()
    call.marked_at = call.marked_at or now
    while True:
        patience = _patience(shell, call)
        end = call.marked_at + patience
        if patience != math.inf:  # at its time limit the command ends well, and what holds its streams is left running
            # A wait has its own limit, at which the command is handed back again.
            limit = until if until is not None and until == call.until else math.inf
            end = min(end, call.idle_at, limit)
        if now >= end and not call.paused:
            call.explain(LEFT_RUNNING if patience else "")
            return MARK
        if shell.dead:
            return DEAD
        if call.interrupt_requested:
            return INTERRUPT
        if (what := collect.happened(call, until, now)) is not None:
            return what
        moment = min(now + _TICK, end, math.inf if until is None else until)
        ready = yield Wait((shell.wake_fd,), moment, output=tuple(collect.open_streams(call, now)))
        now = time.monotonic()
        if shell.wake_fd in ready:
            shell.clear_wake()
            call.raise_fault()
        collect.read_streams(shell, call, now)


def _patience(shell: Shell, call: Call) -> float:
    """Return for how many seconds after the mark the call waits for the processes that hold its streams now."""
    held = collect.held_files(shell, call)
    kinds = {_kind(shell, pid, held) for pid in shell.family.newer_children(call.older)} if held else set()
    if "substitution" in kinds:
        return math.inf if call.request.isolated else _SUBSTITUTIONS
    if "either" in kinds:
        return _SUBSTITUTIONS
    return _JOBS if held and call.request.isolated else 0.0


def _kind(shell: Shell, pid: int, held: set[tuple[int, int]]) -> _Kind:
    is_fork = proc.state(pid) in ("R", "D") and proc.run_the_same(pid, shell.pid)
    if is_fork and proc.processor_time(pid) < _FORK:
        return "either"
    if activity.at_end_of_input(pid) and activity.may_write_to(pid, held):
        if not activity.ignores(pid, signal.SIGINT):
            return "substitution"
        return "either" if shell.version >= _IGNORES_SIGINT_SINCE else "job"
    # It may be the last writer of the pipe that another process substitution reads. Look again when it has ended.
    return "either" if activity.is_ending(pid) else "job"
