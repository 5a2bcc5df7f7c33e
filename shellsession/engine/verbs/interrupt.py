"""Lets a stopped shell go on to just behind the child that it waits for, and interrupts it there.

Law: it traces (ptrace(2)) for a moment only, changes nothing in what it looks at, and lets go whatever happens.

Bash goes on with `pytest; git push` when pytest has ended in its own way after SIGINT: it holds the signal for the
program's, which has heeded it (wait_sigint_handler in its jobs.c). Its own is what reaches it behind its wait4(2) and
before the next one: a tenth of a millisecond, which signals from outside missed in 240 of 240 cases, and in a third to
nine tenths when it was stopped and continued before each of a hundred. Who traces it sees that moment. A program in
system(3), which ignores SIGINT until then, has the same one: there it heeds that.
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
from .collect import DEAD, MARK, What
from .command import LOOK_PLAIN, Call

_SEIZE, _INTERRUPT, _DETACH, _SYSCALL = 0x4206, 0x4207, 17, 24  # <sys/ptrace.h>
_GET_SIGNAL, _GET_SYSCALL = 0x4202, 0x420E  # the second since Linux 5.3
_TELL_SYSCALLS: Final = 1  # PTRACE_O_TRACESYSGOOD
_OTHER, ENTRY, EXIT = 0, 1, 2  # at what it has stopped, as _GET_SYSCALL tells
_EVENT: Final = 128  # PTRACE_EVENT_STOP: a stop without a signal that is to be delivered
# The kernel's numbers of wait4, rt_sigaction and ioctl (asm/unistd_64.h, asm-generic/unistd.h); elsewhere nothing is
# traced.
_WAIT, SET_HANDLER, _TAKE = {
    "x86_64": (61, 13, 16),
    "aarch64": (260, 134, 29),
}.get(os.uname().machine, (None, None, None))
_STOPS: Final = 64  # five to nine take it there, of 20 to 40 us each
_EAGER: Final = 20  # looks, before others get their turn between two
_TICK: Final = 0.001
_ENDED: Final = ("", "X", "Z")
_PATIENCE: Final = 5.0  # for a machine that gives it no processor

_ptrace = vfork.LIBC.ptrace
_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_ptrace.restype = ctypes.c_long


def interrupt_behind_child(pid: int) -> Steps[bool]:
    """Let a stopped shell go on that waits for a child, and interrupt it behind that; False where it cannot be traced.

    The child has ended. A shell that waits for more is interrupted as it does so. One that no interrupt reaches is
    killed there. Who was struck (Ctrl-C) in here has to ``detach``.
    """
    if not _is_possible() or proc.state(pid) != "T" or not (_waits(pid) or sets_handler(pid)):
        return False
    try:
        seize(pid)
    except OSError:
        return False
    with suppress(ProcessLookupError):  # it was killed meanwhile
        os.kill(pid, signal.SIGCONT)
        yield from _go_behind_child(pid)
        os.kill(pid, signal.SIGKILL if activity.is_shielded(pid, signal.SIGINT) else signal.SIGINT)
    detach(pid)
    return True


def _waits(pid: int) -> bool:
    """Was it stopped in wait4, or just behind it? Not a handler of SIGCHLD, which asks with WNOHANG."""
    call = activity.system_call(pid)
    return call[:1] == (_WAIT,) and not call[3] & os.WNOHANG


def sets_handler(pid: int) -> bool:
    """Was it stopped as it set one of SIGINT? Interrupted before its next word, bash would signal itself for ever."""
    return activity.system_call(pid)[:2] == (SET_HANDLER, signal.SIGINT)


def _go_behind_child(pid: int) -> Steps[None]:
    """To where it has put its own handler of SIGINT back; or to where it waits for something else.

    Stopped as it set one: whether that was its own, or the one for its wait, its next call tells. With `set -m` it
    keeps its own while it waits, and takes the terminal back behind it.
    """
    amid, puts_back = sets_handler(pid), False
    for _ in range(_STOPS):
        if not (yield from _stops(pid)):
            return
        what, number, first = stopped_at(pid)
        if (what == EXIT and puts_back) or (what, number) == (ENTRY, _TAKE):
            return
        if what == ENTRY:
            if amid and number != _WAIT:
                return
            amid, puts_back = False, number == SET_HANDLER and first == signal.SIGINT
        go_on(pid)


def _stops(pid: int) -> Steps[bool]:
    """Wait for its next stop; not where it sleeps, or has ended."""
    until = time.monotonic() + _PATIENCE
    looks = 0
    while (state := proc.state(pid)) != "t":
        looks += 1
        if looks <= _EAGER:
            os.sched_yield()
            continue
        if state in _ENDED or _sleeps(pid) or time.monotonic() > until:
            return False
        yield Wait((), time.monotonic() + _TICK)
    return True


def _sleeps(pid: int) -> bool:
    """More than its state tells: who looks through its children, or was pre-empted there, is shown as asleep as well.

    (do_wait() of the kernel's exit.c.) Taken for asleep as it reaps the child, a shell went on with what follows.
    """
    return activity.system_call(pid) != activity.RUNS and proc.state(pid) == "S"


@cache
def _survives(_thread: int, _filters: bytes) -> bool:
    return vfork.survives([("ptrace", (_SEIZE, 0, 0, 0))])


def _is_possible() -> bool:
    """Not where nobody knows the calls' numbers, or who traces is killed, or somebody else would be told of each stop.

    A filter of system calls may kill who makes one, as systemd's does: a copy of this thread tries it first. And a
    handler of SIGCHLD that waits for any child is told of stops as well, which it does not expect.
    """
    if _WAIT is None or callable(signal.getsignal(signal.SIGCHLD)):
        return False
    filters = proc.filters()
    return not filters or _survives(threading.get_native_id(), filters)


def seize(pid: int) -> None:
    """Trace a stopped process, from this thread. Raises OSError where that is not to be had."""
    _trace(_SEIZE, pid, 0, _TELL_SYSCALLS)
    try:
        stopped_at(pid)
    except OSError:  # an older kernel, or it was killed meanwhile
        detach(pid)
        raise


def stopped_at(pid: int) -> tuple[int, int, int]:
    """Which kind of stop; at an entry the number of the call and its first argument, at an exit what it gives."""
    told = ctypes.create_string_buffer(88)
    _trace(_GET_SYSCALL, pid, len(told), ctypes.addressof(told))
    what, value, argument = struct.unpack_from("=B23xqQ", told)
    return what, value, argument


def go_on(pid: int) -> None:
    """To its next stop, with the signal that it was about to get."""
    _trace(_SYSCALL, pid, 0, _signal(pid))


def _signal(pid: int) -> int:
    told = (ctypes.c_int * 32)()  # a siginfo_t: number, errno, code
    try:
        if stopped_at(pid)[0] != _OTHER:
            return 0
        _trace(_GET_SIGNAL, pid, 0, ctypes.addressof(told))
    except ProcessLookupError:
        raise
    except OSError:  # an older kernel
        return 0
    return 0 if told[2] >> 8 == _EVENT else told[0]


def detach(pid: int) -> None:
    """Let it go on untraced, if this thread traces it. Only what is stopped can be, and only by who traces it."""
    until = time.monotonic() + _PATIENCE
    while proc.alive(pid) and proc.tracer(pid) == threading.get_native_id():
        with suppress(ProcessLookupError):  # it is not stopped
            _trace(_DETACH, pid, 0, _signal(pid))
            return
        _ptrace(_INTERRUPT, pid, 0, 0)
        os.sched_yield()
        if time.monotonic() > until:  # it would stop for ever at its next call
            os.kill(pid, signal.SIGKILL)
            break
    if proc.parent(pid) != os.getpid():  # who traces is told of the end first, then the parent
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _trace(request: int, pid: int, address: int, data: int) -> None:
    ctypes.set_errno(0)
    if _ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# First as Ctrl-C does it; what ignores that is killed, some rounds, as each may start the next command of a list.
_RUNGS: Final = ((signal.SIGINT, 0.3), *((signal.SIGKILL, 0.1),) * 3)
# Bash leaves a loop or a list when SIGINT has ended the child that it waits for; if SIGKILL has, it goes on. Where it
# cannot be traced that is what ends it.
_GRACE: Final = 0.02
_STOP: Final = 1.0  # no longer for one that does not stop: it sits in a call that cannot be interrupted
# Interrupted while it reads our line, bash would take the rest for a line of its own, in which a quote is not closed:
# it has so long to read it.
_AMID: Final = 0.3
_ANSWER: Final = 0.1  # bash's time to give its mark
_TRAP: Final = 0.2  # and so much more for what its trap of INT runs
_LEFT: Final = b"\n"  # bash says so when SIGINT has it leave a command; then it runs its PROMPT_COMMAND
# What runs at the prompt for longer than this, in seconds, is taken for something that the command has left.
PROMPT: Final = 1.0
_HOLDS: Final = 20  # what cannot be stopped, another user's, may start more and more
_FIRST_LOOK, _LAST_LOOK = 0.0003, 0.005  # seconds between two looks at who is still there, more each time
# How long a shell that gets no processor is waited for, and what it needs of it to answer, in seconds.
_STARVED: Final = 5.0
_TURN: Final = 0.05
_LOOKS: Final = 3  # one alone may fall into the moment between two children


class Ladder:
    """One way up for one command. Shells, and programs in system(3), are stopped while what they wait for ends.

    None is left so, but where it is struck (Ctrl-C, a cancelled task): then another way up begins, or all is killed.
    """

    def __init__(self, shell: Shell, call: Call) -> None:
        self._shell, self._call = shell, call
        self._begun = time.monotonic()
        self._held: list[int] = []  # those, and bash among them
        self._in_system: set[int] = set()  # programs among them
        self._dying: set[int] = set()

    def climb(self) -> Steps[What | None]:
        """End it all; what bash said to it, or None when it says nothing."""
        try:
            what = yield from self._climb()
        except BaseException:
            # What they wait for may have ended by now, and they were not interrupted yet: let go on until that is done
            # again, they would begin what follows.
            for pid in self._held:
                self._signal(pid, signal.SIGSTOP)
                detach(pid)  # struck amid that
            raise
        for pid in self._held:
            self._signal(pid, signal.SIGCONT)
        return what

    def _climb(self) -> Steps[What | None]:
        for number, patience in _RUNGS:
            what = yield from self._rung(number, patience)
            if what in (MARK, DEAD):
                return what
        return (yield from self._wait_for_starved())

    def _wait_for_starved(self) -> Steps[What | None]:
        """Before a shell is given up: on a busy machine it, or what runs below, may not have had its turn yet."""
        shell, call = self._shell, self._call
        ran = {shell.pid: proc.processor_time(shell.pid)}
        until = time.monotonic() + _STARVED
        known: set[int] = set()
        had_their_turn = 0
        while time.monotonic() < until and had_their_turn < _LOOKS:
            victims = shell.family.newer(call.older)
            starved = any(proc.alive(pid) for pid in call.killed if pid in victims)
            for pid in (shell.pid, *victims):
                before, ran[pid] = ran.get(pid, 0.0), proc.processor_time(pid)
                starved = starved or (proc.state(pid) == "R" and ran[pid] - before < _TURN / 2)
            # Whoever starts others has its turn: a loop that goes on behind a trap of INT.
            had_their_turn = 0 if starved and known.issuperset(victims) else had_their_turn + 1
            known.update(victims)
            what = yield from self._rung(signal.SIGKILL, _TURN)
            if what in (MARK, DEAD):
                return what
        return None

    def _rung(self, number: signal.Signals, patience: float) -> Steps[What | None]:
        """Interrupt what the command has started; ``number`` for what was interrupted before, or does not heed it."""
        begun = time.monotonic()
        if (what := (yield from self._stop_bash())) in (MARK, DEAD):
            return what
        self._call.look_at = math.inf  # who looks at a shell that is stopped makes it go on
        fresh, known = self._stop_all()
        yield from self._until_stopped()
        self._end(known, number)
        look = _FIRST_LOOK
        later = fresh
        while self._shell.pid in self._held:
            later = self._end_but_above_shells(later)
            yield from self._interrupt_shells(number)
            now = time.monotonic()
            if fresh and now >= begun + _GRACE and number != signal.SIGINT:
                self._end(fresh, number)
                fresh = []
            if now >= begun + patience and not self._is_dying(now):
                break
            what = yield from collect.pump(self._shell, self._call, now + look)
            if what in (MARK, DEAD):
                return what
            look = min(look * 1.5, _LAST_LOOK)
        if self._held and number == signal.SIGINT:
            return None  # what is left is killed first
        for pid in self._held[::-1]:  # another user's program, say: it cannot be ended
            yield from self._interrupt(pid)
        return (yield from self._answer(begun + patience))

    def _is_dying(self, now: float) -> bool:
        """Will one soon have ended? It has been killed, and gives its memory back, or has not had its turn for that.

        Interrupted before, bash would go on behind it.
        """
        return now < self._begun + _STARVED and any(map(proc.alive, self._dying))

    def _answer(self, until: float) -> Steps[What]:
        """What bash says to it, for as long as that may take."""
        shell, call = self._shell, self._call
        call.look_every, call.look_at = LOOK_PLAIN, time.monotonic() + LOOK_PLAIN
        what = yield from collect.pump(shell, call, max(until, time.monotonic() + _ANSWER))
        if what in (MARK, DEAD):
            return what
        more = PROMPT if call.framer.noise == _LEFT else _TRAP if self._is_at_a_trap() else 0.0
        return (yield from collect.pump(shell, call, time.monotonic() + more))

    def _is_at_a_trap(self) -> bool:
        """Has bash started something since it was interrupted, or is it busy? A loop that ignores SIGINT is no trap."""
        bash, call = self._shell.pid, self._call
        if proc.state(bash) == "R" and not activity.ignores(bash, signal.SIGINT):
            return True
        fresh = self._shell.family.newer(call.older)
        return any(pid not in call.killed and proc.alive(pid) for pid in fresh)

    def _stop_bash(self) -> Steps[What | None]:
        """Where an interrupt is the text's: bash reads our line, puts in a handler, or is done with it, in no time."""
        shell, call = self._shell, self._call
        until = time.monotonic() + _AMID
        call.look_at = min(call.look_at, time.monotonic() + LOOK_PLAIN)
        self._held = [shell.pid]
        while True:
            shell.signal(signal.SIGSTOP)
            yield from self._until_stopped()
            # Not amid a handler any more once its child was signalled: it would begin what follows.
            amid = shell.is_at_our_line(call.older) or (call.signal is None and sets_handler(shell.pid))
            if time.monotonic() > until or not amid:
                return None
            shell.signal(signal.SIGCONT)
            what = yield from collect.pump(shell, call, time.monotonic() + _FIRST_LOOK)
            if what in (MARK, DEAD):
                return what

    def _stop_all(self) -> tuple[list[int], list[int]]:
        """At one moment, as the kernel signals a process group; programs that were not interrupted yet, and others.

        One after the other, `sleep 100 | cat` now and then came to a good end: cat reads the end of its input before
        its own turn comes, and bash goes on with what follows.
        """
        shell, call = self._shell, self._call
        victims: list[int] = []
        for _ in range(_HOLDS):
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
        """A shell that has not had its turn since would learn of its child's end first, and only then stop."""
        until = time.monotonic() + _STOP
        while time.monotonic() < until and any(proc.state(pid) in ("R", "S", "D") for pid in self._held):
            yield Wait((), time.monotonic() + _FIRST_LOOK)

    def _is_waiting_shell(self, pid: int) -> bool:
        """A subshell or script, which would go on with its next command as bash does."""
        return proc.run_the_same(pid, self._shell.pid) and proc.children(pid) != []

    def _is_in_system(self, pid: int) -> bool:
        """Does it ignore SIGINT and SIGQUIT for as long as its child runs, as system(3), su(1) and git's editor do it?

        What was started with `&` hands that on to its children. Without a signal such a program, too, would go on.
        Not `strace -o FILE`: while it is stopped, those that it traces cannot end.
        """
        if _ignores_both(pid):
            children = proc.children(pid)
            if not all(map(_ignores_both, children)) and all(proc.tracer(child) != pid for child in children):
                self._in_system.add(pid)
        return pid in self._in_system

    def _end_but_above_shells(self, programs: list[int]) -> list[int]:
        """Those above one are left for later: `timeout`, interrupted, lets it go on before its own turn has come."""
        if not programs:
            return []
        above = {pid for shell in self._held for pid in proc.lineage(shell)}
        self._end([pid for pid in programs if pid not in above], signal.SIGINT)
        return [pid for pid in programs if pid in above]

    def _end(self, programs: list[int], number: signal.Signals) -> None:
        if not programs:
            return
        signalled = kill(programs[::-1], number)
        kill(programs[::-1], signal.SIGCONT)  # children first: who sees a stopped child may go on without it
        if number == signal.SIGKILL:
            self._dying.update(signalled)
        # Not before: struck half-way (Ctrl-C), all of it is done again.
        self._call.note_killed(signalled[::-1])
        self._call.signal = int(number)

    def _interrupt_shells(self, number: signal.Signals) -> Steps[None]:
        """Those below which nobody is left but what was started with `&`, the lowest first.

        That is the shell's own to end, if it has a trap of SIGINT.
        """
        for pid in self._held[::-1]:
            below = self._shell.family.newer(self._call.older) if pid == self._shell.pid else proc.children(pid)
            if not any(proc.alive(one) and self._is_waited_for(one, number) for one in below):
                yield from self._interrupt(pid)

    def _is_waited_for(self, pid: int, number: int) -> bool:
        """Not what it starts with `&`, which bash has ignore SIGINT and SIGQUIT.

        Interrupted while anything else lives, even what ignores SIGINT, bash goes on with its text if that ends well.
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
        heeds = pid in self._in_system or not activity.ignores(pid, signal.SIGINT)  # behind its child
        if pid != self._shell.pid and not heeds and not any(children):
            self._end([pid], signal.SIGKILL)  # it would go on
        elif (children and all(children)) or not (yield from interrupt_behind_child(pid)):
            self._signal(pid, signal.SIGINT)
            self._signal(pid, signal.SIGCONT)
        self._held.remove(pid)
        self._call.signal = self._call.signal or int(signal.SIGINT)
        if pid != self._shell.pid:
            self._call.note_killed([pid])

    def _signal(self, pid: int, number: int) -> None:
        if pid != self._shell.pid:
            kill([pid], number)
        elif number == signal.SIGINT and not proc.available():
            self._shell.interrupt_group()
        else:
            self._shell.signal(number)


def _ignores_both(pid: int) -> bool:
    return activity.ignores(pid, signal.SIGINT) and activity.ignores(pid, signal.SIGQUIT)
