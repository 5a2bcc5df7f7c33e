"""The operations of a session (its verbs), each written once as a generator: ``Engine``. ``on_branch`` adds those of
a branch.

``attend`` waits on a command until there is something to report. Then the command has finished (bash gave its mark),
was handed back (it still runs), was ended by us, or is gone with its shell.

Law: whatever exception is raised meanwhile, no command is left running that its caller does not know of.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from re import Pattern as AnyPattern
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
    ShellSessionError,
    ShellUnavailable,
    SnapshotUnavailable,
    StartupFailed,
)
from ...files import FileReply, FileRequest
from ...keys import bytes_of
from ...models import Limits, OnTimeout, Outcome, Request, Result, Stream, Why
from ...observe import DEBUG, WARNING, logger
from ...options import Options
from ...paging import Piece
from ...search import TOO_SLOW, SearchTooSlow
from ...signatures import Seconds
from ...state.comparison import Listing, changes
from ...state.snapshot import Snapshot
from ...state.values import Restored
from ...text import INTERRUPTED, REASONS
from ..bash.shell import READY, Shell
from ..bash.spawn import first_directory, handshake, spawn
from ..bash.watcher import the_guard
from ..io.file_access import access
from ..io.streams import FULL_PAUSE
from ..io.threads import Steps, T, Wait, shielded
from ..kernel import proc
from ..kernel.signals import signals_deferred
from ..wire import Errexit
from . import collect, ending, scope, shell_end, state, submit, waits
from .call import LOOK_TERMINAL, Call, Typed
from .collect import DEAD, IDLE, INPUT, INTERRUPT, MARK, OUTPUT, OVERFLOW, TIMED_OUT
from .core import Core
from .ordinary import Ordinary
from .results import Ending, HandedBack, answer, conclude, startup_failure, unread_ending, with_reason
from .session_job import SessionJob
from .substitutions import wait_for_end

_ENDINGS: Final[dict[str, tuple[Outcome, str]]] = {
    TIMED_OUT: ("timed_out", REASONS["timed_out"]),
    IDLE: ("idle", REASONS["idle"]),
    INPUT: ("input", REASONS["input"]),
    INTERRUPT: ("interrupted", INTERRUPTED),
    OVERFLOW: ("overflow", ending.OVERFLOWED),
    OUTPUT: ("running", ""),
}
_PRINTED: Final = HandedBack(*_ENDINGS[OUTPUT])

_ELSEWHERE: Final = "another thread, task or client waits on the command, and gets what it prints"
_NO_STATE: Final = "there is no bash whose state could be kept: it has ended, or has not been started yet"
# Seconds for bash's answer about a job. A prompt that takes longer (PROMPT_COMMAND) leaves the question open.
_ASK_PATIENCE: Final = 0.25


def end_on_error(core: Core, steps: Steps[T]) -> Steps[T]:
    """Run the steps. If they raise (Ctrl-C, a cancelled task, a callback that fails), end the command."""
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
    """Kill the shell in which the steps were waiting when they were closed. A closed generator cannot wait."""
    if core.shell is shell:  # garbage collection may close them much later, when the session has another shell
        shell_end.abandon(core)


def end_what_runs(core: Core) -> Steps[None]:
    """End the command that the steps were waiting on when they raised an exception."""
    core.withdraw_last()
    core.abandon_last()
    shell, call = core.shell, core.last
    if shell is not None and shell.busy:
        assert call is not None
        call.end_as(call.ending or "interrupted", call.reason)
        call.mute()
        yield from shell_end.or_abandon(core, ending.interrupt(core, call))


def attend(
    core: Core, call: Call, until: float | None, on_timeout: OnTimeout | None = None
) -> Steps[Result | HandedBack]:
    """Wait on a command until there is something to report, or until the moment passes (None: no limit).

    ``on_timeout``: what to do at that moment; by default what the command's request says.
    """
    shell = core.live()
    core.attend(call)
    if call.idle_timeout is not None:
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
            if not submit.ran_beyond_doubt(call) and (yield from submit.must_retype(core, call)):
                continue
            if (has_children := shell.family.has_children()) != core.known.had_children:
                core.learn(had_children=has_children)
            if has_children:
                what = yield from wait_for_end(shell, call, until)
        if what == MARK:
            return (yield from ending.finish(core, shell, call))
        if what == DEAD:
            return (yield from shell_end.shell_died(core, call))
        break
    outcome, reason = _ENDINGS[what]
    policy = on_timeout or call.request.on_timeout
    may_run_on = what in (TIMED_OUT, IDLE) and policy == "yield"
    if may_run_on or what == OUTPUT or (what == INPUT and call.terminal):
        submit.leave_stdin(shell, call)
        call.hand_back(asks=what == INPUT)
        return HandedBack("running" if what == TIMED_OUT else outcome, reason)
    call.end_as("interrupted" if what == INPUT else outcome, waits.reason_for(core, call, reason))
    if policy == "kill" and what in (TIMED_OUT, IDLE):
        return (yield from shell_end.kill_shell(core, call))
    return (yield from ending.interrupt(core, call))


# Seconds for all shutdown commands together; and how many characters of a command, and of its result, are shown.
_SHUTDOWN: Final = 10.0
_SHOWN: Final = 200
_LOGGED: Final = 1000
# Of the output of startup and shutdown commands only the ends are shown. More would take longer to mask.
_BRIEF: Final = Limits(max_output=8192)


def _warn(message: str, *values: object) -> None:
    if (log := logger(WARNING)) is not None:
        log.warning(message, *values)


Pattern = AnyPattern[str]


class RestartPending(Exception):
    """A restart is pending, and this operation has begun nothing yet. The caller lets it go first, then tries again."""


class Moved(Exception):
    """Bash is in another directory than a policy has judged, and nothing has begun. The caller judges again."""


class Engine(Core):
    """The operations of one session, as generators. They say what they wait for; the caller waits."""

    restored = Restored()  # the outcome of the last restore
    _ordinary: Ordinary | None = None  # types ordinary commands, as long as nothing about the shell is unusual
    _start_logged = False  # so that its close is logged once

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._next: Snapshot | None = None  # the state for the next bash, until one has it

    # -- open

    def open(self, snapshot: Snapshot | None = None) -> Steps[None]:
        """Start bash if there is none, and run the startup commands. Raises ShellUnavailable.

        ``snapshot``: the state to give it then; by default the one of the options.
        """
        self.refuse_closed()
        if self.shell is not None:
            return
        self._yield_to_restart()
        self.touch()
        try:
            env = self.environment()  # before signals are deferred: a policy may search long for what it hides
            with signals_deferred():
                shell = self.own(spawn(self.options, env, self.branch), env)
            shell.resize(self.size)
            self.forget_bash()
            self.learn(unseen=any(name.startswith("BASH_FUNC_") for name in env))
            yield from handshake(shell, self.options.tty, self.refuse_closed)
            for text in self.options.startup:
                yield from self._run_startup(text)
            self.learn(status=0)
            if (snapshot := snapshot or self._next or self.options.snapshot) is not None:
                self.restored = yield from state.restore(self, snapshot)
            self._next = None
            shell.become_ready()
            self._start_logged = True
            self._log("bash started, pid %d", shell.pid)
        except GeneratorExit:
            shell_end.abandon(self)
            raise
        except BaseException as error:
            if self.shell is not None:
                yield from shell_end.or_abandon(self, shell_end.destroy(self))
            if isinstance(error, ShellSessionError):  # not Ctrl-C: it may be the state that has ended this bash
                self._next = None
            if isinstance(error, ShellUnavailable | SnapshotUnavailable):
                if self.closed:
                    raise SessionClosed(IS_CLOSED) from error
                self._yield_to_restart()
            raise

    def _yield_to_restart(self) -> None:
        """Raise RestartPending if a restart waits to begin, or SessionClosed if a close does."""
        if self.kill_reason:
            self.refuse_closed()
            self.forget_kill()  # raise only once: that restart may have been interrupted (Ctrl-C), and never come
            raise RestartPending

    def _run_startup(self, text: bytes) -> Steps[None]:
        """Run a startup command. Raises StartupFailed."""
        request = Request(text, tty=False, timeout=self.options.timeout, limits=_BRIEF)
        self.know(self.known.before(request))
        call = submit.start(self, self.live(), request, Errexit(), ours=True)
        came = yield from end_on_error(self, attend(self, call, call.until))
        if call.ending is None:  # a thread that waits gets this result only if it has ended the startup command itself
            self.leave()
        assert isinstance(came, Result)  # a command without the terminal is not handed back here
        call.delivery.deliver()
        if came.outcome != "exited" or (came.exit_code and self.options.check_startup):
            shown = text.decode("utf-8", "replace")
            if (secrets := self.secrets()) is not None:  # before anything is cut
                shown, came = secrets.mask(shown, _SHOWN), secrets.mask_result(came)
            raise StartupFailed(startup_failure(shown, came))

    # -- run

    def run(self, request: Request) -> Steps[Result]:
        """Run one command until it finishes, is handed back, or is ended by us.

        It takes the ordinary path, or the general one, which also takes over an unusual command. To split this in two
        would cost every command a call.
        """
        last = self.last
        if self.shell is None or (last is not None and last.delivery.handed_back) or self.closed:
            yield from self._ready()
        shell, ordinary, unread, before = self.shell, self._ordinary, None, None
        try:
            if ordinary is not None and (call := ordinary.send(self, request)) is not None:
                while (yield ordinary.wait) and not self.is_parents and ordinary.has_only_prompt():
                    pass
                if (result := ordinary.read(self, call)) is not None:
                    return result
                self._ordinary = None
            else:
                unread = self.due if self.host.tells_unread else None
                before = (yield from self._list_state()) if request.changes else None
                call = yield from self._begin(request)
            # A command that could not be typed has its result already.
            came = call.delivery.result or (yield from attend(self, call, call.until))
            result = answer(self, call, came)
            if unread is not None and unread.state_kept:  # else the loss itself is reported
                result = with_reason(result, unread_ending(unread))
            if before is not None and self.shell is shell:
                result = yield from self._with_changes(result, before)
            self._ordinary = Ordinary.after(self, call, ordinary)
            return result
        except GeneratorExit:
            give_up(self, shell)
            raise
        except BaseException:
            yield from end_what_runs(self)
            raise

    def _list_state(self) -> Steps[Listing | None]:
        """Return the state before a command; None if the shell has ended, which the command reports."""
        return (yield from state.listing(self, anew=False)) if self._is_idle() else None

    def _with_changes(self, result: Result, before: Listing) -> Steps[Result]:
        """Return the result with the changes of the state, if they are known."""
        with suppress(SnapshotUnavailable):
            if self._is_idle() and not result.still_running:
                return result.__replace__(changes=changes(before, (yield from state.listing(self))))
        return result

    def _is_idle(self) -> bool:
        shell = self.live()
        return shell.life == READY and not (self.known.scope or shell.dead)

    def follow(self, request: Request) -> Steps[Call]:
        """Start a command whose caller takes the output piece by piece, with ``next_pieces``."""
        yield from self._ready()
        call = yield from end_on_error(self, self._begin(request))
        call.take_pieces()  # from now on they are kept
        if call.delivery.result is None:
            call.hand_back()
        return call

    def await_output(self, call: Call, until: float | None, on_timeout: OnTimeout | None = None) -> Steps[None]:
        """Wait until the command prints something or ends, or until the moment passes.

        If it has ended, its result is due then.
        """
        if not call.delivery.runs_on:
            return
        with call.followed():
            yield from end_on_error(self, attend(self, call, until, on_timeout))

    def look(self) -> Steps[None]:
        """Look whether a command that was handed back has ended, or waits for input. No result is delivered."""
        if (call := self.handed_back) is None or call.fault is not None:
            return
        before = call.printed, call.last_output
        yield from self.await_output(call, time.monotonic(), "yield")
        if call.delivery.runs_on:
            if call.printed == before[0]:
                call.last_output = before[1]  # looks do not end the silence that shows a wait for input
            if call.terminal and collect.waits_for_input(self.live(), call):
                call.show_handed_back(asks=True)

    def next_pieces(self, call: Call) -> Steps[list[tuple[Stream, bytes]]]:
        """Return the output since the last time. While there is none and the command runs, wait for some."""
        if not call.pieces or (call.until is not None and time.monotonic() >= call.until):
            yield from self.await_output(call, call.until)
        return call.take_pieces()

    def drop(self, call: Call) -> Steps[None]:
        """End a command whose consumer has left, unless it has ended already or is being ended."""
        call.delivery.abandon()
        if call.delivery.runs_on and not self.closed:
            yield from end_on_error(self, self._interrupt(call))

    def _drop_left(self) -> Steps[None]:
        """End a command whose consumer has left. With asyncio that does not show when it happens."""
        if (call := self.handed_back) is not None and call.delivery.abandoned:
            yield from self.drop(call)

    def _ready(self) -> Steps[None]:
        """Make sure that there is an idle bash. Raises SessionBusy, or what ``open`` raises."""
        yield from self._drop_left()
        if self.handed_back is not None:
            raise SessionBusy(STILL_RUNS)
        if self.shell is None or self.closed:
            yield from self.open()

    def judged(self, cwd: str, verb: Callable[[Request], Steps[T]], request: Request) -> Steps[T]:
        """Start a request that a policy permits in this directory. Raises Moved."""
        yield from self._ready()
        if self.cwd() != cwd:
            raise Moved
        return (yield from verb(request))

    def _begin(self, request: Request, ours: bool = False) -> Steps[Call]:
        """Type the command, and return its call.

        If the shell is dead, or refuses ``cwd`` or ``env``, nothing is typed. Then the call has its result already.
        """
        shell, self._ordinary = self.live(), None
        self.abandon_last()
        if shell.busy:  # an exception interrupted the last command where it could not be ended
            shell_end.abandon(self)
        elif self.known.scope:  # an exception came while the scope of a command was entered
            yield from scope.leave(self, shell)
        is_gone = shell.life != READY or not shell.prepare(self.terminal_job is None)
        if self.kill_reason:  # checked after the shell: another thread sets the reason first, then kills it
            shell_end.abandon(self)
            self._yield_to_restart()
        lost = self.pop_loss()
        if lost is None and not is_gone:
            yield from self._prepare_files()
            known = self.know(self.known.before(request))
            asks = known.prompt_speaks and known.may_run_trap(request)
            if (traced := asks and (yield from ending.is_traced(shell))) != known.traced:
                self.learn(traced=traced)
            if request.cwd is not None or request.env:
                refused = yield from self._enter(request)
                if refused is not None:
                    return refused
            errexit = yield from scope.guard_errexit(self, shell, request)
            return submit.start(self, shell, request, errexit, ours)
        call = self._refused(request, GONE if lost is None else f"{GONE}; {unread_ending(lost)}")
        if lost is None:
            yield from shell_end.shell_died(self, call)
        else:
            call.note_killed(lost.killed)
            conclude(call, Ending("shell_exited", lost.exit_code, lost.cwd, signal=lost.signal, state_kept=False))
        return call

    def _prepare_files(self) -> Steps[None]:
        """Before a command is typed: make sure that what it writes is kept; see ``BranchEngine``."""
        yield from ()

    def _refused(self, request: Request, reason: str) -> Call:
        """Return the call of a command that is not run."""
        call = self.begin(Call(request, Typed(), self.known.left))
        call.fail(reason, ran=False)
        return call

    def _enter(self, request: Request) -> Steps[Call | None]:
        """Set the directory and the variables of the request. If that fails, return a call that says so."""
        shell = self.live()
        entered = yield from scope.enter(self, shell, request)
        if not entered.fault:
            return None
        call = self._refused(request, f"cwd= or env= could not be set: {entered.fault}")
        if entered.mark is None:
            yield from shell_end.kill_shell(self, call)
        else:
            yield from scope.leave(self, shell)
            conclude(call, Ending("exited", entered.mark.status, shell.cwd))
        return call

    def _wait(self, call: Call, until: float | None, pattern: Pattern | None) -> Steps[Result]:
        if (came := call.delivery.result) is not None:
            return answer(self, call, came)
        steps = attend(self, call, until, "yield") if pattern is None else self._watch(call, until, pattern)
        return answer(self, call, (yield from steps))

    def _watch(self, call: Call, until: float | None, pattern: Pattern) -> Steps[Result | HandedBack]:
        """Wait until the command has printed what matches the pattern, or as ``attend`` does."""
        try:
            return (yield from self._watch_for(call, until, pattern))
        except SearchTooSlow:
            return HandedBack("running", f"the search for {pattern.pattern!r:.100} {TOO_SLOW}")

    def _watch_for(self, call: Call, until: float | None, pattern: Pattern) -> Steps[Result | HandedBack]:
        while not call.sees(pattern):
            before = call.printed
            with call.followed():
                came = yield from attend(self, call, until, "yield")
            if came == _PRINTED and call.printed > before:
                continue
            # Otherwise the time is up, or the daemon has woken us, because our client has left.
            if isinstance(came, Result) or not call.sees(pattern):
                return came
            break
        return HandedBack("running", f"the output matches {pattern.pattern!r:.100}", matched=True)

    # -- a command that was handed back

    def wait(self, until: float | None, idle: Seconds = ..., pattern: Pattern | None = None) -> Steps[Result]:
        """Wait until the running command ends or waits for input, or until the moment passes.

        ``idle``: or until it has printed nothing for so long. ``pattern``: or until it has printed what matches that.
        """
        yield from self._drop_left()
        call = self.running("wait for", ended_too=True)
        call.idle_timeout_now = idle
        return (yield from end_on_error(self, self._wait(call, until, pattern)))

    def poll(self) -> Steps[Result]:
        """Return the output since the last result, without waiting."""
        return (yield from self.wait(time.monotonic()))

    def send(self, data: bytes, until: float | None, idle: Seconds = ...) -> Steps[Result]:
        """Type into the running command's terminal, then wait as ``wait`` does."""
        yield from self.type(data, until)
        return (yield from self.wait(until, idle))

    def typed(self, text: bytes, keys: Sequence[str]) -> bytes:
        """Return what the terminal is to get for the text, and for the keys with these names."""
        call = self.handed_back
        return text + bytes_of(keys, call is not None and call.application_keys)

    def type(self, data: bytes, until: float | None = None) -> Steps[None]:
        """Type into the running command's terminal.

        What the command does not read before it ends, or before the moment passes, is lost.
        """
        call = self.running("send to")
        if not call.terminal:
            raise InvalidRequest("the running command was not given the terminal: run it with stdin=TTY")
        yield from end_on_error(self, self._type(call, data, until))
        call.look_again(LOOK_TERMINAL)
        call.asks = False

    def _type(self, call: Call, data: bytes, until: float | None) -> Steps[None]:
        shell = self.live()
        while data := self.put(call, data):  # the terminal is full: the command must read first
            now = time.monotonic()
            if (until is not None and now >= until) or call.interrupt_requested or self.kill_reason:
                return
            if (yield from collect.pump(shell, call, now + FULL_PAUSE)) in (MARK, DEAD, INTERRUPT):
                return  # the next wait on the command sees it again

    def interrupt(self, meant: Call | None = None) -> Steps[Result]:
        """End the running command, keep the shell, and deliver the result. If it has ended by itself, deliver that.

        ``meant``: interrupt this command only, and none that came later.
        """
        if meant is not None and not meant.delivery.runs_on:
            return meant.delivery.deliver()
        call = self.running("interrupt", ended_too=True)
        # An earlier wait on it may have ended it already.
        if call.delivery.runs_on:
            yield from end_on_error(self, self._interrupt(call))
        return call.delivery.deliver()

    def _interrupt(self, call: Call) -> Steps[None]:
        if not isinstance((yield from attend(self, call, time.monotonic(), "yield")), Result):
            call.end_as("interrupted", INTERRUPTED)
            yield from ending.interrupt(self, call)

    def why(self) -> Steps[Why]:
        """Say what the running command waits for. From any thread, also while a verb waits on the command."""
        self.refuse_closed()
        return (yield from waits.why(self))

    # -- jobs

    def came_of(self, command: bytes | None = None) -> Result | None:
        """Deliver the result of the last command, whose caller was cancelled; None if there is none.

        ``command``: only if the last command has this very text object.
        """
        call = self.last
        if call is None or (command is not None and call.request.command is not command):
            return None
        return None if call.delivery.result is None else call.delivery.deliver()

    def running_elsewhere(self, reason: str = _ELSEWHERE) -> Result:
        """Return the result of a waiter whose time is up while another caller still waits on the command."""
        id = "" if self.current is None else self.current.id
        return Result(b"", b"", None, None, self.cwd(), 0.0, "running", reason=reason, id=id)

    def piece(self, id: str, stream: str, begin: int, size: int) -> Piece:
        """Return a part of a kept output; see ``Outputs.read``. Waits for nothing, also while a command runs.

        Of a job, return all that is kept.
        """
        self.refuse_closed()
        if (job := next((job for job in self.jobs if job.id == id), None)) is None:
            return self.outputs.read(id, stream, begin, size)
        grows = job.running  # first: once it has ended, all its output is there
        data, omitted, cut = job.kept(stream)
        return Piece(id, data[begin:], len(data), len(data) + omitted, cut, grows)

    def file_access(self, request: FileRequest) -> Callable[[], FileReply]:
        """Return the function that carries out the request. It blocks, and may be called in any thread.

        Raises InvalidRequest in a sandbox: this process may see other files than the session's commands.
        """
        self.refuse_closed()
        if self.options.sandbox is not None:
            raise InvalidRequest(
                "read_file and write_file would act outside the session's sandbox: use a command, such as"
                ' run(["cat", path]) or run("cat >file", stdin=data)'
            )
        root = None if self.branch is None else self.branch.open().root
        return partial(access, request, self.cwd(), self.umask(), root)

    def exit_code(self, job: SessionJob) -> Steps[int | None]:
        """Ask bash for the exit status of a job that has ended. None if bash is not idle, or does not know it."""
        shell, pid = self.shell, job.pids[-1]
        if shell is None or job.family is not shell.family or self.state != "idle":
            return None
        if shell.life != READY:
            return None
        for _ in range(shell_end.ROUNDS):
            if not job.is_there(pid):
                break
            yield Wait((), time.monotonic() + shell_end.TICK)  # bash has yet to reap it
        # In a subshell, which knows the job, but cannot change the list of jobs: a later `wait` finds it all the same.
        report = b"\\builtin wait %d 2>&1 && \\builtin echo 0 || \\builtin echo $?" % job.bash_pid
        said = yield from collect.ask(shell, b'! <"/dev/null/ended:$(%b)/"' % report, _ASK_PATIENCE)
        job.bash_pid = 0  # bash is asked once only: an answer that it does not have now will not come later
        found = re.findall(rb"/ended:(\d+)/: ", said or b"")
        return int(found[-1]) if found else None

    # -- end

    def refuse_restart(self) -> None:
        """Raise if no new shell can start. A restart calls this first: the old shell is better than none."""
        self.refuse_closed()
        first_directory(self.options.cwd)  # raises if it is gone meanwhile

    def restart(
        self,
        snapshot: Snapshot | None = None,
        between: Callable[[], object] | None = None,
        now: Snapshot | None = None,
    ) -> Steps[Restored]:
        """Start a new bash with the first directory and environment, and run the startup commands again.

        ``snapshot``: see ``open``. ``between``: is called when the old bash has ended. If that fails, or Ctrl-C comes
        before it, the next bash gets the state ``now``; after it, ``snapshot``. Returns what the restore did.
        """
        self.forget_kill()
        self.refuse_restart()
        with the_guard().kept():  # a new watcher takes as long to start as bash
            self._next = snapshot if between is None else now
            yield from shell_end.or_abandon(self, self._end(RESTARTED))
            self.pop_loss()  # no need to report a lost shell to a caller that asks for a restart
            self.restored = Restored()
            if between is not None:
                with signals_deferred():
                    between()
                    self._next = snapshot
            yield from self.open(snapshot)
        return self.restored

    def restart_with_state(self) -> Steps[Callable[[], Steps[Restored]]]:
        """Return the restart that gives the new bash the state of this one. If it raises, nothing was ended."""
        try:
            if self.shell is None:
                raise SnapshotUnavailable(_NO_STATE)
            snapshot = yield from self.snapshot((), None)
        except (SessionBusy, ShellUnavailable, SnapshotUnavailable) as error:
            return self.restart_with_last_state(error)
        return partial(self.restart, snapshot)

    def restart_with_last_state(self, fault: ShellSessionError) -> Callable[[], Steps[Restored]]:
        """Return the restart that gives the new bash the state that was kept last. If none was, raise the error."""
        raise fault

    # -- state

    def keep(self, pause: float | None = 0.0) -> Steps[None]:
        """Keep the state of an idle bash for the next one; see ``recovery``. Here, nothing is kept."""
        yield from ()

    def snapshot(self, exclude: Sequence[str], is_secret: Callable[[str], bool] | None) -> Steps[Snapshot]:
        """Return a snapshot of bash; see ``Session.snapshot``."""
        yield from self._ready()
        if not self._is_idle():
            raise ShellUnavailable("the shell has ended meanwhile: the next command reports how")
        return (yield from shielded(state.take(self, exclude, is_secret)))

    def close(self, in_order: bool = True) -> Steps[None]:
        """End everything that belongs to the session. Nothing is left when this returns.

        ``in_order``: run the shutdown commands first.
        """
        self.refuse_calls()
        try:
            yield from shell_end.or_abandon(self, self._end(CLOSED) if in_order else shell_end.shut_down(self, CLOSED))
        finally:
            self.outputs.close()
            self.taps.clear()  # they may refer to the engine
            if self.branch is not None:
                with signals_deferred():  # what it has removed in part, a second close does not find
                    self.branch.close()
        if self._start_logged:
            self._start_logged = False
            self._log("session closed")

    def _log(self, text: str, *values: object) -> None:
        if (log := logger(DEBUG)) is not None:
            log.debug(f"%s{text}", self.log_prefix, *values)

    def _end(self, why: str) -> Steps[None]:
        if self.options.shutdown and not (self.shell is None or self.kill_reason or self.attended):
            try:
                yield from self._run_shutdown()
            except ShellSessionError as error:
                _warn("the shutdown commands were not run: %s", error)
            finally:
                self.leave()
        yield from shell_end.shut_down(self, why)

    def _run_shutdown(self) -> Steps[None]:
        """Run the shutdown commands, as long as bash lives. What fails is logged, and prevents nothing."""
        from ...policy.secrets import Secrets

        until = time.monotonic() + _SHUTDOWN
        self.pop_loss()
        secrets = self.secrets() or Secrets(self.environment())
        if (running := self.handed_back) is not None:
            yield from self._interrupt(running)
        for text in self.options.shutdown:
            shown, left = secrets.mask(text.decode("utf-8", "replace"), _SHOWN), until - time.monotonic()
            if self.shell is None or left <= 0:
                why = "the shell is gone" if self.shell is None else f"{_SHUTDOWN:g} s are over"
                _warn("the shutdown command %r was not run: %s", shown, why)
                continue
            call = yield from self._begin(Request(text, tty=False, timeout=left, limits=_BRIEF), ours=True)
            if call.delivery.result is None:
                yield from attend(self, call, call.until)
            if not (came := call.delivery.deliver()).ok:
                _warn("the shutdown command %r failed: %s", shown, secrets.mask_result(came).for_model(_LOGGED))

    def close_if_idle(self, idle: float) -> Steps[None]:
        """Close the session if nothing runs in it, and nothing has for ``idle`` seconds."""
        since = None if any(job.running for job in self.jobs if not job.released) else self.free_since()
        if since is not None and not self.closed and time.monotonic() - since >= idle:
            self.refuse_calls(expired=True)
            yield from self.close()

    def free_since(self) -> float | None:
        """From any thread: return since when nothing runs here; None while a command runs.

        A command that was handed back may have ended without anyone asking for its result. Then it is the moment when
        this was first seen.
        """
        call = self.handed_back
        if self.state != "running":
            return self.idle_since
        if call is None or self.attended is not None:
            return None
        call.over_since = (call.over_since or time.monotonic()) if self._is_over(call) else None
        return call.over_since

    def _is_over(self, call: Call) -> bool:
        """Return whether the command seems to be over: bash is idle or gone, and nothing of the command is left.

        It must not use ``shell.dead``, which reaps bash: the exit status is for the thread that is in a verb.
        """
        shell, reader = self.shell, self.unattended_reader
        if shell is None or call.pieces is not None or call.paused or (reader is not None and reader.thread):
            return False
        if not proc.alive(shell.pid):
            return True
        return shell.idle() and not shell.family.newer_children(call.older)
