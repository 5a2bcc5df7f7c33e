"""How a shell ends, by itself or by us, and what is done when it has.

Law: children first, bash last; afterwards no process, descriptor or file of it is left.
"""

from __future__ import annotations

import re
import signal
import time
from contextlib import ExitStack, suppress
from typing import Final

from ..models import Result
from . import processes, pump
from .call import Call
from .core import Core
from .framing import NOWHERE
from .marks import Mark
from .results import result
from .shell import Shell, kill
from .signals import undisturbed
from .texts import closes_descriptors, sets_errexit
from .waiting import Steps, T, Wait, shielded

TICK: Final = 0.002
ROUNDS: Final = 500
_SLICE: Final = 0.0005
_LAST_TRAP: Final = 1.0
# Why a shell is lost, and can be told for certain.
CLOSED_DESCRIPTORS: Final = "the command closed descriptors that the session's bash needs (10 to 12)"
_NOTICE: Final = re.compile(rb"^\[\d+\] (\d{1,10})$", re.MULTILINE)


def kill_shell(engine: Core, call: Call) -> Steps[Result]:
    """End the command together with its shell, at once."""
    shell = engine.live()
    call.signal = int(signal.SIGKILL)
    call.note_killed([shell.pid])
    yield from _kill_all(shell, call)
    return (yield from shell_died(engine, call))


def shell_died(engine: Core, call: Call) -> Steps[Result]:
    """The shell is dead: nothing that it started may outlive it; say how it ended."""
    shell = engine.live()
    for _ in range(ROUNDS):
        if shell.dead:
            break
        yield Wait((), time.monotonic() + TICK)
    status = shell.status
    if shell.dead and status is None and not call.reason:
        call.reason = "the shell's status went to somebody else (SIGCHLD is ignored here, or another thread reaps)"
    call.note_killed(shell.killed)
    yield from _kill_strays(shell, call)
    pump.drain(shell, call)
    # Bash ends with 1 then; with another status it was the text that ended it, and the mark is not bash's.
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
    discard(engine, shell, came)
    return came


def take_own_output(call: Call) -> None:
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
    """What the kernel has ended (SIGHUP) together with bash, before anybody could see it.

    That is what earlier commands had left running, and the jobs of this one, whose numbers bash tells (`[1] 4711`).
    The command can print such a line as well: a process that lives is a stranger.
    """
    known = list(call.older)
    if call.ending is None and not shell.launch.apart:  # in a sandbox bash knows other numbers than we
        capture = call.stdout if call.request.merge_stderr else call.stderr
        known += map(int, _NOTICE.findall(capture.peek()[0]))
    return [pid for pid in known if not processes.alive(pid)]


def _how_it_ended(engine: Core, text: bytes, status: int | None, mark: Mark | None) -> str:
    """How the command ended its shell, in words; with what is known to do that, if it may have done that."""
    if mark is not None:
        return CLOSED_DESCRIPTORS
    if status is None:
        return "the session's bash has ended"
    if status < 0:
        return f"the session's bash was killed by signal {-status}{_name_of(-status)}"
    hint = ""
    if status and (engine.errexit or sets_errexit(text)):
        hint = "; `set -e` does that when a command fails"
    elif status == 1 and closes_descriptors(text):
        hint = "; closing the descriptors from 10 to 12 does that"
    return f"the command ended the session's bash, with exit status {status}{hint}"


def _name_of(number: int) -> str:
    with suppress(ValueError):  # a real-time signal without a name
        return f" ({signal.Signals(number).name})"
    return ""


def retire(engine: Core, call: Call, mark: Mark) -> Steps[Result]:
    """The command went well, but its shell can run no other: end it, and say so."""
    shell = engine.live()
    cwd = shell.place(mark.cwd)
    call.note_killed([shell.pid])
    yield from _end(engine, call)
    call.note_killed(_hung_up(shell, call))
    came = result(call, "shell_exited", mark.status, cwd, state_kept=False)
    discard(engine, shell, came)
    return came


def _final_mark(call: Call) -> Mark | None:
    """A command that closed bash's own descriptors makes it give its mark on the command's stderr, then end."""
    capture = call.stdout if call.request.merge_stderr else call.stderr
    said = capture.cut_after(b": " + NOWHERE + call.framer.nonce + b" ") if call.framer.nonce else b""
    if not said:
        return None
    capture.cut_line()
    return call.framer.feed(said)


def shut_down(engine: Core, why: str) -> Steps[None]:
    """End the session's shell politely: an idle one runs its EXIT trap, after its children were killed.

    A command that was handed back has its end as its result, with all that it printed: who asks is told that, and why.
    """
    shell, call = engine.shell, engine.call
    engine.call = engine.unheard = None
    if shell is None:
        return
    if (yield from _is_ended_elsewhere(engine, shell)):
        return
    shell.in_hand = True
    if call is not None:
        call.mute()  # its callback may not have returned from what it was given last
        call.reason = why
        yield from (shell_died if shell.dead else kill_shell)(engine, call)
        return
    if engine.attended is None and not shell.dead:
        yield from _kill_below(shell)
        said = yield from pump.ask(shell, b"\\builtin trap -p EXIT >&2", _LAST_TRAP)
        if said is not None and b"trap -- " in said:
            shell.control.send(b"\n\\builtin exit\n")
            until = time.monotonic() + _LAST_TRAP
            while not shell.dead and time.monotonic() < until:  # hear it out: nobody else reads what its trap says
                fds = (shell.child_fd, shell.own_stdout, shell.control.fd) if shell.child_fd >= 0 else ()
                yield Wait(fds, min(until, time.monotonic() + 0.05))
                if shell.read_own_stdout() == b"" or shell.control.receive() == b"":
                    yield Wait((), time.monotonic() + TICK)
    yield from destroy(engine)


def _is_ended_elsewhere(engine: Core, shell: Shell) -> Steps[bool]:
    """The interpreter ends while another thread is in a verb, or opens the shell: that one buries it."""
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
    """End the shell and everything below it, now."""
    shell = yield from _end(engine)
    discard(engine, shell)


def _end(engine: Core, call: Call | None = None) -> Steps[Shell]:
    shell = engine.live()
    engine.call = None
    if not shell.dead:
        yield from _kill_all(shell, call)
    yield from _kill_strays(shell, call)
    return shell


def or_abandon(engine: Core, steps: Steps[T]) -> Steps[T]:
    """Steps that end something. Struck half-way (a second Ctrl-C), they leave no half-ended command: all is killed.

    A cancelled task waits for their end.
    """
    try:
        return (yield from shielded(steps))
    except BaseException:
        abandon(engine)
        raise


def abandon(engine: Core) -> None:
    """Kill the shell and everything below it where no waiting is possible; the next command finds it dead."""
    shell, engine.call = engine.shell, None
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
    """Stopped, bash starts nothing new, and as subreaper it gets every orphan: kill until none is left."""
    shell.signal(signal.SIGSTOP)
    yield from _kill_below(shell, call)
    shell.signal(signal.SIGKILL)
    shell.swept = True
    for _ in range(ROUNDS):
        if shell.dead:
            return
        yield Wait((shell.child_fd,) if shell.child_fd >= 0 else (), time.monotonic() + 0.01)


def _kill_strays(shell: Shell, call: Call | None = None) -> Steps[None]:
    """Bash died by itself: its orphans went elsewhere, and are found by the tag they carry."""
    for _ in range(ROUNDS):  # killed before bash was, some may be on their way out
        if not any(map(processes.alive, shell.killed)):
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
    """The strays, found in slices: there may be many foreign processes to look at, and a loop serves other sessions."""
    found, until = list[int](), time.monotonic() + _SLICE
    for pid in shell.strays():
        if pid:
            found.append(pid)
        if (now := time.monotonic()) > until:
            yield Wait((), now)
            until = time.monotonic() + _SLICE
    return found


def discard(engine: Core, shell: Shell, came: Result | None = None) -> None:
    """Give back what the dead shell had. Where who asked is struck meanwhile, the next command is told what ``came``.

    It is known until all is given back: who closes the session again, or collects it, takes up what is left.
    """
    engine.stop_unattended()  # perhaps it waits for a callback of the host's: Ctrl-C is heard
    try:
        with suppress(OSError):  # its terminal was hung up
            engine.unread += shell.keyboard.reset()
        _give_back(engine, shell)
    except BaseException:
        engine.untold = came or engine.untold
        with suppress(Exception):  # what cannot be given back for good keeps nobody from a fresh one
            _give_back(engine, shell)
        engine.shell = None
        raise
    engine.shell = None


def _give_back(engine: Core, shell: Shell) -> None:
    """Done again, after it was struck (a host with threads is, all the same), it does what is left."""
    engine.call = engine.terminal_job = None
    with undisturbed(), ExitStack() as steps:  # each is done, whatever goes wrong with another; the last one first
        steps.callback(shell.close)
        steps.callback(engine.on_close)
        for job in engine.jobs:
            steps.callback(job.close)
