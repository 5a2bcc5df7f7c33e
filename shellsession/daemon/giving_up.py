"""How the daemon is told to end what a request asked for, whose caller leaves it (Ctrl-C, a cancelled task).

Law: it is told by a thread, which no second Ctrl-C strikes and no end of a loop cancels. Who leaves awaits only the
answer, and may leave that, too: a cancellation is never cancelled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..engine.signals import undisturbed
from ..engine.waiting import Poller, drive
from .autostart import find
from .exchange import Exchange

if TYPE_CHECKING:
    from ..engine.loop_waiting import LoopPoller

# How long who leaves the answer, too, waits until it was said, in seconds: 0.3 ms, where the daemon is not stopped.
_AT_MOST: Final = 1.0


class Cancellation:
    """The end of a request, on its way to the daemon; then ``exchange`` is its caller's, who awaits the answer."""

    def __init__(
        self, exchange: Exchange, path: str, poller: Poller | LoopPoller, on_said: Callable[[], None] = lambda: None
    ) -> None:
        self.exchange = exchange.cancellation()
        self._path, self._poller, self._on_said = path, poller, on_said
        self._fault: BaseException | None = None
        self._said = threading.Event()
        self._lock, self._is_left = threading.Lock(), False
        try:
            with undisturbed():
                threading.Thread(target=self._say, name="shellsession-giving-up", daemon=True).start()
        except RuntimeError:  # no more threads, or the interpreter ends
            self._say()
        exchange.cancelled = True

    def _say(self) -> None:
        exchange = self.exchange
        try:
            while not exchange.sent:
                if exchange.wire is None:
                    exchange.use(find(self._path, False), self._poller)
                drive(exchange.say())
        except BaseException as error:
            self._fault = error
        with self._lock:
            self._said.set()
            if self._is_left:
                exchange.close()
        self._on_said()

    def until_said(self) -> None:
        """Wait until it was said. Raises why it could not be, as a request does."""
        self._said.wait()
        if self._fault is not None:
            raise self._fault

    def leave(self) -> None:
        """Nobody waits for its answer any more."""
        with self._lock:
            self._is_left = True
            if self._said.is_set():
                self.exchange.close()
        self._said.wait(_AT_MOST)
