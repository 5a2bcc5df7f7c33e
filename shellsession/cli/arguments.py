"""How the command line is written: its verbs, and what their arguments have in common.

Law: what a word means is the same for every verb.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from ..errors import InvalidRequest
from ..models import check_seconds
from .words import Asked, name

# Columns that a cell takes on a terminal at the most, but for the last one's: a name of 256 characters would push all
# others out of sight. On a narrow one it is less, down to what still tells names apart.
_CELL: Final = 40
_LEAST: Final = 8
_COLOURS: Final = {"running": "32", "new": "2", "closed": "2"}


def escaped(text: str) -> str:
    """The text with what does not show (control characters, marks that turn the writing around) as ``\\x1b``."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def span(seconds: float) -> str:
    """A span of time in two or three characters more than its number: 0.3s, 45s, 12m, 3h, 8d."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    for unit, size, most in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if seconds < size * most:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def table(titles: Sequence[str], rows: Iterable[Sequence[object]], state: int | None = None) -> list[str]:
    """Lines with aligned columns, escaped; on a terminal no longer than that is wide.

    ``state``: which column says how something is, and may be coloured.
    """
    cells = [list(titles), *([escaped(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(_columns, column)) for column in zip(*cells, strict=True)]
    if (most := width()) is not None:
        widths = _fitted(widths, most)
        cells = [list(map(_cut, row, widths)) for row in cells]
    lines = []
    for row in cells:
        padded = [cell + " " * (width - _columns(cell)) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(padded).rstrip()
        line = line if most is None else _cut(line, most)
        if state is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
            line = _painted(line, sum(len(cell) + 2 for cell in padded[:state]), row[state])
        lines.append(line)
    return lines


def _columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(one) in ("Mn", "Me") else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def _fitted(widths: Sequence[int], most: int) -> list[int]:
    """The last column is to have a third of a line, if it is as long: the longest of the others give way."""
    *others, last = widths
    others = [min(one, _CELL) for one in others]
    room = most - 2 * len(others)
    while sum(others) > room - min(last, most // 3) and max(others) > _LEAST:
        others[others.index(max(others))] -= 1
    return [*others, min(last, max(1, room - sum(others)))]


def _cut(text: str, most: int) -> str:
    if _columns(text) <= most:
        return text
    text = text[:most]
    while _columns(text) >= most:
        text = text[:-1]
    return text + "…"


def _painted(line: str, start: int, state: str) -> str:
    end = start + len(state)
    colour = _COLOURS.get(state.partition(",")[0])
    if colour is None or line[start:end] != state:
        return line
    return f"{line[:start]}\x1b[{colour}m{state}\x1b[0m{line[end:]}"


def show(*lines: str) -> None:
    """Data: to stdout, in whatever characters that has."""
    encoding = sys.stdout.encoding
    for line in lines:
        print(line.encode(encoding, "backslashreplace").decode(encoding))


def show_json(value: Any) -> None:
    """One JSON value on a line; in ASCII, so that it shows as what it is.

    A byte that is no UTF-8 (of a path, of a command) is U+FFFD: half a surrogate pair, strict readers refuse.
    """
    import json

    text = json.dumps(value)
    if "\\ud" in text:
        whole = json.dumps(value, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
        text = json.dumps(json.loads(whole.decode("utf-16-le", "replace")))
    print(text)


def talk(text: str) -> None:
    """What is said about data: to stderr, on one line; where that cannot be written, the exit status must do."""
    with suppress(OSError):
        print(f"shellsession: {escaped(text)}", file=sys.stderr)


def width() -> int | None:
    """Of the terminal that stdout is; None when it is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None


# Each verb's file, and what it does. There, ``main(words)`` does it, and ``own_parser()`` tells ``completion`` what it
# may be told.
VERBS: Final = {
    "run": "run a command in an agent's session",
    "ls": "list the agents and what they run",
    "send": "type into the terminal of a running command",
    "wait": "stay with a running command until it ends",
    "interrupt": "end the running command, keep the session",
    "jobs": "list what earlier commands left running",
    "restart": "give an agent a fresh bash",
    "kill": "close sessions, and end all that runs in them",
    "attach": "sit down at an agent's session yourself",
    "log": "show who ran what, and how it ended",
    "status": "show how the daemon is doing",
    "doctor": "show what this machine offers, and what to do about the rest",
    "serve": "run the daemon that holds the sessions",
    "stop": "end the daemon and every session",
    "mcp": "serve a session's verbs to MCP clients over stdio",
    "agent": "give a task to a small agent, with bash if you allow it",
    "completion": "print what makes bash complete all this",
}

_EXAMPLES: Final = "examples:"

Example = tuple[str, str]  # a line to type, and what it does


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The parser of a verb."""
    own: argparse.ArgumentParser = importlib.import_module(f".{verb}", __package__).own_parser()
    return own


def parser(verb: str, usage: str, description: str, examples: Sequence[Example]) -> argparse.ArgumentParser:
    """The parser of one verb."""
    lines = [f"  # {what}\n  {line}" for line, what in examples]
    return _Parser(
        prog=f"shellsession {verb}",
        usage=f"shellsession {verb} {usage}".rstrip(),
        description=description,
        epilog="\n".join([_EXAMPLES, *lines]),
        formatter_class=_Formatter,
        allow_abbrev=False,  # what is short for one option today is short for two tomorrow
    )


def tell_error(code: str, text: str) -> None:
    """In words; and where that was asked for as JSON, with its code (see errors.py)."""
    talk(text)
    if Asked.json:
        with suppress(OSError):
            show_json({"error": {"code": code, "message": text}})
            sys.stdout.flush()


class _Json(argparse.Action):
    def __call__(self, _: argparse.ArgumentParser, namespace: argparse.Namespace, *rest: object) -> None:
        namespace.json = Asked.json = True


class _Parser(argparse.ArgumentParser):
    _words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words, Asked.json = args or (), False
        return super().parse_known_args(args, namespace)

    def print_help(self, file: Any = None) -> None:
        """Raises OSError where it cannot be written: argparse would keep that to itself."""
        print(self.format_help(), end="", file=file)

    def error(self, message: str) -> NoReturn:
        """Raises InvalidRequest. (What is behind the wrong word was not looked at yet.)"""
        Asked.json = Asked.json or "--json" in self._words
        self.print_usage(sys.stderr)
        raise InvalidRequest(message)


class _Formatter(argparse.HelpFormatter):
    """One is made for each argument that is added: left to itself, it imports shutil (2 ms) to learn the width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=min(width() or 100, 100) - 2)

    def _set_color(self, *asked: Any, **named: Any) -> None:
        """Python 3.14 gets its colours for each one, and loads dataclasses for that (12 ms): only help that is shown
        needs them.
        """
        self._asked = asked, named

    def __getattr__(self, name: str) -> Any:
        if name not in ("_theme", "_decolor"):  # what _set_color sets
            raise AttributeError(name)
        asked, named = self._asked
        vars(argparse.HelpFormatter)["_set_color"](self, *asked, **named)
        return vars(self)[name]

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLES) else super()._fill_text(text, width, indent)


def add_socket(to: argparse.ArgumentParser) -> None:
    to.add_argument("--socket", metavar="PATH", help="the daemon's socket (default: $SHELLSESSION_SOCKET, or your own)")


def add_agent(to: argparse.ArgumentParser) -> None:
    to.add_argument("agent", metavar="AGENT", type=name, help="whose session: a name, as `shellsession ls` shows it")


def add_timeout(to: argparse.ArgumentParser, what: str) -> None:
    to.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        default=...,
        help=f"{what} for at most so many seconds (0: no limit; default: the session's limit, usually 120)",
    )


def add_json(to: argparse.ArgumentParser, what: str) -> None:
    told = f'{what}; an error as {{"error": {{"code", "message"}}}}'
    to.add_argument("--json", action=_Json, nargs=0, default=False, help=told)


def seconds(text: str) -> float | None:
    """A time limit; 0 is none."""
    try:
        value = float(text)
        check_seconds("it", value or None)
    except ValueError:  # InvalidRequest is one
        raise argparse.ArgumentTypeError(f"{text!r:.40} is no number of seconds, or too large; 0 is no limit") from None
    return value or None


def count(text: str) -> int:
    """0, 1, 2, ..."""
    return _number(text, 0)


def positive(text: str) -> int:
    """1, 2, 3, ..."""
    return _number(text, 1)


def _number(text: str, least: int) -> int:
    with suppress(ValueError):  # also of more than 4300 digits
        if least <= (value := int(text)) <= sys.maxsize:
            return value
    raise argparse.ArgumentTypeError(f"{text!r:.40} is no whole number from {least} to {sys.maxsize}")
