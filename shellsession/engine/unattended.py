"""Who reads a command that was handed back running while nobody calls, so that it does not stand still.

Law: during a verb its streams are the verb's, between two verbs they are the reader's; never both.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial

from ..models import Stream as StreamName
from . import pump
from .call import Call
from .jobs import Reader
from .streams import Stream


class UnattendedReader:
    """Has one command's streams read into it, from ``read_on`` until ``stop``."""

    def __init__(self, call: Call, terminal: Stream, reader: Reader) -> None:
        self._call, self._terminal, self._reader = call, terminal, reader
        self._lock = threading.RLock()  # reentrant: see draining.Drainer
        self.stopped = False
        self.thread = 0  # in whose callback it is just now: that one cannot use the session
        self._reads = [(stream.fd, partial(self._read, name, stream)) for name, stream in call.streams]

    def read_on(self) -> None:
        """Have the streams read (again, after the call was paused)."""
        calls_back = self._call.request.on_output is not None
        for fd, read in self._reads:
            self._reader.add(fd, read, calls_back)

    def _read(self, name: StreamName, stream: Stream) -> bool:
        with self._lock:
            if self.stopped or self._call.paused:
                return False
            data = stream.read()
            if data:
                self.thread = threading.get_ident()
                try:
                    pump.deliver(self._call, name, stream is self._terminal, data, time.monotonic())
                except BaseException as error:  # a faulty callback: told by the next verb, in the caller's own thread
                    self._call.mute()
                    self._call.fault = error
                finally:
                    self.thread = 0
            return data != b""

    def stop(self, until: float | None = None) -> bool:
        """Read no more: then no other thread is at the streams. False: its callback had not returned by that moment."""
        left = -1 if until is None else min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)
        try:  # no `with`: that has no limit
            if not self._lock.acquire(timeout=left):
                return False
            self.stopped = True
        finally:
            with suppress(RuntimeError):  # it does not have it
                self._lock.release()
        self.abandon()
        return True

    def abandon(self) -> None:
        """Read no more, though its callback may never return: what that was given was the last."""
        self.stopped = True
        for fd, read in self._reads:
            self._reader.remove(fd, read)
