"""How a verb stays with a command, until something is to be said of it.

Law: a command is finished (bash gave its mark), handed back (it runs on), ended by us, or gone with its shell; and
whatever exception is raised meanwhile, none is left running that its caller does not know of.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from ...errors import (
    CLOSED,
    GONE,
    IS_CLOSED,
    RESTARTED,
    STILL_RUNS,
    InvalidRequest,
    SessionBusy,
    SessionClosed,
    ShellUnavailable,
    StartupFailed,
)
from ...models import OnTimeout, Outcome, Request, Result, Stream
from ..bash.shell import Shell
from ..bash.spawn import directory, handshake, spawn
from ..io.streams import FULL_PAUSE
from ..io.threads import Steps, T
from ..kernel import proc
from ..kernel.signals import signals_deferred
from . import collect, ending, submit
from .collect import DEAD, IDLE, INPUT, INTERRUPT, MARK, OUTPUT, OVERFLOW, TIMED_OUT
from .command import LOOK_TERMINAL, Call, Typed
from .core import Core
from .ending import HandedBack, announced, said_of, startup_failure
from .ordinary import Ordinary

_ENDINGS: Final[dict[str, tuple[Outcome, str]]] = {
    TIMED_OUT: ("timed_out", "the time limit passed"),
    IDLE: ("idle", "no output came for the idle limit"),
    INPUT: ("input", "the command waits for input from the terminal"),
    INTERRUPT: ("interrupted", "interrupted on request"),
    OVERFLOW: ("overflow", ending.OVERFLOWED),
    OUTPUT: ("running", ""),
}


def guarded(core: Core, steps: Steps[T]) -> Steps[T]:
    """Leave no command running, whatever is raised while we wait (Ctrl-C, a cancelled task, a faulty callback)."""
    shell = core.shell
    try:
        return (yield from steps)
    except GeneratorExit:
        give_up(core, shell)
        raise
    except BaseException:
        yield from end_what_runs(core)
        raise


def give_up(core: Core, shell: Shell | None) -> None:
    """The steps were closed while they waited in that shell: nothing can be waited for any more."""
    if core.shell is shell:  # they may be collected long after: the session may have another one by now
        ending.abandon(core)


def end_what_runs(core: Core) -> Steps[None]:
    """An exception was raised in the steps: end the command that they were at."""
    core.withdraw_last()
    core.abandon_last()
    shell, call = core.shell, core.last
    if shell is not None and shell.busy:
        assert call is not None
        call.ending = call.ending or "interrupted"
        call.mute()
        yield from ending.or_abandon(core, ending.interrupt(core, call))


def attend(
    core: Core, call: Call, until: float | None, on_timeout: OnTimeout | None = None
) -> Steps[Result | HandedBack]:
    """Stay with a command until something has to be said about it, or the moment passes (None: it never does).

    ``on_timeout``: what is done then; the default is what was asked for with the command.
    """
    shell = core.live()
    core.attended = call
    if call.request.idle_timeout is not None:
        call.attended_from = time.monotonic()
    call.raise_fault()
    while True:
        if core.kill_reason:
            shell.end()
        elif core.interrupt_requested or call.interrupt_requested:
            call.interrupt_requested = True
            shell.wake()
        what = yield from collect.pump(shell, call, until)
        if what == MARK:
            if not submit.is_plain(call) and (yield from submit.must_retype(core, call)):
                continue
            core.had_children = shell.family.has_children()
            if core.had_children:
                what = yield from ending.wait_for_end(shell, call, until)
        if what == MARK:
            return (yield from ending.finish(core, shell, call))
        if what == DEAD:
            return (yield from ending.shell_died(core, call))
        break
    outcome, reason = _ENDINGS[what]
    policy = on_timeout or call.request.on_timeout
    patient = what in (TIMED_OUT, IDLE) and policy == "yield"
    if patient or what == OUTPUT or (what == INPUT and call.terminal):
        call.delivery.hand_back()
        submit.leave_stdin(shell, call)
        call.last_output = time.monotonic()  # for who looks whether it waits for input
        return HandedBack("running" if what == TIMED_OUT else outcome, reason)
    call.ending, call.reason = ("interrupted" if what == INPUT else outcome), reason
    call.delivery.withdraw()
    if policy == "kill" and what in (TIMED_OUT, IDLE):
        return (yield from ending.kill_shell(core, call))
    return (yield from ending.interrupt(core, call))


class Superseded(Exception):
    """A restart came before anything was begun: its turn is first, and the caller asks again behind it."""


class Engine(Core):
    """The verbs of one session."""

    _ordinary: Ordinary | None = None  # how ordinary commands are typed, while nothing is unusual

    # -- open

    def open(self) -> Steps[None]:
        """Start bash if there is none, and run the startup commands. Raises ShellUnavailable."""
        self.refuse_closed()
        if self.shell is not None:
            return
        self._give_way()
        self.idle_since = time.monotonic()
        try:
            with signals_deferred():
                env = self.environment()
                shell = self.own(spawn(self.options, env))
            # A later one starts there, and with the same, too.
            self.options, self.first_env = replace(self.options, cwd=shell.first_cwd), env
            shell.resize(self.size)
            self.forget_bash()
            yield from handshake(shell, self.options.tty, self.refuse_closed)
            for text in self.options.startup:
                yield from self._prepare(text)
            self.status, shell.lost, shell.in_hand = 0, False, False
        except GeneratorExit:
            ending.abandon(self)
            raise
        except BaseException as error:
            if self.shell is not None:
                yield from ending.or_abandon(self, ending.destroy(self))
            if isinstance(error, ShellUnavailable) and self.closed:
                raise SessionClosed(IS_CLOSED) from error
            if isinstance(error, ShellUnavailable):
                self._give_way()
            raise

    def _give_way(self) -> None:
        """Raises Superseded where a restart waits for its turn, and SessionClosed where it is the session's end."""
        if self.kill_reason:
            self.refuse_closed()
            self.kill_reason = ""  # once: that restart may have been interrupted itself (Ctrl-C), and never come
            raise Superseded

    def _prepare(self, text: bytes) -> Steps[None]:
        """Run a startup command. Raises StartupFailed."""
        request = Request(text, tty=False, timeout=self.options.timeout)
        self.note_traps(request)
        call = self.last = submit.start(self, self.live(), request)
        came = yield from guarded(self, attend(self, call, call.until))
        if call.ending is None:  # another thread that waits gets the ending of a command, or of this if it ended it
            self.attended = None
        assert isinstance(came, Result)  # without the terminal it is not handed back
        call.delivery.deliver()
        if came.outcome != "exited" or (came.exit_code and self.options.check_startup):
            raise StartupFailed(startup_failure(text, came))

    # -- run

    def run(self, request: Request) -> Steps[Result]:
        """Run one command until it ends, is handed back, or is ended."""
        last = self.last
        if self.shell is None or (last is not None and last.delivery.handed_back) or self.closed:
            yield from self._ready()
        shell, ordinary = self.shell, self._ordinary
        try:
            if ordinary is not None and (call := ordinary.send(self, request)) is not None:
                while (yield ordinary.wait) and not self.is_parents and ordinary.hears_prompt():
                    pass
                if (result := ordinary.read(self, call)) is not None:
                    return result
                self._ordinary = None
            else:
                call = yield from self._begin(request)
            came = call.delivery.result or (yield from attend(self, call, call.until))
            result = said_of(self, call, came)
            self._ordinary = Ordinary.after(self, call, ordinary)
            return result
        except GeneratorExit:
            give_up(self, shell)
            raise
        except BaseException:
            yield from end_what_runs(self)
            raise

    def follow(self, request: Request) -> Steps[Call]:
        """Start a command whose output is taken piece by piece, with ``next_pieces``."""
        yield from self._ready()
        call = yield from guarded(self, self._begin(request))
        call.pieces = []
        if call.delivery.result is None:
            call.delivery.hand_back()
        return call

    def await_output(self, call: Call, until: float | None, on_timeout: OnTimeout | None = None) -> Steps[None]:
        """Wait until the command prints something or ends (its ending is due then), or the moment passes."""
        if not call.delivery.runs_on:
            return
        call.following, call.has_output = True, False
        try:
            yield from guarded(self, attend(self, call, until, on_timeout))
        finally:
            call.following = False

    def next_pieces(self, call: Call) -> Steps[list[tuple[Stream, bytes]]]:
        """Its output since the last time; waits for some while there is none, and the command runs."""
        if not call.pieces or (call.until is not None and time.monotonic() >= call.until):
            yield from self.await_output(call, call.until)
        return call.take_pieces()

    def drop(self, call: Call) -> Steps[None]:
        """Whoever followed the command has left it: end it, unless it has ended already, or is about to."""
        call.delivery.abandon()
        if call.delivery.runs_on and not self.closed:
            yield from guarded(self, self._interrupt(call))

    def _drop_left(self) -> Steps[None]:
        """End a command whose follower has left it: with asyncio that is not seen when it happens."""
        if (call := self.handed_back) is not None and call.delivery.abandoned:
            yield from self.drop(call)

    def _ready(self) -> Steps[None]:
        """Refuse, or have a bash to type to."""
        yield from self._drop_left()
        if self.handed_back is not None:
            raise SessionBusy(STILL_RUNS)
        if self.shell is None or self.closed:
            yield from self.open()

    def _begin(self, request: Request) -> Steps[Call]:
        """Type the command; nothing is typed when the shell is found dead, and the call says so."""
        shell, self._ordinary = self.live(), None
        self.abandon_last()
        self.unread = b""
        if shell.busy:  # the last one was struck where nothing could be done about it
            ending.abandon(self)
        is_gone = shell.lost or not shell.is_ready(self.terminal_job is None)
        if self.kill_reason:  # looked at behind that: who kills it says so first
            ending.abandon(self)
            self._give_way()
        lost, self.lost = None if self.lost is None else self.lost.loss, None
        if lost is None and not is_gone:
            self.note_traps(request)
            self.traced = self.prompt_speaks and self.may_trap(request) and (yield from ending.is_traced(shell))
            return submit.start(self, shell, request)
        call = self.last = Call(request, Typed(), self.left)
        call.not_run = True
        call.reason = GONE
        if lost is None:
            yield from ending.shell_died(self, call)
        else:
            call.end(announced(lost))
        return call

    def _stay(self, call: Call, until: float | None) -> Steps[Result]:
        return said_of(self, call, call.delivery.result or (yield from attend(self, call, until, "yield")))

    # -- a command that was handed back

    def wait(self, until: float | None) -> Steps[Result]:
        """Stay with the running command until it ends, waits for input, or the moment passes."""
        yield from self._drop_left()
        call = self.running("wait for", ended_too=True)
        return (yield from guarded(self, self._stay(call, until)))

    def poll(self) -> Steps[Result]:
        """What came since, without waiting."""
        return (yield from self.wait(time.monotonic()))

    def send(self, data: bytes, until: float | None) -> Steps[Result]:
        """Type into the running command's terminal, then wait as ``wait`` does."""
        yield from self.type(data, until)
        return (yield from self.wait(until))

    def type(self, data: bytes, until: float | None = None) -> Steps[None]:
        """Type into the running command's terminal; what it does not take before its end or the moment is lost."""
        call = self.running("send to")
        if not call.terminal:
            raise InvalidRequest("the running command was not given the terminal: run it with stdin=TTY")
        yield from guarded(self, self._type(call, data, until))
        call.look_every, call.look_at = LOOK_TERMINAL, time.monotonic() + LOOK_TERMINAL

    def _type(self, call: Call, data: bytes, until: float | None) -> Steps[None]:
        shell = self.live()
        while data := data[shell.keyboard.type(data) :]:  # full: the command must read first
            now = time.monotonic()
            if (until is not None and now >= until) or call.interrupt_requested or self.kill_reason:
                return
            if (yield from collect.pump(shell, call, now + FULL_PAUSE)) in (MARK, DEAD, INTERRUPT):
                return  # seen again by who waits for it

    def interrupt(self, meant: Call | None = None) -> Steps[Result]:
        """End the running command and keep the shell; or deliver its ending, if it has ended by itself.

        ``meant``: this one, and none that came later.
        """
        if meant is not None and not meant.delivery.runs_on:
            return meant.delivery.deliver()
        call = self.running("interrupt", ended_too=True)
        # A look at it that came first has perhaps done what was asked for.
        if call.delivery.runs_on:
            yield from guarded(self, self._interrupt(call))
        return call.delivery.deliver()

    def _interrupt(self, call: Call) -> Steps[None]:
        if not isinstance((yield from attend(self, call, time.monotonic(), "yield")), Result):
            call.ending, call.reason = "interrupted", "interrupted on request"
            call.delivery.withdraw()
            yield from ending.interrupt(self, call)

    # -- end

    def refuse_restart(self) -> None:
        """To be asked before anything is ended for one: the old shell is better than none."""
        self.refuse_closed()
        directory(self.options.cwd)  # gone meanwhile?

    def restart(self) -> Steps[None]:
        """A fresh bash, with the first cwd and environment, and the startup commands run again."""
        self.kill_reason = ""
        yield from ending.or_abandon(self, ending.shut_down(self, RESTARTED))
        self.lost = None  # who asks for a restart knows
        yield from self.open()

    def close(self) -> Steps[None]:
        """End everything that belongs to the session; nothing is left when this returns."""
        self.closed = True
        yield from ending.or_abandon(self, ending.shut_down(self, CLOSED))

    def close_if_idle(self, idle: float) -> Steps[None]:
        """Close the session if nothing has run in it for so many seconds, and nothing does."""
        since = None if any(job.running for job in self.jobs) else self.free_since()
        if since is not None and not self.closed and time.monotonic() - since >= idle:
            self.expired = True
            yield from self.close()

    def free_since(self) -> float | None:
        """From any thread: since when nothing runs here; None while a command does.

        What was handed back may have ended, and nobody asked for its ending: then since that was seen.
        """
        call = self.handed_back
        if self.state != "running":
            return self.idle_since
        if call is None or self.attended is not None:
            return None
        call.over_since = (call.over_since or time.monotonic()) if self._is_over(call) else None
        return call.over_since

    def _is_over(self, call: Call) -> bool:
        """By the look of it: bash is at its prompt again, or gone, and nothing of the command is left, nor any output.

        Not ``shell.dead``, which reaps: the status is for the thread that is in a verb.
        """
        shell, reader = self.shell, self.unattended
        if shell is None or call.pieces is not None or call.paused or (reader is not None and reader.thread):
            return False
        if not proc.alive(shell.pid):
            return True
        return shell.idle() and not shell.family.newer_children(call.older)
