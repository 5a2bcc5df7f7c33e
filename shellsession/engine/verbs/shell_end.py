"""Ends shells, and makes the results of commands that cost their shell.

- ``shell_died``, ``kill_shell`` and ``retire`` make the result of a command that cost its shell.
- ``shut_down``, ``destroy`` and ``abandon`` end the shell of a session.
- ``discard`` gives back all that a dead shell held.
"""

from __future__ import annotations

import re
import signal
import time
from contextlib import ExitStack, suppress
from typing import Final

from ...errors import CLOSED, RESTARTED
from ...models import Result
from ...observe import WARNING, logger
from ...sandbox import size_text
from ...text import signal_name
from ..bash.shell import ABANDONED, BUSY, READY, Shell
from ..io.threads import Steps, T, Wait, shielded
from ..kernel import proc
from ..kernel.signals import kill, signals_deferred
from ..wire import NOWHERE, Mark, closes_descriptors, sets_errexit
from . import collect
from .call import Call
from .core import Core
from .delivery import Delivery
from .results import Ending, conclude
from .state import SHOW_EXIT_TRAP, is_ours

TICK: Final = 0.002
ROUNDS: Final = 500
_SLICE: Final = 0.0005
_LAST_TRAP: Final = 1.0
# A reason for the loss of a shell that we can be certain of.
CLOSED_DESCRIPTORS: Final = "the command closed descriptors that the session's bash needs (10 to 12)"
_UNKNOWN: Final = "the shell's exit status is unknown: SIGCHLD is ignored here, or another thread has reaped it"
_NOTICE: Final = re.compile(rb"^\[\d+\] (\d{1,10})$", re.MULTILINE)


def kill_shell(core: Core, call: Call, reason: str = "") -> Steps[Result]:
    """Kill the command together with its shell, at once. ``reason``: goes before that of the call."""
    shell = core.live()
    call.note_killed([shell.pid], signal.SIGKILL)
    yield from _kill_all(shell, call)
    return (yield from shell_died(core, call, reason))


def shell_died(core: Core, call: Call, reason: str = "") -> Steps[Result]:
    """Make the result of a command whose shell is dead. Kill everything that the shell started.

    ``reason``: goes before that of the call.
    """
    shell = core.live()
    for _ in range(ROUNDS):
        if shell.dead:
            break
        yield Wait((), time.monotonic() + TICK)
    status = shell.status
    reason = reason or call.reason or (_UNKNOWN if shell.dead and status is None else "")
    call.note_killed(shell.killed)
    yield from _kill_strays(shell, call)
    core.note_end(shell, call)
    collect.drain(shell, call)
    # A bash that lost its descriptors ends with 1. With another status the text ended it, and the mark is not bash's.
    mark = _final_mark(call) if status == 1 else None
    if not core.known.prompt_speaks and call.finder.mark is None:
        take_own_output(call)
    call.note_killed(_hung_up(shell, call))
    reason = reason or core.kill_reason or memory_kill(core, shell, status)
    reason = reason or _how_it_ended(core, call, status, mark)
    number = -status if status is not None and status < 0 else None
    code, number = status if number is None else 128 + number, number if call.ending is None else None
    if mark is not None and mark.status:  # 0 would hide that the text may have been cut short
        code = mark.status
    ending = Ending(call.ending or "shell_exited", code, shell.first_cwd, reason, number, state_kept=False)
    return _conclude_lost(core, shell, call, ending)


def _conclude_lost(core: Core, shell: Shell, call: Call, ending: Ending) -> Result:
    """Conclude a command that cost its shell, which is dead."""
    said = conclude(call, ending)
    discard(core, shell, call.delivery)
    return said


def _final_mark(call: Call) -> Mark | None:
    """Return the mark from the command's stderr, or None.

    If the command closed bash's own descriptors, bash prints the mark there and then ends.
    """
    capture = call.stdout if call.request.merge_stderr else call.stderr
    said = capture.cut_after(b": " + NOWHERE + call.finder.nonce + b" ") if call.finder.nonce else b""
    if not said:
        return None
    capture.cut_line()
    return call.finder.feed(said)


def take_own_output(call: Call) -> None:
    """Move what was printed on bash's own stdout and stderr to the output of the command."""
    now = time.monotonic()
    data, omitted, _ = call.own_output.take()
    if data:
        call.feed("stdout", data, now)
    call.stdout.omit(omitted)
    errors = call.stdout if call.request.merge_stderr else call.stderr
    if data := call.finder.noise_before_mark:
        call.feed("stdout" if call.request.merge_stderr else "stderr", data, now)
        errors.omit(call.finder.trimmed)


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


def memory_kill(core: Core, shell: Shell, status: int | None) -> str:
    """Return in words that the memory limit of the sandbox has cost a process; "" if it has not.

    If the status does not show a SIGKILL, it may have been any process of the session, also a job.
    """
    sandbox = core.options.sandbox
    if sandbox is None or sandbox.memory_bytes is None or not shell.lost_to_memory():
        return ""
    killed = "killed" if status in (-signal.SIGKILL, 128 + signal.SIGKILL) else "a process of the session was killed"
    return f"{killed}: memory limit {size_text(sandbox.memory_bytes)}"


# What bash ends with where it fails itself, as at a syntax error, or at an unset variable under `set -u`.
_ERRORS: Final = (1, 2, 127)


def _how_it_ended(core: Core, call: Call, status: int | None, mark: Mark | None) -> str:
    """Return in words how the command ended its shell, with a hint if a known cause fits."""
    text = call.request.command
    if mark is not None:
        editing = "or switched its line editing (`set +o emacs`) in a function or in an `eval`"
        return f"{CLOSED_DESCRIPTORS}, {editing}; what followed in the command may not have run"
    if status is None:
        return "the session's bash has ended"
    if status < 0:
        name = signal_name(-status)  # a real-time signal has none
        return f"the session's bash was killed by signal {-status}" + (f" ({name})" if name else "")
    hint = ""
    if call.typed.errexit.sources:  # where a command fails, only the text ends (see ``scope.guard_errexit``)
        if status in _ERRORS and b"exit" not in text:
            hint = "; with `set -e`, a syntax error, an unset variable, or another error in bash itself does that"
    elif status and (core.known.errexit or call.request.errexit or sets_errexit(text)):
        hint = "; `set -e` does that when a command fails"
    elif status == 1 and closes_descriptors(text):
        hint = "; closing the descriptors from 10 to 12 does that"
    return f"the command ended the session's bash, with exit status {status}{hint}"


def retire(core: Core, call: Call, mark: Mark, reason: str) -> Steps[Result]:
    """Make the result of a command whose shell cannot run another one, and end that shell."""
    shell = core.live()
    cwd = shell.check_cwd(mark.cwd)
    call.note_killed([shell.pid])
    yield from _end(core, call)
    call.note_killed(_hung_up(shell, call))
    return _conclude_lost(core, shell, call, Ending("shell_exited", mark.status, cwd, reason, state_kept=False))


def shut_down(core: Core, why: str) -> Steps[None]:
    """End the session's shell. An idle shell first runs its EXIT trap, after its children were killed.

    A command that was handed back gets a result with all that it printed, and with ``why`` as its reason.
    """
    shell, call = core.shell, core.handed_back
    core.withdraw_last()
    core.abandon_last()
    if shell is None:
        return
    if (yield from _is_ended_elsewhere(core, shell)):
        return
    shell.begin_to_close()
    if call is not None:
        call.mute()  # the callback may still be busy with the last piece
        yield from (shell_died if shell.dead else kill_shell)(core, call, why)
        return
    if core.attended is None and not shell.dead:
        yield from kill_below(shell)
        said = yield from collect.ask(shell, SHOW_EXIT_TRAP, _LAST_TRAP)
        if said is not None and is_ours(shell, said):
            said = yield from collect.ask(shell, core.known.at_exit + SHOW_EXIT_TRAP, _LAST_TRAP)
        if said is not None and b"trap -- " in said:
            shell.control.send(b"\n\\builtin exit\n")
            until = time.monotonic() + _LAST_TRAP
            while not shell.dead and time.monotonic() < until:  # read what the trap prints, so that it does not block
                fds = (shell.child_fd, shell.own_stdout, shell.control.fd) if shell.child_fd >= 0 else ()
                yield Wait(fds, min(until, time.monotonic() + 0.05))
                if shell.read_own_stdout() == b"" or shell.control.receive() == b"":
                    yield Wait((), time.monotonic() + TICK)
    yield from destroy(core)


def _is_ended_elsewhere(core: Core, shell: Shell) -> Steps[bool]:
    """Return whether another thread, which is in a verb or opens the shell, ends this shell.

    This happens when the interpreter ends.
    """
    if core.attended is not None:
        core.kill_running("the program ended meanwhile")
    elif shell.life in (READY, BUSY, ABANDONED):
        return False
    for _ in range(ROUNDS):
        if core.shell is not shell:
            return True
        yield Wait((), time.monotonic() + TICK)
    return False


def destroy(core: Core) -> Steps[None]:
    """Kill the shell and everything below it, and give back what it held."""
    shell = yield from _end(core)
    discard(core, shell)


def _end(core: Core, call: Call | None = None) -> Steps[Shell]:
    shell = core.live()
    core.withdraw_last()
    if not shell.dead:
        yield from _kill_all(shell, call)
    yield from _kill_strays(shell, call)
    return shell


def or_abandon(core: Core, steps: Steps[T]) -> Steps[T]:
    """Run steps that end something. If an exception (a second Ctrl-C) interrupts them, kill the whole shell.

    So no command is left half ended. A cancelled task waits for the end of the steps.
    """
    try:
        return (yield from shielded(steps))
    except BaseException:
        abandon(core)
        raise


def abandon(core: Core) -> None:
    """Kill the shell and everything below it without waiting. The next command finds the shell dead."""
    shell = core.shell
    core.withdraw_last()
    if core.last is not None:
        core.last.release()
    if shell is not None:
        shell.abandon()


def _kill_all(shell: Shell, call: Call | None = None) -> Steps[None]:
    """Stop bash, kill everything below it, then kill bash.

    A stopped bash starts nothing new. As subreaper it adopts every orphan, so the killing ends when no child is left.
    """
    shell.signal(signal.SIGSTOP)
    yield from kill_below(shell, call)
    shell.kill_last()
    for _ in range(ROUNDS):
        if shell.dead:
            return
        yield Wait((shell.child_fd,) if shell.child_fd >= 0 else (), time.monotonic() + 0.01)


def kill_below(shell: Shell, call: Call | None = None) -> Steps[None]:
    """Kill everything below bash, until nothing is left."""
    for _ in range(ROUNDS):
        if not (victims := shell.family.living()):
            return
        signalled = kill(victims)
        if call is not None:
            call.note_killed(signalled)
        yield Wait((), time.monotonic() + TICK)


def _kill_strays(shell: Shell, call: Call | None = None) -> Steps[None]:
    """Kill what is left of a bash that died by itself. Other processes adopted its orphans; their tag finds them."""
    for _ in range(ROUNDS):  # processes that were killed before bash may not have ended yet
        if not any(map(proc.alive, shell.killed)):
            break
        yield Wait((), time.monotonic() + TICK)
    for _ in range(ROUNDS):
        if shell.died_last or not (strays := (yield from _find_strays(shell))):
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


def discard(core: Core, shell: Shell, cause: Delivery | None = None) -> None:
    """Give back what a dead shell held. ``cause``: the delivery of the command that cost the shell.

    The engine keeps the shell until everything is given back. A later close, or garbage collection, then finishes the
    work if it was interrupted.
    """
    if cause is not None:
        core.note_loss(cause)
        _log_loss(core, cause)
    core.stop_unattended()  # this may wait for a callback of the host; Ctrl-C works here
    try:
        with suppress(OSError):  # its terminal was hung up
            core.note_unread_input(shell.keyboard.reset())
        _give_back(core, shell)
    except BaseException:
        with suppress(Exception):  # a resource that cannot be given back must not prevent a new shell
            _give_back(core, shell)
        core.give_up_shell()
        raise
    core.give_up_shell()


def _log_loss(core: Core, cause: Delivery) -> None:
    lost, log = cause.loss, logger(WARNING)
    if log is not None and lost is not None and not (core.closed or lost.reason.startswith((CLOSED, RESTARTED))):
        log.warning("%sa command cost the session its shell: %s", core.log_prefix, lost.reason)


def _give_back(core: Core, shell: Shell) -> None:
    """Give back everything. A second call after an exception does what is left.

    Deferred signals do not prevent such an exception in a host with threads.
    """
    core.withdraw_last()
    core.lend_terminal(None)
    with signals_deferred(), ExitStack() as steps:  # runs each callback, even if another fails; the last one first
        steps.callback(shell.close)
        steps.callback(core.host.on_close)
        for job in core.jobs:
            steps.callback(job.close)
