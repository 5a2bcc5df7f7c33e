"""``shellsession attach``: a person sees what runs in an agent's session, and runs commands there too.

One connection carries requests, answers and events, so they come in one order. No answer is waited for alone: keys are
read meanwhile, and a daemon that does not answer cannot trap the person.
"""

from __future__ import annotations

import argparse
import secrets
import shlex
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from ..daemon.client.link import Link
from ..daemon.client.remote import limits_fields
from ..daemon.client.session import connect
from ..daemon.client.transport import ConnectionLost, UnixTransport
from ..daemon.protocol.endpoint import socket_path
from ..daemon.protocol.messages import to_error
from ..daemon.protocol.wire import PROTOCOL, Decoder, Message, encode
from ..engine.io.threads import Poller, drive
from ..errors import DaemonUnavailable, InvalidRequest, NotRunning, SessionBusy, SessionClosed, ShellSessionError
from ..models import Limits
from . import arguments
from .arguments import escaped
from .prompt import open_prompt
from .terminal import CTRL_C, LEAVE, STDIN, Terminal

EXAMPLES: Final = (
    ("shellsession attach a1", "see what agent a1 runs, and run commands; Ctrl-] leaves"),
    ("shellsession attach a1 --read-only", "only watch; Ctrl-C leaves, too"),
    ("shellsession attach a1 --others refuse", "answer a1's own calls with SessionBusy meanwhile"),
)
_DESCRIPTION: Final = """\
See what an agent runs in its session, and run commands there yourself. An agent that has none gets one (not with
--read-only). While a command runs, keys go to it, and Ctrl-C interrupts it; Ctrl-] leaves at any time, and what runs
goes on. What is typed to a command that the agent began is not echoed: it may have asked for a password. Programs see
the TERM of the session, mostly "dumb": `export TERM=...` before you start an editor or a pager. A second person who
attaches sees what runs, and is next when you leave. With prompt_toolkit (`pip install 'shellsession[attach]'`) the
prompt has a history and edits commands of several lines; they are kept as they are, secrets too, in attach_history,
beside the audit log."""

# Characters of another's command that are shown.
_SHOWN: Final = 4096
# Our command is handed back after so many seconds: then it can have keys, and its end comes as an event.
_HANDED_BACK: Final = 0.05
# How long keys wait for that, in seconds. The agent's own client may wait for a command of the agent's for long.
_PATIENCE: Final = 5.0
_PATIENCE_WITH_AGENT: Final = 0.2
# What the daemon keeps of our output for others; here it is seen as it comes.
_KEPT: Final = Limits(max_output=1 << 16)
# How long a daemon that owes an answer may be silent until the person is told, in seconds.
_SILENCE: Final = 1.0
# How often the size of the terminal is looked at while a command runs, in seconds.
_TICK: Final = 0.2


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("attach", "[OPTIONS] AGENT", _DESCRIPTION, EXAMPLES)
    own.add_argument("--read-only", action="store_true", help="see what runs, and type nothing")
    own.add_argument(
        "--others", choices=("wait", "refuse"), default="wait", help="what the agent's own calls do meanwhile"
    )
    arguments.add_socket(own)
    arguments.add_agent(own)
    return own


def main(words: Sequence[str]) -> int:
    """Stay until the person leaves."""
    given = own_parser().parse_args(words)
    path = socket_path(given.socket)
    with Terminal() as terminal:
        if not given.read_only:
            connect(given.agent, path).disconnect()
        try:
            with closing(Connection(given.agent, path)) as connection:
                terminal.raw_mode()
                if given.read_only:
                    Watcher(terminal, connection).watch()
                else:
                    Person(terminal, connection).stay(given.others)
        except ConnectionLost:
            raise DaemonUnavailable(
                "the daemon has ended, and every session with it: attach again for a fresh one"
            ) from None
    return 0


class Connection:
    """A connection to the daemon that is about one agent."""

    def __init__(self, agent: str, path: str) -> None:
        self.agent = agent
        self._channel, self._poller, self._decoder = UnixTransport(path).connect(start=False), Poller(), Decoder()
        self.fd = self._channel.fileno()
        self._link = Link(self._channel, self._poller)
        try:
            drive(self._link.greet(), self._poller)
        except BaseException:
            self.close()
            raise

    def ask(self, verb: str, *parts: bytes, **fields: object) -> str:
        """Send a request; its id."""
        header: dict[str, object] = {"protocol": PROTOCOL, "id": self._link.next_id(), "verb": verb, **fields}
        drive(self._link.send(encode({**header, "agent": self.agent}, *parts)), self._poller)
        return str(header["id"])

    def receive(self) -> list[Message]:
        """The messages that are there, as far as one read brings them. Raises ConnectionLost."""
        try:
            data = self._channel.receive()
        except BlockingIOError:
            return []
        except OSError as error:
            raise ConnectionLost from error
        if not data:
            raise ConnectionLost
        return self._decoder.feed(data)

    def close(self) -> None:
        self._link.close()


class Watcher:
    """Shows what happens in an agent's session: output as it is, and before it the command."""

    def __init__(self, terminal: Terminal, connection: Connection) -> None:
        self.terminal, self.connection = terminal, connection
        self.name = escaped(connection.agent)
        self.welcome = f"watching {self.name}: Ctrl-C or Ctrl-] leaves"
        self.running = ""  # whose command runs: "agent", "person", "own"; "" while none does

    def watch(self) -> None:
        """Watch until the person leaves."""
        self.connection.ask("watch")
        while True:
            ready = self.terminal.wait(self.connection.fd)
            if self.connection.fd in ready:
                self.receive()
            if STDIN in ready and (not (keys := self.terminal.read()) or CTRL_C in keys or LEAVE in keys):
                break
        self.terminal.reset_screen()
        self.terminal.say(f"left {self.name}")

    def receive(self) -> None:
        """Handle the messages that are there."""
        for message in self.connection.receive():
            self.handle(message)

    def handle(self, message: Message) -> None:
        """Show an event, or the answer to "watch"."""
        header, say = message.header, self.terminal.say
        if "error" in header:
            raise to_error(header["error"], message.parts)
        match header.get("event"):
            case None:
                say(self.welcome)
                if header["value"]:
                    self.show_command(header["value"], header["person"])
                    self.terminal.show(message.parts[0])
            case "command":
                self.show_command(message.parts[0].decode("utf-8", "replace"), header["person"])
            case "output":
                self.terminal.show(message.parts[0])
            case "result":
                self.show_end(header)
            case "refused":
                if self.running != "own":  # else the answer tells
                    say(f"refused: {escaped(header['reason'])}")
                self.running = "" if header["begun"] else self.running
            case "restarted":
                say(f"the session of {self.name} was restarted: a fresh shell, in its first directory")
            case "closed":
                self.show_closed()
            case "missed":
                say(f"({header['bytes']} bytes of output were too quick for this terminal)")

    def show_command(self, command: str, person: bool) -> None:
        """Show a command that begins, or runs already."""
        self.running = "person" if person else "agent"
        shown = command.strip("\n")[:_SHOWN] + ("…" if len(command) > _SHOWN else "")
        for number, line in enumerate(shown.split("\n")):
            self.terminal.say(f"{self.running}{'>' if number else '$'} {escaped(line)}")

    def show_end(self, header: dict[str, Any]) -> None:
        """Show how a command ended, unless all went well."""
        who, self.running = self.running or "agent", ""
        if header["outcome"] != "exited":
            self.terminal.reset_screen()
            self.terminal.say(("" if who == "own" else f"{who}: ") + (escaped(header["reason"]) or header["outcome"]))
        elif header["exit_code"] and who != "own":
            self.terminal.say(f"{who}: status {header['exit_code']}")

    def show_closed(self) -> None:
        """The session is closed. The agent may open another, which is watched, too."""
        self.running = ""
        self.terminal.reset_screen()
        self.terminal.say(f"the session of {self.name} was closed")


class Person(Watcher):
    """A person who has the session alone, and runs commands in it."""

    def __init__(self, terminal: Terminal, connection: Connection) -> None:
        super().__init__(terminal, connection)
        self._prompt = open_prompt(terminal, connection.fd, self.receive)
        self._holder = secrets.token_hex(8)  # the name under which we hold the session
        self._holds = False
        self._pending: dict[str, str] = {}  # requests without an answer: the verb of each, by id
        self._silent_since = 0.0  # nothing was asked, and nothing has come
        self._is_told = True  # why nothing happens
        self._waits = False  # for another person to leave
        self._handed_back = ""  # our last command, where it was handed back
        self._keys = b""  # for the command that runs
        self._sent_keys = b""  # on their way to it
        self._for_agent = False  # the keys are for the agent's command: perhaps a password, and never to be run
        self._cwd = ""
        self._size = (0, 0)

    def stay(self, others: str) -> None:
        """Stay until the person leaves."""
        meanwhile = "wait" if others == "wait" else "are refused"
        self.welcome = f"attached to {self.name}, whose own calls {meanwhile} meanwhile: Ctrl-] leaves"
        self._ask("watch")
        self._ask("hold", others=others)
        while self._attend() and self._refresh():
            command = self._prompt.read(f"{self.name}:{escaped(self._cwd)}$ ")
            if command is None:
                break
            self._run(command)
        if self._keys and self.running:
            self._ask("type", self._keys)
        goes_on = "; its command goes on" if self.running and self._holds else ""
        self.terminal.reset_screen()
        self.terminal.say(f"left {self.name}{goes_on}: `shellsession attach {shlex.quote(self.name)}` comes back")

    def _ask(self, verb: str, *parts: bytes, **fields: object) -> None:
        self._pending[self.connection.ask(verb, *parts, holder=self._holder, **fields)] = verb
        self._silent_since, self._is_told = time.monotonic(), False

    def _run(self, command: bytes) -> None:
        if command.strip() in (b"exit", b"logout"):
            self.terminal.say("that would end the agent's shell, and its state: Ctrl-] leaves; `exit 0` ends it")
        elif command.strip():
            self._resize()
            how = {"timeout": _HANDED_BACK, "on_timeout": "yield", "stdin": "tty", "echo": True, "merge_stderr": True}
            self._ask("run", command, limits=limits_fields(_KEPT), **how)

    def _refresh(self) -> bool:
        """Learn where the shell is, and which keys our last command has not read; False if the person leaves."""
        if self._handed_back:
            self._ask("poll", command=self._handed_back)
        self._ask("info")
        return self._attend()

    # -- while something runs

    def _attend(self) -> bool:
        """Show what happens, and pass keys on, until nothing runs and no answer is due; False if the person leaves."""
        while self.running or self._pending:
            ready = self.terminal.wait(self.connection.fd, seconds=_TICK)
            if self.connection.fd in ready:
                self._silent_since = time.monotonic()
                self.receive()
            if STDIN in ready and not self._press(self.terminal.read()):
                return False
            if self._holds:
                self._resize()
            if self._pending and not self._is_told and time.monotonic() > self._silent_since + _SILENCE:
                self._is_told = True
                self.terminal.say("the daemon has not answered yet: Ctrl-] leaves")
        self._prompt.type_ahead(b"" if self._for_agent else self._keys.rpartition(CTRL_C)[2])
        self._keys, self._for_agent = b"", False
        return True

    def _resize(self) -> None:
        if self._size != self.terminal.size:
            columns, rows = self._size = self.terminal.size
            self._ask("resize", columns=columns, rows=rows)

    def _press(self, pressed: bytes) -> bool:
        """Take keys; False if the person leaves."""
        keys, leave, _ = pressed.partition(LEAVE)
        if CTRL_C in keys and self._waits:
            return False
        if CTRL_C in keys:
            self._prompt.ahead = b""
        self._keys += keys
        self._for_agent = self.running == "agent"
        self._type()
        return bool(pressed) and not leave

    def _type(self) -> None:
        """Send the keys, when those before them have arrived."""
        if self._keys and self.running and self._holds and "type" not in self._pending.values():
            self._sent_keys, self._keys = self._keys, b""
            patience = _PATIENCE_WITH_AGENT if self.running == "agent" else _PATIENCE
            self._ask("type", self._sent_keys, turn_within=patience)

    # -- what comes from the daemon

    def handle(self, message: Message) -> None:
        """Show an event, or take an answer."""
        header = message.header
        verb = self._pending.pop(str(header.get("id")), None)
        if verb is None or verb == "watch":
            welcome = self.welcome
            if header.get("held"):
                self._waits = self._is_told = True
                self.welcome = f"somebody else is attached to {self.name}, and you are next: Ctrl-] gives up"
            super().handle(message)
            self.welcome = welcome
        elif "error" in header:
            self._fail(verb, to_error(header["error"], message.parts))
        elif verb == "hold":
            if self._waits:
                self.terminal.say(self.welcome)
                self._keys = b""
            self._holds, self._waits = True, False
        elif verb == "info":
            self._cwd = header["value"]["cwd"]
        elif verb in ("run", "poll"):
            self._handed_back = header.get("command", "")
            self._prompt.type_ahead(header.get("unread", "").encode("latin-1"))
        if verb in ("hold", "type", "run"):
            self._type()

    def _fail(self, verb: str, error: ShellSessionError) -> None:
        if verb == "type" and isinstance(error, NotRunning):
            self._keys = self._sent_keys + self._keys
        elif verb == "type" and isinstance(error, InvalidRequest | SessionBusy):
            if CTRL_C in self._sent_keys:
                self._ask("interrupt")
            else:
                self.terminal.say("the command reads no keys: these are dropped; Ctrl-C interrupts it")
        elif verb == "run" and not isinstance(error, SessionClosed):
            self.terminal.say(escaped(str(error)))
        elif verb not in ("interrupt", "poll") or not isinstance(error, NotRunning):  # else it has ended
            raise error

    def show_command(self, command: str, person: bool) -> None:
        """As in Watcher; our own command was typed here."""
        if "run" in self._pending.values():
            self.running = "own"
        else:
            super().show_command(command, person)

    def show_closed(self) -> None:
        """The next session is not held by us, and knows nothing of this one."""
        raise SessionClosed(f"the session of agent {self.connection.agent!r} was closed: attach again for a new one")
