"""A person attached to an agent's session, which is nobody else's meanwhile.

Law: no key is thrown away but by Ctrl-C, as at any terminal, nor is one run that a command of the agent's left unread:
that may be a password. Nothing that runs is ended by leaving.
"""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import time
from contextlib import suppress
from typing import Any, Final

from ..daemon.audit import default_path
from ..daemon.opening import limits_fields
from ..daemon.pieces import end_of
from ..daemon.records import to_error
from ..daemon.remote import result_of
from ..daemon.transport import ConnectionLost
from ..daemon.wire import Message
from ..errors import InvalidRequest, NotRunning, SessionClosed, ShellSessionError
from ..models import Limits
from .completeness import Typed
from .editing import as_bytes
from .history import History
from .keys import BUSY, CTRL_D, Typing, cut_line
from .listing import escaped
from .spectator import LEAVE, STRIKE, Line
from .terminal import Disturbed, Terminal

# A command that is over sooner is never looked after: its own answer tells its end. (One that reads is answered at
# once, with "input".) Until then, but not for twice as long, keys are left for the next prompt: they may be pasted.
_QUICK: Final = 0.1
# What is kept of the person's own command's output for who looks at it later; here it was seen.
_KEPT: Final = Limits(max_output=1 << 16)
# How long a daemon may be silent at the prompt until the person is told, in seconds.
_SILENT: Final = 1.0
# How long who leaves waits until the others are let in again, in seconds: a daemon that stands still keeps nobody here.
_FAREWELL: Final = 1.0


class Attached(Typing):
    """A person at the session, which is nobody else's meanwhile."""

    def __init__(self, terminal: Terminal, line: Line) -> None:
        super().__init__(terminal, line)
        self._command: bytes | None = None  # our own, until the daemon has begun it
        self._kept: list[Message] | None = None  # until it is known what was printed before we came
        self._shown = b""  # on its terminal before we came
        self._begun = ""  # of a line that was disturbed
        self._quick = 0.0  # until when our command may be over, or a question answered, before a key is read
        self._place = ""  # where the shell is
        self._others = ""  # what the agent's own calls do meanwhile
        self._size: tuple[int, int] | None = None
        self._sits = False  # is it ours?

    def sit(self, others: str) -> None:
        """Until the person leaves."""
        self.terminal.raw()
        self._others = others
        self._ask("watch")
        self._at(_SILENT, self._tell_of_silence)
        history = History(os.path.join(os.path.dirname(default_path()), "attach_history"))
        while (text := self._prompt()) is not None:
            history.add(text)
            self._run(text)
        if self._untyped and self.runs and "hold" not in self._asked.values():
            self._ask("type", self._untyped)
        self.terminal.calm()
        self._let_go()
        goes_on = "its command goes on, and " if self._busy and self._sits else ""
        self.say(f"left {self.name}: {goes_on}`shellsession attach {shlex.quote(self.name)}` comes back to it")

    def arrived(self, running: dict[str, Any], shown: bytes) -> None:
        """As ``Spectator.arrived``: now for a seat."""
        self._shown = shown
        meanwhile = "wait" if self._others == "wait" else "are refused"
        self.say(f"at the session of {self.name}, whose own calls {meanwhile} meanwhile: Ctrl-] leaves it as it is")
        if running["value"]:
            self.begun(as_bytes(running["value"]), running["person"])
            self._kept = []
            self._at(BUSY, self._show_kept)
        self.line.holder = secrets.token_hex(8)
        self._ask("hold", others=self._others)
        self._at(BUSY, self._tell_of_another)

    def _let_go(self) -> None:
        """End the connection, and with it the hold: whoever calls after attach has ended is let in.

        The daemon ends its side once it has freed the session, not before.
        """
        with suppress(OSError), socket.fromfd(self.line.fd, socket.AF_UNIX, socket.SOCK_STREAM) as ours:
            ours.shutdown(socket.SHUT_WR)
        until = time.monotonic() + _FAREWELL
        with suppress(ConnectionLost):
            while time.monotonic() < until:
                self.terminal.wait(self.line.fd, until=until)
                for _ in self.line.heard():
                    pass  # what happens from now on is not for us

    # -- between commands

    def _prompt(self) -> str | None:
        """The next command, of as many lines as it takes; None for leaving. What happens meanwhile is shown."""
        typed = Typed()
        while self._attend() and (typed.text or self._learn_place()):
            try:
                line = self._line("> " if typed.text else f"{self.name}:{escaped(self._place)}$ ")
                more = line is not None and typed.add(line)
                self.terminal.heed()  # before what was not asked for runs
            except Disturbed as disturbed:
                self._begun = disturbed.text
                continue
            except KeyboardInterrupt:
                self.terminal.show(b"^C\n")
                self._ahead = b""
            else:
                if line is None and (self.terminal.leaves or not typed.text):
                    break
                if line is None:  # Ctrl-D, as in bash
                    self.say("the command is not whole: nothing was run")
                elif more:
                    continue
                elif typed.text.strip():
                    return typed.text
            typed = Typed()
        return None

    def _learn_place(self) -> bool:
        """Where the shell is; False when the person leaves before that is known."""
        self._ask("info")
        self._quick = time.monotonic() + _QUICK
        self._at(_SILENT, self._tell_of_silence)
        return self._attend()

    def _line(self, prompt: str) -> str | None:
        """The next line, of what was typed ahead and what is typed now; None for Ctrl-D or Ctrl-]."""
        line, end, self._ahead = cut_line(self._ahead, self._begun)
        self._begun = ""
        if not end:
            try:
                return self.terminal.line(prompt, line, self.line.fd, self._ahead)
            finally:
                self._ahead = self.terminal.left
        self.terminal.say_line(prompt, line)
        return None if end == CTRL_D else line

    def _run(self, text: str) -> None:
        if text.strip() in ("exit", "logout"):
            self.say("that would end the agent's shell, and its state: Ctrl-] leaves; `exit 0` ends it")
            return
        self._resize()
        self._command = as_bytes(text)
        how = {"timeout": _QUICK, "on_timeout": "yield", "stdin": "tty", "echo": True, "merge_stderr": True}
        self._quick = time.monotonic() + 2 * _QUICK
        self._ask("run", self._command, limits=limits_fields(_KEPT), term=os.environ.get("TERM", ""), **how)

    # -- while something runs

    @property
    def _busy(self) -> bool:
        return bool(self.runs) or not {"watch", "info", "hold", "run", "type", "wait"}.isdisjoint(self._asked.values())

    def _attend(self) -> bool:
        """Show what is printed and pass on what is typed, until nothing runs and all that matters at the prompt is
        answered; False when the person leaves before.
        """
        while True:
            self.hear()
            if not self._busy:
                break
            quick = not {"run", "info"}.isdisjoint(self._asked.values()) and time.monotonic() < self._quick
            self.terminal.raw(strikes=quick)
            fds = (self.line.fd,) if quick else (self.line.fd, self.terminal.fd)
            until = self._quick if quick else min(self._moments.values(), default=None)
            ready = self.terminal.wait(*fds, until=until)
            if self.terminal.fd in ready:
                pressed = self.terminal.keys()
                if STRIKE in pressed:
                    self._ahead = b""
                self._give_ahead()
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
        self._take_back()
        self._strikes = []
        return True

    def _resize(self) -> None:
        if self._size != self.terminal.size:
            columns, rows = self._size = self.terminal.size
            self._ask("resize", columns=columns, rows=rows)

    def _tell_of_another(self) -> None:
        if "hold" in self._asked.values():
            self.say("somebody else sits there: you are next; Ctrl-] gives up")

    def _tell_of_silence(self) -> None:
        if not {"watch", "info"}.isdisjoint(self._asked.values()):
            self.say("the daemon says nothing, it is stopped or far too busy: Ctrl-] leaves")

    # -- what is heard

    def take(self, message: Message) -> None:
        """As ``Spectator.take``; and the answers to what was asked."""
        verb = self._asked.pop(str(message.header.get("id")), "")
        if not verb and self._kept is not None:
            self._kept.append(message)
        elif not verb:
            super().take(message)
        elif "error" in message.header:
            self._failed(verb, to_error(message.header["error"], message.parts))
        elif verb == "watch":
            super().take(message)
        elif verb == "info":
            self._place = str(message.header["value"]["cwd"])
        elif verb == "hold":
            self._sit_down()
        elif verb == "type":
            self._arrived()
        elif verb in ("run", "poll", "wait", "interrupt"):
            self._stands(verb, message)

    def _sit_down(self) -> None:
        """It is ours now."""
        self._sits = True
        if self.runs:
            columns, rows = self.terminal.size
            # What draws on the whole screen draws it anew when that changes. (65535 rows are the most there can be.)
            self._ask("resize", columns=columns, rows=rows + 1 if rows < 65535 else rows - 1)
            self._resize()
            self._look()
            self._type()

    def _failed(self, verb: str, error: ShellSessionError) -> None:
        if verb == "type" and isinstance(error, NotRunning | InvalidRequest):
            self._came_back_untyped(isinstance(error, InvalidRequest))
        elif verb == "run":
            self.say(escaped(str(error)))
            self.runs, self._command = "", None
        elif verb in ("poll", "wait", "interrupt") and isinstance(error, NotRunning):
            self._show_kept()
            self.runs = self._handed = ""
        else:
            raise error

    def _stands(self, verb: str, message: Message) -> None:
        """How it is with what runs."""
        result = result_of(message)
        if verb == "poll" and self._kept is not None:
            # All that came before this answer is in it; but nothing of what another client runs until that has ended.
            printed = result.stdout_bytes + result.stderr_bytes
            if printed and len(printed) >= len(self._shown):  # else somebody has taken some: its question, perhaps
                self._shown = b""
                self._kept = [one for one in self._kept if one.header.get("event") != "output"]
                self.terminal.show(printed)
            self._show_kept()
        self._handed = message.header.get("command", "") if self._is_ours else ""
        if result.runs_on:
            self._doze()
            if result.outcome == "input":
                self._give_ahead()
        elif self._is_ours:
            self._unread = message.header.get("unread", "").encode("latin-1")
            if self.runs == "person":
                super().came_back(end_of(result))
            elif result.outcome != "exited":
                self.terminal.calm()
                fresh = "" if result.state_kept else "; its shell has ended, and the next command gets a fresh one"
                self.say(escaped(result.reason or f"status {result.exit_code}") + fresh)
            self.runs = ""

    def begun(self, command: bytes, person: bool) -> None:
        """Our own is not told to us."""
        if command == self._command:
            self.runs, self._command = "own", None
            self._type()
        else:
            super().begun(command, person)
        self._stay_awake()

    def closed(self) -> None:
        """Another one would not be ours alone, nor know anything of this one."""
        raise SessionClosed(
            f"the session of agent {self.line.agent!r} was closed meanwhile: attach again for a new one"
        )

    @property
    def _is_ours(self) -> bool:
        """Did a person begin what runs: we here, or who left it to us?"""
        return self.runs == "own" or (self.runs == "person" and self._sits)

    def came_back(self, header: dict[str, Any]) -> None:
        """Of what is ours, the answer tells more: keys that it has not read."""
        if not self._is_ours:
            super().came_back(header)

    def _show_kept(self) -> None:
        kept, self._kept = self._kept or [], None
        self.terminal.show(self._shown)
        self._shown = b""
        for message in kept:
            super().take(message)
