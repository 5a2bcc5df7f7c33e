"""Session: one bash that stays open, for threads.

Law: what a verb does is in ``engine.verbs``; this module adds locking, and hands the result of a command to the other
threads that wait for it. AsyncSession has the same verbs with the same signatures.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Set
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

from .base import CALLBACK_RUNS, LOOK_PATIENCE, Base
from .engine.io.background import Waiter, is_owned
from .engine.io.threads import Poller, Steps, T, drive
from .engine.verbs.command import LARGE
from .engine.verbs.expect import expect, late
from .engine.verbs.verbs import Superseded
from .errors import CLOSED, ENDED, IN_CALLBACK, NOT_YOURS, RESTARTED, NotRunning, SessionBusy
from .models import Request, Result, Stream, to_bytes
from .signatures import Output, Seconds, Text, ThreadSession

if TYPE_CHECKING:
    from .engine.verbs.command import Call
    from .engine.verbs.verbs import Engine


# How long a thread waits for another's restart until it looks again, in seconds.
_RESTART_PATIENCE = 1.0


class Session(Base, ThreadSession[Request]):
    """One bash that stays open: cwd, variables, functions, aliases and options live from call to call.

    Safe from many threads: calls are served one after the other. Use it in a ``with`` block, or ``close()`` it.
    """

    def _prepare(self) -> None:
        self._poller = Poller()
        self._lock = threading.RLock()  # held during a verb
        self._restarting: set[int] = set()  # threads in a restart: it is before all else
        self._restarted = threading.Condition()
        # Held at its end and by who asks for its end; reentrant: a signal handler may call us there.
        self._door = threading.RLock()
        self._callers: set[int] = set()  # threads in a verb, or waiting for their turn

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, steps: Steps[T]) -> T:
        if self._engine.unattended is not None or is_owned(self._lock):
            self._refuse_callbacks()
        me, restarting = get_ident(), self._restarting
        mine = {me} - self._callers  # not what a signal handler finds, whose thread waits for its turn
        try:
            self._callers |= mine
            while True:
                # No `with`: on Python 3.14 Ctrl-C may strike between its taking of the lock and its care for it.
                try:
                    self._lock.acquire()
                    if not restarting or me in restarting:
                        return self._do_now(steps, mine)
                finally:
                    try:  # noqa: SIM105  # nor here: Ctrl-C would strike in what suppresses, before the release
                        self._lock.release()
                    except RuntimeError:  # it struck before this thread had it
                        pass
                with self._restarted:  # for a while: Ctrl-C may have kept the other thread from notifying
                    self._restarted.wait_for(lambda: not restarting, _RESTART_PATIENCE)
        finally:
            self._callers -= mine

    def _result_of(self, steps: Steps[Result]) -> Result:
        """As ``_do``; what came is the caller's alone."""
        self._engine.forget_output(result := self._do(steps))
        return result

    def _start(self, verb: Callable[[], Steps[T]]) -> T:
        """What starts bash where there is none. A restart that comes before anything was begun has its turn first."""
        while True:
            try:
                return self._do(verb())
            except Superseded:
                pass

    def _do_now(self, steps: Steps[T], leaving: Set[int] = frozenset()) -> T:
        """It is this thread's turn."""
        try:
            if self._engine.unattended is not None:
                self._engine.stop_unattended()
            return drive(steps, self._poller)
        finally:
            with self._door:
                self._callers -= leaving
                try:
                    self._leave()
                except BaseException:  # Ctrl-C: nobody gets the result by which the command was handed back
                    self._engine.stop_unattended()
                    if (call := self._engine.handed_back) is not None:
                        drive(self._engine.drop(call), self._poller)
                    raise

    def _refuse_callbacks(self) -> None:
        unattended = self._engine.unattended
        if is_owned(self._lock) or (unattended is not None and unattended.thread == threading.get_ident()):
            raise SessionBusy(IN_CALLBACK)

    def _kill_running(self, why: str) -> None:
        """End a command that another thread is running: it returns with its shell gone."""
        self._refuse_callbacks()
        if self._is_in_use():
            self._engine.kill_running(why)

    def _is_in_use(self) -> bool:
        """Does a thread run a verb, or wait for its turn?"""
        return bool(self._callers)

    def open(self) -> Self:
        """Start bash now. Raises ShellUnavailable."""
        self._start(lambda: self._mine().open())
        return self

    def _run(self, request: Request) -> Result:
        engine = self._engine
        if engine.is_parents:
            engine.refuse_forked()
        while True:
            try:
                result = self._do(engine.run(request))
                break
            except Superseded:
                pass
        if len(result.stdout_bytes) + len(result.stderr_bytes) + len(request.command) > LARGE:
            engine.forget_output(result)
        return result

    def _stream(self, request: Request) -> Output:
        return self._follow(self._mine(), request)

    def _follow(self, engine: Engine, request: Request) -> Generator[tuple[Stream, bytes] | Result]:
        call = self._start(lambda: engine.follow(request))
        try:
            while call.delivery.runs_on:
                yield from self._do(self._mine().next_pieces(call))
            yield from call.take_pieces() if call.delivery.result else self._do(engine.next_pieces(call))
            engine.forget_output(result := call.delivery.deliver())
            yield result
        finally:
            call.delivery.abandon()
            if call.delivery.runs_on and self._owner == os.getpid():
                self._do(engine.drop(call))

    def wait(self, timeout: Seconds = ...) -> Result:
        """Stay with a running command until it ends, waits for input, or ``timeout`` seconds have passed.

        The default is the session's ``timeout``; None is no limit. The Result has the output since the previous one.
        When another thread is in the command (``run``, ``wait``), both get its result. Ctrl-C ends the command, as
        in ``run``; the ``timeout`` ends only the waiting. Raises NotRunning when no command runs.
        """
        engine, until = self._mine(), self._until(timeout)
        if (shared := self._join_running(until)) is not None:
            return shared
        return self._result_of(engine.wait(until))

    def poll(self) -> Result:
        """As ``wait``, without waiting: what the running command has printed since the previous result."""
        engine = self._mine()
        if (shared := self._join_running(time.monotonic() + LOOK_PATIENCE)) is not None:
            return shared
        return self._result_of(engine.poll())

    def send(self, text: Text, timeout: Seconds = ...) -> Result:
        """Type into the running command's terminal (Enter is \"\\n\"), then stay with it as ``wait`` does.

        Raises InvalidRequest when the command was not run with ``stdin=TTY``, NotRunning when none runs, and
        SessionBusy when it is another thread's and was not handed back within ``timeout`` seconds.
        """
        engine, data, until = self._mine(), to_bytes("text", text), self._until(timeout)
        self._await_turn(until)
        return self._result_of(engine.send(data, until))

    def type(self, text: Text) -> None:
        """As ``send``, without staying with the command: for use with ``expect``.

        A terminal holds about 4 KiB; more than that waits for the command to read, up to the session's ``timeout``.
        """
        engine, data, until = self._mine(), to_bytes("text", text), self._until(...)
        self._await_turn(until)
        self._do(engine.type(data, until))

    def interrupt(self) -> Result:
        """End the running command and all that it started, as a time limit does, and keep the shell.

        Of a command that has ended by itself since its last result, the Result says so (``outcome="exited"``).
        It may be called while another thread is in the command (``run``, ``wait``): both then get the same Result.
        Raises NotRunning when no command runs.
        """
        return self._interrupt(self._mine().current)

    def _interrupt(self, meant: Call | None) -> Result:
        """End that very command, or return its ending; None: the one that another thread is about to begin."""
        engine = self._mine()
        if (shared := self._join_running(None, lambda: engine.request_interrupt(meant))) is not None:
            return shared if meant is None else meant.delivery.result or shared
        return self._result_of(engine.interrupt(meant))

    def _join_running(self, until: float | None, once_waiting: Callable[[], None] | None = None) -> Result | None:
        """The end of the command that another thread is in, or at that moment how it is; None: nobody is in any."""
        self._refuse_callbacks()
        waiter = Waiter()
        with self._door:
            # A signal handler may be on its thread's way into a verb.
            if is_in_use := bool(self._callers - {threading.get_ident()}):
                self._waiters.append(waiter)
                if once_waiting is not None:
                    once_waiting()
        if not is_in_use:  # but who reads it between two verbs may be in its callback, which waits for us perhaps
            return None if self._engine.stop_unattended(until) else self._elsewhere(CALLBACK_RUNS)
        try:
            return waiter.result if waiter.wait(until, self._withdraw) else self._elsewhere()
        finally:
            with self._door, suppress(ValueError):  # it has its result
                self._waiters.remove(waiter)

    def _await_turn(self, until: float | None) -> None:
        """Before typing: for what another thread is in there is to be a question, and for what comes then none."""
        if (shared := self._join_running(until)) is not None:
            raise SessionBusy(NOT_YOURS) if shared.runs_on else NotRunning(ENDED)

    def _withdraw(self) -> bool:
        """True if no thread is left in a verb that could notify the waiters (Ctrl-C came at its end); notifies them."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            with self._door:
                self._leave()
            return True
        finally:
            self._lock.release()

    def _expect(self, pattern: Any, timeout: Seconds, exact: bool) -> int:
        engine, until = self._mine(), self._until(timeout)
        if (shared := self._join_running(until)) is not None and shared.runs_on:
            return late(pattern, exact)
        return self._do(expect(engine, pattern, until, exact))

    def _close_if_idle(self, idle: float | None) -> None:
        """Close it if nothing has run in it for so many seconds; who is in a verb keeps it, and is not waited for."""
        if idle is not None and not self._callers and not self.attached and self._lock.acquire(blocking=False):
            try:
                self._do_now(self._engine.close_if_idle(idle))
            finally:
                self._lock.release()

    def restart(self) -> None:
        """Start a fresh bash in the first cwd and environment, and run the startup commands again.

        What runs is ended first; a command that another thread is in returns with ``outcome="shell_exited"``. What
        waits for its turn, or for bash to start, is run in the fresh one. Raises ShellUnavailable and SessionClosed.
        """
        self._refuse_callbacks()
        engine, me = self._mine(), threading.get_ident()
        engine.refuse_restart()
        try:
            self._restarting.add(me)
            self._kill_running(RESTARTED)
            self._start(engine.restart)  # what queues for a turn is run in the fresh one
        finally:
            self._restarting.discard(me)
            with self._restarted:
                self._restarted.notify_all()

    def close(self) -> None:
        """End the session and every process it has started; nothing is left when this returns.

        A command that another thread is in returns with ``outcome="shell_exited"``. Closing twice does nothing.
        """
        if self._owner == os.getpid():
            self._kill_running(CLOSED)
            self._engine.closed = True  # whoever queues for a turn is refused at once
            self._do(self._mine().close())
