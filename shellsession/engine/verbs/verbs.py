"""How a verb stays with a command, until something is to be said of it.

Law: a command is finished (bash gave its mark), handed back (it runs on), ended by us, or gone with its shell; and
whatever strikes meanwhile, none is left running that nobody was told of.
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
    NotRunning,
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
from ..kernel.signals import undisturbed
from . import collect, ending, submit
from .collect import DEAD, IDLE, INPUT, INTERRUPT, MARK, NEWS, OVERFLOW, TIMED_OUT
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
    NEWS: ("running", ""),
}


def guarded(core: Core, steps: Steps[T]) -> Steps[T]:
    """Whatever strikes while we wait (Ctrl-C, a cancelled task, a faulty callback): no command is left running."""
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
    core.call = None
    shell, call = core.shell, core.last
    if shell is not None and shell.busy:
        assert call is not None
        call.ending = call.ending or "interrupted"
        call.mute()
        end = yield from ending.or_abandon(core, ending.interrupt(core, call))
        core.untold = None if end is None or end.state_kept else end


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
    if patient or what == NEWS or (what == INPUT and call.terminal):
        core.call = call
        submit.leave_stdin(shell, call)
        call.last_output = time.monotonic()  # for who looks whether it waits for input
        return HandedBack("running" if what == TIMED_OUT else outcome, reason)
    call.ending, call.reason = ("interrupted" if what == INPUT else outcome), reason
    core.call = None
    if policy == "kill" and what in (TIMED_OUT, IDLE):
        return (yield from ending.kill_shell(core, call))
    return (yield from ending.interrupt(core, call))


class Superseded(Exception):
    """A restart came before anything was begun: its turn is first, and who hears this asks again behind it."""


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
            with undisturbed():
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
            self.kill_reason = ""  # told once: that restart may have been struck itself (Ctrl-C), and never come
            raise Superseded

    def _prepare(self, text: bytes) -> Steps[None]:
        """Run a startup command. Raises StartupFailed."""
        request = Request(text, tty=False, timeout=self.options.timeout)
        self.note_traps(request)
        call = self.last = submit.start(self, self.live(), request)
        came = yield from guarded(self, attend(self, call, call.until))
        if call.ending is None:  # who waits meanwhile is told of commands, and of this only where he ended it
            self.attended = None
        assert isinstance(came, Result)  # without the terminal it is not handed back
        if came.outcome != "exited" or (came.exit_code and self.options.check_startup):
            raise StartupFailed(startup_failure(text, came))

    # -- run

    def run(self, request: Request) -> Steps[Result]:
        """Run one command until it ends, is handed back, or is ended."""
        if self.shell is None or self.call is not None or self.closed:
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
            result = call.result or said_of(self, call, (yield from attend(self, call, call.until)))
            self._ordinary = Ordinary.after(self, call, ordinary)
            return result
        except GeneratorExit:
            give_up(self, shell)
            raise
        except BaseException:
            yield from end_what_runs(self)
            raise

    def follow(self, request: Request) -> Steps[Call]:
        """Start a command that is followed bit by bit, with ``news``."""
        yield from self._ready()
        call = yield from guarded(self, self._begin(request))
        call.pieces = []
        if call.result is None:
            self.call = call
        return call

    def news(self, call: Call, until: float | None, on_timeout: OnTimeout | None = None) -> Steps[None]:
        """Until the command prints something, ends (``ended`` has its result), or the moment passes."""
        if self.call is not call:
            return
        call.following, call.has_news = True, False
        try:
            came = yield from guarded(self, attend(self, call, until, on_timeout))
        finally:
            call.following = False
        if isinstance(came, Result):
            self.unheard = came

    def heard(self, call: Call) -> Steps[list[tuple[Stream, bytes]]]:
        """What came for who follows the command, who waits for it unless it is there, or the command has ended."""
        if not call.pieces or (call.until is not None and time.monotonic() >= call.until):
            yield from self.news(call, call.until)
        return call.take_pieces()

    def drop(self, call: Call) -> Steps[None]:
        """Who followed the command has left: end it, unless that has happened already, or is about to."""
        call.abandoned = True
        if self.call is call and not self.closed:
            self.unheard = yield from self.interrupt()
        self.forget_left()

    def _drop_left(self) -> Steps[None]:
        """With asyncio a loop over the output is left before we hear of that."""
        if self.call is not None and self.call.abandoned:
            yield from self.drop(self.call)

    def result_of(self, call: Call) -> Result:
        """The result of a command that has ended, whoever ended it."""
        self.unheard = None if self.unheard is call.result else self.unheard
        if call.result is None:
            raise NotRunning("the command was given up meanwhile, and its shell with it")
        return call.result

    def _ready(self) -> Steps[None]:
        """Refuse, or have a bash to type to."""
        yield from self._drop_left()
        if self.call is not None:
            raise SessionBusy(STILL_RUNS)
        if self.shell is None or self.closed:
            yield from self.open()

    def _begin(self, request: Request) -> Steps[Call]:
        """Type the command; nothing is typed when the shell is found dead, and the call says so."""
        shell, self._ordinary = self.live(), None
        self.forget_left()
        self.unheard, self.unread = None, b""
        if shell.busy:  # the last one was struck where nothing could be done about it
            ending.abandon(self)
        is_gone = shell.lost or not shell.is_ready(self.terminal_job is None)
        if self.kill_reason:  # looked at behind that: who kills it says so first
            ending.abandon(self)
            self._give_way()
        if (untold := self.untold) is None and not is_gone:
            self.note_traps(request)
            self.traced = self.prompt_speaks and self.may_trap(request) and (yield from ending.is_traced(shell))
            return submit.start(self, shell, request)
        call = self.last = Call(request, Typed(), self.left)
        call.not_run = True
        call.reason = GONE
        if untold is None:
            yield from ending.shell_died(self, call)
        else:
            self.untold = None
            call.end(announced(untold))
        return call

    def _stay(self, call: Call, until: float | None) -> Steps[Result]:
        return said_of(self, call, (yield from attend(self, call, until, "yield")))

    # -- a command that was handed back

    def wait(self, until: float | None) -> Steps[Result]:
        """Stay with the running command until it ends, waits for input, or the moment passes."""
        yield from self._drop_left()
        call = self.running("wait for", ended_too=True)
        return self._take_end() or (yield from guarded(self, self._stay(call, until)))

    def _take_end(self) -> Result | None:
        """The end that came while nobody waited for it: it is told once."""
        end, self.unheard = self.unheard, None
        return end

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
        """End the running command and keep the shell; or how it ended, if it has by itself and nobody was told.

        ``meant``: this one, and none that came later.
        """
        if meant is not None and meant is not self.call:
            return self.result_of(meant)
        call = self.running("interrupt", ended_too=True)
        # A look at it that came first has perhaps done what was asked for.
        return self._take_end() or (yield from guarded(self, self._interrupt(call)))

    def _interrupt(self, call: Call) -> Steps[Result]:
        came = yield from attend(self, call, time.monotonic(), "yield")
        if isinstance(came, Result):
            return came
        call.ending, call.reason = "interrupted", "interrupted on request"
        self.call = None
        return (yield from ending.interrupt(self, call))

    # -- end

    def refuse_restart(self) -> None:
        """To be asked before anything is ended for one: the old shell is better than none."""
        self.refuse_closed()
        directory(self.options.cwd)  # gone meanwhile?

    def restart(self) -> Steps[None]:
        """A fresh bash, with the first cwd and environment, and the startup commands run again."""
        self.kill_reason, self.untold = "", None
        yield from ending.or_abandon(self, ending.shut_down(self, RESTARTED))
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

        What was handed back may have ended, with nobody to ask how: then since that was seen. It stays to be told.
        """
        call = self.call
        if self.state != "running":
            return self.idle_since
        if call is None or self.attended is not None:
            return None
        call.over_since = (call.over_since or time.monotonic()) if self._is_over(call) else None
        return call.over_since

    def _is_over(self, call: Call) -> bool:
        """By the look of it: bash is at its prompt again, or gone, and nothing of the command is left, nor is heard.

        Not ``shell.dead``, which reaps: the status is for the thread that is in a verb.
        """
        shell, reader = self.shell, self.unattended
        if shell is None or call.pieces is not None or call.paused or (reader is not None and reader.thread):
            return False
        if not proc.alive(shell.pid):
            return True
        return shell.idle() and not shell.family.newer_children(call.older)
