"""What the person's terminal shows, and what programs have made of it.

Law: what is shown goes there as it is; it is only read along, to know where the cursor is and what is to be undone.
"""

from __future__ import annotations

import os
import re
from typing import Final

from ..engine.waiting import Poller, Wait
from .editing import as_bytes, encoded

_OUT: Final = 1
# What does not move the cursor: colours, titles, modes (ECMA-48, 5.4 and 5.6; and xterm's own).
ESCAPE: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_UNFINISHED: Final = re.compile(rb"\x1b[\[\]]?[^\x1b]{0,60}\Z")
_PRIVATE_MODES: Final = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
_CURSOR_SHOWN, _LINES_WRAP = b"25", b"7"
_FULL_SCREEN: Final = {b"47", b"1047", b"1049"}


class Screen:
    """The terminal on stdout."""

    def __init__(self) -> None:
        self._poller = Poller()
        self._tail = b""  # of what was shown, to know where the cursor is
        self._unusual: set[bytes] = set()  # modes in which programs have left it, as DECSET names them
        self._escapes = False

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows; a terminal that does not know (a serial line) is an ordinary one."""
        columns, rows = os.get_terminal_size(_OUT)
        return columns or 80, rows or 24

    def show(self, data: bytes) -> None:
        """Output for it, as it is."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(_OUT, rest) :]
            except BlockingIOError:  # somebody who shares the terminal with us made it so
                self._poller.wait(Wait(write=(_OUT,)))
        begun = _UNFINISHED.search(self._tail)
        known = (begun[0] if begun else b"") + data
        self._tail = (self._tail + data)[-256:]
        self._escapes = self._escapes or b"\x1b" in data
        for numbers, switch in _PRIVATE_MODES.findall(known):
            for number in numbers.split(b";"):
                usual = b"h" if number in (_CURSOR_SHOWN, _LINES_WRAP) else b"l"
                (self._unusual.discard if switch == usual else self._unusual.add)(number)

    def say(self, text: str) -> None:
        """A line of ours."""
        self.begin_line()
        self.show(encoded(text) + b"\n")

    def say_line(self, prompt: str, line: str) -> None:
        """A line that was typed before its prompt could be there, as if it had been typed at that."""
        self.begin_line()
        self.show(encoded(prompt) + as_bytes(line) + b"\n")

    def begin_line(self) -> None:
        """Go to a line of its own, unless the cursor is at the start of one."""
        seen = ESCAPE.sub(b"", self._tail)
        if seen and not seen.endswith((b"\n", b"\r")):
            self.show(b"\n")

    @property
    def is_full_screen(self) -> bool:
        """Does a program draw all over it just now?"""
        return not _FULL_SCREEN.isdisjoint(self._unusual)

    def calm(self) -> None:
        """Undo what a program that did not end by itself has set: another screen, a hidden cursor, the mouse."""
        switches = [
            b"\x1b[?%b%b" % (number, b"h" if number in (_CURSOR_SHOWN, _LINES_WRAP) else b"l")
            for number in sorted(self._unusual)
        ]
        if self._escapes:
            switches.append(b"\x1b[m")
        self.show(b"".join(switches))
        self._escapes = False
