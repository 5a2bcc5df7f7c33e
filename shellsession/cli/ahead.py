"""Keys that were typed before readline could read them, in the queue of a terminal that is ours alone.

Law: readline reads them as it reads any, from fd 0, and each once: what it leaves is given back. (TIOCSTI, which would
put them into the queue of the person's own terminal, is refused by kernels from 6.2 on.)
"""

from __future__ import annotations

import os
import termios
from contextlib import suppress
from typing import Any, Final

from ..engine.streams import open_terminal
from ..engine.waiting import Poller, Wait

_IN: Final = 0
# What is pasted has these around it; readline waits for the second, and hears of nothing else meanwhile.
_PASTED, _PASTED_END = b"\x1b[200~", b"\x1b[201~"


class Ahead:
    """The queue: ``fd`` is to be fd 0 for who reads it."""

    def __init__(self, keys: bytes, modes: list[Any]) -> None:
        if keys.rfind(_PASTED) > keys.rfind(_PASTED_END):
            keys += _PASTED_END
        self._rest = keys
        self._keyboard = os.dup(_IN)
        self._ours, self.fd = open_terminal(os.get_terminal_size(_IN))
        os.set_blocking(self._ours, False)
        termios.tcsetattr(self.fd, termios.TCSANOW, modes)
        self._fill()

    def _fill(self) -> None:
        with suppress(BlockingIOError):
            while self._rest:
                self._rest = self._rest[os.write(self._ours, self._rest) :]

    def is_read(self, poller: Poller) -> bool:
        """Is nothing left in it? (poll(2) waits for what is on its way from the one end to the other.)"""
        if poller.wait(Wait((self.fd,), 0)):
            return False
        left = self._rest
        self._fill()
        return not left

    def close(self) -> bytes:
        """The keyboard is fd 0 again; what was not read."""
        os.dup2(self._keyboard, _IN)
        os.set_blocking(self.fd, False)
        left = b""
        with suppress(BlockingIOError):
            while data := os.read(self.fd, 4096):
                left += data
        for fd in (self._keyboard, self._ours, self.fd):
            os.close(fd)
        return left + self._rest
