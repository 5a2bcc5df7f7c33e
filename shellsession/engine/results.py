"""What is said of a command: its result, a piece of it while it runs on, and what it left running.

Law: everything that was printed is in one result and in no other; what was dropped is counted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from ..errors import GONE
from ..models import Outcome, Result, Stream as StreamName
from . import processes
from .call import Call
from .core import Core
from .jobs import Job, remembered
from .shell import Shell
from .signals import undisturbed
from .streams import Stream

# Characters of a startup command that failed, and of its stderr, that its error has.
_SHOWN: Final = 200
_LAST_WORDS: Final = 500


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The command runs on: why the caller gets it back, and with which words."""

    outcome: Outcome
    reason: str = ""


def leave_jobs(engine: Core, shell: Shell, call: Call, held: list[tuple[StreamName, Stream]]) -> tuple[int, ...]:
    """Make a job of what goes on: new children of bash, or somebody who holds the streams."""
    pids = shell.family.newer_children(call.older) if engine.had_children else []
    if pids or held:
        _make_job(engine, shell, call, pids, held)
    if engine.had_children and engine.terminal_job is None:
        _lend_terminal(engine, shell, call)
    return tuple(pids)


def _lend_terminal(engine: Core, shell: Shell, call: Call) -> None:
    """While a job lives, what is said to /dev/tty may be its: it goes to that job's record, and to no result."""
    for job in reversed(engine.jobs):
        if job.alive():
            engine.forget_fd(shell.terminal.fd)
            job.borrow("terminal", shell.terminal, call.fresh_capture(), engine.reader)
            engine.terminal_job = job
            return


def _make_job(engine: Core, shell: Shell, call: Call, pids: list[int], held: list[tuple[StreamName, Stream]]) -> None:
    family, tags = shell.family, shell.family.tags
    tag = 0 if tags.is_shared else tags.latest
    job = Job(call.request.command.decode("utf-8", "replace"), pids, tag, family)
    engine.jobs.append(job)
    tags.renew(family.descendants())
    for one in engine.jobs:
        if one.tag == tags.latest:  # come round again, or it could not be renewed
            one.tag = 0
    with undisturbed():  # a stream is the shell's or the job's, or nobody closes it
        for name, stream in held:
            if shell.streams.part_with(stream):
                engine.forget_fd(stream.fd)
                job.adopt(name, stream, call.fresh_capture(), engine.reader)
    engine.jobs = remembered(engine.jobs)


def announced(lost: Result) -> Result:
    """The result of the next command, which is not run: the shell ended with an earlier one, and nobody was told."""
    status, number, cwd = lost.exit_code, lost.signal, lost.cwd
    return Result(b"", b"", status, number, cwd, 0.0, "shell_exited", False, GONE, lost.killed, ran=False)


def startup_failure(text: bytes, came: Result) -> str:
    """What is said of a startup command that failed: which one it is, how it ended, and the end of its stderr."""
    if came.outcome == "exited":
        how = f"failed with status {came.exit_code}"
        advice = "where it may fail, end it with `|| true` or pass check_startup=False"
    else:
        how = f"did not come to its end ({came.reason})"
        advice = "correct it, or try again"
    said = came.stderr.strip()[-_LAST_WORDS:]
    stderr = f", and its stderr ends with {said!r}" if said else ""
    return f"the startup command {text.decode('utf-8', 'replace')[:_SHOWN]!r} {how}{stderr}; {advice}"


def said_of(engine: Core, call: Call, came: Result | HandedBack) -> Result:
    """Its result; or where it runs on, what it printed since the last time."""
    if isinstance(came, Result):
        return came
    cwd = processes.link(f"/proc/{engine.live().pid}/cwd")
    return result(call, came.outcome, None, cwd, reason=came.reason, final=False)


def result(
    call: Call,
    outcome: Outcome,
    exit_code: int | None,
    cwd: str,
    state_kept: bool = True,
    reason: str = "",
    background: tuple[int, ...] = (),
    final: bool = True,
) -> Result:
    stdout, stdout_omitted, stdout_cut = call.stdout.take(final)
    stderr, stderr_omitted, stderr_cut = call.stderr.take(final)
    out_file, err_file = call.spill_files()
    said = Result(
        stdout,
        stderr,
        exit_code,
        call.signal,
        cwd,
        time.monotonic() - call.started,
        outcome,
        state_kept,
        call.why(reason) if call.spills else reason or call.reason,
        call.killed,
        background,
        stdout_omitted,
        stderr_omitted,
        out_file,
        err_file,
        stdout_cut if stdout_omitted else 0,
        stderr_cut if stderr_omitted else 0,
        not call.not_run,
    )
    if final:
        call.end(said)
    return said
