"""``shellsession top``: a live table of all agents on a terminal."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from ..daemon.client.admin import Visit
from ..daemon.client.daemon import Daemon
from ..errors import DaemonUnavailable, InvalidRequest, NoSuchAgent, ShellSessionError
from ..extras import missing
from . import arguments
from .approvals import lines_of
from .arguments import escaped, show, span, table
from .terminal import CTRL_C, LEAVE, STDIN, UserTerminal

_DESCRIPTION: Final = """
Show all agents and what they do, again and again: the state, the command, for how long it has been running and what it
waits for (see `shellsession why`), and the last line that was printed, with secrets masked as the session's redact=
says. Up, Down, PgUp and PgDn select an agent, Enter attaches to it, and i interrupts its command. s changes the order,
/ filters by a text in the name, the state or the command, and q leaves. The oldest question that waits for a person is
on top: a accepts it once, and d declines it (see `shellsession approvals`). Needs the extra "top" of the package;
--once does not.
"""
EXAMPLES: Final = [
    ("shellsession top", "all agents, until q"),
    ("shellsession top --sort name --filter running", "those that run a command, by name"),
    ("shellsession top --once", "print the table once, for a log"),
]
# Seconds between two looks at the agents, and between two drawings; the looks take at most this part of the time.
_LOOK: Final = 1.0
_DRAW: Final = 0.25
_SHARE: Final = 0.05
# Seconds after which a command is asked why, and between two questions; and seconds for all of them with --once.
_WHY_AFTER: Final = 2.0
_WHY_EVERY: Final = 3.0
_WHY_ONCE: Final = 2.0
# Seconds for which a question must have been seen before a key accepts it: keys typed before are no answer.
_SEEN: Final = 0.5
# Columns from which there is room for the reasons in the table. Below it has that of the selected agent.
_WIDE: Final = 100
_NAME_MAX: Final = 20
_STYLES: Final = {"running": "green", "attached": "yellow", "idle": "", "new": "dim", "closed": "dim"}
_KEY: Final = re.compile(rb"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)
_MOVES: Final = {b"A": -1, b"B": 1, b"5~": -10, b"6~": 10, b"H": -(10**9), b"1~": -(10**9), b"F": 10**9, b"4~": 10**9}
_HELP: Final = "↑↓ select · Enter attach · i interrupt · s sort · / filter · q quit"
_HELP_ASCII: Final = "Up Down select | Enter attach | i interrupt | s sort | / filter | q quit"

Row = dict[str, Any]
T = TypeVar("T")
# By the longest run first, then by the last use.
_ORDERS: Final[dict[str, Callable[[Row], Any]]] = {
    "runs": lambda row: (-(row["running_for"] or -1.0), row["idle"], row["agent"]),
    "name": lambda row: row["agent"],
    "idle": lambda row: (row["idle"], row["agent"]),
}


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("top", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    parser.add_argument("--once", action="store_true", help="print the table once, and exit")
    parser.add_argument("--sort", choices=list(_ORDERS), default="runs", help="the order (default: runs)")
    parser.add_argument("--filter", metavar="TEXT", default="", help="only agents with this text in the table")
    arguments.add_place(parser)
    return parser


def main(words: Sequence[str]) -> int:
    """Show the agents until the person leaves."""
    args = own_parser().parse_args(words)
    with Daemon(args.socket) as daemon:
        top = Top(daemon, args.socket, args.sort, args.filter)
        top.look()
        if args.once:
            until = time.monotonic() + _WHY_ONCE
            while time.monotonic() < until and top.ask_why(top.rows):
                pass
            for question in top.questions:
                show(*lines_of(question))
            rows = [(*_cells(row), top.why(row), row["line"]) for row in top.rows]
            show(*table(("AGENT", "STATE", "RUNS", "COMMAND", "WHY", "LAST LINE"), rows, state=1))
            return 0
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise InvalidRequest(
                "top is for a terminal on stdin and stdout: `shellsession top --once` prints the table"
            )
        while (agent := top.watch()) is not None:
            top.note = _attach(agent, args.socket)
    return 0


def _attach(agent: str, socket: Any) -> str:
    """Attach to the agent. Returns what to say after that."""
    from . import attach

    if not isinstance(socket, str | None):
        return "attach is for the daemon of this machine: run it there"
    try:
        attach.main([*([] if socket is None else ["--socket", socket]), "--", agent])
    except ShellSessionError as error:
        return str(error)
    return ""


def _cells(row: Row) -> tuple[str, str, str, str]:
    state = "attached" if row["attached"] else row["state"]
    runs = "-" if row["running_for"] is None else span(row["running_for"])
    return row["agent"], state, runs, row["command"]


def _runs_long(row: Row) -> bool:
    return (row["running_for"] or 0.0) >= _WHY_AFTER


class Top:
    """The table, the selected agent, and what the person has typed."""

    def __init__(self, daemon: Daemon, socket: Any, order: str, text: str) -> None:
        self._daemon, self._socket = daemon, socket
        self._order, self._filter = order, text
        self._all: list[Row] = []
        self.rows: list[Row] = []  # those that the filter shows, in order
        self.questions: list[Row] = []  # that wait for a person, the oldest first
        self._question = "", 0.0  # the id of the one that is shown whole, and since when
        self.note = ""  # the last line, in place of the help
        self.selected, self._first = "", 0  # the agent, and the first row that is visible
        self._typed: str | None = None  # of a filter, while it is typed
        self._fault = ""
        self._pause = _LOOK
        self._asked: dict[str, tuple[float, str]] = {}  # when it was asked why, and the answer

    def look(self) -> None:
        """Ask the daemon for all agents."""
        begun = time.monotonic()
        self._all, self.questions = self._daemon.described(lines=True), self._daemon.approvals()
        self._asked = {row["agent"]: one for row in self._all if (one := self._asked.get(row["agent"])) is not None}
        self._pause = max(_LOOK, (time.monotonic() - begun) / _SHARE)
        self._arrange()

    def ask_why(self, rows: Sequence[Row]) -> bool:
        """Ask what one of these commands waits for, that which was asked longest ago. False if none is due."""
        now = time.monotonic()
        due = {row["agent"]: self._asked.get(row["agent"], (0.0, ""))[0] for row in rows if _runs_long(row)}
        agent = min(due, key=due.__getitem__, default="")
        if not agent or now - due[agent] < _WHY_EVERY:
            return False
        text = ""
        with suppress(NoSuchAgent):
            text = str(self._daemon.why(agent))
        self._asked[agent] = time.monotonic(), text
        return True

    def why(self, row: Row) -> str:
        """What the row's command waits for; "" if that is not known."""
        if row["question"]:
            return f"asks a person: question {row['question']}"
        asked, text = self._asked.get(row["agent"], (0.0, ""))
        return text if _runs_long(row) and time.monotonic() - asked < row["running_for"] else ""

    @property
    def _wanted(self) -> str:
        return self._filter if self._typed is None else self._typed

    def _arrange(self) -> None:
        wanted = self._wanted.lower()
        found = [row for row in self._all if any(wanted in cell.lower() for cell in _cells(row))]
        self.rows = sorted(found, key=_ORDERS[self._order])

    def watch(self) -> str | None:
        """Show the table until the person leaves. Returns the agent to attach to, or None."""
        try:
            from rich.console import Console
            from rich.live import Live
        except ImportError as error:
            raise missing("top", error) from error
        console = Console(highlight=False)
        with (
            UserTerminal() as terminal,
            Live(
                console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            ) as live,
        ):
            terminal.raw_mode()
            look_at = draw_at = 0.0
            size, is_new = terminal.size, True
            while True:
                now = time.monotonic()
                if now >= look_at:
                    self._ask(self.look)
                    look_at, is_new = time.monotonic() + self._pause, True
                is_new, size = is_new or terminal.size != size, terminal.size
                if is_new and now >= draw_at:
                    live.update(self.picture(*size), refresh=True)
                    draw_at, is_new = time.monotonic() + _DRAW, False
                if not is_new:
                    is_new = bool(self._ask(lambda: self.ask_why(self._visible(self._room(*terminal.size)))))
                if STDIN in terminal.wait(seconds=max(0.01, min(look_at, max(draw_at, now + _DRAW)) - now)):
                    keys = terminal.read()
                    for key in _KEY.findall(keys) or [LEAVE]:
                        if key in (CTRL_C, LEAVE) or (self._typed is None and key == b"q"):
                            return None
                        if self._typed is None and key == b"\r" and self.selected:
                            return self.selected
                        self._press(key)
                    is_new = True

    def _ask(self, ask: Callable[[], T]) -> T | None:
        try:
            answer = ask()
        except DaemonUnavailable as error:  # another one may start
            self._all, self.rows, self.questions, self._fault = [], [], [], str(error)
        except ShellSessionError as error:
            self._fault = str(error)
        else:
            self._fault = ""
            return answer
        return None

    # -- keys

    def _press(self, key: bytes) -> None:
        self.note = ""
        if self._typed is not None:
            self._type(self._typed, key)
        elif key[:1] == b"\x1b" and (by := _MOVES.get(key[2:])) is not None:
            self._move(by)
        elif key in (b"j", b"k"):
            self._move(1 if key == b"j" else -1)
        elif key == b"s":
            orders = list(_ORDERS)
            self._order = orders[(orders.index(self._order) + 1) % len(orders)]
            self._arrange()
        elif key == b"/":
            self._typed = self._filter
        elif key == b"\x1b":
            self._filter = ""
            self._arrange()
        elif key == b"i" and self.selected:
            self._interrupt(self.selected)
        elif key in (b"a", b"d") and self.questions:
            self._answer(key == b"a")

    def _type(self, text: str, key: bytes) -> None:
        if key in (b"\r", b"\x1b"):
            self._filter, self._typed = (text if key == b"\r" else ""), None
        elif key in (b"\x7f", b"\b"):
            self._typed = text[:-1]
        elif key.isascii() and key.decode().isprintable():
            self._typed = text + key.decode()
        self._arrange()

    def _move(self, by: int) -> None:
        if self.rows:
            at = min(max(0, self._at + by), len(self.rows) - 1)
            self.selected = self.rows[at]["agent"]

    @property
    def _at(self) -> int:
        """The position of the selected agent among the rows."""
        return next((at for at, row in enumerate(self.rows) if row["agent"] == self.selected), 0)

    def _interrupt(self, agent: str) -> None:
        try:
            with Visit(agent, self._socket) as visit:
                visit.interrupt()
            self.note = f"interrupted the command of {agent}"
        except ShellSessionError as error:
            self.note = str(error)

    def _answer(self, accepts: bool) -> None:
        """Answer the question on top. One that the person has not seen whole is not accepted."""
        shown, since = self._question
        question = next((one for one in self.questions if one["id"] == shown), self.questions[0])
        if accepts and (question["id"] != shown or time.monotonic() < since + _SEEN):
            self.note = "it was not shown whole, or only just now: look at it first"
            return
        try:
            self._daemon.answer(question["id"], "accept" if accepts else "decline")
            self.questions.remove(question)
            self.note = f"{'accepted' if accepts else 'declined'} the command of {question['agent']}"
        except ShellSessionError as error:
            self.note = str(error)

    # -- the picture

    def picture(self, columns: int, lines: int) -> Any:
        """The table as it is now: only the rows that fit are made."""
        from rich.console import Group
        from rich.text import Text

        def line(text: str, style: str = "") -> Text:
            return Text(escaped(text), style, no_wrap=True, overflow="ellipsis")

        asked, room = self._asked_lines(columns, lines), self._room(columns, lines)
        shown = self._visible(room)
        blank = [Text("")] * (room - len(shown))
        why = self.why(self.rows[self._at]) if self.rows else ""
        top = line(self._title(), "bold"), *(line(one, "yellow") for one in asked)
        last = line(f"{self.selected}: {why}" if why else ""), line(self._footer(), "dim")
        return Group(*top, self._table(shown, columns), *blank, *last)

    def _room(self, columns: int, lines: int) -> int:
        return max(1, lines - 4 - len(self._asked_lines(columns, lines)))

    def _asked_lines(self, columns: int, lines: int) -> list[str]:
        """The question on top, in lines that fit: whole, in at most half of the screen, or only its beginning."""
        if not self.questions:
            self._question = "", 0.0
            return []
        question, *others = self.questions
        text, most = lines_of(question), max(2, lines // 2)
        found = [one[at : at + columns] for one in text for at in range(0, len(one), columns)]
        is_whole = len(found) < most and all(map(str.isascii, found))  # other characters may be wide
        shown = question["id"] if is_whole else ""
        if shown != self._question[0]:
            self._question = shown, time.monotonic()
        more = f", and {len(others)} more wait" if others else ""
        how = (
            "a accepts it once, d declines it" if is_whole else "d declines it; `shellsession approvals` shows it whole"
        )
        return [*found[: most - 1], how + more]

    def _visible(self, room: int) -> Sequence[Row]:
        """The rows that fit, with the selected one among them."""
        at = self._at
        self.selected = self.rows[at]["agent"] if self.rows else ""
        self._first = max(0, min(self._first, at, len(self.rows) - room), at - room + 1)
        return self.rows[self._first : self._first + room]

    def _title(self) -> str:
        running = sum(row["state"] == "running" for row in self._all)
        shown = f", {len(self.rows)} with {self._wanted!r}" if self._wanted else ""
        questions = f", {len(self.questions)} asking" if self.questions else ""
        return f"{len(self._all)} agents, {running} running{questions}{shown}, by {self._order}"

    def _footer(self) -> str:
        if self._typed is not None:
            return f"filter: {self._typed}_ (Enter keeps it, Esc clears it)"
        if self._fault or self.note:
            return self._fault or self.note
        return _HELP if (sys.stdout.encoding or "").lower().startswith("utf") else _HELP_ASCII

    def _table(self, rows: Sequence[Row], columns: int) -> Any:
        from rich.table import Table
        from rich.text import Text

        found = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="reverse", pad_edge=False)
        width = min(_NAME_MAX, max((len(row["agent"]) for row in rows), default=0))
        widths: dict[str, dict[str, Any]] = {
            "AGENT": {"width": max(5, width)},
            "STATE": {"width": 8},
            "RUNS": {"width": 5, "justify": "right"},
            "COMMAND": {"ratio": 2},
            **({"WHY": {"ratio": 3}} if columns >= _WIDE else {}),
            "LAST LINE": {"ratio": 3},
        }
        for title, how in widths.items():
            found.add_column(title, no_wrap=True, overflow="ellipsis", **how)
        for row in rows:
            last = (self.why(row), row["line"])[columns < _WIDE :]
            cells = [Text(escaped(cell[:columns])) for cell in (*_cells(row), *last)]
            if not (is_selected := row["agent"] == self.selected):
                cells[1].stylize(_STYLES.get(cells[1].plain, ""))
            found.add_row(*cells, style="reverse" if is_selected else "")
        return found
