"""The output of an AsyncSession's command as it comes: by an iterator, or a callback that may be awaited.

Law: who takes output slowly slows the command down; nothing piles up, and nothing waits for who has left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from .engine.loop_waiting import ends_by
from .models import OnOutput, Result, Stream

if TYPE_CHECKING:
    import asyncio

    from .engine.call import Call
    from .engine.steps import Engine

# A loop that ends when an iterator was left has ended by then, in seconds, also on a busy machine.
_LOOP_PATIENCE: Final = 0.5


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


def in_a_while(begin: Callable[[], Coroutine[Any, Any, object]], is_left: Callable[[], bool]) -> None:
    """End what was left, unless that has ended by then, or its loop has: then who uses the session next does it.

    Asyncio closes an iterator in a task that no end of a loop waits for. Begun there, and cut off, it cost the shell.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    loop.call_later(_LOOP_PATIENCE, lambda: loop.create_task(begin()) if is_left() else None)


class Outlet:
    """An ``on_output`` that may be a coroutine function. While it is awaited nothing more is read: who takes the output
    slowly slows the command down, and nothing piles up."""

    def __init__(self, take: OnOutput, engine: Engine) -> None:
        self._take, self._engine = take, engine
        self._pieces: deque[Awaitable[object]] = deque()
        self._task: asyncio.Task[None] | None = None
        self.call: Call | None = None  # of whose output it awaits, once there is any

    def __call__(self, stream: Stream, data: bytes) -> None:
        came = self._take(stream, data)
        if isinstance(came, Awaitable):
            self._pieces.append(came)
            self.call = call = self._engine.last
            if call is not None and (self._task is None or self._task.done()):
                import asyncio

                self._engine.pause(call)
                self._task = asyncio.get_running_loop().create_task(self._work(call))

    async def _work(self, call: Call) -> None:
        import asyncio

        # Its own to tell: an eager task (asyncio.eager_task_factory) may run to its end before who makes it knows it.
        me = asyncio.current_task()
        self._engine.callback_tasks.add(me)
        fault: BaseException | None = None
        try:
            while self._pieces:
                await self._pieces.popleft()
        except BaseException as error:
            call.mute()
            # Who was cancelled has heard so: another task that is at the command later was not.
            fault = None if isinstance(error, asyncio.CancelledError) else error
            while self._pieces:
                _discard(self._pieces.popleft())
        self._engine.callback_tasks.discard(me)
        self._engine.go_on(call, fault)

    @property
    def is_at_work(self) -> bool:
        """Does it await the callback just now? One of a loop that was stopped does for ever."""
        import asyncio

        task = self._task
        return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()

    async def finish(self, until: float | None = None) -> bool:
        """The command has come back: everything it printed is to be taken, too. Was it, by that moment?

        Raises what the callback raised.
        """
        if self._task is not None and self.is_at_work and not await ends_by(self._task, until):
            return False
        if self.call is not None:
            self.call.raise_fault()
        return True

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _discard(piece: Awaitable[object]) -> None:
    if isinstance(piece, Coroutine):
        piece.close()
