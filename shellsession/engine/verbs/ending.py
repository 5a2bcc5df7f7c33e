"""Ends commands whose shell lives: ``finish`` after the mark, and ``interrupt`` while the command still runs.

``leave_jobs`` makes a job of what still runs after that. The end of a shell is in ``shell_end``.
"""

from __future__ import annotations

import re
import signal
import time
from typing import Final

from ...models import Outcome, Result, Stream as StreamName
from ...text import sentences
from ..bash.shell import Shell
from ..io.streams import Stream
from ..io.threads import Steps, Wait
from ..kernel import proc
from ..kernel.signals import kill, signals_deferred
from ..wire import GUARDS, repeated
from . import collect, scope
from .call import Call
from .collect import DEAD, MARK
from .core import Core
from .interrupt import PROMPT, Escalation
from .known import TRACING
from .results import Ending, conclude
from .shell_end import CLOSED_DESCRIPTORS, ROUNDS, TICK, kill_shell, memory_kill, retire, shell_died

# The last signals for a bash that did not come back, with the seconds of each. SIGHUP ends bash at its next safe point,
# even in a busy loop; SIGKILL ends it at once.
_LAST: Final = ((signal.SIGHUP, 0.1), (signal.SIGKILL, 5.0))
# Seconds for each question after an interrupt. There are several, because a late signal may interrupt a question. They
# grow, because a slow PROMPT_COMMAND runs twice for each.
_ASKS: Final = (0.5, 1.0, 2.0, 4.0)
# Bash's `read` reads more from a file or terminal than it returns. An interrupted `read` would pass the rest to the
# next `read`, of whatever file. This `read` drops it. (No command relies on `$_`.)
_FORGET: Final = b"! \\builtin read -r _ </dev/null"
ERREXIT: Final = "`set -e` is on: a command ends where the first of its commands fails"
OVERFLOWED: Final = "the output went over the limit"
_REFUSES: Final = "the shell cannot run another command (extdebug, and a DEBUG trap that may refuse it)"


def finish(core: Core, shell: Shell, call: Call) -> Steps[Result]:
    """Make the result of a command after the mark, with the rest of its output.

    ``core.known.had_children`` says whether bash has children now.
    """
    mark = call.finder.mark
    assert mark is not None
    flags = mark.flags
    core.withdraw_last()
    if mark.thrown:
        yield from collect.ask(shell, _FORGET)
    known = core.know(core.known.after(call.request.command, mark))
    # Before the streams are drained: then all that the processes wrote before they ended is there.
    if known.had_children and not (yield from _has_children_at_prompt(shell, call)):
        core.learn(had_children=False)
    held = collect.drain(shell, call)
    echoes = known.echoes
    said = call.finder.noise_before_mark if call.finder.has_noise else b""
    if said and not (echoes or call.ending or call.own_output.total) and (yield from _is_prompt(shell, said)):
        said = b""
    noise = call.own_output.total > 0 or said != b""
    if known.debugging and (call.typed.grouped or call.ending) and not echoes and not call.retyped:
        core.learn(prompt_speaks=(yield from _prompt_speaks(known.spelling, shell)))
    elif call.ending is None or echoes:  # otherwise the noise is about the interrupt and our own questions
        core.learn(prompt_speaks=echoes or noise)
    reason = call.reason
    if core.known.scope:
        left = yield from scope.leave(core, shell, call)
        if left.fault:
            reason = sentences(reason, f"cwd=, env= or `set -e` could not be undone: {left.fault}")
        if left.mark is None:
            return (yield from retire(core, call, mark, reason))
        mark = mark._replace(cwd=left.mark.cwd, flags=left.mark.flags)
        core.learn(flags=mark.flags)
    shell.settle()  # only now: if a callback raises, no output may be left for the next command
    if call.terminal:
        core.note_unread_input(shell.keyboard.reset())
    shell.files.clear()
    has_children = core.known.had_children
    background = leave_jobs(core, shell, call, held) if has_children or held else ()
    core.learn(left={**call.older, **dict.fromkeys(background, proc.time_now())} if has_children else {})
    if b"E" in flags and b"T" in flags and (yield from _is_refused(shell)):
        return (yield from retire(core, call, mark, _REFUSES))
    if unusable := _why_unusable(shell, call, flags):
        return (yield from retire(core, call, mark, unusable))
    if mark.status and not reason:
        sourced = call.typed.errexit.sources and core.known.errexit
        reason = memory_kill(core, shell, mark.status) or (ERREXIT if sourced else "")
    outcome: Outcome = call.ending or "exited"
    if call.ending is None and call.overflowed:  # it ended before we could end it
        outcome, reason = "overflow", OVERFLOWED
    return conclude(call, Ending(outcome, mark.status, shell.check_cwd(mark.cwd), reason, background=background))


def _is_prompt(shell: Shell, said: bytes) -> Steps[bool]:
    """Return whether ``said`` is what bash prints before each line, and nothing else. If so, the shell remembers it.

    That needs the same output after two commands in a row: a prompt that changes each time is noise.
    """
    before, shell.noise = shell.noise, repeated(said)
    if shell.noise and shell.noise == before and not (yield from is_traced(shell)):
        shell.prompt = shell.noise
        return True
    return False


def _why_unusable(shell: Shell, call: Call, flags: bytes) -> str:
    """Return why bash cannot run another command, or "" if it can."""
    if b"r" in flags:
        return "the shell cannot run another command: `set -r` refuses every redirection"
    if call.finder.lost_descriptor and not shell.has_own_descriptors():
        return CLOSED_DESCRIPTORS
    if not shell.can_redirect():
        return "the shell cannot run another command: it may open too few files (`ulimit -n`)"
    return ""


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
    return said is None or b"trap -- " in said or not flags or not TRACING.isdisjoint(flags[-1])


def _prompt_speaks(spelling: int, shell: Shell) -> Steps[bool]:
    """Return whether bash prints something (by a DEBUG trap or PROMPT_COMMAND) when it runs only a line of ours."""
    shell.clear_own_output()
    said = yield from collect.ask(shell, b"if %b; then :; fi" % GUARDS[spelling])
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


def interrupt(core: Core, call: Call) -> Steps[Result]:
    """End the command and everything it started, and make its result. Keep the shell if possible."""
    shell = core.live()
    # After the mark only process substitutions are left, and no shell needs an interrupt.
    what = MARK if call.finder.mark is not None else (yield from Escalation(shell, call).run())
    if what == MARK:
        return (yield from _settle(core, call))
    if what == DEAD:
        return (yield from shell_died(core, call))
    for number, patience in _LAST:
        shell.signal(number)
        call.note_killed([], number)
        what = yield from collect.pump(shell, call, time.monotonic() + patience)
        if what == MARK:
            return (yield from _settle(core, call))
        if what == DEAD:
            break
    call.note_killed([shell.pid])
    lost = "the shell could not be brought back from it and was killed"
    return (yield from shell_died(core, call, sentences(call.reason, lost)))


def _settle(core: Core, call: Call) -> Steps[Result]:
    """Make the result of an interrupted command whose shell lives.

    First kill what is left of the command. Then wait until bash answers, so that no signal of ours is still pending.
    """
    shell = core.live()
    for _ in range(ROUNDS):
        if not (victims := shell.family.living(call.older)):
            break
        call.note_killed(kill(victims))
        yield Wait((), time.monotonic() + TICK)
    if shell.family.newer(call.older):  # for several children that ended while bash was stopped it got one SIGCHLD
        shell.signal(signal.SIGCHLD)
    for patience in _ASKS:
        if (yield from collect.ask(shell, b"", patience)) is not None:
            core.learn(had_children=shell.family.has_children())
            return (yield from finish(core, shell, call))
    return (yield from kill_shell(core, call))


def leave_jobs(core: Core, shell: Shell, call: Call, held: list[tuple[StreamName, Stream]]) -> tuple[int, ...]:
    """Make a job of what still runs: new children of bash, or processes that hold the streams. Returns their pids."""
    pids = shell.family.newer_children(call.older) if core.known.had_children else []
    if pids or held:
        _make_job(core, shell, call, pids, held)
    if b"disown" in call.request.command:
        for job in core.jobs:
            job.bash_pid = 0  # from now on, bash reports 0 for it, however it ends
    if core.known.had_children and core.terminal_job is None:
        _lend_terminal(core, shell, call)
    return tuple(pids)


def _lend_terminal(core: Core, shell: Shell, call: Call) -> None:
    """Give the terminal's output to the latest job that lives, and to no result.

    While a job lives, what is printed to /dev/tty may come from it.
    """
    for job in reversed(core.jobs):
        if job.alive():
            core.host.forget_fd(shell.terminal.fd)
            job.borrow("terminal", shell.terminal, call.fresh_capture(), core.host.reader)
            core.lend_terminal(job)
            return


def _make_job(core: Core, shell: Shell, call: Call, pids: list[int], held: list[tuple[StreamName, Stream]]) -> None:
    family, tags = shell.family, shell.family.tags
    tag = 0 if tags.is_shared else tags.latest
    text, before = call.request.command.decode("utf-8", "replace"), (call.stdout.peek(), call.stderr.peek())
    job = core.new_job(text, pids, tag, family, before)
    tags.renew(family.descendants())
    for one in core.jobs:
        if one.tag == tags.latest:  # the tags have wrapped around, or the tag could not be renewed
            one.tag = 0
    with signals_deferred():  # a stream must belong to the shell or the job, or it is never closed
        for name, stream in held:
            if shell.streams.detach(stream):
                core.host.forget_fd(stream.fd)
                job.adopt(name, stream, call.fresh_capture(), core.host.reader)
