"""How commands and shells end: by themselves, by the ladder of signals, and what is done for the dead.

Law: children first, bash last. What was there before a command is not touched by its end.
"""

from __future__ import annotations

import re
import signal
import time
from typing import TYPE_CHECKING, Final

from ..models import Outcome, Result
from . import processes, pump
from .answers import leave, result
from .call import Call
from .framing import NOWHERE, Mark, guard, is_blank
from .pump import DEAD, MARK, What
from .shell import Shell, kill
from .waiting import Steps, T, Wait

if TYPE_CHECKING:
    from .steps import Engine

# First as Ctrl-C does it; what ignores that is killed, some rounds, as each may start the next command of a list.
_LADDER: Final = ((signal.SIGINT, 0.3), *((signal.SIGKILL, 0.1),) * 4)
# SIGHUP ends bash at its next safe point, out of a busy loop too; SIGKILL at once.
_LAST: Final = ((signal.SIGHUP, 0.1), (signal.SIGKILL, 5.0))
# How long a shell that gets no processor is waited for, and what it needs of it to answer, in seconds.
_STARVED: Final = 5.0
_TURN: Final = 0.05
_LOOKS: Final = 3  # one alone may fall into the moment between two children
_TICK: Final = 0.002
_ROUNDS: Final = 500
_FAREWELL: Final = 1.0
OVERFLOWED: Final = "the output went over the limit"
_NOTICE: Final = re.compile(rb"^\[\d+\] (\d+)$", re.MULTILINE)


def finish(engine: Engine, call: Call) -> Steps[Result]:
    """Bash gave its mark: take what is left of the output and say how it went."""
    shell, mark = engine.live(), call.framer.mark
    assert mark is not None
    engine.call = None
    engine.history = mark.history
    if not is_blank(call.request.command):  # nothing to run leaves `$?` as it was, as Enter does at a prompt
        engine.status = mark.status
    held = pump.drain(shell, call)
    echoes = any(flag in mark.flags for flag in (b"x", b"v", b"T"))
    noise = call.aside.total > 0 or (call.framer.has_noise and call.framer.overheard != b"")
    if call.grouped and not echoes and not call.retyped and b"debug" in call.request.command.lower():
        engine.chatty = yield from _speaks(engine, shell)
    else:
        engine.chatty = echoes or (noise and call.ending is None)
    shell.busy = b""  # not before: a callback that raises must not leave output for the next command
    if call.terminal:
        call.unread = shell.reset_terminal()
    if call.request.stdin is not None:
        shell.files.remove("stdin")
    engine.family = shell.family.has_children()
    background = leave(engine, shell, call, held) if engine.family or held else ()
    if b"E" in mark.flags and b"T" in mark.flags and (yield from _is_refused(shell)):
        call.reason = "the shell cannot run another command (extdebug, and a DEBUG trap that may refuse it)"
        return (yield from retire(engine, call, mark))
    if b"r" in mark.flags or (call.framer.lost_descriptor and not shell.is_whole()) or not shell.usable():
        # A restricted shell refuses every redirection, one without descriptors cannot make any.
        call.reason = "the shell cannot run another command (set -r, descriptors closed, or too few of them)"
        return (yield from retire(engine, call, mark))
    outcome: Outcome = call.ending or "exited"
    if call.ending is None and call.overflowed:  # so quick that nobody could end it
        outcome, call.reason = "overflow", OVERFLOWED
    return result(call, outcome, mark.status, shell.place(mark.cwd), background=background)


def _speaks(engine: Engine, shell: Shell) -> Steps[bool]:
    """Is something said (by a new DEBUG trap, a PROMPT_COMMAND) where nothing but words of ours is run?"""
    shell.clear_aside()
    said = yield from pump.ask(shell, b"if %b; then :; fi" % guard(engine.spelling))
    return said is None or not said.startswith(b"bash: /") or bool(shell.overhear())


def _take_aside(call: Call) -> None:
    now = time.monotonic()
    data, omitted, _ = call.aside.take()
    if data:
        call.hear("stdout", data, now)
    call.stdout.omit(omitted)
    errors = call.stdout if call.request.merge_stderr else call.stderr
    if data := call.framer.overheard:
        call.hear("stdout" if call.request.merge_stderr else "stderr", data, now)
        errors.omit(call.framer.trimmed)


def _is_refused(shell: Shell) -> Steps[bool]:
    """With extdebug, a DEBUG trap that returns false makes bash skip a command: ours too, without a word."""
    said = yield from pump.ask(
        shell, b"! \\builtin shopt extdebug >&2; \\builtin trap -p DEBUG >&2; \\builtin echo ran >&2"
    )
    return said is not None and (b"ran\n" not in said or (b"trap -- " in said and b"\toff\n" not in said))


def interrupt(engine: Engine, call: Call) -> Steps[Result]:
    """End the command and everything it started; keep the shell if it can be kept."""
    shell = engine.live()
    for number, patience in _LADDER:
        victims = shell.family.newer(call.older)
        shell.signal(signal.SIGINT)
        if processes.state(shell.pid) == "T":
            shell.signal(signal.SIGCONT)
        _strike(call, victims, number)
        what = yield from pump.pump(shell, call, time.monotonic() + patience)
        if what == MARK:
            return (yield from _rest(engine, call))
        if what == DEAD:
            return (yield from bury(engine, call))
    if (yield from _has_patience(shell, call)) == MARK:
        return (yield from _rest(engine, call))
    for number, patience in _LAST:
        shell.signal(number)
        what = yield from pump.pump(shell, call, time.monotonic() + patience)
        if what == MARK:
            return (yield from _rest(engine, call))
        if what == DEAD:
            break
    call.reason += "; the shell could not be brought back from it and was killed"
    return (yield from bury(engine, call))


def _has_patience(shell: Shell, call: Call) -> Steps[What | None]:
    """Before a shell is given up: on a busy machine it, or what runs below it, may not have had its turn yet."""
    ran = {shell.pid: processes.processor_time(shell.pid)}
    until = time.monotonic() + _STARVED
    had_their_turn = 0
    while time.monotonic() < until and had_their_turn < _LOOKS:
        victims = shell.family.newer(call.older)
        starved = any(processes.alive(pid) for pid in call.killed if pid in victims)
        for pid in (shell.pid, *victims):
            before, ran[pid] = ran.get(pid, 0.0), processes.processor_time(pid)
            starved = starved or (processes.state(pid) == "R" and ran[pid] - before < _TURN / 2)
        had_their_turn = 0 if starved else had_their_turn + 1
        shell.signal(signal.SIGINT)
        _strike(call, victims, signal.SIGKILL)
        what = yield from pump.pump(shell, call, time.monotonic() + _TURN)
        if what in (MARK, DEAD):
            return what
    return None


def _strike(call: Call, victims: list[int], number: signal.Signals) -> None:
    kill(victims, number)
    call.signal = int(number)
    call.killed += [pid for pid in victims if pid not in call.killed]


def _rest(engine: Engine, call: Call) -> Steps[Result]:
    """The shell lives. Nothing new of the command may, and no signal of ours may be still on its way."""
    shell = engine.live()
    for _ in range(_ROUNDS):
        victims = [pid for pid in shell.family.newer(call.older) if processes.alive(pid)]
        if not victims:
            break
        kill(victims)
        call.killed += [pid for pid in victims if pid not in call.killed]
        yield Wait((), time.monotonic() + _TICK)
    for _ in range(10):
        if (yield from pump.ask(shell, b"", _STARVED / 10)) is not None:
            return (yield from finish(engine, call))
    return (yield from kill_shell(engine, call))


def kill_shell(engine: Engine, call: Call) -> Steps[Result]:
    """End the command together with its shell, at once."""
    shell = engine.live()
    call.signal = int(signal.SIGKILL)
    call.killed += [shell.pid]
    yield from _put_down(shell, call)
    return (yield from bury(engine, call))


def bury(engine: Engine, call: Call) -> Steps[Result]:
    """The shell is dead: nothing that it started may outlive it; say how it ended."""
    shell = engine.live()
    for _ in range(_ROUNDS):
        if shell.dead:
            break
        yield Wait((), time.monotonic() + _TICK)
    status = shell.status
    if shell.dead and status is None and not call.reason:
        call.reason = "the shell's status went to somebody else (SIGCHLD is ignored here, or another thread reaps)"
    yield from _sweep(shell, call)
    pump.drain(shell, call)
    if not engine.chatty and call.framer.mark is None:
        _take_aside(call)
    mark = _last_words(call)
    call.killed += [pid for pid in _announced(shell, call) if pid not in call.killed]
    call.reason, engine.doom = call.reason or engine.doom, ""
    discard(engine, shell)
    if call.ending is None and status is not None and status < 0:
        call.signal = -status
    code = None if status is None else 128 - status if status < 0 else status
    if mark is not None:
        code = mark.status
    return result(call, call.ending or "shell_exited", code, shell.first_cwd, state_kept=False)


def _announced(shell: Shell, call: Call) -> list[int]:
    """The jobs of a command whose shell ended: by now they are gone, but bash told their numbers (`[1] 4711`)."""
    if shell.launch.apart or call.ending is not None:  # apart: it knows other numbers than we
        return []
    return [int(pid) for pid in _NOTICE.findall(call.stderr.peek()[0])]


def retire(engine: Engine, call: Call, mark: Mark) -> Steps[Result]:
    """The command went well, but its shell can run no other: end it, and say so."""
    cwd = engine.live().place(mark.cwd)
    yield from destroy(engine)
    return result(call, "shell_exited", mark.status, cwd, state_kept=False)


def _last_words(call: Call) -> Mark | None:
    """A command that closed bash's own descriptors makes it give its mark on the command's stderr, then end."""
    capture = call.stdout if call.request.merge_stderr else call.stderr
    said = capture.cut_after(b": " + NOWHERE + call.framer.nonce + b" ") if call.framer.nonce else b""
    if not said:
        return None
    capture.cut_line()
    return call.framer.feed(said)


def farewell(engine: Engine) -> Steps[None]:
    """End the session's shell politely: an idle one runs its EXIT trap, after its children were killed."""
    shell, call = engine.shell, engine.call
    engine.call = engine.ended = None
    if shell is None:
        return
    if engine.attended is not None:  # the interpreter ends while another thread is in a verb: that one buries it
        engine.condemn("the program ended meanwhile")
        for _ in range(_ROUNDS):
            if engine.shell is not shell:
                return
            yield Wait((), time.monotonic() + _TICK)
    elif call is None and not shell.dead:
        yield from _kill_below(shell)
        said = yield from pump.ask(shell, b"\\builtin trap -p EXIT >&2", _FAREWELL)
        if said is not None and b"trap -- " in said:
            shell.send(b"\n\\builtin exit\n")
            until = time.monotonic() + _FAREWELL
            while not shell.dead and time.monotonic() < until:  # hear it out: nobody else reads what its trap says
                fds = (shell.child_fd, shell.aside, shell.control_fd) if shell.child_fd >= 0 else ()
                yield Wait(fds, min(until, time.monotonic() + 0.05))
                if shell.overhear() == b"" or shell.receive() == b"":
                    yield Wait((), time.monotonic() + _TICK)
    yield from destroy(engine)


def destroy(engine: Engine) -> Steps[None]:
    """End the shell and everything below it, now."""
    shell = engine.live()
    engine.call = None
    if not shell.dead:
        yield from _put_down(shell)
    yield from _sweep(shell)
    discard(engine, shell)


def surely(engine: Engine, steps: Steps[T]) -> Steps[T]:
    """Steps that end something. Struck half-way (a second Ctrl-C), they leave no half-ended command: all is killed."""
    try:
        return (yield from steps)
    except BaseException:
        abandon(engine)
        raise


def abandon(engine: Engine) -> None:
    """Kill the shell and everything below it where no waiting is possible; the next command finds it dead."""
    shell, engine.call = engine.shell, None
    if shell is not None:
        kill(shell.family.descendants())
        shell.signal(signal.SIGKILL)
        kill(shell.strays())
        shell.lost = True


def _kill_below(shell: Shell, call: Call | None = None) -> Steps[None]:
    for _ in range(_ROUNDS):
        victims = [pid for pid in shell.family.descendants() if processes.alive(pid)]
        if not victims:
            return
        kill(victims)
        if call is not None:
            call.killed += [pid for pid in victims if pid not in call.killed]
        yield Wait((), time.monotonic() + _TICK)


def _put_down(shell: Shell, call: Call | None = None) -> Steps[None]:
    """Stopped, bash starts nothing new, and as subreaper it gets every orphan: kill until none is left."""
    shell.signal(signal.SIGSTOP)
    yield from _kill_below(shell, call)
    shell.signal(signal.SIGKILL)
    shell.swept = True
    for _ in range(_ROUNDS):
        if shell.dead:
            return
        yield Wait((shell.child_fd,) if shell.child_fd >= 0 else (), time.monotonic() + 0.01)


def _sweep(shell: Shell, call: Call | None = None) -> Steps[None]:
    """Bash died by itself: its orphans went elsewhere, and are found by the mark they carry."""
    for _ in range(_ROUNDS):
        if shell.swept or not (strays := shell.strays()):
            return
        kill(strays)
        if call is not None:
            call.killed += [pid for pid in strays if pid not in call.killed]
        yield Wait((), time.monotonic() + _TICK)


def discard(engine: Engine, shell: Shell) -> None:
    """Give back what the dead shell had."""
    engine.take_over()
    engine.shell = engine.call = engine.terminal_job = None
    for job in engine.jobs:
        job.close()
    engine.on_close()
    shell.close()
