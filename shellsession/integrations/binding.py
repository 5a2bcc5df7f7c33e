"""Binds tools to a session or to ``Agents``, for threads or for asyncio, in this process or in the daemon.

The tools of all SDKs await their session (``AwaitedSession``). A ``Session`` for threads does its work in threads
(``ThreadedSession``). An SDK that calls its tools without awaiting them is served by ``run_to_end``.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, Unpack

from ..contracts import cancel
from ..contracts.cancel import CancelToken, in_own_thread
from ..daemon.client.async_session import AsyncRemoteSession
from ..daemon.client.session import RemoteSession
from ..engine.io.loop import to_its_end
from ..errors import IN_CALLBACK, InvalidRequest, NotRunning, SessionBusy, ShellSessionError
from ..inner import Inner
from ..models import Result, State, command_bytes
from ..notices import Notice
from ..paging import Query, Read
from ..session import Session
from ..signatures import Command, RunOptions
from .threads import until_ended

if TYPE_CHECKING:
    from ..branch.changes import Change
    from ..branch.checkpoint import Checkpoint
    from ..branch.files import BranchFiles
    from ..policy.rules import Policy
    from ..state.values import Restored

T = TypeVar("T")
_KINDS: Final = "a Session, an AsyncSession, what connect() or aconnect() returns, or Agents with agent=NAME"


class AwaitedFiles(Protocol):
    """What tools need of a session's branch."""

    async def diff(self, since: str, *, patch: bool) -> tuple[Change, ...] | bytes: ...


class AwaitedSession(Inner, Protocol):
    """The interface that tools need. Cancelling the task that runs or waits for a command ends the command."""

    @property
    def closed(self) -> bool: ...
    @property
    def state(self) -> State: ...
    @property
    def cwd(self) -> str: ...
    @property
    def policy(self) -> Policy | None: ...
    @property
    def jobs(self) -> Callable[..., Sequence[Any]]: ...
    @property
    def run(self) -> Callable[..., Awaitable[Result]]: ...
    @property
    def wait(self) -> Callable[..., Awaitable[Result]]: ...
    @property
    def send(self) -> Callable[..., Awaitable[Result]]: ...
    @property
    def events(self) -> Callable[..., AsyncGenerator[Notice]]: ...
    def interrupt(self) -> Awaitable[Result]: ...
    def restart(self) -> Awaitable[object]: ...
    @property
    def checkpoint(self) -> Callable[[str], Awaitable[Checkpoint]]: ...
    @property
    def rollback(self) -> Callable[[str], Awaitable[Restored]]: ...
    @property
    def branch(self) -> AwaitedFiles: ...


# Makes or finds the next session when one was closed.
Reopen = Callable[[], Awaitable[AwaitedSession]]


def awaited_session(where: Any, agent: object = None) -> tuple[AwaitedSession, Reopen | None]:
    """Return the session that tools use, and a function that finds the agent's next one if it is closed.

    ``where``: a session of any kind, or ``Agents`` or ``AsyncAgents`` with the agent's name. Raises InvalidRequest.
    """
    if callable(find := getattr(where, "session", None)):  # of Agents
        if agent is None:
            raise InvalidRequest("these tools use one agent's session: pass its name, as in tools(agents, agent='a1')")

        async def reopen() -> AwaitedSession:
            return _awaited(find(agent))

        return _awaited(find(agent)), reopen
    if agent is not None:
        raise InvalidRequest(f"agent= names a session of Agents, but {where!r:.100} is a session itself: leave it out")
    return _awaited(where), None


def _awaited(session: Any) -> AwaitedSession:
    awaited: Any = session
    if isinstance(session, RemoteSession):
        awaited = AsyncRemoteSession.like(session)
    elif isinstance(session, Session):
        awaited = ThreadedSession(session)
    if not iscoroutinefunction(getattr(awaited, "run", None)):
        raise InvalidRequest(f"tools are made for {_KINDS}, not {session!r:.100}")
    return awaited  # type: ignore[no-any-return]


class ThreadedSession:
    """A ``Session`` with the interface of an ``AsyncSession``. Each verb that waits runs in its own thread."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)  # a method that does not wait

    async def run(self, command: Command, **options: Unpack[RunOptions]) -> Result:
        token = CancelToken()
        work = in_own_thread(cancel.run, self._session, command_bytes(command), options, token)
        return await until_ended(work, token.cancel)

    async def wait(self, timeout: float, **options: Any) -> Result:
        return await self._follow(partial(self._session.wait, **options), timeout)

    async def send(self, text: str, timeout: float, keys: Sequence[str] = ()) -> Result:
        return await self._follow(partial(self._session.send, keys=keys), text, timeout)

    async def _follow(self, verb: Callable[..., Result], *arguments: Any) -> Result:
        handed = self.handed_back

        def end() -> None:
            threading.Thread(target=self._end, args=(handed,), daemon=True).start()

        return await until_ended(in_own_thread(verb, *arguments), end)

    def _end(self, handed: Any) -> None:
        with suppress(ShellSessionError):
            self._session.interrupt_command(handed)

    async def read_page(self, query: Query, read: Read) -> Any:
        return await to_its_end(in_own_thread(self._session.read_page, query, read))

    async def interrupt(self) -> Result:
        return await to_its_end(in_own_thread(self._session.interrupt))

    async def interrupt_command(self, command: Any) -> Result:
        if self.handed_back is not command:
            raise NotRunning("there is no running command to interrupt: the one that was handed back has ended")
        return await to_its_end(in_own_thread(self._session.interrupt_command, command))

    async def restart(self) -> None:
        await to_its_end(in_own_thread(self._session.restart))

    async def checkpoint(self, name: str) -> Checkpoint:
        return await to_its_end(in_own_thread(self._session.checkpoint, name))

    async def rollback(self, checkpoint: str) -> Restored:
        return await to_its_end(in_own_thread(self._session.rollback, checkpoint))

    @property
    def branch(self) -> _ThreadedFiles:
        return _ThreadedFiles(self._session.branch)

    async def events(self, **options: Any) -> AsyncGenerator[Notice]:
        events = self._session.events(**options)
        while (notice := await to_its_end(in_own_thread(next, events, None))) is not None:
            yield notice


class _ThreadedFiles:
    """The branch of a ``ThreadedSession``."""

    def __init__(self, files: BranchFiles) -> None:
        self._files = files

    async def diff(self, since: str, *, patch: bool) -> tuple[Change, ...] | bytes:
        return await to_its_end(in_own_thread(partial(self._files.diff, since, patch=patch)))


_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def _forget_loop() -> None:
    """Reset in a forked child, which does not have the loop's thread."""
    global _lock, _loop
    _lock, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_loop)


def _own_loop() -> asyncio.AbstractEventLoop:
    """The loop for callers that do not await. It runs in its own thread until the process ends."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="shellsession-tools", daemon=True).start()
        return _loop


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine for a caller that does not await, and return its result.

    Ctrl-C cancels it, and is raised once it has ended.
    """
    loop, ended, tasks = _own_loop(), threading.Event(), list[asyncio.Task[T]]()
    if asyncio._get_running_loop() is loop:  # it would wait for itself
        work.close()
        raise SessionBusy(IN_CALLBACK)

    def begin() -> None:
        tasks.append(task := loop.create_task(work))
        task.add_done_callback(lambda _: ended.set())

    loop.call_soon_threadsafe(begin)
    try:
        ended.wait()
    except BaseException:
        loop.call_soon_threadsafe(lambda: tasks[0].cancel())
        ended.wait()
        raise
    return tasks[0].result()
