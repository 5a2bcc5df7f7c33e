"""``Session``: one bash that stays open, for threads.

The operations themselves are in ``engine.verbs``. Here threads wait for their turn, and get the result of a command
that another thread runs. AsyncSession has the same methods with the same signatures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, Self, Unpack

from .base import CALLBACK_RUNS, LOOK_PATIENCE, Base, check_count
from .branch.checkpoint import name_of_checkpoint
from .branch.files import BranchFiles
from .engine.io.line import Line, ThreadPlace
from .engine.io.threads import Poller, Steps, T, drive
from .engine.io.waiter import Waiter
from .engine.verbs.call import LARGE
from .engine.verbs.engine import Moved, RestartPending
from .engine.verbs.expect import expect, late
from .engine.verbs.noticing import Reader, reader_of
from .engine.verbs.state import check_snapshot
from .errors import (
    CLOSED,
    ENDED,
    IN_CALLBACK,
    NOT_YOURS,
    RESTARTED,
    STILL_RUNS,
    NotRunning,
    SessionBusy,
    ShellSessionError,
)
from .files import Transfer
from .keys import check_keys
from .models import Request, Result, Stream, Why, check_flag, to_bytes
from .notices import Notice, Watch
from .paging import Query, Read, page
from .signatures import (
    Command,
    Output,
    RunOptions,
    Seconds,
    Text,
    ThreadSession,
    check_idle,
    pattern_of,
    refuse_unknown,
)

if TYPE_CHECKING:
    from .branch.attempt import Attempt
    from .branch.checkpoint import Checkpoint
    from .engine.verbs.call import Call
    from .engine.verbs.engine import Engine
    from .engine.verbs.session_job import SessionJob, ThreadJob
    from .state.snapshot import Snapshot
    from .state.values import Restored


class Session(Base, ThreadSession[Request]):
    """One bash that stays open: directory, variables, functions, aliases and options persist from call to call.

    Many threads may use it; it serves their calls in the order in which they come. Use it in a ``with`` block, or
    ``close()`` it.
    """

    def _prepare(self) -> None:
        self._poller = Poller()
        self.line = Line[ThreadPlace]()
        # Held at the end of a verb, and by threads that join it; reentrant, because a signal handler may call us there.
        self._door = RLock()

    def __exit__(self, *_: object) -> None:
        self.close()

    def do(self, steps: Steps[T], place: ThreadPlace | None = None) -> T:
        """Do the steps once no other thread is in a verb. Raises SessionBusy if it waits in vain."""
        return self._in_turn(place or ThreadPlace(), partial(self._do_now, steps))

    def _in_turn(self, place: ThreadPlace, act: Callable[[ThreadPlace | None], T]) -> T:
        """Call ``act`` once no other thread is in a verb, with the place that it may leave. Raises SessionBusy."""
        line, places = self.line, self.line.places
        # Its own, or in a signal handler that of the thread, which cannot go on before the handler has returned.
        outer = (place if place in places else self._own_place()) if places else None
        if self.engine.unattended_reader is not None or (outer is not None and outer.begun):
            self._refuse_callbacks()
        mine = outer or place
        try:
            if outer is None:
                line.enter(place)
            if not line.has_turn(mine):
                mine.wait_in(line, place.within)
            mine.begun = True
            return act(None if outer else place)
        finally:
            mine.begun = False
            if outer is None and place in places:  # not in a function: Ctrl-C could come at its start
                places.remove(place)
            if places:
                line.wake_first()

    def _own_place(self) -> ThreadPlace | None:
        """The first place of this thread in the line."""
        me = get_ident()
        return next((place for place in self.line.places if place.thread == me), None)

    def _if_free(self, steps: Steps[T]) -> T | None:
        """Do the steps, unless a thread is in a verb or waits for its turn."""
        with suppress(SessionBusy):
            return self.do(steps, ThreadPlace(within=0.0))
        return None

    def _result_of(self, steps: Steps[Result]) -> Result:
        """Do the steps like ``do``, and keep no large result: the caller has it."""
        self.engine.forget_output(result := self.do(steps))
        return result

    def do_in_bash(self, verb: Callable[[], Steps[T]], place: ThreadPlace | None = None) -> T:
        """Do a verb that starts bash if there is none. If a restart is pending before it has begun, let that go first.

        ``verb`` returns its steps, and is called again after a restart.
        """
        place = place or ThreadPlace()
        while True:
            try:
                return self.do(verb(), place)
            except RestartPending:
                place.ahead = True

    def _start_permitted(self, request: Request, verb: Callable[[Request], Steps[T]]) -> T:
        """Start a request as the session's policy permits it in the directory in which it runs. Raises PolicyRefused.

        The policy may ask a person, and keeps no other caller waiting meanwhile. One of them may change the directory.
        """
        if (policy := self.engine.options.policy) is None:
            return self.do_in_bash(partial(verb, request), ThreadPlace(request.waits, request.command))
        while True:
            cwd = self.cwd
            permitted = policy.check(request, cwd=cwd)
            place = ThreadPlace(permitted.waits, permitted.command)
            try:
                return self.do_in_bash(partial(self.engine.judged, cwd, verb, permitted), place)
            except Moved:
                pass

    def _do_now(self, steps: Steps[T], leaving: ThreadPlace | None) -> T:
        """Do the steps, as the turn of this thread has come. ``leaving``: the place that it then leaves."""
        try:
            if self.engine.unattended_reader is not None:
                self.engine.stop_unattended()
            return drive(steps, self._poller)
        finally:
            with self._door:
                try:
                    self._leave()
                except BaseException:  # Ctrl-C: the caller does not get the result that hands the command back
                    self.engine.stop_unattended()
                    if (call := self.engine.handed_back) is not None:
                        drive(self.engine.drop(call), self._poller)
                    raise
                finally:
                    if leaving is not None:
                        self.line.places.remove(leaving)

    def _refuse_callbacks(self) -> None:
        unattended, place = self.engine.unattended_reader, self._own_place()
        if (place is not None and place.begun) or (unattended is not None and unattended.thread == get_ident()):
            raise SessionBusy(IN_CALLBACK)

    def _kill_running(self, why: str) -> None:
        """Kill the shell under a command that another thread is running; that thread's call returns."""
        self._refuse_callbacks()
        if self.is_in_use():
            self.engine.kill_running(why)

    def is_in_use(self) -> bool:
        """Return whether another thread runs a verb, or waits for its turn."""
        me = get_ident()
        return any(place.thread != me for place in self.line.places)

    def open(self) -> Self:
        """Start bash now, rather than at the first command. Raises ShellUnavailable."""
        self.do_in_bash(lambda: self._mine().start())
        return self

    def _run(self, request: Request) -> Result:
        engine = self.engine
        if engine.is_parents:
            engine.refuse_forked()
        result = self._start_permitted(request, engine.run)
        if len(result.stdout_bytes) + len(result.stderr_bytes) + len(request.command) > LARGE:
            engine.forget_output(result)
        return result

    def _stream(self, request: Request) -> Output:
        return self._follow(self._mine(), request)

    def _follow(self, engine: Engine, request: Request) -> Generator[tuple[Stream, bytes] | Result]:
        call = self._start_permitted(request, engine.follow)
        try:
            while call.delivery.runs_on:
                yield from self.do(self._mine().next_pieces(call))
            yield from call.take_pieces() if call.delivery.result else self.do(engine.next_pieces(call))
            engine.forget_output(result := call.delivery.deliver())
            yield result
        finally:
            call.delivery.abandon()
            if call.delivery.runs_on and self._owner == os.getpid():
                self.do(engine.drop(call))

    def _events(self, watch: Watch, after: int | None, until: float | None) -> Generator[Notice]:
        self._mine().refuse_closed()
        return self._notices(reader_of(self.engine, watch, after), until)

    def _notices(self, reader: Reader, until: float | None) -> Generator[Notice]:
        poller = Poller()
        while True:
            self._mine()
            if self.engine.handed_back is not None:
                self._if_free(self.engine.look())
            yield from reader.own()
            if reader.is_over or (until is not None and time.monotonic() >= until):
                return
            drive(reader.pause(until), poller)

    def wait(self, timeout: Seconds = ..., *, idle_timeout: Seconds = ..., until: str | None = None) -> Result:
        """Wait until the running command ends or waits for input, or until ``timeout`` seconds have passed.

        The default is the session's ``timeout``; None is no limit. The Result has the output since the previous one.

        * ``idle_timeout``: also return when the command has printed nothing for this many seconds (``outcome="idle"``).
          The default is what the command was run with; None is no limit.
        * ``until``: also return when the output matches this regular expression (``outcome="running"``). The search
          begins where the command began, or behind the last match, and covers the last 256 KiB of both streams.

        The ``timeout`` ends only the waiting, not the command. Ctrl-C ends the command, as in ``run``.

        If another thread is in ``run`` or ``wait`` for the command, both threads get its result. Raises NotRunning if
        no command runs.
        """
        engine, moment = self._mine(), self._until(timeout)
        check_idle(idle_timeout)
        pattern = pattern_of(until)
        if (shared := self._join_running(moment)) is not None:
            return shared
        return self._result_of(engine.wait(moment, idle_timeout, pattern))

    def poll(self) -> Result:
        """Return what the running command has printed since the previous result, without waiting.

        Raises NotRunning if no command runs.
        """
        engine = self._mine()
        if (shared := self._join_running(time.monotonic() + LOOK_PATIENCE)) is not None:
            return shared
        return self._result_of(engine.poll())

    def send(
        self, text: Text = "", timeout: Seconds = ..., *, keys: Sequence[str] = (), idle_timeout: Seconds = ...
    ) -> Result:
        """Type into the running command's terminal (Enter is \"\\n\"), then wait on the command as ``wait`` does.

        ``keys``: keys by name to type after the text, as tmux names them: ``["C-c", "Up", "Enter", "F1"]``.

        Raises InvalidRequest if the command was not run with ``stdin=TTY``, and NotRunning if no command runs. Raises
        SessionBusy if another thread runs the command, and it was not handed back within ``timeout`` seconds.
        """
        engine, data, until = self._mine(), to_bytes("text", text), self._until(timeout)
        check_idle(idle_timeout)
        names = check_keys(keys)
        self._await_turn(until)
        return self._result_of(engine.send(engine.typed(data, names), until, idle_timeout))

    def type(self, text: Text) -> None:
        """Type into the running command's terminal like ``send``, without waiting afterwards; for use with ``expect``.

        A terminal holds about 4 KiB. Longer text waits until the command reads it, up to the session's ``timeout``.
        """
        engine, data, until = self._mine(), to_bytes("text", text), self._until(...)
        self._await_turn(until)
        self.do(engine.type(data, until))

    def interrupt(self) -> Result:
        """End the running command and everything that it started, and keep the shell. A time limit does the same.

        If the command has ended by itself since its last result, the Result says so (``outcome="exited"``). Another
        thread may be in ``run`` or ``wait`` for the command; both threads then get the same Result.

        Raises NotRunning if no command runs.
        """
        return self.interrupt_command(self._mine().current)

    def interrupt_command(self, meant: Call | None) -> Result:
        """End the command ``meant``, or return its result. None: the one that another thread is about to begin."""
        engine = self._mine()
        if (shared := self._join_running(None, lambda: engine.request_interrupt(meant))) is not None:
            return shared if meant is None else meant.delivery.result or shared
        return self._result_of(engine.interrupt(meant))

    def _join_running(self, until: float | None, once_waiting: Callable[[], None] | None = None) -> Result | None:
        """Wait for the result of the command that another thread runs.

        Returns None if no other thread is in a verb, or if its verb returns while the command runs on. If the moment
        passes first, returns a result that says so.
        """
        self._refuse_callbacks()
        waiter = Waiter()
        with self._door:
            if is_in_use := self.is_in_use():
                self._waiters.append(waiter)
                if once_waiting is not None:
                    once_waiting()
        if not is_in_use:  # the unattended reader may be in a callback, which may wait for this thread
            return None if self.engine.stop_unattended(until) else self.engine.running_elsewhere(CALLBACK_RUNS)
        try:
            return waiter.result if waiter.wait(until, self._withdraw) else self.engine.running_elsewhere()
        finally:
            with self._door, suppress(ValueError):  # the waiter was notified and removed
                self._waiters.remove(waiter)

    def _await_turn(self, until: float | None) -> None:
        """Wait until the command can be typed to. Raises SessionBusy if another thread keeps it until that moment.

        Raises NotRunning if the command ended meanwhile: the text must not go to a later command.
        """
        if (shared := self._join_running(until)) is not None:
            raise SessionBusy(NOT_YOURS) if shared.runs_on else NotRunning(ENDED)

    def _withdraw(self) -> bool:
        """True if no thread is left in a verb that could notify the waiters (Ctrl-C came at its end); notifies them."""

        def notify(_: ThreadPlace | None) -> bool:  # the reader of a command that was handed back stays
            with self._door:
                self._leave()
            return True

        with suppress(SessionBusy):
            return self._in_turn(ThreadPlace(within=0.0), notify)
        return False

    def _expect(self, pattern: Any, timeout: Seconds, exact: bool) -> int:
        engine, until = self._mine(), self._until(timeout)
        if (shared := self._join_running(until)) is not None and shared.runs_on:
            return late(pattern, exact)
        return self.do(expect(engine, pattern, until, exact))

    def read_page(self, query: Query, read: Read = page) -> Any:
        return drive(self._reading(query, read))

    def _why(self) -> Why:
        return drive(self._mine().why())

    def _transfer(self, transfer: Transfer[T]) -> T:
        request = transfer.next(None)
        while request is not None:
            request = transfer.next(self._mine().file_access(request)())
        return transfer.result

    def close_if_idle(self, idle: float | None) -> None:
        """Close the session if nothing has run in it for ``idle`` seconds. A thread in a verb prevents that at once."""
        if idle is not None and not self.is_needed():
            self._if_free(self.engine.close_if_idle(idle))

    def jobs(self, released: bool = False) -> list[ThreadJob]:
        """Return what earlier calls left running, with its output; the latest last. Empty if the session is closed.

        ``released``: the jobs that were released instead, also once the session is closed.
        """
        return self._jobs(released)

    def _exit_code_of(self, job: SessionJob) -> int | None:
        return self._if_free(self.engine.exit_code(job)) if self.state == "idle" else None

    def restart(self, *, keep_state: bool = False) -> Restored:
        """Start a new bash in the first directory and environment, and run the startup commands again.

        What runs is ended first; if another thread runs a command, its call returns with ``outcome="shell_exited"``.
        Calls that have not begun yet run in the new bash. Raises ShellUnavailable and SessionClosed.

        * ``keep_state``: give the new bash the state of this one. While a command runs, or if bash is gone, that is the
          state which ``recover=True`` has kept last. If there is none, raises SessionBusy or SnapshotUnavailable, and
          ends nothing. The result lists what differs, as that of ``restore`` does.
        """
        check_flag("keep_state", keep_state)
        return self._restart(self._mine().restart, keep_state)

    def snapshot(self, *, exclude: Sequence[str] = (), secrets: Sequence[str] = ()) -> Snapshot:
        """Return the state of bash: directory, variables, functions, aliases, options, traps, and more.

        * ``exclude``: patterns of names to leave out, such as ``["*TOKEN*"]``.
        * ``secrets``: values to leave out, with whatever contains one of them.

        ``left_out`` of the snapshot names what was left out. Raises SessionBusy while a command runs that was handed
        back, and SnapshotUnavailable if bash does not list its state.
        """
        return self.do_in_bash(self._snapshot_steps(exclude, secrets))

    def restore(self, snapshot: Snapshot) -> Restored:
        """Restart, run the startup commands, and give the new bash the state of the snapshot.

        ``not_restored`` of the result lists what differs from the snapshot, with the reason. Raises InvalidRequest if
        the snapshot comes from a session that a sandbox or a policy confines, and this one has none.
        """
        engine = self._mine()
        check_snapshot(snapshot, engine.options)
        return self._restart(partial(engine.restart, snapshot))

    def checkpoint(self, name: str = "", *, end_jobs: bool = False) -> Checkpoint:
        """Freeze the files of the branch and the state of bash together, and return the checkpoint.

        ``name``: for ``rollback``; by default a free one. ``end_jobs``: kill running jobs. Raises JobsRunning while one
        runs, SessionBusy, BranchUnavailable and SnapshotUnavailable.
        """
        return self.do_in_bash(self._checkpoint_steps(name, end_jobs))

    def rollback(
        self, checkpoint: Checkpoint | str = "", *, files_only: bool = False, end_jobs: bool = False
    ) -> Restored:
        """Bring the files of the branch back to a checkpoint, and start a new bash with the state of that moment.

        Without a checkpoint, but with ``auto_checkpoints``, take back the last command that wrote on the branch; a
        second call takes back the one before it.

        ``files_only``: keep bash as it is. ``end_jobs``: as for ``checkpoint``. Later changes are lost, except those in
        another checkpoint. The result lists what differs, as that of ``restore`` does.
        """
        return self.do_in_bash(self._rollback_steps(checkpoint, files_only, end_jobs))

    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints of the branch, the oldest first. Raises BranchUnavailable."""
        return self.do(self._mine().checkpoints())

    def drop_checkpoint(self, checkpoint: Checkpoint | str) -> None:
        """Forget a checkpoint, and remove the files that only it has. Raises BranchUnavailable and InvalidRequest."""
        self.do(self._mine().drop_checkpoint(name_of_checkpoint(checkpoint)))

    @property
    def branch(self) -> BranchFiles:
        """What was written on the branch of the files, to show, apply or discard."""
        act = self._mine().act_on_branch
        return BranchFiles(lambda *given: self.do_in_bash(partial(act, *given)), self.engine.branch_path)

    def fork(self) -> Self:
        """Return a new session with the state of this one, and with its options: limits, sandbox, policy, redaction.

        Jobs, and what was typed or asked, are not inherited. A ``restart`` of the new session brings it back to this
        state. ``restored`` of it says what differs. Raises SessionBusy, SnapshotUnavailable and ShellUnavailable.

        On a branch, the new session has its own branch, which begins with the files as they are now. Closing it removes
        changes that were not applied. Raises JobsRunning, too.
        """
        (child,) = self.fork_many(1)
        if isinstance(child, ShellSessionError):
            raise child
        return child

    def fork_many(self, count: int) -> list[Self | ShellSessionError]:
        """Return this many forks of one moment, each a session or the error that its start raised."""
        check_count(count)
        begun = self.do_in_bash(lambda: self._mine().fork(self._forked, count))
        children = list[Self | ShellSessionError]()
        with ExitStack() as made:  # Ctrl-C leaves none
            for child in begun:
                made.push(child)
            for child in begun:
                try:
                    children.append(child.open())
                except ShellSessionError as error:
                    child.close()
                    children.append(error)
            made.pop_all()
        return children

    def attempt(self, command: Command, **options: Unpack[RunOptions]) -> Attempt:
        """Run a command on a fork of this session. Return its result and what it wrote, to apply or to discard.

        ``options``: those of ``run``. After ``apply()`` of the attempt, this session continues with its files and its
        shell; ``discard()`` throws them away. Raises BranchUnavailable without a branch, and what ``fork`` and ``run``
        raise.
        """
        refuse_unknown("Session.attempt", options, RunOptions.__annotations__)
        from .branch.attempt import Attempt  # rarely needed

        self._mine().refuse_without_branch()
        return Attempt.of(self.fork(), self._take_over, command, options)

    def _take_over(self, fork: Session) -> Restored:
        """Continue with the files and the shell of a fork, and close the fork."""
        frozen = fork.do(fork.engine.frozen())
        restored = self.do_in_bash(lambda: self._mine().take_over(frozen))
        fork.close()
        return restored

    def _restart(self, verb: Callable[[], Steps[Restored]], keep_state: bool = False) -> Restored:
        self._refuse_callbacks()
        engine, place, places = self._mine(), ThreadPlace(is_restart=True), self.line.places
        engine.refuse_restart()
        try:
            self.line.enter(place)  # first: calls that wait for their turn run in the new bash
            if keep_state and engine.current is not None:  # its thread is in a verb
                verb = engine.restart_with_last_state(SessionBusy(STILL_RUNS))
            elif keep_state:
                verb = self.do(engine.restart_with_state(), place)
            self._kill_running(RESTARTED)
            return self.do_in_bash(verb, place)
        finally:
            if place in places:
                places.remove(place)
            self.line.wake_first()

    def close(self) -> None:
        """End the session and every process that it has started. Nothing is left when this returns.

        If another thread runs a command, its call returns with ``outcome="shell_exited"``. A second close does nothing.
        """
        if self._owner == os.getpid():
            self._kill_running(CLOSED)
            self.engine.refuse_calls()  # refuse the calls that wait for their turn
            self.do(self._mine().close())
