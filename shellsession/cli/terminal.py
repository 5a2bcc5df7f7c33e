"""The terminal of the person who attaches: its modes, its keys, and its screen.

The terminal is restored to its first state, however the program ends.
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
from .arguments import escaped

STDIN: Final = 0
_STDOUT: Final = 1
CTRL_C: Final = b"\x03"
CTRL_D: Final = b"\x04"
LEAVE: Final = b"\x1d"  # Ctrl-], as in telnet
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_ENDING_MAX: Final = 5.0  # seconds to restore the terminal after a signal
# Escape sequences: colours, titles, modes (ECMA-48, 5.4 and 5.6; and those of xterm). Taken not to move the cursor.
ESCAPE: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
# Modes that programs switch (DECSET), such as the alternate screen. Those in _USUALLY_ON are on by default.
_PRIVATE_MODES: Final = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
_USUALLY_ON: Final = {b"25", b"7"}

_LINES_ASKED: Final = 40  # of a command that a person is asked about: more would scroll the first ones away


class UserTerminal:
    """The terminal on stdin and stdout, as a context manager. Raises InvalidRequest if there is none.

    In the block, SIGTERM and SIGHUP raise SystemExit. If the program has not ended soon after that, SIGALRM kills it.
    """

    def __init__(self) -> None:
        if not (os.isatty(STDIN) and os.isatty(_STDOUT)):
            raise InvalidRequest(
                "attach is for a person, but stdin or stdout is not a terminal: for programs, use `shellsession run`"
            )
        self._found = termios.tcgetattr(STDIN)
        self._poller = Poller()
        self._tail = b""  # the last bytes shown, which tell whether the cursor is at the start of a line
        self._switched: set[bytes] = set()  # private modes that programs have switched
        self._dim = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"

    def __enter__(self) -> Self:
        for fd in (STDIN, _STDOUT):  # another program may have made them non-blocking
            os.set_blocking(fd, True)
        self._handlers = [signal.signal(number, _end) for number in _SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        with suppress(OSError):  # the terminal is gone
            self.reset_screen()
            self.begin_line()
        self._set(self._found)
        for number, handler in zip(_SIGNALS, self._handlers, strict=True):
            signal.signal(number, handler)

    # -- input

    def raw_mode(self) -> None:
        """Deliver every key unchanged, including those that normally send signals."""
        modes = self._changed(off=termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        modes[0] &= ~(termios.IXON | termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.BRKINT)
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        self._set(modes)

    def line_mode(self) -> None:
        """Let the kernel edit and echo lines. Ctrl-C and Ctrl-] end a line as Enter does, and are its last byte."""
        modes = self._changed(off=termios.ISIG, on=termios.ICANON | termios.ECHO | termios.ECHOE | termios.IEXTEN)
        modes[0] |= termios.ICRNL
        modes[6][termios.VEOL], modes[6][termios.VEOL2], modes[6][termios.VEOF] = LEAVE, CTRL_C, CTRL_D
        self._set(modes)

    def _changed(self, off: int, on: int = 0) -> list[Any]:
        """The terminal's first modes, with these local flags changed."""
        iflag, oflag, cflag, lflag, ispeed, ospeed, characters = self._found
        oflag |= termios.OPOST | termios.ONLCR
        return [iflag, oflag, cflag, lflag & ~off | on, ispeed, ospeed, [*characters]]

    def _set(self, modes: list[Any]) -> None:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(STDIN, termios.TCSANOW, modes)  # TCSANOW keeps keys that were typed already

    def read(self) -> bytes:
        """The keys that were typed, or in line mode a line; b"" at the end of input."""
        try:
            return os.read(STDIN, 4096)
        except OSError:
            return b""

    def wait(self, *fds: int, seconds: float | None = None) -> Collection[int]:
        """Wait until stdin or a descriptor of ``fds`` can be read, and return those that can; none after a timeout."""
        until = None if seconds is None else time.monotonic() + seconds
        return self._poller.wait(Wait((STDIN, *fds), until))

    # -- output

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows; 80 and 24 if the terminal does not know them (a serial line)."""
        columns, rows = os.get_terminal_size(_STDOUT)
        return columns or 80, rows or 24

    def show(self, data: bytes) -> None:
        """Write output to the terminal, unchanged."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(_STDOUT, rest) :]
        for numbers, switch in _PRIVATE_MODES.findall(self._tail[-16:] + data):  # a sequence may arrive in two pieces
            for number in numbers.split(b";"):
                usual = b"h" if number in _USUALLY_ON else b"l"
                (self._switched.discard if switch == usual else self._switched.add)(number)
        self._tail = (self._tail + data)[-256:]

    def say(self, text: str) -> None:
        """Show our own message on a line, dimmed if colours are enabled."""
        self.begin_line()
        self.show(encoded(f"\x1b[2m{text}\x1b[m" if self._dim else text) + b"\n")

    def begin_line(self) -> None:
        """Go to the next line, unless the cursor is at the start of one."""
        if (line := ESCAPE.sub(b"", self._tail)) and not line.endswith((b"\n", b"\r")):
            self.show(b"\n")

    def note_shown(self, data: bytes) -> None:
        """Record what others have written to the terminal: the kernel's echo, or an editor."""
        self._tail = data[-256:]

    def reset_screen(self) -> None:
        """Undo the modes and colours that a program has set and not reset."""
        for mode in sorted(self._switched):
            self.show(b"\x1b[?%b%b" % (mode, b"h" if mode in _USUALLY_ON else b"l"))
        self.show(b"\x1b[m" if b"\x1b" in self._tail else b"")


def confirm(command: str, agent: str, cwd: str) -> bool:
    """Ask the person at the terminal whether this command may run. Raises InvalidRequest if there is no terminal."""
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        raise InvalidRequest("--confirm asks at the terminal, and this process has none: nothing was run") from None
    with open(fd, "r+b", buffering=0) as terminal:
        first = command.split("\n")[:_LINES_ASKED]
        lines = [f"shellsession: agent {agent!r} is to run in {escaped(cwd)}:", *(f"  {escaped(one)}" for one in first)]
        if rest := command.count("\n") + 1 - len(first):
            lines.append(f"  ... and {rest} more lines")
        termios.tcflush(terminal, termios.TCIFLUSH)  # keys typed before the question are no answer to it
        terminal.write("\n".join([*lines, "run it? [y/N] "]).encode("utf-8", "backslashreplace"))
        return terminal.readline().strip().lower() in (b"y", b"yes")


def encoded(text: str) -> bytes:
    """The text in the terminal's encoding; a character that it lacks becomes an escape such as ``\\u65e5``."""
    return text.encode(sys.stdout.encoding, "backslashreplace")


def _end(number: int, _: object) -> NoReturn:
    for other in _SIGNALS:  # ignore further signals while the terminal is restored
        signal.signal(other, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, _ENDING_MAX)  # an event loop may lose the exception, or its cleanup may hang
    raise SystemExit(128 + number)
