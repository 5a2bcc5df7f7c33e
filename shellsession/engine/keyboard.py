"""A terminal as a command's stdin: what a person's keyboard does, and what is left of it afterwards.

Law: a command finds it in ordinary cooked mode, and between two commands it is raw, with nothing typed in it.
"""

from __future__ import annotations

import os
import select
import termios
from contextlib import suppress
from typing import Final

from ..errors import LimitReached
from .signals import undisturbed
from .streams import SMALL, Stream, get_modes, slave_path

# That Backspace takes a character, and not the last byte of one (asm-generic/termbits.h); Python does not name it.
_IUTF8: Final = 0x4000
# How soon who types into a full terminal tries again, in seconds.
FULL_PAUSE: Final = 0.003


class Keyboard:
    """The writing side of the session's terminal."""

    def __init__(self, terminal: Stream) -> None:
        self._terminal = terminal
        self._keeper = -1  # a slave descriptor, from the first command that gets the terminal

    def cook(self, echo: bool) -> bytes:
        """Ctrl-C, Ctrl-D and CR as everybody knows them; output stays as it is written. The modes set.

        Raises LimitReached, before anything has changed.
        """
        fd = self._terminal.fd
        if self._keeper < 0:
            with undisturbed():
                self._keeper = _open_keeper(fd)
        self._terminal.settle()
        modes = termios.tcgetattr(fd)
        modes[0] |= termios.ICRNL | _IUTF8
        modes[3] |= termios.ICANON | termios.ISIG | termios.IEXTEN | termios.ECHOE | termios.ECHOK
        modes[3] |= termios.ECHO if echo else 0
        termios.tcsetattr(fd, termios.TCSANOW, modes)
        return self.modes()

    def modes(self) -> bytes:
        """Those of this moment."""
        return get_modes(self._terminal.fd)

    def type(self, data: bytes) -> int:
        """Write to the terminal as a keyboard does; the number of bytes it took, 0 when it is full."""
        try:
            return os.write(self._terminal.fd, data)
        except BlockingIOError:
            return 0

    def has_input(self) -> bool:
        """Is something typed that nobody has read yet?"""
        poll = select.poll()
        poll.register(self._keeper, select.POLLIN)
        return bool(poll.poll(0))

    def reset(self) -> bytes:
        """Raw again; what was typed for a command that has ended is not for the next, and is given back."""
        self._terminal.settle()
        if self._keeper < 0:  # no command has had it
            return b""
        unread = b""
        with suppress(OSError):  # there is nothing; raw, all of it can be read, also without the end of a line
            unread = os.read(self._keeper, SMALL)
        with suppress(termios.error):  # it was hung up
            termios.tcflush(self._keeper, termios.TCIFLUSH)
        return unread

    def close(self) -> None:
        keeper, self._keeper = self._keeper, -1
        if keeper >= 0:
            os.close(keeper)


def _open_keeper(fd: int) -> int:
    try:
        return os.open(slave_path(fd), os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise LimitReached(
            f"the terminal could not be had for the command, which was not run: {error};"
            " close sessions or files, or raise the limit"
        ) from error
