"""Session and AsyncSession: one bash that stays open, for threads and for asyncio.

Law: each verb is one line over ``engine.steps``; both classes have the same verbs with the same signatures.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Self

from .base import Base, Seconds, Text, checked
from .engine.dialogue import expect
from .engine.waiting import LoopDrainer, LoopPoller, LoopWish, Poller, Steps, T, Wish, adrive, drive
from .errors import SessionBusy
from .models import Limits, OnOutput, OnTimeout, Request, Result, Stdin, Stream, to_bytes

if TYPE_CHECKING:
    import asyncio

    from .engine.call import Call
    from .engine.steps import Engine

_CALLBACK = "a callback of a running command cannot use its session: use another one, or interrupt from another thread"


class Session(Base):
    """One bash that stays open: cwd, variables, functions, aliases and options live from call to call.

    Safe from many threads: calls are served one after the other. Use it in a ``with`` block, or ``close()`` it.
    """

    def _prepare(self) -> None:
        self._poller = Poller()
        self._lock = threading.Lock()  # held during a verb
        # Held at its two ends, so that no wish is left behind; reentrant: a signal handler may call us there.
        self._door = threading.RLock()
        self._callers = 0  # verbs that run or wait for their turn
        self._holder = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, steps: Steps[T]) -> T:
        self._refuse_callbacks()
        with self._door:
            self._callers += 1
        try:
            with self._lock:
                self._holder = threading.get_ident()
                try:
                    self._engine.take_over()
                    return drive(steps, self._poller)
                finally:
                    with self._door:
                        self._leave()
                        self._holder = 0
        finally:
            with self._door:
                if self._holder == threading.get_ident():  # Ctrl-C struck at the door
                    self._leave()
                    self._holder = 0
                self._callers -= 1

    def _refuse_callbacks(self) -> None:
        me, minder = threading.get_ident(), self._engine.minder
        if self._holder == me or (minder is not None and minder.thread == me):
            raise SessionBusy(_CALLBACK)

    def _condemn(self, why: str) -> None:
        """End a command that another thread is running: it returns with its shell gone."""
        self._refuse_callbacks()
        if self._lock.locked():
            self._engine.condemn(why)

    def open(self) -> Self:
        """Start bash now. Raises ShellUnavailable."""
        self._do(self._mine().open())
        return self

    def run(
        self,
        command: Text,
        *,
        timeout: Seconds = ...,
        idle_timeout: float | None = None,
        on_timeout: OnTimeout | None = None,
        stdin: Stdin = None,
        tty: bool | None = None,
        merge_stderr: bool = False,
        isolated: bool = False,
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
        echo: bool = False,
        check: bool = False,
    ) -> Result:
        """Run a command (any bash text) and say what it did.

        The command gets three streams of its own: an ``exec >file`` in it ends with it; all else persists.
        ``timeout``: seconds it may run (``...``: the session's; None: for ever). ``idle_timeout``: seconds without
        output. ``on_timeout``: "interrupt" ends the command and keeps the shell, "kill" ends the shell too, "yield"
        hands it back running (see ``wait``). ``stdin``: None is /dev/null, str or bytes are fed whole, ``TTY`` gives it
        the terminal in cooked mode (``echo=True`` for an echo). ``tty``: stdout is a terminal (columns, colours) or,
        with False, a pipe (ten times the throughput). ``merge_stderr``: one stream, in order. ``isolated``: in a
        subshell that sees the session's state and leaves none (``$$`` and the jobs there are still the session's).
        ``on_output(stream, data)`` is called as output comes. ``check`` raises CommandFailed, CommandTimeout.
        Also raises InvalidRequest before anything runs, SessionBusy, SessionClosed and ShellUnavailable.
        """
        request = self._request(
            command, timeout, idle_timeout, on_timeout, stdin, tty, merge_stderr, isolated, limits, on_output, echo
        )
        return checked(self._do(self._mine().run(request)), check)

    def stream(
        self,
        command: Text,
        *,
        timeout: Seconds = ...,
        idle_timeout: float | None = None,
        stdin: bytes | str | None = None,
        tty: bool | None = None,
        merge_stderr: bool = False,
        isolated: bool = False,
        limits: Limits | None = None,
    ) -> Iterator[tuple[Stream, bytes] | Result]:
        """Run a command and iterate over its output as it comes; the last item is its Result.

        Leaving the loop early interrupts the command.
        """
        request = self._request(
            command, timeout, idle_timeout, self._gentle(), stdin, tty, merge_stderr, isolated, limits, None, False
        )
        engine = self._mine()
        call = self._do(engine.follow(request))
        try:
            while engine.call is call:
                self._do(engine.news(call))
                while call.pieces:
                    yield call.pieces.pop(0)
            yield engine.told(call)
        finally:
            if engine.call is call:
                self._do(engine.drop(call))

    def wait(self, timeout: Seconds = ...) -> Result:
        """Stay with a command that was handed back running: until it ends, waits for input, or seconds pass."""
        return self._do(self._mine().wait(self._until(timeout)))

    def poll(self) -> Result:
        """What the running command printed since the last time, without waiting."""
        return self._do(self._mine().poll())

    def send(self, text: Text, timeout: Seconds = ...) -> Result:
        """Type into the running command's terminal (Enter is \"\\n\"), then stay with it as ``wait`` does."""
        return self._do(self._mine().send(to_bytes("text", text), self._until(timeout)))

    def type(self, text: Text) -> None:
        """Type into the running command's terminal, and do not wait for what it does: for use with ``expect``.

        A terminal takes about 4 KiB; for more it is waited, up to the session's ``timeout``, until the command reads.
        """
        self._do(self._mine().type(to_bytes("text", text), self._until(...)))

    def interrupt(self) -> Result:
        """End the running command, as a time limit does, and keep the shell.

        It ends a command that another thread is in, too (``run``, ``wait``); both then get the same Result.
        """
        engine = self._mine()
        self._refuse_callbacks()
        with self._door:
            wish: Wish[Result] | None = None
            if self._callers:
                self._wishes.append(wish := Wish())
                engine.strike()
        if wish is not None and (result := wish.wait()) is not None:
            return result
        return self._do(engine.interrupt())

    def expect(self, pattern: Any, timeout: Seconds = ...) -> int:
        """pexpect's ``expect`` on the running command's output: regular expressions; the index of the one that came.

        ``before``, ``after`` and ``match`` are as there. What it reads is in the next Result too.
        Raises pexpect.TIMEOUT, pexpect.EOF.
        """
        return self._do(expect(self._mine(), pattern, self._until(timeout), exact=False))

    def expect_exact(self, pattern: Any, timeout: Seconds = ...) -> int:
        """As ``expect``, for plain strings."""
        return self._do(expect(self._mine(), pattern, self._until(timeout), exact=True))

    def restart(self) -> None:
        """A fresh bash: first cwd and environment, startup commands run again. Ends what another thread runs here."""
        self._condemn("the session was restarted meanwhile")
        self._do(self._mine().restart())

    def close(self) -> None:
        """End the session and everything it started; a second time does nothing."""
        if self._owner == os.getpid():
            self._condemn("the session was closed meanwhile")
            self._engine.closed = True  # who queues for a turn is told at once
            self._do(self._mine().close())


class Pieces(AsyncIterator[tuple[Stream, bytes] | Result]):
    """What ``AsyncSession.stream`` gives. Asyncio closes a generator that was left by ``break`` some time later; this
    knows at once that nobody holds it any more."""

    def __init__(self, pieces: AsyncGenerator[tuple[Stream, bytes] | Result], followed: list[Call]) -> None:
        self._pieces, self._followed = pieces, followed

    async def __anext__(self) -> tuple[Stream, bytes] | Result:
        return await self._pieces.__anext__()

    async def aclose(self) -> None:
        """Interrupt the command, unless it has ended."""
        await self._pieces.aclose()

    def __del__(self) -> None:
        for call in self._followed:
            call.abandoned = True


class AsyncSession(Base):
    """``Session`` for asyncio: the same verbs, awaited. Tasks on one session are served one after the other."""

    def _prepare(self) -> None:
        self._poller = LoopPoller()
        self._turns: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._callers = 0  # verbs that run or wait for their turn
        self._turn = object()
        self._drainer = LoopDrainer()
        self._engine.reader = self._drainer
        self._engine.let_go = self._poller.forget
        self._engine.on_close = self._poller.forget_all

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _do(self, steps: Steps[T]) -> T:
        import asyncio

        loop = asyncio.get_running_loop()
        if self._turns is None or self._turns[0] is not loop:
            self._turns, self._callers = (loop, asyncio.Lock()), 0
            self._drainer.enter(loop)
        self._callers += 1
        try:
            async with self._turns[1]:
                self._turn = turn = object()
                try:
                    self._engine.take_over()
                    return await adrive(steps, self._poller)
                finally:
                    if self._turn is turn:  # else this is collected long after its loop was closed
                        self._leave()
        finally:
            self._callers -= 1

    def _condemn(self, why: str) -> None:
        if self._is_in_use():
            self._engine.condemn(why)

    def _is_in_use(self) -> bool:
        """Does a task of this loop run a verb, or wait for its turn?"""
        import asyncio

        return self._turns is not None and self._turns[0] is asyncio.get_running_loop() and self._callers > 0

    async def open(self) -> Self:
        """Start bash now. Raises ShellUnavailable."""
        await self._do(self._mine().open())
        return self

    async def run(
        self,
        command: Text,
        *,
        timeout: Seconds = ...,
        idle_timeout: float | None = None,
        on_timeout: OnTimeout | None = None,
        stdin: Stdin = None,
        tty: bool | None = None,
        merge_stderr: bool = False,
        isolated: bool = False,
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
        echo: bool = False,
        check: bool = False,
    ) -> Result:
        """As ``Session.run``. Cancelling the task interrupts the command and keeps the shell."""
        request = self._request(
            command, timeout, idle_timeout, on_timeout, stdin, tty, merge_stderr, isolated, limits, on_output, echo
        )
        return checked(await self._do(self._mine().run(request)), check)

    def stream(
        self,
        command: Text,
        *,
        timeout: Seconds = ...,
        idle_timeout: float | None = None,
        stdin: bytes | str | None = None,
        tty: bool | None = None,
        merge_stderr: bool = False,
        isolated: bool = False,
        limits: Limits | None = None,
    ) -> AsyncIterator[tuple[Stream, bytes] | Result]:
        """Run a command and iterate over its output as it comes; the last item is its Result.

        Leaving the loop early interrupts the command, at the latest when the session is used next; to have that done
        when the loop is left, iterate in ``contextlib.aclosing(...)``.
        """
        request = self._request(
            command, timeout, idle_timeout, self._gentle(), stdin, tty, merge_stderr, isolated, limits, None, False
        )
        followed: list[Call] = []
        return Pieces(self._follow(self._mine(), request, followed), followed)

    async def _follow(
        self, engine: Engine, request: Request, followed: list[Call]
    ) -> AsyncGenerator[tuple[Stream, bytes] | Result]:
        call = await self._do(engine.follow(request))
        followed.append(call)
        try:
            while engine.call is call:
                await self._do(engine.news(call))
                while call.pieces:
                    yield call.pieces.pop(0)
            yield engine.told(call)
        finally:
            if engine.call is call:
                await self._do(engine.drop(call))

    async def wait(self, timeout: Seconds = ...) -> Result:
        """Stay with a command that was handed back running: until it ends, waits for input, or seconds pass."""
        return await self._do(self._mine().wait(self._until(timeout)))

    async def poll(self) -> Result:
        """What the running command printed since the last time, without waiting."""
        return await self._do(self._mine().poll())

    async def send(self, text: Text, timeout: Seconds = ...) -> Result:
        """Type into the running command's terminal (Enter is \"\\n\"), then stay with it as ``wait`` does."""
        return await self._do(self._mine().send(to_bytes("text", text), self._until(timeout)))

    async def type(self, text: Text) -> None:
        """As ``Session.type``."""
        await self._do(self._mine().type(to_bytes("text", text), self._until(...)))

    async def interrupt(self) -> Result:
        """As ``Session.interrupt``, also from another task."""
        engine = self._mine()
        if self._is_in_use():
            wish: LoopWish[Result] = LoopWish()
            self._wishes.append(wish)
            engine.strike()
            if (result := await wish.wait()) is not None:
                return result
        return await self._do(engine.interrupt())

    async def expect(self, pattern: Any, timeout: Seconds = ...) -> int:
        """pexpect's ``expect`` on the running command's output: regular expressions; the index of the one that came.

        ``before``, ``after`` and ``match`` are as there. What it reads is in the next Result too.
        Raises pexpect.TIMEOUT, pexpect.EOF.
        """
        return await self._do(expect(self._mine(), pattern, self._until(timeout), exact=False))

    async def expect_exact(self, pattern: Any, timeout: Seconds = ...) -> int:
        """As ``expect``, for plain strings."""
        return await self._do(expect(self._mine(), pattern, self._until(timeout), exact=True))

    async def restart(self) -> None:
        """A fresh bash: first cwd and environment, startup commands run again. Ends what another thread runs here."""
        self._condemn("the session was restarted meanwhile")
        await self._do(self._mine().restart())

    async def close(self) -> None:
        """End the session and everything it started; a second time does nothing."""
        if self._owner == os.getpid():
            self._condemn("the session was closed meanwhile")
            self._engine.closed = True  # who queues for a turn is told at once
            await self._do(self._mine().close())
