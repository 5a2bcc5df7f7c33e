"""The person's own terminal: its modes, its keys, and what is shown on it.

It is given back as it was found, however the program ends.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final, NoReturn, Self

from ..engine.io.threads import Poller, Wait
from ..errors import InvalidRequest

STDIN: Final = 0
_STDOUT: Final = 1
CTRL_C: Final = b"\x03"
CTRL_D: Final = b"\x04"
LEAVE: Final = b"\x1d"  # Ctrl-], as in telnet
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
# Sequences that do not move the cursor: colours, titles, modes (ECMA-48, 5.4 and 5.6; and those of xterm).
ESCAPE: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
# Modes that programs switch (DECSET): another screen, the mouse, a hidden cursor. The last two are on by default.
_PRIVATE_MODES: Final = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
_USUALLY_ON: Final = {b"25", b"7"}


class Terminal:
    """The terminal on stdin and stdout, ours within a ``with`` block. Raises InvalidRequest where there is none.

    In the block SIGTERM and SIGHUP raise SystemExit; behind it they do nothing, as the program ends.
    """

    def __init__(self) -> None:
        if not (os.isatty(STDIN) and os.isatty(_STDOUT)):
            raise InvalidRequest(
                "attach is for a person at a terminal, and stdin or stdout is none: programs use `shellsession run`"
            )
        self._found = termios.tcgetattr(STDIN)
        self._poller = Poller()
        self._tail = b""  # the last bytes shown: where is the cursor?
        self._switched: set[bytes] = set()  # private modes that programs have switched
        self._dim = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"

    def __enter__(self) -> Self:
        for fd in (STDIN, _STDOUT):  # another program may have left it otherwise
            os.set_blocking(fd, True)
        for number in _SIGNALS:
            signal.signal(number, _end)
        return self

    def __exit__(self, *_: object) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        with suppress(OSError):  # the terminal is gone
            self.reset_screen()
            self.begin_line()
        self._set(self._found)

    # -- input

    def raw_mode(self) -> None:
        """Pass every key on as it is, also those that make signals."""
        modes = self._changed(off=termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        modes[0] &= ~(termios.IXON | termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.BRKINT)
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        self._set(modes)

    def line_mode(self) -> None:
        """Have the kernel edit and echo lines. Ctrl-C and Ctrl-] end a line as Enter does, and are its last byte."""
        modes = self._changed(off=termios.ISIG, on=termios.ICANON | termios.ECHO | termios.ECHOE | termios.IEXTEN)
        modes[0] |= termios.ICRNL
        modes[6][termios.VEOL], modes[6][termios.VEOL2], modes[6][termios.VEOF] = LEAVE, CTRL_C, CTRL_D
        self._set(modes)

    def _changed(self, off: int, on: int = 0) -> list[Any]:
        """The modes of the beginning, with these local flags changed."""
        iflag, oflag, cflag, lflag, ispeed, ospeed, characters = self._found
        oflag |= termios.OPOST | termios.ONLCR
        return [iflag, oflag, cflag, lflag & ~off | on, ispeed, ospeed, [*characters]]

    def _set(self, modes: list[Any]) -> None:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(STDIN, termios.TCSANOW, modes)  # keeps what is typed already

    def read(self) -> bytes:
        """The keys that were typed, or in line mode a line; b"" at its end."""
        try:
            return os.read(STDIN, 4096)
        except OSError:
            return b""

    def wait(self, *fds: int, seconds: float | None = None) -> Collection[int]:
        """Those of the descriptors that can be read, of stdin too; none after so many seconds."""
        until = None if seconds is None else time.monotonic() + seconds
        return self._poller.wait(Wait((STDIN, *fds), until))

    # -- output

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows; a terminal that does not know them (a serial line) has 80 and 24."""
        columns, rows = os.get_terminal_size(_STDOUT)
        return columns or 80, rows or 24

    def show(self, data: bytes) -> None:
        """Write output to the terminal, as it is."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(_STDOUT, rest) :]
        for numbers, switch in _PRIVATE_MODES.findall(self._tail[-16:] + data):  # one may have come in two pieces
            for number in numbers.split(b";"):
                usual = b"h" if number in _USUALLY_ON else b"l"
                (self._switched.discard if switch == usual else self._switched.add)(number)
        self._tail = (self._tail + data)[-256:]

    def say(self, text: str) -> None:
        """Show a line of our own, dim where colour is wanted."""
        self.begin_line()
        self.show(encoded(f"\x1b[2m{text}\x1b[m" if self._dim else text) + b"\n")

    def begin_line(self) -> None:
        """Go to the next line, unless the cursor is at the start of one."""
        if (line := ESCAPE.sub(b"", self._tail)) and not line.endswith((b"\n", b"\r")):
            self.show(b"\n")

    def note_shown(self, data: bytes) -> None:
        """Note what somebody else has shown: the kernel's echo, or an editor."""
        self._tail = data[-256:]

    def reset_screen(self) -> None:
        """Undo what a program has switched that did not end by itself."""
        for mode in sorted(self._switched):
            self.show(b"\x1b[?%b%b" % (mode, b"h" if mode in _USUALLY_ON else b"l"))
        self.show(b"\x1b[m" if b"\x1b" in self._tail else b"")


def encoded(text: str) -> bytes:
    """Words of ours as the terminal can show them: what is no character there becomes ``\\u65e5``."""
    return text.encode(sys.stdout.encoding, "backslashreplace")


def _end(number: int, _: object) -> NoReturn:
    for other in _SIGNALS:  # once is enough, also while the terminal is given back
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)
