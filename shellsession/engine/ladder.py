"""The ladder of signals that ends what a command has started, and leaves its shell alone with its state.

Law: children first, then the shells that wait for them, bash last. What was there before a command is not touched.
"""

from __future__ import annotations

import math
import signal
import time
from typing import Final

from . import activity, processes, pump, tracing
from .call import LOOK_PLAIN, Call
from .pump import DEAD, MARK, What
from .shell import Shell, kill
from .waiting import Steps, Wait

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
                tracing.detach(pid)  # struck amid that
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
        ran = {shell.pid: processes.processor_time(shell.pid)}
        until = time.monotonic() + _STARVED
        known: set[int] = set()
        had_their_turn = 0
        while time.monotonic() < until and had_their_turn < _LOOKS:
            victims = shell.family.newer(call.older)
            starved = any(processes.alive(pid) for pid in call.killed if pid in victims)
            for pid in (shell.pid, *victims):
                before, ran[pid] = ran.get(pid, 0.0), processes.processor_time(pid)
                starved = starved or (processes.state(pid) == "R" and ran[pid] - before < _TURN / 2)
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
            what = yield from pump.pump(self._shell, self._call, now + look)
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
        return now < self._begun + _STARVED and any(map(processes.alive, self._dying))

    def _answer(self, until: float) -> Steps[What]:
        """What bash says to it, for as long as that may take."""
        shell, call = self._shell, self._call
        call.look_every, call.look_at = LOOK_PLAIN, time.monotonic() + LOOK_PLAIN
        what = yield from pump.pump(shell, call, max(until, time.monotonic() + _ANSWER))
        if what in (MARK, DEAD):
            return what
        more = PROMPT if call.framer.noise == _LEFT else _TRAP if self._is_at_a_trap() else 0.0
        return (yield from pump.pump(shell, call, time.monotonic() + more))

    def _is_at_a_trap(self) -> bool:
        """Has bash started something since it was interrupted, or is it busy? A loop that ignores SIGINT is no trap."""
        bash, call = self._shell.pid, self._call
        if processes.state(bash) == "R" and not activity.ignores(bash, signal.SIGINT):
            return True
        fresh = self._shell.family.newer(call.older)
        return any(pid not in call.killed and processes.alive(pid) for pid in fresh)

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
            amid = shell.is_at_our_line(call.older) or (call.signal is None and tracing.sets_handler(shell.pid))
            if time.monotonic() > until or not amid:
                return None
            shell.signal(signal.SIGCONT)
            what = yield from pump.pump(shell, call, time.monotonic() + _FIRST_LOOK)
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
            more = [pid for pid in shell.family.newer(call.older) if pid not in victims and processes.alive(pid)]
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
        while time.monotonic() < until and any(processes.state(pid) in ("R", "S", "D") for pid in self._held):
            yield Wait((), time.monotonic() + _FIRST_LOOK)

    def _is_waiting_shell(self, pid: int) -> bool:
        """A subshell or script, which would go on with its next command as bash does."""
        return processes.run_the_same(pid, self._shell.pid) and processes.children(pid) != []

    def _is_in_system(self, pid: int) -> bool:
        """Does it ignore SIGINT and SIGQUIT for as long as its child runs, as system(3), su(1) and git's editor do it?

        What was started with `&` hands that on to its children. Without a signal such a program, too, would go on.
        Not `strace -o FILE`: while it is stopped, those that it traces cannot end.
        """
        if _ignores_both(pid):
            children = processes.children(pid)
            if not all(map(_ignores_both, children)) and all(processes.tracer(child) != pid for child in children):
                self._in_system.add(pid)
        return pid in self._in_system

    def _end_but_above_shells(self, programs: list[int]) -> list[int]:
        """Those above one are left for later: `timeout`, interrupted, lets it go on before its own turn has come."""
        if not programs:
            return []
        above = {pid for shell in self._held for pid in processes.lineage(shell)}
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
            below = self._shell.family.newer(self._call.older) if pid == self._shell.pid else processes.children(pid)
            if not any(processes.alive(one) and self._is_waited_for(one, number) for one in below):
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
        children = [processes.alive(child) for child in processes.children(pid)]
        heeds = pid in self._in_system or not activity.ignores(pid, signal.SIGINT)  # behind its child
        if pid != self._shell.pid and not heeds and not any(children):
            self._end([pid], signal.SIGKILL)  # it would go on
        elif (children and all(children)) or not (yield from tracing.interrupt_behind_child(pid)):
            self._signal(pid, signal.SIGINT)
            self._signal(pid, signal.SIGCONT)
        self._held.remove(pid)
        self._call.signal = self._call.signal or int(signal.SIGINT)
        if pid != self._shell.pid:
            self._call.note_killed([pid])

    def _signal(self, pid: int, number: int) -> None:
        if pid != self._shell.pid:
            kill([pid], number)
        elif number == signal.SIGINT and not processes.available():
            self._shell.interrupt_group()
        else:
            self._shell.signal(number)


def _ignores_both(pid: int) -> bool:
    return activity.ignores(pid, signal.SIGINT) and activity.ignores(pid, signal.SIGQUIT)
