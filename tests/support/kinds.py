"""Sessions of every kind, each with the interface of ``Session``."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from shellsession import AsyncJob, AsyncSession, Session, aconnect, connect
from shellsession.signatures import AsyncOutput

# The program behind ``via``, as it is named on a machine where PATH does not have it.
BRIDGE = str(Path(sys.executable).with_name("shellsession"))


class Blocking:
    """An AsyncSession with the interface of ``Session``. Its coroutines run on a loop of their own."""

    def __init__(self, session: AsyncSession, loop: asyncio.AbstractEventLoop) -> None:
        self._session, self._loop = session, loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._session, name)
        if name == "jobs":
            return lambda *given, **named: [BlockingJob(job, self._loop) for job in value(*given, **named)]
        if not callable(value) or name == "resize":
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            made = value(*arguments, **options)
            return self._wait(made) if inspect.isawaitable(made) else self._iterate(made)

        return call

    def _wait(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(cast(Coroutine[Any, Any, Any], awaitable), self._loop).result()

    def _iterate(self, items: AsyncOutput) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._wait(anext(items))
                except StopAsyncIteration:
                    return
        finally:
            self._wait(items.aclose())


class BlockingJob:
    """An AsyncJob with the interface of ``Job``."""

    def __init__(self, job: AsyncJob, loop: asyncio.AbstractEventLoop) -> None:
        self._job, self._loop = job, loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._job, name)
        if not callable(value):
            return value

        async def call(*arguments: Any, **options: Any) -> Any:
            made = value(*arguments, **options)
            return await made if inspect.isawaitable(made) else made

        return lambda *given, **named: asyncio.run_coroutine_threadsafe(call(*given, **named), self._loop).result()


@contextmanager
def in_a_loop(make: Callable[[], Any]) -> Iterator[Session]:
    """An asyncio session with the interface of ``Session``. ``make`` is called in its loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def made() -> Any:
        session = make()
        return await session if inspect.isawaitable(session) else session

    try:
        blocking = Blocking(asyncio.run_coroutine_threadsafe(made(), loop).result(), loop)
        yield cast(Session, blocking)
        blocking.close()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(params=["sync", "async", "remote", "async remote", "via"])
def sh(request: pytest.FixtureRequest, place: Path) -> Iterator[Session]:
    """A session of each kind, with the ``OPTIONS`` of the test's module."""
    options: dict[str, Any] = {"cwd": place, "timeout": 20, **getattr(request.module, "OPTIONS", {})}
    if request.param == "sync":
        with Session(**options) as session:
            yield session
    elif request.param == "async":
        with in_a_loop(lambda: AsyncSession(**options)) as session:
            yield session
    else:
        socket = request.getfixturevalue("daemon").socket
        agent = request.node.name
        if request.param == "via":
            options.update(via=["env"], remote=BRIDGE)
        if request.param in ("remote", "via"):
            with connect(agent, socket, False, **options) as remote:
                yield cast(Session, remote)
                remote.close()
        else:
            with in_a_loop(lambda: aconnect(agent, socket, False, **options)) as session:
                yield session
