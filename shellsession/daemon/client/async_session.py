"""``aconnect`` and AsyncRemoteSession: an agent's session in the daemon, for asyncio, with the verbs of AsyncSession.

``remote`` has the code of the verbs, and ``session`` their signatures. This module adds how a task waits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, Unpack

from ...branch.files import AsyncBranchFiles
from ...engine.io.jobs import AsyncJob
from ...engine.io.loop import LoopPoller, adrive, in_thread, to_its_end
from ...engine.io.threads import Steps
from ...options import SessionOptions
from ...signatures import Command, LoopSession, RunOptions, Seconds, T, awaited, refuse_unknown
from ..protocol.wire import Message
from .exchange import Backend, Cancellation
from .link import Link
from .remote import CONNECT_OPTIONS, PreparedRun, Remote, RemoteJob
from .session import RemoteSession
from .transport import Channel, Transport

if TYPE_CHECKING:
    from ...branch.attempt import AsyncAttempt


def aconnect(
    agent: str,
    socket: str | os.PathLike[str] | None = None,
    start: bool = True,
    *,
    create: bool = True,
    via: Sequence[str] | None = None,
    remote: str | None = None,
    idle_ttl: Seconds = ...,
    **options: Unpack[SessionOptions],
) -> Connecting:
    """As ``connect``, for asyncio: ``async with aconnect("a1") as session``, or ``session = await aconnect("a1")``."""
    refuse_unknown("aconnect", options, CONNECT_OPTIONS)

    async def connected() -> AsyncRemoteSession:
        session = AsyncRemoteSession.for_arguments(
            agent, socket, start, options, via=via, remote=remote, create=create, idle_ttl=idle_ttl
        )
        await session.connect()
        return session

    return Connecting(connected())


class Connecting(Coroutine[Any, Any, "AsyncRemoteSession"]):
    """The result of ``aconnect``: a coroutine, and also the session's context manager."""

    def __init__(self, work: Coroutine[Any, Any, AsyncRemoteSession]) -> None:
        self._work = work
        self._session: AsyncRemoteSession | None = None

    def __await__(self) -> Generator[Any, Any, AsyncRemoteSession]:
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    async def __aenter__(self) -> AsyncRemoteSession:
        self._session = await self._work
        return self._session

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.disconnect()


class Loop(Backend):
    """A backend that waits on the running loop."""

    def caller(self) -> object:
        return asyncio.current_task()

    def give(self, verb: Coroutine[Any, Any, T]) -> Any:
        return verb

    def iterate(self, items: AsyncGenerator[T]) -> Any:
        return items

    async def connect(self, transport: Transport, start: bool) -> Link:
        channel = transport.reach() if transport.is_local else None
        if channel is None:  # starting a daemon takes a while, and so does a way to another machine
            opened = in_thread(lambda: transport.connect(start))
            try:
                channel = await asyncio.wrap_future(opened)
            except asyncio.CancelledError:
                opened.add_done_callback(_close_late)
                raise
        return Link(channel, LoopPoller())

    async def blocking(self, call: Callable[[], T]) -> T:
        return await asyncio.wrap_future(in_thread(call))

    async def drive(self, steps: Steps[T], poller: Any) -> T:
        return await adrive(steps, poller)

    async def await_callback(self, answer: object) -> None:
        if isinstance(answer, Awaitable):
            await answer

    async def until_done(self, cancellation: Cancellation) -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def on_done() -> None:
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(done.set)

        cancellation.when_done(on_done)
        await to_its_end(done.wait(), may_hang=True)


def _close_late(opened: Future[Channel]) -> None:
    if opened.exception() is None:
        opened.result().close()


class _Now(Backend):
    """A backend for properties: it blocks the loop (0.2 ms). It only starts a daemon if it has to open the session."""

    def __init__(self, is_open: bool) -> None:
        super().__init__()
        self._is_open = is_open

    async def connect(self, transport: Transport, start: bool) -> Link:
        return await super().connect(transport, start and not self._is_open)


class RemoteLoopJob(RemoteJob, AsyncJob):
    """A job in the daemon, for asyncio."""


class AsyncRemoteSession(Remote, LoopSession[PreparedRun]):
    """As ``RemoteSession``, for asyncio. ``on_output`` may be a coroutine function."""

    _backend_class = Loop

    async def __aexit__(self, *_: object) -> None:
        self.disconnect()

    def _ask_now(self, verb: str, **fields: object) -> Message:
        backend = _Now(self.is_opened)
        try:
            return backend.give(self._ask(self.message(verb, **fields), backend=backend))
        finally:
            backend.pool.close()

    def jobs(self, released: bool = False) -> list[RemoteLoopJob]:
        """As ``RemoteSession.jobs``; blocks the loop for a moment, as each property of a job does."""
        return self._jobs(RemoteLoopJob, released)

    @property
    def branch(self) -> AsyncBranchFiles:
        """As ``AsyncSession.branch``."""
        return AsyncBranchFiles(self._act_on_branch, self._branch_path)

    async def attempt(self, command: Command, **options: Unpack[RunOptions]) -> AsyncAttempt:
        """As ``RemoteSession.attempt``."""
        from ...branch.attempt import AsyncAttempt  # rarely needed

        child = await self._fork(self._of_attempt(options), attempt=True)
        return await AsyncAttempt.of(child, self._take_over, command, options)

    async def open(self) -> Self:
        """As ``RemoteSession.open``."""
        await self.ask(self.message("start"))
        return self

    connect = awaited(RemoteSession.connect)
    ask = awaited(RemoteSession.ask)
    wait = awaited(RemoteSession.wait)
    poll = awaited(RemoteSession.poll)
    send = awaited(RemoteSession.send)
    type = awaited(RemoteSession.type)
    interrupt = awaited(RemoteSession.interrupt)
    restart = awaited(RemoteSession.restart)
    snapshot = awaited(RemoteSession.snapshot)
    restore = awaited(RemoteSession.restore)
    checkpoint = awaited(RemoteSession.checkpoint)
    rollback = awaited(RemoteSession.rollback)
    checkpoints = awaited(RemoteSession.checkpoints)
    drop_checkpoint = awaited(RemoteSession.drop_checkpoint)
    fork = awaited(RemoteSession.fork)
    close = awaited(RemoteSession.close)
