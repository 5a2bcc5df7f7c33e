"""A person at an agent's session: it is his, and nobody else's, while he sits there.

Law: no key is thrown away, and nothing that runs is ended because he leaves.

Only who looks at a command that was handed back learns of its end: hence a look every now and then. A look comes
before each key, too: what is typed to a command that has just ended would be thrown away with what it did not read.
"""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Callable
from typing import Any, Final

from ..daemon.audit import default_path
from ..daemon.opening import limits_fields
from ..daemon.records import to_error
from ..daemon.remote import told
from ..daemon.wire import Message
from ..errors import InvalidRequest, NotRunning, ShellSessionError
from ..models import Limits
from .continuing import wants_more
from .listing import escaped
from .seat import LEAVE, STRIKE, Line, Seat
from .terminal import Disturbed, History, Terminal, as_a_line

# A command that is over sooner is never looked after: its own answer tells its end. (One that reads is answered at
# once, with "input".) Until then, but not for twice as long, keys are left for the next prompt: they may be pasted.
_QUICK: Final = 0.1
# How long after the last sign of life the next look is, and how long at the most, in seconds.
_SOON, _LATE = 0.01, 0.1
# A Ctrl-C that a command does not answer for so long may be followed by one that ends it by force.
_STUBBORN: Final = 1.0
# Somebody else is with the command when a look at it takes longer: then what it prints is shown as it comes.
_BUSY: Final = 0.1
# More bytes of output than this between Ctrl-C and its arrival are not shown, as terminals have it: he has seen enough.
_FLOOD: Final = 1 << 17
# What is kept of his own command's output for who looks at it later; he himself has seen it.
_KEPT: Final = Limits(max_output=1 << 16)


class Sitting(Seat):
    """A person at the session: it is his, and nobody else's, while he sits there."""

    def __init__(self, terminal: Terminal, line: Line) -> None:
        super().__init__(terminal, line)
        self._asked: dict[str, str] = {}  # requests without an answer: their ids, and the verb of each
        self._moments: dict[Callable[[], None], float] = {}  # what is to be done then
        self._command: bytes | None = None  # his own, until the daemon has begun it
        self._kept: list[Message] | None = None  # until it is known what was printed before he came
        self._shown = b""  # on its terminal before he came
        self._untyped, self._on_its_way = b"", b""  # keys for the command that runs
        self._ahead = ""  # typed for the next prompt
        self._pause = _SOON
        self._quick = 0.0  # until when his command may be over before a key is read
        self._strikes: list[float] = []  # when Ctrl-C was typed, and nothing else since
        self._answered = False
        self._flood: list[bytes] | None = None  # output since Ctrl-C, until that has arrived
        self._size: tuple[int, int] | None = None
        self._found: tuple[int, int] | None = None  # the session's size before he came

    def sit(self, others: str) -> None:
        """Until he leaves."""
        self.terminal.raw()
        running, self._shown = self.watch()
        meanwhile = "wait" if others == "wait" else "are refused"
        self.say(f"at the session of {self.name}, whose own calls {meanwhile} meanwhile: Ctrl-] leaves it as it is")
        if running["value"]:
            self.begun(running["value"].encode("utf-8", "surrogateescape"), running["person"])
            self._kept = []
            self._at(_BUSY, self._show_kept)
        self.line.holder = secrets.token_hex(8)
        self._ask("hold", others=others)
        self._at(_BUSY, self._tell_of_another)
        history = History(os.path.join(os.path.dirname(default_path()), "attach_history"))
        while (text := self._prompt()) is not None:
            history.add(text)
            self._run(text)
        if self._untyped and self.runs and "hold" not in self._asked.values():
            self._ask("type", self._untyped)
        self.terminal.calm()
        if self._found is not None:
            self._ask("resize", columns=self._found[0], rows=self._found[1])
        goes_on = "its command goes on, and " if self._busy else ""
        self.say(f"left {self.name}: {goes_on}`shellsession attach {shlex.quote(self.name)}` comes back to it")

    # -- between commands

    def _prompt(self) -> str | None:
        """The next command, of as many lines as it takes; None when he leaves. What happens meanwhile is shown."""
        text = ""
        while self._attend():
            prompt = "> " if text else f"{self.name}:{escaped(str(self.know('info')['value']['cwd']))}$ "
            self.hear()
            if self._busy:
                continue
            begun, enter, self._ahead = self._ahead.partition("\n")
            try:
                if not enter:
                    line = self.terminal.line(prompt, begun, self.line.fd)
                else:
                    self.terminal.say(prompt + (line := begun))
            except Disturbed as disturbed:
                self._ahead = disturbed.text
            except KeyboardInterrupt:
                self.terminal.show(b"^C\n")
                text = ""
            else:
                if line is None and text and not self.terminal.leaves:  # Ctrl-D, as in bash
                    self.say("the command is not whole: nothing was run")
                    text = ""
                    continue
                if line is None:
                    break
                text += line
                if not wants_more(text):
                    if text.strip():
                        return text
                    text = ""
                elif text:
                    text += "\n"
        return None

    def _run(self, text: str) -> None:
        if text.strip() in ("exit", "logout"):
            self.say("that would end the agent's shell, with all that it knows: Ctrl-] leaves; `exit 0` is meant so")
            return
        self._resize()
        self._command = text.encode("utf-8", "surrogateescape")
        term = {"term": os.environ["TERM"]} if os.environ.get("TERM") else {}
        how = {**term, "timeout": _QUICK, "on_timeout": "yield", "stdin": "tty", "echo": True, "merge_stderr": True}
        self._quick = time.monotonic() + 2 * _QUICK
        self._ask("run", self._command, limits=limits_fields(_KEPT), **how)

    # -- while something runs

    @property
    def _busy(self) -> bool:
        return bool(self.runs) or not {"hold", "run", "type"}.isdisjoint(self._asked.values())

    def _attend(self) -> bool:
        """Show what is printed and pass on what is typed, until nothing runs; False when he leaves before."""
        while True:
            self.hear()
            if not self._busy:
                break
            quick = "run" in self._asked.values() and time.monotonic() < self._quick
            fds = (self.line.fd,) if quick else (self.line.fd, self.terminal.fd)
            until = self._quick if quick else min(self._moments.values(), default=None)
            ready = self.terminal.wait(*fds, until=until)
            if self.terminal.fd in ready:
                pressed = self.terminal.keys()
                keys, leave, _ = pressed.partition(LEAVE)
                self._press(keys)
                if leave or not pressed:
                    return False
            if self._size not in (None, self.terminal.size):
                self._resize()
            now = time.monotonic()
            for due in [what for what, moment in self._moments.items() if moment <= now]:
                del self._moments[due]
                due()
        self._ahead += as_a_line(self._untyped)
        self._untyped, self._strikes = b"", []
        return True

    def _at(self, seconds: float, what: Callable[[], None]) -> None:
        self._moments[what] = time.monotonic() + seconds

    def _ask(self, verb: str, *parts: bytes, **fields: object) -> None:
        self._asked[self.line.ask(verb, *parts, **fields)] = verb

    def _resize(self) -> None:
        if self._size != self.terminal.size:
            columns, rows = self._size = self.terminal.size
            self._ask("resize", columns=columns, rows=rows)

    def _look(self) -> None:
        """Has it ended?"""
        if self.runs and {"hold", "run", "poll"}.isdisjoint(self._asked.values()):
            self._ask("poll")

    def _stay_awake(self) -> None:
        self._pause = _SOON
        self._at(_SOON, self._look)

    # -- his keys

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
        self._untyped += keys
        self._type()

    def _type(self) -> None:
        """One after the other, so that none is lost when the command has ended."""
        if self._untyped and self.runs and {"hold", "type"}.isdisjoint(self._asked.values()):
            self._look()
            self._ask("type", self._untyped)
            if STRIKE in self._untyped:
                self._flood = []
                self._at(_BUSY, self._strike_through)
                self._at(_STUBBORN / 2, self._show_flood)
            self._on_its_way, self._untyped = self._untyped, b""
            self._stay_awake()

    def _strike_through(self) -> None:
        """Ctrl-C as a key does not reach what has no terminal, nor what its own client stays with."""
        on_its_way = "type" in self._asked.values() and STRIKE in self._on_its_way
        if on_its_way and self.runs not in ("", "own") and "interrupt" not in self._asked.values():
            self._strikes = []
            self._ask("interrupt")

    def _tell_of_force(self) -> None:
        if self._strikes and not self._answered and self.runs and not self.terminal.is_full_screen:
            self.say("(Ctrl-C once more ends it by force)")

    def _tell_of_another(self) -> None:
        if "hold" in self._asked.values():
            self.say("somebody else sits there: you are next; Ctrl-] gives up")

    # -- what is heard

    def take(self, message: Message) -> None:
        """As ``Seat.take``; and the answers to what was asked."""
        verb = self._asked.pop(str(message.header.get("id")), "")
        if not verb and self._kept is not None:
            self._kept.append(message)
        elif not verb:
            super().take(message)
        elif "error" in message.header:
            self._failed(verb, to_error(message.header["error"], message.parts))
        elif verb == "hold":
            self._sit_down()
        elif verb == "type":
            self._on_its_way = b""
            self._show_flood()
            self._type()
        elif verb in ("run", "poll", "interrupt"):
            self._stands(verb, message)

    def _sit_down(self) -> None:
        """It is his now."""
        self._found = tuple(self.know("info")["value"]["size"])
        if self.runs:
            columns, rows = self.terminal.size
            # What draws on the whole screen draws it anew when that changes.
            self._ask("resize", columns=columns, rows=rows + 1)
            self._resize()
            self._look()
            self._type()

    def _failed(self, verb: str, error: ShellSessionError) -> None:
        if verb == "type" and isinstance(error, NotRunning | InvalidRequest):
            if isinstance(error, InvalidRequest) and self.runs and STRIKE in self._on_its_way:
                self._strikes, self._on_its_way = [], self._on_its_way.replace(STRIKE, b"")
                self._ask("interrupt")
            self._untyped, self._on_its_way = self._on_its_way + self._untyped, b""
            self._show_flood()
        elif verb == "run":
            self.say(escaped(str(error)))
            self.runs, self._command = "", None
        elif verb in ("poll", "interrupt") and isinstance(error, NotRunning):
            self._show_kept()
            self.runs = ""
        else:
            raise error

    def _stands(self, verb: str, message: Message) -> None:
        """How it is with what runs."""
        result = told(message)
        if verb == "poll" and self._kept is not None:
            # All that came before this answer is in it; but nothing of what another client runs until that has ended.
            printed = result.stdout_bytes + result.stderr_bytes
            if printed and len(printed) >= len(self._shown):  # else somebody has taken some: its question, perhaps
                self._shown = b""
                self._kept = [one for one in self._kept if one.header.get("event") != "output"]
                self.terminal.show(printed)
            self._show_kept()
        if result.runs_on:
            self._pause = min(self._pause * 2, _LATE)
            self._at(self._pause, self._look)
        elif self.runs:
            self.runs = ""
            self._untyped = message.header.get("unread", "").encode("latin-1") + self._untyped
            if result.outcome != "exited":
                self.terminal.calm()
                fresh = "" if result.state_kept else "; its shell has ended, and the next command gets a fresh one"
                self.say(escaped(result.reason or f"status {result.exit_code}") + fresh)

    def begun(self, command: bytes, person: bool) -> None:
        """His own is not told to him."""
        if command == self._command:
            self.runs, self._command = "own", None
            self._type()
        else:
            super().begun(command, person)
        self._stay_awake()

    def came_back(self, header: dict[str, Any]) -> None:
        """Of his own, the answer tells more."""
        if self.runs != "own":
            super().came_back(header)

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

    def _show_kept(self) -> None:
        kept, self._kept = self._kept or [], None
        self.terminal.show(self._shown)
        self._shown = b""
        for message in kept:
            super().take(message)
