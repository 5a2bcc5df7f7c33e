"""Ends commands and shells, and makes the results.

- ``wait_for_end`` waits for the end of a command's output after bash has given its mark.
- ``finish`` makes the result of a command whose shell lives, and ``leave_jobs`` makes a job of what still runs.
- ``interrupt`` ends a command that still runs, and keeps its shell if possible.
- ``shell_died``, ``kill_shell`` and ``retire`` make the result of a command that cost its shell.
- ``shut_down``, ``destroy`` and ``abandon`` end the shell of a session; ``discard`` gives back all that it held.

Bash waits neither for a process substitution (`> >(tee log)`) nor for a job (`server &`). Both may still hold the
command's streams. The output of a process substitution belongs to the command, so the call waits for it. /proc tells
them apart: a process substitution reads a pipe into which nobody can write any more. So may a job (`echo x | job &`),
but a job ignores SIGINT. Since bash 5.3 a process substitution ignores it as well; the call waits for both there.
"""

from __future__ import annotations

import math
import re
import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final, Literal

from ...errors import GONE
from ...models import Outcome, Result, Stream as StreamName
from ...text import signal_name
from ..bash.shell import Shell
from ..io.streams import Stream
from ..io.threads import Steps, T, Wait, shielded
from ..kernel import activity, proc
from ..kernel.signals import kill, signals_deferred
from ..wire import GUARDS, NOWHERE, Mark, closes_descriptors, is_blank, one_of, sets_errexit, switches_editing
from . import collect
from .call import Call, Job, remembered
from .collect import DEAD, INTERRUPT, MARK, What
from .core import Core
from .delivery import Delivery
from .interrupt import PROMPT, Escalation

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
            end = min(end, call.idle_at, math.inf if call.until is None else call.until)
        if now >= end and not call.paused:
            call.reason = call.reason or (LEFT_RUNNING if patience else "")
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


# How many characters of a failed startup command, and of its stderr, its error shows.
_SHOWN: Final = 200
_LAST_WORDS: Final = 500


@dataclass(frozen=True, slots=True)
class HandedBack:
    """A command that continues to run: why the caller gets it back, and the reason in words."""

    outcome: Outcome
    reason: str = ""


def leave_jobs(engine: Core, shell: Shell, call: Call, held: list[tuple[StreamName, Stream]]) -> tuple[int, ...]:
    """Make a job of what still runs: new children of bash, or processes that hold the streams. Returns their pids."""
    pids = shell.family.newer_children(call.older) if engine.had_children else []
    if pids or held:
        _make_job(engine, shell, call, pids, held)
    if engine.had_children and engine.terminal_job is None:
        _lend_terminal(engine, shell, call)
    return tuple(pids)


def _lend_terminal(engine: Core, shell: Shell, call: Call) -> None:
    """Give the terminal's output to the latest job that lives, and to no result.

    While a job lives, what is printed to /dev/tty may come from it.
    """
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
        if one.tag == tags.latest:  # the tags have wrapped around, or the tag could not be renewed
            one.tag = 0
    with signals_deferred():  # a stream must belong to the shell or the job, or it is never closed
        for name, stream in held:
            if shell.streams.detach(stream):
                engine.forget_fd(stream.fd)
                job.adopt(name, stream, call.fresh_capture(), engine.reader)
    engine.jobs = remembered(engine.jobs)


def announced(lost: Result, id: str) -> Result:
    """Return the result of a command that is not run: it reports that an earlier command cost the shell."""
    status, number, cwd = lost.exit_code, lost.signal, lost.cwd
    return Result(b"", b"", status, number, cwd, 0.0, "shell_exited", False, GONE, lost.killed, ran=False, id=id)


def startup_failure(text: bytes, came: Result) -> str:
    """Return the error message for a failed startup command: which one, how it ended, and the end of its stderr."""
    if came.outcome == "exited":
        how = f"failed with status {came.exit_code}"
        advice = "where it may fail, end it with `|| true` or pass check_startup=False"
    else:
        how = f"did not finish ({came.reason})"
        advice = "correct it, or try again"
    said = came.stderr.strip()[-_LAST_WORDS:]
    stderr = f", and its stderr ends with {said!r}" if said else ""
    return f"the startup command {text.decode('utf-8', 'replace')[:_SHOWN]!r} {how}{stderr}; {advice}"


def said_of(engine: Core, call: Call, came: Result | HandedBack) -> Result:
    """Return the final result, and count it as delivered. If the command still runs, return its output so far.

    That is what it has printed since the last time.
    """
    if isinstance(came, Result):
        return call.delivery.deliver()
    cwd = proc.link(f"/proc/{engine.live().pid}/cwd")
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
    """Make the result of a call. ``final``: the command has ended, and this result ends the call."""
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
        call.id,
        call.keeps_output(final),
    )
    if final:
        call.end(said)
    return said


TICK: Final = 0.002
ROUNDS: Final = 500
_SLICE: Final = 0.0005
_LAST_TRAP: Final = 1.0
# A reason for the loss of a shell that we can be certain of.
CLOSED_DESCRIPTORS: Final = "the command closed descriptors that the session's bash needs (10 to 12)"
_NOTICE: Final = re.compile(rb"^\[\d+\] (\d{1,10})$", re.MULTILINE)


def kill_shell(engine: Core, call: Call) -> Steps[Result]:
    """Kill the command together with its shell, at once."""
    shell = engine.live()
    call.signal = int(signal.SIGKILL)
    call.note_killed([shell.pid])
    yield from _kill_all(shell, call)
    return (yield from shell_died(engine, call))


def shell_died(engine: Core, call: Call) -> Steps[Result]:
    """Make the result of a command whose shell is dead. Kill everything that the shell started."""
    shell = engine.live()
    for _ in range(ROUNDS):
        if shell.dead:
            break
        yield Wait((), time.monotonic() + TICK)
    status = shell.status
    if shell.dead and status is None and not call.reason:
        call.reason = "the shell's exit status is unknown: SIGCHLD is ignored here, or another thread has reaped it"
    call.note_killed(shell.killed)
    yield from _kill_strays(shell, call)
    collect.drain(shell, call)
    # A bash that lost its descriptors ends with 1. With another status the text ended it, and the mark is not bash's.
    mark = _final_mark(call) if status == 1 else None
    if not engine.prompt_speaks and call.framer.mark is None:
        take_own_output(call)
    call.note_killed(_hung_up(shell, call))
    call.reason = call.reason or engine.kill_reason or _how_it_ended(engine, call.request.command, status, mark)
    if call.ending is None and status is not None and status < 0:
        call.signal = -status
    code = None if status is None else 128 - status if status < 0 else status
    if mark is not None:
        code = mark.status
    came = result(call, call.ending or "shell_exited", code, shell.first_cwd, state_kept=False)
    discard(engine, shell, call.delivery)
    return came


def take_own_output(call: Call) -> None:
    """Move what was printed on bash's own stdout and stderr to the output of the command."""
    now = time.monotonic()
    data, omitted, _ = call.own_output.take()
    if data:
        call.feed("stdout", data, now)
    call.stdout.omit(omitted)
    errors = call.stdout if call.request.merge_stderr else call.stderr
    if data := call.framer.noise_before_mark:
        call.feed("stdout" if call.request.merge_stderr else "stderr", data, now)
        errors.omit(call.framer.trimmed)


def _hung_up(shell: Shell, call: Call) -> list[int]:
    """Return the processes that the kernel ended together with bash (SIGHUP).

    They are what earlier commands had left running, and the jobs of this command. Bash prints the pids of jobs
    (`[1] 4711`). The command can print such a line as well, so a pid that lives belongs to a stranger.
    """
    known = list(call.older)
    if call.ending is None and not shell.launch.is_sandboxed:  # in a sandbox bash sees other pids than we do
        capture = call.stdout if call.request.merge_stderr else call.stderr
        known += map(int, _NOTICE.findall(capture.peek()[0]))
    return [pid for pid in known if not proc.alive(pid)]


def _how_it_ended(engine: Core, text: bytes, status: int | None, mark: Mark | None) -> str:
    """Return in words how the command ended its shell, with a hint if a known cause fits."""
    if switches_editing(text):
        return 'the session\'s bash has ended: switching line editing does that (`set -o vi`, `eval "$(set +o)"`)'
    if mark is not None:
        return CLOSED_DESCRIPTORS
    if status is None:
        return "the session's bash has ended"
    if status < 0:
        name = signal_name(-status)  # a real-time signal has none
        return f"the session's bash was killed by signal {-status}" + (f" ({name})" if name else "")
    hint = ""
    if status and (engine.errexit or sets_errexit(text)):
        hint = "; `set -e` does that when a command fails"
    elif status == 1 and closes_descriptors(text):
        hint = "; closing the descriptors from 10 to 12 does that"
    return f"the command ended the session's bash, with exit status {status}{hint}"


def retire(engine: Core, call: Call, mark: Mark) -> Steps[Result]:
    """Make the result of a command whose shell cannot run another one, and end that shell."""
    shell = engine.live()
    cwd = shell.place(mark.cwd)
    call.note_killed([shell.pid])
    yield from _end(engine, call)
    call.note_killed(_hung_up(shell, call))
    came = result(call, "shell_exited", mark.status, cwd, state_kept=False)
    discard(engine, shell, call.delivery)
    return came


def _final_mark(call: Call) -> Mark | None:
    """Return the mark from the command's stderr, or None.

    If the command closed bash's own descriptors, bash prints the mark there and then ends.
    """
    capture = call.stdout if call.request.merge_stderr else call.stderr
    said = capture.cut_after(b": " + NOWHERE + call.framer.nonce + b" ") if call.framer.nonce else b""
    if not said:
        return None
    capture.cut_line()
    return call.framer.feed(said)


def shut_down(engine: Core, why: str) -> Steps[None]:
    """End the session's shell. An idle shell first runs its EXIT trap, after its children were killed.

    A command that was handed back gets a result with all that it printed, and with ``why`` as its reason.
    """
    shell, call = engine.shell, engine.handed_back
    engine.withdraw_last()
    engine.abandon_last()
    if shell is None:
        return
    if (yield from _is_ended_elsewhere(engine, shell)):
        return
    shell.in_hand = True
    if call is not None:
        call.mute()  # the callback may still be busy with the last piece
        call.reason = why
        yield from (shell_died if shell.dead else kill_shell)(engine, call)
        return
    if engine.attended is None and not shell.dead:
        yield from _kill_below(shell)
        said = yield from collect.ask(shell, b"\\builtin trap -p EXIT >&2", _LAST_TRAP)
        if said is not None and b"trap -- " in said:
            shell.control.send(b"\n\\builtin exit\n")
            until = time.monotonic() + _LAST_TRAP
            while not shell.dead and time.monotonic() < until:  # read what the trap prints, so that it does not block
                fds = (shell.child_fd, shell.own_stdout, shell.control.fd) if shell.child_fd >= 0 else ()
                yield Wait(fds, min(until, time.monotonic() + 0.05))
                if shell.read_own_stdout() == b"" or shell.control.receive() == b"":
                    yield Wait((), time.monotonic() + TICK)
    yield from destroy(engine)


def _is_ended_elsewhere(engine: Core, shell: Shell) -> Steps[bool]:
    """Return whether another thread, which is in a verb or opens the shell, ends this shell.

    This happens when the interpreter ends.
    """
    if engine.attended is not None:
        engine.kill_running("the program ended meanwhile")
    elif not shell.in_hand:
        return False
    for _ in range(ROUNDS):
        if engine.shell is not shell:
            return True
        yield Wait((), time.monotonic() + TICK)
    return False


def destroy(engine: Core) -> Steps[None]:
    """Kill the shell and everything below it, and give back what it held."""
    shell = yield from _end(engine)
    discard(engine, shell)


def _end(engine: Core, call: Call | None = None) -> Steps[Shell]:
    shell = engine.live()
    engine.withdraw_last()
    if not shell.dead:
        yield from _kill_all(shell, call)
    yield from _kill_strays(shell, call)
    return shell


def or_abandon(engine: Core, steps: Steps[T]) -> Steps[T]:
    """Run steps that end something. If an exception (a second Ctrl-C) interrupts them, kill the whole shell.

    So no command is left half ended. A cancelled task waits for the end of the steps.
    """
    try:
        return (yield from shielded(steps))
    except BaseException:
        abandon(engine)
        raise


def abandon(engine: Core) -> None:
    """Kill the shell and everything below it without waiting. The next command finds the shell dead."""
    shell = engine.shell
    engine.withdraw_last()
    if engine.last is not None:
        engine.last.let_go()
    if shell is not None:
        shell.end()
        kill([pid for pid in shell.strays() if pid])
        shell.lost, shell.in_hand = True, False


def _kill_below(shell: Shell, call: Call | None = None) -> Steps[None]:
    for _ in range(ROUNDS):
        if not (victims := shell.family.living()):
            return
        signalled = kill(victims)
        if call is not None:
            call.note_killed(signalled)
        yield Wait((), time.monotonic() + TICK)


def _kill_all(shell: Shell, call: Call | None = None) -> Steps[None]:
    """Stop bash, kill everything below it, then kill bash.

    A stopped bash starts nothing new. As subreaper it adopts every orphan, so the killing ends when no child is left.
    """
    shell.signal(signal.SIGSTOP)
    yield from _kill_below(shell, call)
    shell.signal(signal.SIGKILL)
    shell.swept = True
    for _ in range(ROUNDS):
        if shell.dead:
            return
        yield Wait((shell.child_fd,) if shell.child_fd >= 0 else (), time.monotonic() + 0.01)


def _kill_strays(shell: Shell, call: Call | None = None) -> Steps[None]:
    """Kill what is left of a bash that died by itself. Other processes adopted its orphans; their tag finds them."""
    for _ in range(ROUNDS):  # processes that were killed before bash may not have ended yet
        if not any(map(proc.alive, shell.killed)):
            break
        yield Wait((), time.monotonic() + TICK)
    for _ in range(ROUNDS):
        if shell.swept or not (strays := (yield from _find_strays(shell))):
            return
        signalled = kill(strays)
        if call is not None:
            call.note_killed(signalled)
        yield Wait((), time.monotonic() + TICK)


def _find_strays(shell: Shell) -> Steps[list[int]]:
    """Find the strays in slices of time.

    There may be many foreign processes to look at, and an event loop serves other sessions meanwhile.
    """
    found, until = list[int](), time.monotonic() + _SLICE
    for pid in shell.strays():
        if pid:
            found.append(pid)
        if (now := time.monotonic()) > until:
            yield Wait((), now)
            until = time.monotonic() + _SLICE
    return found


def discard(engine: Core, shell: Shell, cause: Delivery | None = None) -> None:
    """Give back what a dead shell held. ``cause``: the delivery of the command that cost the shell.

    The engine keeps the shell until everything is given back. A later close, or garbage collection, then finishes the
    work if it was interrupted.
    """
    if cause is not None:
        engine.note_loss(cause)
    engine.stop_unattended()  # this may wait for a callback of the host; Ctrl-C works here
    try:
        with suppress(OSError):  # its terminal was hung up
            engine.unread += shell.keyboard.reset()
        _give_back(engine, shell)
    except BaseException:
        with suppress(Exception):  # a resource that cannot be given back must not prevent a new shell
            _give_back(engine, shell)
        engine.shell = None
        raise
    engine.shell = None


def _give_back(engine: Core, shell: Shell) -> None:
    """Give back everything. A second call after an exception does what is left.

    Deferred signals do not prevent such an exception in a host with threads.
    """
    engine.withdraw_last()
    engine.terminal_job = None
    with signals_deferred(), ExitStack() as steps:  # runs each callback, even if another fails; the last one first
        steps.callback(shell.close)
        steps.callback(engine.on_close)
        for job in engine.jobs:
            steps.callback(job.close)


# The last signals for a bash that did not come back, with the seconds of each. SIGHUP ends bash at its next safe point,
# even in a busy loop; SIGKILL ends it at once.
_LAST: Final = ((signal.SIGHUP, 0.1), (signal.SIGKILL, 5.0))
# Seconds for each question after an interrupt. There are several, because a late signal may interrupt a question. They
# grow, because a slow PROMPT_COMMAND runs twice for each.
_ASKS: Final = (0.5, 1.0, 2.0, 4.0)
_TRACING: Final = frozenset(b"xvT")
# Bash's `read` reads more from a file or terminal than it returns. An interrupted `read` would pass the rest to the
# next `read`, of whatever file. This `read` drops it. (No command relies on `$_`.)
_FORGET: Final = b"! \\builtin read -r _ </dev/null"
OVERFLOWED: Final = "the output went over the limit"


def finish(engine: Core, shell: Shell, call: Call) -> Steps[Result]:
    """Make the result of a command after the mark, with the rest of its output.

    ``engine.had_children`` says whether bash has children now.
    """
    mark = call.framer.mark
    assert mark is not None
    flags = mark.flags
    engine.withdraw_last()
    if mark.thrown:
        yield from collect.ask(shell, _FORGET)
    engine.functions_trap, engine.errexit = b"T" in flags, b"e" in flags
    engine.guard = engine.guard_after(call.request.command)
    # A text with nothing to run leaves `$?` unchanged, as Enter does at a prompt. If bash failed all the same, a
    # comment was no comment (`shopt -u interactive_comments`).
    if mark.status or not is_blank(call.request.command):
        engine.status = mark.status
    # Before the streams are drained: then all that the processes wrote before they ended is there.
    engine.had_children = engine.had_children and (yield from _has_children_at_prompt(shell, call))
    held = collect.drain(shell, call)
    engine.echoes = echoes = not _TRACING.isdisjoint(flags)
    said = call.framer.noise_before_mark if call.framer.has_noise else b""
    if said and not (echoes or call.ending or call.own_output.total) and (yield from _is_prompt(shell, said)):
        said = b""
    noise = call.own_output.total > 0 or said != b""
    if engine.debugging and (call.typed.grouped or call.ending) and not echoes and not call.retyped:
        engine.prompt_speaks = yield from _prompt_speaks(engine, shell)
    elif call.ending is None or echoes:  # otherwise the noise is about the interrupt and our own questions
        engine.prompt_speaks = echoes or noise
    shell.busy = b""  # only now: if a callback raises, no output may be left for the next command
    if call.terminal:
        engine.unread = shell.keyboard.reset()
    shell.files.clear()
    background = leave_jobs(engine, shell, call, held) if engine.had_children or held else ()
    engine.left = {**call.older, **dict.fromkeys(background, proc.time_now())} if engine.had_children else {}
    if b"E" in flags and b"T" in flags and (yield from _is_refused(shell)):
        call.reason = "the shell cannot run another command (extdebug, and a DEBUG trap that may refuse it)"
        return (yield from retire(engine, call, mark))
    if unusable := _why_unusable(shell, call, flags):
        call.reason = unusable
        return (yield from retire(engine, call, mark))
    outcome: Outcome = call.ending or "exited"
    if call.ending is None and call.overflowed:  # it ended before we could end it
        outcome, call.reason = "overflow", OVERFLOWED
    return result(call, outcome, mark.status, shell.place(mark.cwd), background=background)


def _is_prompt(shell: Shell, said: bytes) -> Steps[bool]:
    """Return whether ``said`` is what bash prints before each line, and nothing else. If so, the shell remembers it.

    That needs the same output after two commands in a row: a prompt that changes each time is noise.
    """
    before, shell.noise = shell.noise, one_of(said)
    if shell.noise and shell.noise == before and not (yield from is_traced(shell)):
        shell.prompt = shell.noise
        return True
    return False


def _why_unusable(shell: Shell, call: Call, flags: bytes) -> str:
    """Return why bash cannot run another command, or "" if it can."""
    if b"r" in flags:
        return "the shell cannot run another command: `set -r` refuses every redirection"
    if call.framer.lost_descriptor and not shell.is_whole():
        return CLOSED_DESCRIPTORS
    return "" if shell.usable() else "the shell cannot run another command: it may open too few files (`ulimit -n`)"


def _has_children_at_prompt(shell: Shell, call: Call) -> Steps[bool]:
    """Return whether bash has children once its PROMPT_COMMAND is over.

    What PROMPT_COMMAND runs is no job of the command. Bash waits for it before it reads the next line.
    """
    until = time.monotonic() + PROMPT
    while shell.prepares_prompt() and shell.family.newer(call.older) and time.monotonic() < until:
        yield Wait((), time.monotonic() + TICK)
    return shell.family.has_children()


def is_traced(shell: Shell) -> Steps[bool]:
    """Return whether `set -x`, `set -v` or a DEBUG trap is on.

    They print something at the prompt, but also for each command.
    """
    said = yield from collect.ask(shell, b'! \\builtin trap -p DEBUG >&2; ! <"/dev/null/flags:$-/"')
    flags = re.findall(rb"/flags:(\w+)/: ", said or b"")
    return said is None or b"trap -- " in said or not flags or not _TRACING.isdisjoint(flags[-1])


def _prompt_speaks(engine: Core, shell: Shell) -> Steps[bool]:
    """Return whether bash prints something (by a DEBUG trap or PROMPT_COMMAND) when it runs only a line of ours."""
    shell.clear_own_output()
    said = yield from collect.ask(shell, b"if %b; then :; fi" % GUARDS[engine.spelling])
    return said is None or not said.startswith(b"bash: /") or bool(shell.read_own_stdout())


def _is_refused(shell: Shell) -> Steps[bool]:
    """Return whether a DEBUG trap may refuse commands.

    With extdebug, a DEBUG trap that returns false makes bash skip a command, ours too, without a message.
    """
    # A failing redirection reports the options, and a trap can refuse it like any command. `echo` and `shopt` could be
    # disabled.
    said = yield from collect.ask(shell, b'! \\builtin trap -p DEBUG >&2; ! \\builtin : <"/dev/null/ran:$BASHOPTS/"')
    options = re.findall(rb"/ran:([\w:]+)/: ", said or b"")
    return said is not None and (not options or (b"trap -- " in said and b"extdebug" in options[-1].split(b":")))


def interrupt(engine: Core, call: Call) -> Steps[Result]:
    """End the command and everything it started, and make its result. Keep the shell if possible."""
    shell = engine.live()
    # After the mark only process substitutions are left, and no shell needs an interrupt.
    what = MARK if call.framer.mark is not None else (yield from Escalation(shell, call).run())
    if what == MARK:
        return (yield from _settle(engine, call))
    if what == DEAD:
        return (yield from shell_died(engine, call))
    for number, patience in _LAST:
        shell.signal(number)
        call.signal = int(number)
        what = yield from collect.pump(shell, call, time.monotonic() + patience)
        if what == MARK:
            return (yield from _settle(engine, call))
        if what == DEAD:
            break
    call.note_killed([shell.pid])
    lost = "the shell could not be brought back from it and was killed"
    call.reason = f"{call.reason}; {lost}" if call.reason else lost
    return (yield from shell_died(engine, call))


def _settle(engine: Core, call: Call) -> Steps[Result]:
    """Make the result of an interrupted command whose shell lives.

    First kill what is left of the command. Then wait until bash answers, so that no signal of ours is still pending.
    """
    shell = engine.live()
    for _ in range(ROUNDS):
        if not (victims := shell.family.living(call.older)):
            break
        call.note_killed(kill(victims))
        yield Wait((), time.monotonic() + TICK)
    if shell.family.newer(call.older):  # for several children that ended while bash was stopped it got one SIGCHLD
        shell.signal(signal.SIGCHLD)
    for patience in _ASKS:
        if (yield from collect.ask(shell, b"", patience)) is not None:
            engine.had_children = shell.family.has_children()
            return (yield from finish(engine, shell, call))
    return (yield from kill_shell(engine, call))
