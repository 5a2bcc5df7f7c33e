"""How commands end: by themselves, or by the ladder of signals.

Law: whoever ends it, afterwards the shell is at its prompt with nothing of the command on its way, or it is gone.
"""

from __future__ import annotations

import re
import signal
import time
from typing import Final

from ..models import Outcome, Result
from . import processes, pump
from .call import Call
from .core import Core
from .framing import GUARDS
from .ladder import PROMPT, Ladder
from .marks import one_of
from .pump import DEAD, MARK
from .results import leave_jobs, result
from .shell import Shell, kill
from .teardown import CLOSED_DESCRIPTORS, ROUNDS, TICK, kill_shell, retire, shell_died
from .texts import is_blank
from .waiting import Steps, Wait

# SIGHUP ends bash at its next safe point, out of a busy loop too; SIGKILL at once.
_LAST: Final = ((signal.SIGHUP, 0.1), (signal.SIGKILL, 5.0))
# A signal that was still on its way may strike a question; and a PROMPT_COMMAND runs twice for each, but is busy.
_ASKS: Final = (0.5, 1.0, 2.0, 4.0)
_TRACING: Final = frozenset(b"xvT")
# Bash's `read` takes more from a file or terminal than it gives. Where it was interrupted it would give the rest to the
# next one, of whatever file; this one forgets it. (`$_` is nobody's.)
_FORGET: Final = b"! \\builtin read -r _ </dev/null"
OVERFLOWED: Final = "the output went over the limit"


def finish(engine: Core, shell: Shell, call: Call) -> Steps[Result]:
    """Bash gave its mark: take what is left of the output and say how it went.

    ``engine.had_children`` says whether bash has children now.
    """
    mark = call.framer.mark
    assert mark is not None
    flags = mark.flags
    engine.call = None
    if mark.thrown:
        yield from pump.ask(shell, _FORGET)
    engine.history, engine.functions_trap, engine.errexit = mark.history, b"T" in flags, b"e" in flags
    engine.guard = engine.guard_after(call.request.command)
    # Nothing to run leaves `$?` as it was, as Enter does at a prompt; unless a comment is none (interactive_comments).
    if mark.status or not is_blank(call.request.command):
        engine.status = mark.status
    # Before the last look at the streams: what its processes wrote before their end is there then.
    engine.had_children = engine.had_children and (yield from _has_children_at_prompt(shell, call))
    held = pump.drain(shell, call)
    engine.echoes = echoes = not _TRACING.isdisjoint(flags)
    said = call.framer.noise_before_mark if call.framer.has_noise else b""
    if said and not (echoes or call.ending or call.own_output.total) and (yield from _is_prompt(shell, said)):
        said = b""
    noise = call.own_output.total > 0 or said != b""
    if engine.debugging and (call.typed.grouped or call.ending) and not echoes and not call.retyped:
        engine.prompt_speaks = yield from _prompt_speaks(engine, shell)
    elif call.ending is None or echoes:  # else bash has told of its end, and of our questions
        engine.prompt_speaks = echoes or noise
    shell.busy = b""  # not before: a callback that raises must not leave output for the next command
    if call.terminal:
        engine.unread = shell.keyboard.reset()
    shell.files.clear()
    background = leave_jobs(engine, shell, call, held) if engine.had_children or held else ()
    engine.left = {**call.older, **dict.fromkeys(background, processes.time_now())} if engine.had_children else {}
    if b"E" in flags and b"T" in flags and (yield from _is_refused(shell)):
        call.reason = "the shell cannot run another command (extdebug, and a DEBUG trap that may refuse it)"
        return (yield from retire(engine, call, mark))
    if unusable := _why_unusable(shell, call, flags):
        call.reason = unusable
        return (yield from retire(engine, call, mark))
    outcome: Outcome = call.ending or "exited"
    if call.ending is None and call.overflowed:  # so quick that nobody could end it
        outcome, call.reason = "overflow", OVERFLOWED
    return result(call, outcome, mark.status, shell.place(mark.cwd), background=background)


def _is_prompt(shell: Shell, said: bytes) -> Steps[bool]:
    """Is that what bash says before each line, and nothing else? It is known from then on.

    Asked when it has been said behind two commands in a row: a prompt that changes all the time is noise.
    """
    before, shell.noise = shell.noise, one_of(said)
    if shell.noise and shell.noise == before and not (yield from is_traced(shell)):
        shell.prompt = shell.noise
        return True
    return False


def _why_unusable(shell: Shell, call: Call, flags: bytes) -> str:
    """Why bash can run no other command; "" where it can."""
    if b"r" in flags:
        return "the shell cannot run another command: `set -r` refuses every redirection"
    if call.framer.lost_descriptor and not shell.is_whole():
        return CLOSED_DESCRIPTORS
    return "" if shell.usable() else "the shell cannot run another command: it may open too few files (`ulimit -n`)"


def _has_children_at_prompt(shell: Shell, call: Call) -> Steps[bool]:
    """What PROMPT_COMMAND runs is no job of the command; bash waits for it before it reads on."""
    until = time.monotonic() + PROMPT
    while shell.prepares_prompt() and shell.family.newer(call.older) and time.monotonic() < until:
        yield Wait((), time.monotonic() + TICK)
    return shell.family.has_children()


def is_traced(shell: Shell) -> Steps[bool]:
    """Something speaks at the prompt: is it `set -x`, `set -v` or a DEBUG trap, which speaks of each command, too?"""
    said = yield from pump.ask(shell, b'! \\builtin trap -p DEBUG >&2; ! <"/dev/null/flags:$-/"')
    flags = re.findall(rb"/flags:(\w+)/: ", said or b"")
    return said is None or b"trap -- " in said or not flags or not _TRACING.isdisjoint(flags[-1])


def _prompt_speaks(engine: Core, shell: Shell) -> Steps[bool]:
    """Is something said (by a new DEBUG trap, a PROMPT_COMMAND) where nothing but words of ours is run?"""
    shell.clear_own_output()
    said = yield from pump.ask(shell, b"if %b; then :; fi" % GUARDS[engine.spelling])
    return said is None or not said.startswith(b"bash: /") or bool(shell.read_own_stdout())


def _is_refused(shell: Shell) -> Steps[bool]:
    """With extdebug, a DEBUG trap that returns false makes bash skip a command: ours too, without a word."""
    # A failing redirection tells both options, and is skipped as any command is; `echo` and `shopt` can be disabled.
    said = yield from pump.ask(shell, b'! \\builtin trap -p DEBUG >&2; ! \\builtin : <"/dev/null/ran:$BASHOPTS/"')
    options = re.findall(rb"/ran:([\w:]+)/: ", said or b"")
    return said is not None and (not options or (b"trap -- " in said and b"extdebug" in options[-1].split(b":")))


def interrupt(engine: Core, call: Call) -> Steps[Result]:
    """End the command and everything it started; keep the shell if it can be kept."""
    shell = engine.live()
    # Behind the mark only the process substitutions are left: there is no shell to be interrupted.
    what = MARK if call.framer.mark is not None else (yield from Ladder(shell, call).climb())
    if what == MARK:
        return (yield from _settle(engine, call))
    if what == DEAD:
        return (yield from shell_died(engine, call))
    for number, patience in _LAST:
        shell.signal(number)
        call.signal = int(number)
        what = yield from pump.pump(shell, call, time.monotonic() + patience)
        if what == MARK:
            return (yield from _settle(engine, call))
        if what == DEAD:
            break
    call.note_killed([shell.pid])
    lost = "the shell could not be brought back from it and was killed"
    call.reason = f"{call.reason}; {lost}" if call.reason else lost
    return (yield from shell_died(engine, call))


def _settle(engine: Core, call: Call) -> Steps[Result]:
    """The shell lives. Nothing new of the command may, and no signal of ours may be still on its way."""
    shell = engine.live()
    for _ in range(ROUNDS):
        if not (victims := shell.family.living(call.older)):
            break
        call.note_killed(kill(victims))
        yield Wait((), time.monotonic() + TICK)
    if shell.family.newer(call.older):  # of several that ended while it was stopped the kernel has told it once
        shell.signal(signal.SIGCHLD)
    for patience in _ASKS:
        if (yield from pump.ask(shell, b"", patience)) is not None:
            engine.had_children = shell.family.has_children()
            return (yield from finish(engine, shell, call))
    return (yield from kill_shell(engine, call))
