"""A place at an agent's session from which to see what runs: the agent's commands are marked, output is as it is.

Law: one connection carries it all, so that what is asked is done, and what happens is told, in one order. Nobody waits
for an answer alone, but for keys as well: a daemon that stands still keeps nobody here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from ..daemon.link import Link
from ..daemon.records import to_error
from ..daemon.transport import UnixTransport
from ..daemon.wire import PROTOCOL, Message, encode
from ..engine.waiting import Poller, drive
from .editing import as_bytes
from .listing import escaped
from .terminal import Terminal

LEAVE: Final = b"\x1d"  # Ctrl-], as in telnet
STRIKE: Final = b"\x03"  # Ctrl-C
# Characters of somebody's command that are shown.
_SHOWN: Final = 4096


class Line:
    """One connection about one agent."""

    def __init__(self, agent: str, path: str) -> None:
        self.agent = agent
        self.holder: str | None = None
        self._poller = Poller()
        channel = UnixTransport(path).connect(start=False)
        self.fd = channel.fileno()
        self._link = Link(channel, self._poller)
        try:
            drive(self._link.greet(), self._poller)
        except BaseException:
            self.close()
            raise

    def ask(self, verb: str, *parts: bytes, **fields: object) -> str:
        """Send a request; its id."""
        header: dict[str, object] = {"protocol": PROTOCOL, "id": self._link.next_id(), "verb": verb, **fields}
        header |= {"agent": self.agent, **({"holder": self.holder} if self.holder else {})}
        drive(self._link.send(encode(header, *parts)), self._poller)
        return str(header["id"])

    def heard(self) -> Iterator[Message]:
        """Every message that is here whole, as far as one read brings it: keys want their turn, too."""
        read = False
        while True:
            steps = self._link.receive()
            try:
                next(steps)  # it would wait: no message is left
                if read:
                    return
                read = True
                next(steps)  # it has read what is here, and would wait for more
            except StopIteration as stop:
                yield stop.value

    def close(self) -> None:
        self._link.close()


class Spectator:
    """A place from which to see what runs: the agent's commands are marked, their output is as it is."""

    def __init__(self, terminal: Terminal, line: Line) -> None:
        self.terminal, self.line = terminal, line
        self.name = escaped(line.agent)
        self.runs = ""  # whose command: "agent", "person" (another one), or "own"
        self._dim = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"

    def look_on(self) -> None:
        """Until the person leaves."""
        self.terminal.raw()
        self.line.ask("watch")
        while True:
            self.hear()
            if self.terminal.fd in self.terminal.wait(self.terminal.fd, self.line.fd, until=None):
                keys = self.terminal.keys()
                if not keys or LEAVE in keys or STRIKE in keys:
                    break
        self.terminal.calm()
        self.say(f"left {self.name}")

    def hear(self) -> None:
        """What is here."""
        for message in self.line.heard():
            self.take(message)

    def say(self, text: str) -> None:
        """A quiet line of ours."""
        self.terminal.say(f"\x1b[2m{text}\x1b[m" if self._dim else text)

    def take(self, message: Message) -> None:
        """One message: something that happened, or the answer to "watch"."""
        header = message.header
        if "error" in header:
            raise to_error(header["error"], message.parts)
        match header.get("event"):
            case None:
                self.arrived(header, message.parts[0])
            case "command":
                self.begun(message.parts[0], header["person"])
            case "output":
                self.printed(message.parts[0])
            case "result":
                self.came_back(header)
            case "restarted":
                self.restarted()
            case "closed":
                self.closed()
            case "missed":
                self.say(f"({header['bytes']} bytes of output were too quick for this terminal)")

    def arrived(self, running: dict[str, Any], shown: bytes) -> None:
        """What happens is told from now on; what runs, and the last of what that has printed on its terminal."""
        self.say(f"looking on at {self.name}: Ctrl-C or Ctrl-] leaves")
        if running["value"]:
            self.begun(as_bytes(running["value"]), running["person"])
            self.printed(shown)

    def begun(self, command: bytes, person: bool) -> None:
        """A command of somebody else."""
        self.runs, text = "person" if person else "agent", command.decode("utf-8", "replace")
        cut = text.strip("\n")[:_SHOWN] + ("…" if len(text) > _SHOWN else "")
        for number, one in enumerate(cut.split("\n")):
            self.say(f"{self.runs}{'>' if number else '$'} {escaped(one)}")

    def printed(self, data: bytes) -> None:
        """Output."""
        self.terminal.show(data)

    def closed(self) -> None:
        """The session is there no more; the agent may open another, which is looked on at, too."""
        self.terminal.calm()
        self.say(f"the session of {self.name} was closed")

    def restarted(self) -> None:
        """Somebody has, between two commands."""
        self.terminal.calm()
        self.say(f"the session of {self.name} was restarted meanwhile: a fresh shell, in its first directory")

    def came_back(self, header: dict[str, Any]) -> None:
        """It has ended."""
        who, self.runs = self.runs or "agent", ""
        if header["outcome"] != "exited":
            self.terminal.calm()
            self.say(f"{who}: {escaped(header['reason']) or header['outcome']}")
        elif header["exit_code"] != 0:
            self.say(f"{who}: status {header['exit_code']}")
