"""A timer in its own thread; ``loop`` has the counterpart for asyncio."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


class Alarm:
    """A timer that calls back once, in its own thread. ``set`` does nothing while one is set."""

    def __init__(self) -> None:
        # By process id, as a forked child has no timer. No lock, as a forked child might find it locked: setdefault
        # lets only one thread win.
        self._timers: dict[int, threading.Timer] = {}
        self._running: threading.Thread | None = None  # the thread of the last callback

    @property
    def is_set(self) -> bool:
        return os.getpid() in self._timers

    def set(self, seconds: float, callback: Callable[[], object]) -> None:
        """Call back after this many seconds, unless the alarm is set already."""
        timer = threading.Timer(seconds, self._run, (callback,))
        timer.name = "shellsession-alarm"
        if self._timers.setdefault(os.getpid(), timer) is timer:  # stored before the start: it may expire at once
            try:
                timer.daemon = True  # the host's exit does not wait for it; refused in a subinterpreter
                timer.start()
            except RuntimeError:  # no more threads, or the interpreter ends: the next call sets it again
                self._forget(timer)

    def _run(self, callback: Callable[[], object]) -> None:
        self._running = thread = threading.current_thread()
        self._forget(thread)
        callback()

    def _forget(self, timer: threading.Thread) -> None:
        if self._timers.get(os.getpid()) is timer:  # else it was cancelled as it expired, and another one set
            del self._timers[os.getpid()]

    def finish(self) -> None:
        """Wait for the end of a callback that runs."""
        thread = self._running
        if thread is not None and thread is not threading.current_thread():
            thread.join()  # returns at once in a forked child, which has no other thread

    def cancel(self) -> None:
        timer = self._timers.pop(os.getpid(), None)
        if timer is not None:
            timer.cancel()
