"""``shellsession attach``: a person sees what runs in an agent's session, and can run commands there, too.

One connection carries requests, replies and events, so they arrive in one order. While it waits for a reply, the loop
still reads keys: a daemon that does not reply cannot trap the person.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any, Final

from ..daemon.client.admin import Visit
from ..daemon.client.daemon import Daemon
from ..daemon.client.link import Link
from ..daemon.client.remote import limits_fields
from ..daemon.client.session import connect
from ..daemon.client.transport import ConnectionLost, UnixChannel, UnixTransport
from ..daemon.protocol.endpoint import socket_path
from ..daemon.protocol.messages import to_error
from ..daemon.protocol.wire import PROTOCOL, Message, encode
from ..engine.io.threads import Poller, drive
from ..errors import (
    DaemonUnavailable,
    InvalidRequest,
    NoSuchAgent,
    NotRunning,
    SessionBusy,
    SessionClosed,
    ShellSessionError,
)
from ..models import Limits
from . import arguments
from .approvals import lines_of
from .arguments import escaped
from .prompt import open_prompt
from .terminal import CTRL_C, LEAVE, STDIN, UserTerminal

EXAMPLES: Final = (
    ("shellsession attach a1", "see what agent a1 runs, and run commands; Ctrl-] leaves"),
    ("shellsession attach a1 --read-only", "only watch; Ctrl-C leaves, too"),
    ("shellsession attach a1 --others refuse", "until you leave, a1's own calls fail with SessionBusy"),
)
_DESCRIPTION: Final = """\
See what an agent runs in its session, and run commands there yourself. If the agent has no session, one is opened (not
with --read-only), and closed when you leave without a command. While a command runs, it gets your keys, and Ctrl-C
interrupts it. Ctrl-] leaves at any time; a running command continues. What you type to a command that the agent
started is not echoed: it may have asked for a password. Programs see the TERM of the session, mostly "dumb": `export
TERM=...` before you start an editor or a pager. A second person who attaches sees what runs, and is next when you
leave. With prompt_toolkit (`pip install 'shellsession[attach]'`) the prompt has a history and edits commands
of several lines. The history keeps commands unmasked, secrets included, in attach_history, beside the audit log."""

# How many characters of another's command are shown.
_COMMAND_LENGTH: Final = 4096
# Our command is handed back after this many seconds. From then on it can get keys, and its end comes as an event.
_YIELD_AFTER: Final = 0.05
# Seconds that a request to type waits until the command is handed back. The limit is shorter for a command of the
# agent, whose own client may wait for it for long.
_TYPE_TIMEOUT: Final = 5.0
_TYPE_TIMEOUT_AGENT: Final = 0.2
# How much output of our commands the daemon keeps for others. Here it is shown as it arrives.
_LIMITS: Final = Limits(max_output=1 << 16)
# After this many seconds without a reply, tell the person.
_SILENCE_MAX: Final = 1.0
# Seconds between two checks of the terminal's size while a command runs.
_RESIZE_INTERVAL: Final = 0.2


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("attach", "[OPTIONS] AGENT", _DESCRIPTION, EXAMPLES)
    parser.add_argument("--read-only", action="store_true", help="see what runs, and type nothing")
    parser.add_argument(
        "--others",
        choices=("wait", "refuse"),
        default="wait",
        help="the agent's own calls wait up to their patience (default), or are refused",
    )
    arguments.add_socket(parser)
    arguments.add_agent(parser)
    return parser


def main(words: Sequence[str]) -> int:
    """Attach until the person leaves."""
    args = own_parser().parse_args(words)
    arguments.check_here("attach")
    path = socket_path(args.socket)
    with UserTerminal() as terminal:
        is_new = False
        if not args.read_only:
            with connect(args.agent, path) as session:
                is_new = session.opened_here
        try:
            with closing(AgentConnection(args.agent, path)) as connection:
                terminal.raw_mode()
                if args.read_only:
                    Watcher(terminal, connection).watch()
                else:
                    Person(terminal, connection, is_new).run(args.others)
        except ConnectionLost:
            raise DaemonUnavailable(
                "the daemon has ended, and every session with it: attach again to open a new one"
            ) from None
    if is_new:  # perhaps the name was mistyped
        with suppress(NoSuchAgent, DaemonUnavailable), Visit(args.agent, transport=_Impatient(path)) as visit:
            visit.close_unused()
    return 0


class _Impatient(UnixTransport):
    """A transport that soon gives up a silent daemon: nobody needs its answer."""

    def reach(self) -> UnixChannel | None:
        if (channel := super().reach()) is not None:
            channel.patience = _SILENCE_MAX
        return channel


class AgentConnection:
    """A connection to the daemon for requests about one agent."""

    def __init__(self, agent: str, path: str) -> None:
        self.agent, self.path = agent, path
        channel, self._poller = UnixTransport(path).connect(start=False), Poller()
        self.fd = channel.fileno()
        self._link = Link(channel, self._poller)
        self.receive = self._link.read
        try:
            drive(self._link.greet(), self._poller)
        except BaseException:
            self.close()
            raise

    def ask(self, verb: str, *parts: bytes, **fields: object) -> str:
        """Send a request and return its id."""
        header: dict[str, object] = {"protocol": PROTOCOL, "id": self._link.next_id(), "verb": verb, **fields}
        drive(self._link.send(encode({**header, "agent": self.agent}, *parts)), self._poller)
        return str(header["id"])

    def close(self) -> None:
        self._link.close()


class Watcher:
    """Shows what happens in an agent's session: each command, and its output as it arrives."""

    def __init__(self, terminal: UserTerminal, connection: AgentConnection) -> None:
        self.terminal, self.connection = terminal, connection
        self.name = escaped(connection.agent)
        self.welcome = f"watching {self.name}: Ctrl-C or Ctrl-] leaves"
        self.answered = set[str]()  # our own questions
        self.running = ""  # whose command runs: "agent", "person" (another one), "own" (ours), or "" for none

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
        """Handle the messages that have arrived."""
        for message in self.connection.receive():
            self.handle(message)

    def handle(self, message: Message) -> None:
        """Show an event, or the reply to "watch"."""
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
                if self.running != "own":  # otherwise the reply says so
                    say(f"refused: {escaped(header['reason'])}")
                self.running = "" if header["begun"] else self.running
            case "asks" if header["question"]["id"] not in self.answered:
                for line in lines_of(header["question"]):
                    say(line)
            case "restarted":
                say(f"the session of {self.name} was restarted: a fresh shell, in its first directory")
            case "closed":
                self.show_closed()
            case "missed":
                say(f"({header['bytes']} bytes of output skipped: they came faster than this terminal could show them)")

    def show_command(self, command: str, person: bool) -> None:
        """Show a command that starts or is running."""
        self.running = "person" if person else "agent"
        shown = command.strip("\n")[:_COMMAND_LENGTH] + ("…" if len(command) > _COMMAND_LENGTH else "")
        for number, line in enumerate(shown.split("\n")):
            self.terminal.say(f"{self.running}{'>' if number else '$'} {escaped(line)}")

    def show_end(self, header: dict[str, Any]) -> None:
        """Show how a command ended, unless it succeeded."""
        who, self.running = self.running or "agent", ""
        if header["outcome"] != "exited":
            self.terminal.reset_screen()
            self.terminal.say(("" if who == "own" else f"{who}: ") + (escaped(header["reason"]) or header["outcome"]))
        elif header["exit_code"] and who != "own":
            self.terminal.say(f"{who}: status {header['exit_code']}")

    def show_closed(self) -> None:
        """Show that the session was closed. If the agent opens another, that one is watched, too."""
        self.running = ""
        self.terminal.reset_screen()
        self.terminal.say(f"the session of {self.name} was closed")


class Person(Watcher):
    """A person who has exclusive use of the session and runs commands in it."""

    def __init__(self, terminal: UserTerminal, connection: AgentConnection, is_new: bool) -> None:
        super().__init__(terminal, connection)
        self._is_new = is_new  # we have opened the session
        self._prompt = open_prompt(terminal, connection.fd, self.receive)
        self._holder = secrets.token_hex(8)  # our name in requests for exclusive use
        self._has_hold = False
        self._pending: dict[str, str] = {}  # the verb of each request without a reply, by id
        self._silent_since = 0.0  # the time of the last request or message
        self._silence_reported = True  # the person knows why nothing happens
        self._is_queued = False  # another person is attached, and we are next
        self._handed_back = ""  # the id of our last command, if it was handed back
        self._keys = b""  # keys for the running command
        self._sent_keys = b""  # keys that a "type" request has sent
        self._for_agent = False  # the keys are for the agent's command: perhaps a password, so never run them
        self._cwd = ""
        self._size = (0, 0)

    def run(self, others: str) -> None:
        """Show the session and run commands until the person leaves."""
        meanwhile = "wait up to their patience" if others == "wait" else "are refused until you leave"
        name = f"{self.name} (a new session)" if self._is_new else self.name
        self.welcome = f"attached to {name}, whose own calls {meanwhile}: Ctrl-] leaves"
        self._ask("watch")
        self._ask("hold", others=others)
        while self._follow_commands() and self._refresh():
            command = self._prompt.read(f"{self.name}:{escaped(self._cwd)}$ ")
            if command is None:
                break
            self._run_command(command)
        if self._keys and self.running:
            self._ask("type", self._keys)
        runs_on = "; its command goes on" if self.running and self._has_hold else ""
        self.terminal.reset_screen()
        self.terminal.say(f"left {self.name}{runs_on}: `shellsession attach {shlex.quote(self.name)}` comes back")

    def _ask(self, verb: str, *parts: bytes, **fields: object) -> None:
        self._pending[self.connection.ask(verb, *parts, holder=self._holder, **fields)] = verb
        self._silent_since, self._silence_reported = time.monotonic(), False

    def _run_command(self, command: bytes) -> None:
        if command.strip() in (b"exit", b"logout"):
            self.terminal.say("that would end the agent's shell and its state: Ctrl-] leaves; `exit 0` ends the shell")
        elif command.strip():
            self._resize()
            how = {"timeout": _YIELD_AFTER, "on_timeout": "yield", "patience": None}
            how |= {"stdin": "tty", "echo": True, "merge_stderr": True}
            self._ask("run", command, limits=limits_fields(_LIMITS), env=_editors(), **how)

    def _refresh(self) -> bool:
        """Ask for the working directory, and for keys our last command has not read; False if the person leaves."""
        if self._handed_back:
            self._ask("poll", command=self._handed_back)
        self._ask("info")
        return self._follow_commands()

    # -- while a command runs

    def _follow_commands(self) -> bool:
        """Show events and forward keys until no command runs and no reply is due; False if the person leaves."""
        while self.running or self._pending:
            ready = self.terminal.wait(self.connection.fd, seconds=_RESIZE_INTERVAL)
            if self.connection.fd in ready:
                self._silent_since = time.monotonic()
                self.receive()
            if STDIN in ready and not self._take_keys(self.terminal.read()):
                return False
            if self._has_hold:
                self._resize()
            if self._pending and not self._silence_reported and time.monotonic() > self._silent_since + _SILENCE_MAX:
                self._silence_reported = True
                self.terminal.say("the daemon has not replied yet: Ctrl-] leaves")
        self._prompt.type_ahead(b"" if self._for_agent else self._keys.rpartition(CTRL_C)[2])
        self._keys, self._for_agent = b"", False
        return True

    def _resize(self) -> None:
        if self._size != self.terminal.size:
            columns, rows = self._size = self.terminal.size
            self._ask("resize", columns=columns, rows=rows)

    def _take_keys(self, pressed: bytes) -> bool:
        """Handle keys that were typed; False if the person leaves."""
        keys, leave, _ = pressed.partition(LEAVE)
        if CTRL_C in keys and self._is_queued:
            return False
        if CTRL_C in keys:
            self._prompt.ahead = b""
        self._keys += keys
        self._for_agent = self.running == "agent"
        self._type()
        return bool(pressed) and not leave

    def _type(self) -> None:
        """Send the keys, unless earlier ones are still on their way."""
        if self._keys and self.running and self._has_hold and "type" not in self._pending.values():
            self._sent_keys, self._keys = self._keys, b""
            timeout = _TYPE_TIMEOUT_AGENT if self.running == "agent" else _TYPE_TIMEOUT
            self._ask("type", self._sent_keys, turn_within=timeout)

    # -- messages from the daemon

    def handle(self, message: Message) -> None:
        """Show an event, or handle a reply."""
        header = message.header
        if header.get("event") == "asks" and "id" in header:  # about our own command: whoever typed it has said yes
            self.answered.add(header["question"]["id"])
            with suppress(InvalidRequest), Daemon(self.connection.path) as daemon:
                daemon.answer(header["question"]["id"], "accept")
            return
        verb = self._pending.pop(str(header.get("id")), None)
        if verb is None or verb == "watch":
            welcome = self.welcome
            if header.get("held"):
                self._is_queued = self._silence_reported = True
                self.welcome = f"another person is attached to {self.name}, and you are next: Ctrl-] gives up"
            super().handle(message)
            self.welcome = welcome
        elif "error" in header:
            self._fail(verb, to_error(header["error"], message.parts))
        elif verb == "hold":
            if self._is_queued:
                self.terminal.say(self.welcome)
                self._keys = b""
            self._has_hold, self._is_queued = True, False
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
                self.terminal.say("the command does not read the terminal: your keys are dropped; Ctrl-C interrupts it")
        elif verb == "run" and not isinstance(error, SessionClosed):
            self.terminal.say(escaped(str(error)))
        elif verb not in ("interrupt", "poll") or not isinstance(error, NotRunning):  # otherwise the command has ended
            raise error

    def show_command(self, command: str, person: bool) -> None:
        """As in Watcher, but do not show our own command, which was typed here."""
        if "run" in self._pending.values():
            self.running = "own"
        else:
            super().show_command(command, person)

    def show_closed(self) -> None:
        """Raise SessionClosed: we do not have exclusive use of the next session."""
        raise SessionClosed(f"the session of agent {self.connection.agent!r} was closed: attach again for a new one")


def _editors() -> dict[str, str]:
    """The editors of this person, in place of those of the session, which open nothing."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    git = os.environ.get("GIT_EDITOR", editor)
    sequence = os.environ.get("GIT_SEQUENCE_EDITOR", git)
    return {"GIT_EDITOR": git, "GIT_SEQUENCE_EDITOR": sequence, "EDITOR": editor, "VISUAL": editor}
