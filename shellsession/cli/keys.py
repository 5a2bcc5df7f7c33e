"""The keys of a person at an agent's session, on their way to the command that runs; Ctrl-C among them.

Law: no key is thrown away; one lot is on its way at a time, so that what a command did not read can be typed again.

Only who looks at a command that was handed back learns of its end: hence a look every now and then. A look comes
before each key, too: what is typed to a command that has just ended would be thrown away with what it did not read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from .editing import as_bytes, as_text
from .spectator import STRIKE, Line, Spectator
from .terminal import Terminal

# How long after the last sign of life the next look is, and how long at the most, in seconds.
_SOON, _LATE = 0.01, 0.1
# A Ctrl-C that a command does not answer for so long may be followed by one that ends it by force.
_STUBBORN: Final = 1.0
# Somebody else is with the command when a look at it takes longer: then what it prints is shown as it comes.
BUSY: Final = 0.1
# More bytes of output than this between Ctrl-C and its arrival are not shown, as terminals have it.
_FLOOD: Final = 1 << 17
# How long a command is stayed with at a time, in seconds, while there are keys for it once it asks. Of what polls its
# terminal (an editor, a shell) that is believed after half a second in which it is silent, and not looked at anew.
_STAY: Final = 1.5
# What is asked about the command that was handed back.
_OF_COMMAND: Final = frozenset(("poll", "wait", "interrupt", "type"))
CTRL_D: Final = b"\x04"
# A terminal in lines stores Enter as a line feed, and the end of the input as NUL: what was not read is keys again.
_STORED: Final = bytes.maketrans(b"\n\0", b"\r" + CTRL_D)
# Keys that are no characters (C0 but for the tab, C1). All else is: spaces of any width, and what is not seen at all.
_NO_CHARACTER: Final = re.compile("[\0-\x08\x0a-\x1f\x7f-\x9f]")


class Typing(Spectator):
    """A spectator whose keys go to the command that runs."""

    def __init__(self, terminal: Terminal, line: Line) -> None:
        super().__init__(terminal, line)
        self._asked: dict[str, str] = {}  # requests without an answer: their ids, and the verb of each
        self._moments: dict[Callable[[], None], float] = {}  # what is to be done then
        self._handed = ""  # the command that was handed back to us: who names it is told of its end, whoever ended it
        self._untyped, self._on_its_way = b"", b""  # keys for the command that runs
        self._unread = b""  # those that it had not read at its end
        self._ahead = b""  # those that came before all of these: for the next prompt, unless that command asks for any
        self._pause = _SOON
        self._strikes: list[float] = []  # when Ctrl-C was typed, and nothing else since
        self._answered = False
        self._flood: list[bytes] | None = None  # output since Ctrl-C, until that has arrived

    def _at(self, seconds: float, what: Callable[[], None]) -> None:
        self._moments[what] = time.monotonic() + seconds

    def _ask(self, verb: str, *parts: bytes, **fields: object) -> None:
        named = {"command": self._handed} if self._handed and verb in _OF_COMMAND else {}
        self._asked[self.line.ask(verb, *parts, **fields, **named)] = verb

    def _look(self) -> None:
        """Has it ended? Or, where that matters: does it ask for keys?"""
        if not self.runs or not {"hold", "run", "poll", "wait"}.isdisjoint(self._asked.values()):
            return
        if self._ahead:
            self._ask("wait", timeout=_STAY)
        else:
            self._ask("poll")

    def _stay_awake(self) -> None:
        self._pause = _SOON
        self._at(_SOON, self._look)

    def _doze(self) -> None:
        """No sign of life: the next look may be later."""
        self._pause = min(self._pause * 2, _LATE)
        self._at(self._pause, self._look)

    def _press(self, keys: bytes) -> None:
        now = time.monotonic()
        if keys.strip(STRIKE):
            self._strikes = []
        elif self._strikes and now >= self._strikes[0] + _STUBBORN and (not self._answered or len(self._strikes) > 1):
            self._strikes = []
            self._ask("interrupt")
            return
        else:
            self._answered = self._answered and bool(self._strikes)
            self._strikes.append(now)
            self._at(_STUBBORN, self._tell_of_force)
        if STRIKE in keys:  # it may have to wait behind other keys
            self._at(BUSY, self._strike_through)
        self._untyped += keys
        self._type()

    def _give_ahead(self) -> None:
        """It is for the command that runs: that asks, or newer keys come, which are not to overtake these.

        One that does not ask would only echo them once more, and a password that is for the next one.
        """
        self._untyped += self._ahead
        self._ahead = b""
        self._type()

    def _take_back(self) -> None:
        """The command has ended: what it has not read, and what was not typed yet, is for what comes next."""
        keys = self._unread.translate(_STORED) + self._untyped + self._ahead
        self._unread, self._untyped, self._ahead = b"", b"", keys.rpartition(STRIKE)[2]

    def _type(self) -> None:
        """One after the other, so that none is lost when the command has ended."""
        if self._untyped and self.runs and {"hold", "type"}.isdisjoint(self._asked.values()):
            self._look()
            self._ask("type", self._untyped)
            if STRIKE in self._untyped:
                self._flood = []
                self._at(BUSY, self._strike_through)
                self._at(_STUBBORN / 2, self._show_flood)
            self._on_its_way, self._untyped = self._untyped, b""
            self._stay_awake()

    def _arrived(self) -> None:
        """What was on its way."""
        self._on_its_way = b""
        self._show_flood()
        self._type()

    def _came_back_untyped(self, deaf: bool) -> None:
        """What was on its way: the command has ended, or is deaf to keys."""
        if deaf and self.runs and STRIKE in self._on_its_way:
            self._strikes, self._on_its_way = [], self._on_its_way.replace(STRIKE, b"")
            self._ask("interrupt")
        self._untyped, self._on_its_way = self._on_its_way + self._untyped, b""
        self._show_flood()

    def _strike_through(self) -> None:
        """Ctrl-C as a key does not reach what has no terminal, nor what its own client stays with."""
        waits = "type" in self._asked.values() and STRIKE in self._on_its_way + self._untyped
        if waits and self.runs not in ("", "own") and "interrupt" not in self._asked.values():
            self._strikes, self._untyped = [], self._untyped.replace(STRIKE, b"")
            self._ask("interrupt")

    def _tell_of_force(self) -> None:
        if self._strikes and not self._answered and self.runs and not self.terminal.is_full_screen:
            self.say("(Ctrl-C once more ends it by force)")

    def printed(self, data: bytes) -> None:
        """Output: a sign of life."""
        if self._flood is not None:
            self._flood.append(data)
        else:
            super().printed(data)
        self._answered = self._answered or bool(data.strip(b"^C\r\n"))
        self._stay_awake()

    def _show_flood(self) -> None:
        data, self._flood = b"".join(self._flood or ()), None
        if len(data) > _FLOOD:
            self.say(f"({len(data)} bytes of output before Ctrl-C are not shown)")
        else:
            super().printed(data)


def cut_line(keys: bytes, begun: str = "") -> tuple[str, bytes, bytes]:
    """What was typed for the prompt before that was there, as bash would read it from a terminal: a line.

    Then the key that ends it, b"" where none has yet or where one is readline's to know; and the other keys, from that
    on. ``begun``: what the line begins with.
    """
    line, text = list(begun), as_text(keys)
    for number, key in enumerate(text):
        if key in "\r\n" or (key == "\x04" and not line):
            return "".join(line), key.encode(), as_bytes(text[number + 1 :])
        if key == "\x15":
            line.clear()
        elif key in "\x7f\b":
            del line[-1:]
        elif _NO_CHARACTER.match(key) and key != "\x04":  # that deletes what is behind the cursor: nothing
            return "".join(line), b"", as_bytes(text[number:])
        elif key != "\x04":
            line.append(key)
    return "".join(line), b"", b""
