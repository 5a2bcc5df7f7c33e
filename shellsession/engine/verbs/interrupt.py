"""Interrupts a running command: escalating signals to its processes, and a traced SIGINT for the shells above them.

``Escalation`` sends SIGINT, then SIGKILL, until bash is back at its prompt or dead. ``interrupt_after_child``
interrupts one shell at the only moment at which it ends its list of commands. It traces that shell (ptrace(2)) for a
moment, changes nothing in it, and detaches whatever happens.

Why a plain SIGINT is not enough: in `pytest; git push`, pytest may handle SIGINT and exit in its own way. Bash then
takes the signal as handled by the program, and runs `git push` (wait_sigint_handler in its jobs.c). Bash ends the list
only if SIGINT arrives between the return of its wait4(2) and its next wait. That is a tenth of a millisecond. Signals
from outside missed it in 240 of 240 cases. When bash was stopped and continued before each of a hundred signals, they
still missed it in a third to nine tenths of the cases. A tracer sees that moment. A program in system(3) ignores SIGINT
while its child runs; it, too, obeys SIGINT just then.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import struct
import threading
import time
from contextlib import suppress
from functools import cache
from typing import Final

from ..bash.shell import Shell
from ..io.threads import Steps, Wait
from ..kernel import activity, proc, vfork
from ..kernel.signals import kill
from . import collect
from .call import LOOK_PLAIN, Call
from .collect import DEAD, MARK, What

_SEIZE, _INTERRUPT, _DETACH, _SYSCALL = 0x4206, 0x4207, 17, 24  # <sys/ptrace.h>
_GET_SIGNAL, _GET_SYSCALL = 0x4202, 0x420E  # the second since Linux 5.3
_TELL_SYSCALLS: Final = 1  # PTRACE_O_TRACESYSGOOD
_OTHER, ENTRY, EXIT = 0, 1, 2  # where a process has stopped, as _GET_SYSCALL reports it
_EVENT: Final = 128  # PTRACE_EVENT_STOP: a stop with no signal to deliver
# The kernel's numbers of wait4, rt_sigaction and ioctl, with which bash takes the terminal back (asm/unistd_64.h,
# asm-generic/unistd.h). On other machines nothing is traced.
_WAIT4, SET_HANDLER, _IOCTL = {
    "x86_64": (61, 13, 16),
    "aarch64": (260, 134, 29),
}.get(os.uname().machine, (None, None, None))
_STOPS: Final = 64  # five to nine are needed, of 20 to 40 us each
_BUSY_POLLS: Final = 20  # before the first poll that lets the event loop run
_TICK: Final = 0.001
_ENDED: Final = ("", "X", "Z")
_PATIENCE: Final = 5.0  # seconds, for a busy machine on which the process does not get the processor

_ptrace = vfork.LIBC.ptrace
_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_ptrace.restype = ctypes.c_long


def interrupt_after_child(pid: int) -> Steps[bool]:
    """Continue a stopped shell to just after its wait for a child, and interrupt it there. False: it cannot be traced.

    The child has ended. If the shell waits for another child, it is interrupted in that wait. If SIGINT cannot reach
    it, it is killed there. If an exception (KeyboardInterrupt) leaves this generator, the caller must ``detach``.
    """
    if not _is_possible() or proc.state(pid) != "T" or not (_waits(pid) or sets_handler(pid)):
        return False
    try:
        seize(pid)
    except OSError:
        return False
    with suppress(ProcessLookupError):  # it was killed meanwhile
        os.kill(pid, signal.SIGCONT)
        yield from _run_past_wait(pid)
        os.kill(pid, signal.SIGKILL if activity.is_shielded(pid, signal.SIGINT) else signal.SIGINT)
    detach(pid)
    return True


def _waits(pid: int) -> bool:
    """Return whether the process was stopped in wait4 or just after it.

    A SIGCHLD handler in wait4 does not count: it passes WNOHANG.
    """
    call = activity.system_call(pid)
    return call[:1] == (_WAIT4,) and not call[3] & os.WNOHANG


def sets_handler(pid: int) -> bool:
    """Return whether the process was stopped while it set a handler of SIGINT.

    A bash that is interrupted there, before it runs on, would signal itself for ever.
    """
    return activity.system_call(pid)[:2] == (SET_HANDLER, signal.SIGINT)


def _run_past_wait(pid: int) -> Steps[None]:
    """Let a traced shell run until it has restored its own SIGINT handler, or waits for something else.

    If it was stopped while it set a handler, its next system call shows which one: its own, or the one for its wait.
    With `set -m` it keeps its own handler while it waits, and takes the terminal back afterwards.
    """
    setting, restores = sets_handler(pid), False
    for _ in range(_STOPS):
        if not (yield from _wait_for_stop(pid)):
            return
        what, number, first = stopped_at(pid)
        if (what == EXIT and restores) or (what, number) == (ENTRY, _IOCTL):
            return
        if what == ENTRY:
            if setting and number != _WAIT4:
                return
            setting, restores = False, number == SET_HANDLER and first == signal.SIGINT
        continue_traced(pid)


def _wait_for_stop(pid: int) -> Steps[bool]:
    """Wait until the traced process stops. False: it sleeps, or has ended."""
    until = time.monotonic() + _PATIENCE
    polls = 0
    while (state := proc.state(pid)) != "t":
        polls += 1
        if polls <= _BUSY_POLLS:
            os.sched_yield()
            continue
        if state in _ENDED or _sleeps(pid) or time.monotonic() > until:
            return False
        yield Wait((), time.monotonic() + _TICK)
    return True


def _sleeps(pid: int) -> bool:
    """Return whether the process really sleeps. Its state in /proc is not enough.

    In do_wait() (kernel/exit.c) a process that searches its children, or is pre-empted there, also shows as asleep.
    When a shell that was just reaping its child was taken for asleep, it ran the next command.
    """
    return activity.system_call(pid) != activity.RUNS and proc.state(pid) == "S"


@cache
def _survives(_thread: int, _filters: bytes) -> bool:
    return vfork.survives([("ptrace", (_SEIZE, 0, 0, 0))])


def _is_possible() -> bool:
    """Return whether this thread can trace.

    It cannot if the system call numbers of this machine are unknown. A seccomp filter, such as systemd's, may kill a
    thread that calls ptrace, so a copy of this thread tries it first. A handler of SIGCHLD rules tracing out as well:
    if it waits for any child, it also gets the stops of the traced one, which it does not expect.
    """
    if _WAIT4 is None or callable(signal.getsignal(signal.SIGCHLD)):
        return False
    filters = proc.filters()
    return not filters or _survives(threading.get_native_id(), filters)


def seize(pid: int) -> None:
    """Trace a stopped process from this thread. Raises OSError if that is not possible."""
    _trace(_SEIZE, pid, 0, _TELL_SYSCALLS)
    try:
        stopped_at(pid)
    except OSError:  # an older kernel, or it was killed meanwhile
        detach(pid)
        raise


def stopped_at(pid: int) -> tuple[int, int, int]:
    """Return the kind of stop, then the number and first argument of the system call (ENTRY) or its result (EXIT)."""
    info = ctypes.create_string_buffer(88)
    _trace(_GET_SYSCALL, pid, len(info), ctypes.addressof(info))
    what, value, argument = struct.unpack_from("=B23xqQ", info)
    return what, value, argument


def continue_traced(pid: int) -> None:
    """Let a traced process run to its next stop, and deliver the signal that was about to reach it."""
    _trace(_SYSCALL, pid, 0, _signal(pid))


def _signal(pid: int) -> int:
    info = (ctypes.c_int * 32)()  # a siginfo_t: number, errno, code
    try:
        if stopped_at(pid)[0] != _OTHER:
            return 0
        _trace(_GET_SIGNAL, pid, 0, ctypes.addressof(info))
    except ProcessLookupError:
        raise
    except OSError:  # an older kernel
        return 0
    return 0 if info[2] >> 8 == _EVENT else info[0]


def detach(pid: int) -> None:
    """If this thread traces the process, let it continue untraced.

    The kernel detaches only a stopped process, and only for its tracer; so the process is stopped first.
    """
    until = time.monotonic() + _PATIENCE
    while proc.alive(pid) and proc.tracer(pid) == threading.get_native_id():
        with suppress(ProcessLookupError):  # it is not stopped
            _trace(_DETACH, pid, 0, _signal(pid))
            return
        _ptrace(_INTERRUPT, pid, 0, 0)
        os.sched_yield()
        if time.monotonic() > until:  # otherwise it would stop for ever at its next system call
            os.kill(pid, signal.SIGKILL)
            break
    if proc.parent(pid) != os.getpid():  # the kernel reports the end to the tracer first, then to the parent
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _trace(request: int, pid: int, address: int, data: int) -> None:
    ctypes.set_errno(0)
    if _ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# The rounds of signals, with the seconds of each. The first does what Ctrl-C does. The others kill what ignores SIGINT;
# there are several, because each death may start the next command of a list.
_ROUNDS: Final = ((signal.SIGINT, 0.3), *((signal.SIGKILL, 0.1),) * 3)
# A round of SIGKILL sends SIGINT first to a child that has had no signal, and leaves it this many seconds. Bash leaves
# a loop or a list if SIGINT has ended the child that it waits for; after SIGKILL it continues. If bash cannot be
# traced, nothing else ends the list.
_GRACE: Final = 0.02
_STOP: Final = 1.0  # a process that does not stop within this sits in a system call that cannot be interrupted
# Bash has this many seconds to read our line. If it were interrupted there, it would take the rest of the line for a
# line of its own, with an open quote.
_READING: Final = 0.3
_ANSWER: Final = 0.1  # seconds for bash to give its mark
_TRAP: Final = 0.2  # additional seconds for what its trap of INT runs
_LEFT: Final = b"\n"  # bash prints this when SIGINT makes it leave a command; then it runs its PROMPT_COMMAND
# What runs at the prompt for longer than this, in seconds, is taken for something that the command left running.
PROMPT: Final = 1.0
_SCANS: Final = 20  # a process that we may not stop (another user's) can keep forking
_FIRST_POLL, _LAST_POLL = 0.0003, 0.005  # seconds between two polls; they grow from the first value to the last
# On a busy machine: how many seconds to wait for a shell that does not get the processor, and how many seconds of
# processor time it needs to answer.
_STARVED: Final = 5.0
_TURN: Final = 0.05
_POLLS: Final = 3  # a single poll may fall between two children


class Escalation:
    """Ends one command by escalating signals.

    Shells, and programs in system(3), are stopped while the processes that they wait for end. At the end they continue.
    If an exception interrupts the escalation (Ctrl-C, a cancelled task), they stay stopped. Then the caller begins a
    new escalation or kills everything.
    """

    def __init__(self, shell: Shell, call: Call) -> None:
        self._shell, self._call = shell, call
        self._begun = time.monotonic()
        self._held: list[int] = []  # the processes that are kept stopped, and bash among them
        self._in_system: set[int] = set()  # programs in system(3) among them
        self._dying: set[int] = set()

    def run(self) -> Steps[What | None]:
        """End the command. Returns what ``pump`` reported of bash, or None if bash does not answer."""
        try:
            what = yield from self._run()
        except BaseException:
            # Their children may have ended, and the shells were not interrupted yet. If they ran before the next
            # escalation, they would start what follows.
            for pid in self._held:
                self._signal(pid, signal.SIGSTOP)
                detach(pid)  # the exception may have come while it was traced
            raise
        for pid in self._held:
            self._signal(pid, signal.SIGCONT)
        return what

    def _run(self) -> Steps[What | None]:
        for number, patience in _ROUNDS:
            what = yield from self._round(number, patience)
            if what in (MARK, DEAD):
                return what
        return (yield from self._wait_for_starved())

    def _wait_for_starved(self) -> Steps[What | None]:
        """Before the shell is given up, give it and its children time to get the processor on a busy machine."""
        shell, call = self._shell, self._call
        ran = {shell.pid: proc.processor_time(shell.pid)}
        until = time.monotonic() + _STARVED
        known: set[int] = set()
        polls_without_starvation = 0
        while time.monotonic() < until and polls_without_starvation < _POLLS:
            victims = shell.family.newer(call.older)
            starved = any(proc.alive(pid) for pid in call.killed if pid in victims)
            for pid in (shell.pid, *victims):
                before, ran[pid] = ran.get(pid, 0.0), proc.processor_time(pid)
                starved = starved or (proc.state(pid) == "R" and ran[pid] - before < _TURN / 2)
            # A shell that starts new processes does get the processor: a loop that continues after a trap of INT.
            if starved and known.issuperset(victims):
                polls_without_starvation = 0
            else:
                polls_without_starvation += 1
            known.update(victims)
            what = yield from self._round(signal.SIGKILL, _TURN)
            if what in (MARK, DEAD):
                return what
        return None

    def _round(self, number: signal.Signals, patience: float) -> Steps[What | None]:
        """Interrupt what the command has started, then the shells above it, then bash.

        ``number`` goes to programs that were interrupted before, and to those that live on after SIGINT.
        """
        begun = time.monotonic()
        if (what := (yield from self._stop_bash())) in (MARK, DEAD):
            return what
        self._call.look_again(math.inf)  # a check by ``pump`` would make the stopped shell continue
        fresh, known = self._stop_all()
        yield from self._until_stopped()
        self._signal_programs(known, number)
        poll = _FIRST_POLL
        not_interrupted = fresh
        while self._shell.pid in self._held:
            not_interrupted = self._interrupt_programs(not_interrupted)
            yield from self._interrupt_shells(number)
            now = time.monotonic()
            if fresh and now >= begun + _GRACE and number != signal.SIGINT:  # they live on after their SIGINT
                self._signal_programs(fresh, number)
                fresh = []
            if now >= begun + patience and not self._is_dying(now):
                break
            what = yield from collect.pump(self._shell, self._call, now + poll)
            if what in (MARK, DEAD):
                return what
            poll = min(poll * 1.5, _LAST_POLL)
        if self._held and number == signal.SIGINT:
            return None  # the next round kills what is left first
        for pid in self._held[::-1]:  # they wait for what we cannot end, such as another user's program
            yield from self._interrupt(pid)
        return (yield from self._answer(begun + patience))

    def _is_dying(self, now: float) -> bool:
        """Return whether a killed process has not ended yet.

        It still frees its memory, or does not get the processor. If bash were interrupted before that, it would
        continue after it.
        """
        return now < self._begun + _STARVED and any(map(proc.alive, self._dying))

    def _answer(self, until: float) -> Steps[What]:
        """Wait for bash's answer to the interrupt, for as long as that may take."""
        shell, call = self._shell, self._call
        call.look_again(LOOK_PLAIN)
        what = yield from collect.pump(shell, call, max(until, time.monotonic() + _ANSWER))
        if what in (MARK, DEAD):
            return what
        more = PROMPT if call.finder.noise == _LEFT else _TRAP if self._is_at_a_trap() else 0.0
        return (yield from collect.pump(shell, call, time.monotonic() + more))

    def _is_at_a_trap(self) -> bool:
        """Return whether bash seems to run a trap: it is busy, or has started something since the interrupt.

        A loop that ignores SIGINT is no trap.
        """
        bash, call = self._shell.pid, self._call
        if proc.state(bash) == "R" and not activity.ignores(bash, signal.SIGINT):
            return True
        fresh = self._shell.family.newer(call.older)
        return any(pid not in call.killed and proc.alive(pid) for pid in fresh)

    def _stop_bash(self) -> Steps[What | None]:
        """Stop bash at a point where an interrupt reaches the text, and nothing of ours.

        While bash reads our line or sets a handler, it continues for a moment: neither takes long.
        """
        shell, call = self._shell, self._call
        until = time.monotonic() + _READING
        call.look_again(LOOK_PLAIN)
        self._held = [shell.pid]
        while True:
            shell.signal(signal.SIGSTOP)
            yield from self._until_stopped()
            # Once its child was signalled, bash may not continue, even if it sets a handler: it would start what
            # follows.
            too_early = shell.is_at_our_line(call.older) or (call.signal is None and sets_handler(shell.pid))
            if time.monotonic() > until or not too_early:
                return None
            shell.signal(signal.SIGCONT)
            what = yield from collect.pump(shell, call, time.monotonic() + _FIRST_POLL)
            if what in (MARK, DEAD):
                return what

    def _stop_all(self) -> tuple[list[int], list[int]]:
        """Stop everything first, so that the signals arrive as if at once, like a signal to a process group.

        Returns the programs that had no signal of ours yet, and those that had one. When processes were signalled one
        after the other, `sleep 100 | cat` sometimes succeeded: cat saw the end of its input before its own signal came,
        and bash ran the next command.
        """
        shell, call = self._shell, self._call
        victims: list[int] = []
        for _ in range(_SCANS):
            more = [pid for pid in shell.family.newer(call.older) if pid not in victims and proc.alive(pid)]
            kill(more, signal.SIGSTOP)
            victims += more
            if not more:
                break
        for pid in victims:
            if pid not in call.killed and (self._is_waiting_shell(pid) or self._is_in_system(pid)):
                self._held.append(pid)
        programs = [pid for pid in victims if pid not in self._held]
        return [pid for pid in programs if pid not in call.killed], [pid for pid in programs if pid in call.killed]

    def _until_stopped(self) -> Steps[None]:
        """Wait until all held processes have stopped.

        Otherwise a shell that has not had the processor since would first see its child's end, and only then stop.
        """
        until = time.monotonic() + _STOP
        while time.monotonic() < until and any(proc.state(pid) in ("R", "S", "D") for pid in self._held):
            yield Wait((), time.monotonic() + _FIRST_POLL)

    def _is_waiting_shell(self, pid: int) -> bool:
        """Return whether it is a subshell or script that waits: like bash, it would run its next command."""
        return proc.run_the_same(pid, self._shell.pid) and proc.children(pid) != []

    def _is_in_system(self, pid: int) -> bool:
        """Return whether it ignores SIGINT and SIGQUIT while its child runs, as system(3), su(1) and git's editor do.

        Such a program, too, would continue without a signal. If all its children ignore both signals as well, it was
        started with `&`, and does not count. Nor does `strace -o FILE`: while it is stopped, the processes that it
        traces cannot end.
        """
        if _ignores_both(pid):
            children = proc.children(pid)
            if not all(map(_ignores_both, children)) and all(proc.tracer(child) != pid for child in children):
                self._in_system.add(pid)
        return pid in self._in_system

    def _interrupt_programs(self, programs: list[int]) -> list[int]:
        """Interrupt the programs that have no held shell below them. Returns the others, for later.

        An interrupted `timeout` would let the shell below it continue before that shell is interrupted.
        """
        if not programs:
            return []
        above = {pid for shell in self._held for pid in proc.lineage(shell)}
        self._signal_programs([pid for pid in programs if pid not in above], signal.SIGINT)
        return [pid for pid in programs if pid in above]

    def _signal_programs(self, programs: list[int], number: signal.Signals) -> None:
        """Send the signal to stopped programs, and let them continue."""
        if not programs:
            return
        signalled = kill(programs[::-1], number)
        kill(programs[::-1], signal.SIGCONT)  # children first: a parent that sees a stopped child may go on without it
        if number == signal.SIGKILL:
            self._dying.update(signalled)
        # Only now: if an exception (Ctrl-C) comes before, all of it must be done again.
        self._call.note_killed(signalled[::-1], number)

    def _interrupt_shells(self, number: signal.Signals) -> Steps[None]:
        """Interrupt the held shells that wait for no process any more, the lowest first.

        What a shell has started with `&` does not count: if the shell has a trap of SIGINT, that may end it.
        """
        for pid in self._held[::-1]:
            below = self._shell.family.newer(self._call.older) if pid == self._shell.pid else proc.children(pid)
            if not any(proc.alive(one) and self._is_waited_for(one, number) for one in below):
                yield from self._interrupt(pid)

    def _is_waited_for(self, pid: int, number: int) -> bool:
        """Return whether a shell waits for this process. It does not for what it starts with `&`.

        Bash makes such a process ignore SIGINT and SIGQUIT. If bash is interrupted while any other process lives, even
        one that ignores SIGINT, it continues with its text if that process succeeds.
        """
        return (
            pid in self._dying
            or pid in self._held
            or pid in self._in_system
            or number == signal.SIGKILL
            or not _ignores_both(pid)
        )

    def _interrupt(self, pid: int) -> Steps[None]:
        children = [proc.alive(child) for child in proc.children(pid)]
        obeys = pid in self._in_system or not activity.ignores(pid, signal.SIGINT)  # after its child has ended
        if pid != self._shell.pid and not obeys and not any(children):
            self._signal_programs([pid], signal.SIGKILL)  # it would continue
        elif (children and all(children)) or not (yield from interrupt_after_child(pid)):
            self._signal(pid, signal.SIGINT)
            self._signal(pid, signal.SIGCONT)
        self._held.remove(pid)
        self._call.note_killed([] if pid == self._shell.pid else [pid], self._call.signal or signal.SIGINT)

    def _signal(self, pid: int, number: int) -> None:
        if pid != self._shell.pid:
            kill([pid], number)
        elif number == signal.SIGINT and not proc.available():
            self._shell.interrupt_group()
        else:
            self._shell.signal(number)


def _ignores_both(pid: int) -> bool:
    return activity.ignores(pid, signal.SIGINT) and activity.ignores(pid, signal.SIGQUIT)
