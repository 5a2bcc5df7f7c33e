"""AsyncRemoteSession: the session of an agent in the daemon, for asyncio; the same verbs as ``AsyncSession``.

Law: each verb is one request, and its answer is awaited; what is no coroutine is asked on a connection of its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from contextlib import aclosing, suppress
from typing import Any, Self, Unpack, cast

from ..any_session import LoopSession, Seconds, Text
from ..engine.loop_waiting import LoopPoller, adrive, to_its_end
from ..errors import DaemonUnavailable, ShellSessionError
from ..models import OnOutput, Result, Stream, check_flag, to_bytes
from ..options import SessionOptions
from .autostart import find
from .client import RemoteSession
from .endpoint import reach, socket_path
from .exchange import LOST, Exchange
from .giving_up import Cancellation
from .link import Wire
from .opening import opening
from .remote import Asked, Followed, Remote
from .search import Said
from .wire import Message


def aconnect(
    agent: str, socket: str | os.PathLike[str] | None = None, start: bool = True, **options: Unpack[SessionOptions]
) -> Connecting:
    """As ``connect``, for asyncio: ``async with aconnect("a1") as session``, or ``session = await aconnect("a1")``."""
    return Connecting(_connected(agent, socket, start, options))


async def _connected(
    agent: str, socket: str | os.PathLike[str] | None, start: bool, options: SessionOptions
) -> AsyncRemoteSession:
    check_flag("start", start)
    session = AsyncRemoteSession(agent, socket_path(socket), start, opening(**options))
    await session.connect()
    return session


class Connecting(Coroutine[Any, Any, "AsyncRemoteSession"]):
    """What ``aconnect`` gives: a coroutine, and the session's context manager as well."""

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


class AsyncRemoteSession(Remote, LoopSession[Asked]):
    """As ``RemoteSession``, for asyncio. ``on_output`` may be a coroutine function."""

    async def __aexit__(self, *_: object) -> None:
        self.disconnect()

    async def connect(self) -> None:
        """As ``RemoteSession.connect``."""
        async with aclosing(self._exchange(self._open_request())) as messages:
            async for message in messages:
                self._opened(message)

    def disconnect(self) -> None:
        """Close this client's connections; the session lives on."""
        self._pool.close()

    async def _exchange(self, said: Said, expected: str = "") -> AsyncGenerator[Message]:
        """Every event of a request, and its reply as the last; left before that, what it asked for is ended."""
        exchange = Exchange(self._pool, self._path, *said, expected)
        try:
            while not exchange.done:
                if (message := await self._next(exchange)) is not LOST:
                    yield message
        except ShellSessionError as error:
            exchange.done = True
            self._unlearn(said, error)
            raise self._meaning(error) from None
        finally:
            if not (exchange.done or exchange.cancelled):
                try:
                    await self._cancel(exchange)
                except BaseException:
                    if not exchange.cancelled:  # a second Ctrl-C was quicker than we
                        await self._cancel(exchange)
                    raise
            exchange.close()

    async def _next(self, exchange: Exchange) -> Message:
        wire = exchange.wire or await self._connect(exchange)
        return await adrive(exchange.next(), cast(LoopPoller, wire.poller))

    async def _connect(self, exchange: Exchange) -> Wire:
        try:
            ours = reach(self._path)
            if ours is None:  # to start one takes a while
                ours = await asyncio.to_thread(find, self._path, self._start and exchange.may_start)
            return exchange.use(ours, LoopPoller())
        except DaemonUnavailable as error:
            raise exchange.unreachable(error) from error

    async def _cancel(self, exchange: Exchange) -> None:
        """As ``blocking._cancel``; begun before anything is awaited: a second Ctrl-C ends the loop."""
        exchange.close()
        if not exchange.request:
            return
        loop, said = asyncio.get_running_loop(), asyncio.Event()

        def on_said() -> None:
            with suppress(RuntimeError):  # the loop was closed: nobody waits there any more
                loop.call_soon_threadsafe(said.set)

        cancellation = Cancellation(exchange, self._path, LoopPoller(), on_said)
        try:
            await to_its_end(self._hear_out(exchange, cancellation, said), may_hang=True)
        finally:
            cancellation.leave()

    async def _hear_out(self, exchange: Exchange, cancellation: Cancellation, said: asyncio.Event) -> None:
        with suppress(ShellSessionError):
            await said.wait()
            cancellation.until_said()
            while not cancellation.exchange.done:
                self._ended(exchange.note(await self._next(cancellation.exchange)))

    async def ask(self, said: Said, on_output: OnOutput | None = None) -> Message:
        """One request and its reply; its output is given to ``on_output`` as it comes."""
        async with aclosing(await self._asked(said)) as messages:
            async for message in messages:
                if message.header.get("event") == "output" and on_output is not None:
                    task = asyncio.current_task()
                    taken = self._hear(task, on_output, message)
                    if isinstance(taken, Awaitable):
                        self._hearing.add(task)
                        try:
                            await taken
                        finally:
                            self._hearing.discard(task)
                elif message.header.get("event") == "waits" and self.on_wait is not None:
                    self.on_wait(message)
        return message

    async def _asked(self, said: Said) -> AsyncGenerator[Message]:
        self._check_caller(asyncio.current_task())
        self._check_open()
        if not self._incarnation:
            await self.connect()
        return self._exchange(said, self._incarnation)

    def _ask_now(self, said: Said) -> Message:
        """Without a coroutine: a property is asked while the loop stands still (0.2 ms)."""
        twin = RemoteSession(self.agent, self._path, False, self._opening)
        twin._incarnation, twin._handed, twin._closed = self._incarnation, self._handed, self._closed
        try:
            return twin.ask(said)
        finally:  # what it has learned of the session and its daemon is ours to know
            self._incarnation, self._handed, self._closed = twin._incarnation, twin._handed, twin._closed
            twin.disconnect()

    # -- the verbs, as Session has them

    async def open(self) -> Self:
        """Start bash now. Raises ShellUnavailable."""
        await self.ask(self._said("start"))
        return self

    async def _run(self, asked: Asked) -> Result:
        return self._ran(await self.ask(*asked), asked[1])

    async def _follow(self, said: Said, followed: Followed) -> AsyncGenerator[tuple[Stream, bytes] | Result]:
        followed.now = True
        try:
            async with aclosing(await self._asked(said)) as messages:
                async for message in messages:
                    if message.header.get("event") == "output":
                        yield message.header["stream"], message.parts[0]
        finally:
            followed.now = False
        yield self._ran(message)  # out here: nobody is at the output of a command that has ended

    async def wait(self, timeout: Seconds = ...) -> Result:
        """Stay with a command that was handed back running: until it ends, waits for input, or seconds pass."""
        return self._told(await self.ask(self._until("wait", timeout), self._on_output))

    async def poll(self) -> Result:
        """What the running command printed since the last time, without waiting."""
        return self._told(await self.ask(self._of_command("poll")))

    async def send(self, text: Text, timeout: Seconds = ...) -> Result:
        """Type into the running command's terminal (Enter is \"\\n\"), then stay with it as ``wait`` does."""
        return self._told(await self.ask(self._until("send", timeout, to_bytes("text", text)), self._on_output))

    async def type(self, text: Text) -> None:
        """Type into the running command's terminal, and do not wait for what it does: for use with ``expect``."""
        await self.ask(self._of_command("type", to_bytes("text", text)))

    async def interrupt(self) -> Result:
        """End the running command, whoever started it, as a time limit does, and keep the shell."""
        return self._told(await self.ask(self._said("interrupt")))

    async def _interrupt(self, command: str) -> Result:
        """End that very command, or tell how it ended, whatever runs now. Raises NotRunning."""
        return self._told(await self.ask(self._said("interrupt", command=command)))

    async def _expect(self, pattern: Any, timeout: Seconds, exact: bool) -> int:
        search = self._search(pattern, timeout, exact)
        message: Message | None = None
        while (index := search.step(message)) is None:
            message = await self.ask(search.request())
        return index

    async def restart(self) -> None:
        """A fresh bash: first cwd and environment, startup commands run again. Ends what anybody else runs here."""
        await self.ask(self._said("restart"))
        self._handed = ""

    async def close(self) -> None:
        """End the agent's session and everything it started, for every client; a second time does nothing."""
        if not self._closed:
            with self._closing():
                await self.ask(self._said("close"))
        self.disconnect()
