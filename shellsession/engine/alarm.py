"""Something to be done later: in a thread of its own, or on the asyncio loop.

Law: one alarm rings once, and holds nobody alive while it waits. In a forked child none is set.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


class Alarm:
    """Calls back once, in a thread of its own. Setting one that is set already does nothing."""

    def __init__(self) -> None:
        # Of this process, by its id. No lock: a forked child would find it taken; setdefault lets only one thread in.
        self._timers: dict[int, threading.Timer] = {}
        self._ringing: threading.Thread | None = None  # which does what it rang for last

    @property
    def is_set(self) -> bool:
        return os.getpid() in self._timers

    def set(self, seconds: float, ring: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, self._ring, (ring,))
        timer.name = "shellsession-alarm"
        if self._timers.setdefault(os.getpid(), timer) is timer:  # known first: it may ring at once
            try:
                timer.daemon = True  # nobody's exit waits for it; refused in a subinterpreter
                timer.start()
            except RuntimeError:  # no more threads, or the interpreter ends: whoever comes next sets it
                self._forget(timer)

    def _ring(self, ring: Callable[[], object]) -> None:
        self._ringing = me = threading.current_thread()
        self._forget(me)
        ring()

    def _forget(self, timer: threading.Thread) -> None:
        if self._timers.get(os.getpid()) is timer:  # else it was cancelled as it rang, and another set since
            del self._timers[os.getpid()]

    def finish(self) -> None:
        """Wait until what it rang for is done."""
        thread = self._ringing
        if thread is not None and thread is not threading.current_thread():
            thread.join()  # at once in a forked child, where no other thread is

    def cancel(self) -> None:
        timer = self._timers.pop(os.getpid(), None)
        if timer is not None:
            timer.cancel()


class LoopAlarm:
    """As ``Alarm``, for a coroutine on the running loop; outside of a loop setting it does nothing."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None  # asyncio itself holds its tasks weakly
        self._process = 0  # that runs the loop

    @property
    def is_set(self) -> bool:
        mine = self._handle is not None and self._process == os.getpid()
        return mine and self._loop is not None and self._loop.is_running()

    def set(self, seconds: float, ring: Callable[[], Coroutine[Any, Any, object]]) -> None:
        import asyncio

        with suppress(RuntimeError):  # no loop runs here
            loop = asyncio.get_running_loop()
            if not self.is_set:
                self._process = os.getpid()
                self._loop, self._handle = loop, loop.call_later(seconds, self._ring, loop, ring)

    def _ring(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._handle = None
        self._task = loop.create_task(ring())

    async def finish(self) -> None:
        """Wait until what it rang for in this loop is done."""
        import asyncio

        task = self._task
        if task is not None and task is not asyncio.current_task() and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([task])

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
