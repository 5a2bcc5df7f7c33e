"""What the verbs share: the list of verbs, their argument parsers, and how they print tables, JSON and messages.

An option means the same in every verb that has it.
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
from ..text import escaped as escaped
from .words import REMOTE, VIA, ErrorFormat, name

# The widest cell of a table on a terminal, except in the last column: a name of 256 characters would push all others
# out of sight. A narrow terminal makes cells smaller, down to a size that still distinguishes names.
_CELL_MAX: Final = 40
_CELL_MIN: Final = 8
_COLOURS: Final = {"running": "32", "new": "2", "closed": "2"}


def span(seconds: float) -> str:
    """A span of time in a few characters: 0.3s, 45s, 12m, 3h, 8d."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    for unit, size, most in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if seconds < size * most:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def table(titles: Sequence[str], rows: Iterable[Sequence[object]], state: int | None = None) -> list[str]:
    """Lines with aligned columns, escaped, and cut to the width of the terminal.

    ``state``: the index of the column that may be coloured, as it shows a state.
    """
    cells = [list(titles), *([escaped(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(_columns, column)) for column in zip(*cells, strict=True)]
    if (most := width()) is not None:
        widths = _fit_widths(widths, most)
        cells = [list(map(_cut, row, widths)) for row in cells]
    lines = []
    for row in cells:
        padded = [cell + " " * (width - _columns(cell)) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(padded).rstrip()
        line = line if most is None else _cut(line, most)
        if state is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
            line = _colour(line, sum(len(cell) + 2 for cell in padded[:state]), row[state])
        lines.append(line)
    return lines


def _columns(text: str) -> int:
    """The number of terminal columns that the text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(one) in ("Mn", "Me") else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def _fit_widths(widths: Sequence[int], most: int) -> list[int]:
    """Shrink the widest columns until the last one has a third of the line, or its whole text."""
    *others, last = widths
    others = [min(one, _CELL_MAX) for one in others]
    room = most - 2 * len(others)
    while sum(others) > room - min(last, most // 3) and max(others) > _CELL_MIN:
        others[others.index(max(others))] -= 1
    return [*others, min(last, max(1, room - sum(others)))]


def _cut(text: str, most: int) -> str:
    if _columns(text) <= most:
        return text
    text = text[:most]
    while _columns(text) >= most:
        text = text[:-1]
    return text + "…"


def _colour(line: str, start: int, state: str) -> str:
    end = start + len(state)
    colour = _COLOURS.get(state.partition(",")[0])
    if colour is None or line[start:end] != state:
        return line
    return f"{line[:start]}\x1b[{colour}m{state}\x1b[0m{line[end:]}"


def show(*lines: str) -> None:
    """Print data to stdout. Characters that its encoding lacks are escaped."""
    encoding = sys.stdout.encoding
    for line in lines:
        print(line.encode(encoding, "backslashreplace").decode(encoding))


def show_json(value: Any) -> None:
    """Print a JSON value on one line, in ASCII, so that any terminal shows it unchanged.

    A byte that is not UTF-8 (in a path or a command) becomes U+FFFD, as strict readers refuse half a surrogate pair.
    """
    import json

    text = json.dumps(value)
    if "\\ud" in text:
        whole = json.dumps(value, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
        text = json.dumps(json.loads(whole.decode("utf-16-le", "replace")))
    print(text)


def talk(text: str) -> None:
    """Print a message to stderr, on one line. If stderr cannot be written, the exit status alone must do."""
    with suppress(OSError):
        print(f"shellsession: {escaped(text)}", file=sys.stderr)


def width() -> int | None:
    """The width of the terminal on stdout; None if stdout is not a terminal."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None


# The verbs, and what each does. A verb is a function in ``small``, or one of ``_MODULES``: these have ``main(words)``,
# which runs the verb, and ``own_parser()``, its parser, which docs/generate.py reads, too.
VERBS: Final = {
    "run": "run a command in an agent's session",
    "ls": "list the agents and what they run",
    "top": "watch all agents in a live table",
    "send": "type into the terminal of a running command",
    "wait": "wait for a running command, and print its output",
    "why": "say what the running command waits for",
    "interrupt": "end the running command, keep the session",
    "jobs": "list what earlier commands left running",
    "output": "show parts of what a command printed",
    "restart": "give an agent a fresh bash",
    "snapshot": "write the state of an agent's shell to a file",
    "restore": "give an agent a fresh bash with the state in a file",
    "fork": "copy an agent's shell to another agent",
    "branch": "show, apply or discard what an agent wrote on its branch",
    "checkpoint": "keep the files of an agent's branch, and its shell",
    "rollback": "bring an agent's files and shell back to a checkpoint",
    "kill": "close sessions, and end everything that runs in them",
    "attach": "use an agent's session yourself, at a prompt",
    "approvals": "show the commands that wait for your yes, and answer",
    "forget": "delete what is recorded about agents without a session",
    "workflow": "run many steps in one shell, from a file",
    "log": "show who ran what, and how it ended",
    "history": "list the commands of one agent",
    "status": "show the state of the daemon",
    "doctor": "check this machine, and say how to fix what is missing",
    "serve": "run the daemon that holds the sessions",
    "bridge": "connect a client elsewhere to the daemon here (see --via)",
    "stop": "end the daemon and every session",
    "mcp": "serve a session's verbs to MCP clients over stdio",
    "agent": "give a task to a small agent, with bash if you allow it",
    "completion": "print a script for completion in bash, zsh or fish",
}

_MODULES: Final = {"run", "approvals", "top", "jobs", "attach", "log", "doctor", "serve", "mcp", "agent", "workflow"}

_EXAMPLES: Final = "examples:"

Example = tuple[str, str]  # a line to type, and what it does


def verb_of(name: str) -> Any:
    """The verb, which has ``main`` and ``own_parser``: its module, or one of ``small``."""
    if name in _MODULES:
        return importlib.import_module(f".{name}", __package__)
    return importlib.import_module(".small", __package__).VERBS[name]


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The parser of a verb."""
    verb_parser: argparse.ArgumentParser = verb_of(verb).own_parser()
    return verb_parser


def parser(verb: str, usage: str, description: str, examples: Sequence[Example]) -> argparse.ArgumentParser:
    """Make the parser of a verb."""
    lines = [f"  # {what}\n  {line}" for line, what in examples]
    return _Parser(
        prog=f"shellsession {verb}",
        usage=f"shellsession {verb} {usage}".rstrip(),
        description=description,
        epilog="\n".join([_EXAMPLES, *lines]),
        formatter_class=_Formatter,
        allow_abbrev=False,  # an abbreviation of one option becomes ambiguous when another is added
    )


def tell_error(code: str, text: str) -> None:
    """Print an error to stderr and, with ``--json``, as JSON to stdout, with its code (see errors.py)."""
    talk(text)
    if ErrorFormat.json:
        with suppress(OSError):
            show_json({"error": {"code": code, "message": text}})
            sys.stdout.flush()


class _Json(argparse.Action):
    def __call__(self, _: argparse.ArgumentParser, namespace: argparse.Namespace, *rest: object) -> None:
        namespace.json = ErrorFormat.json = True


class _Parser(argparse.ArgumentParser):
    _words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words, ErrorFormat.json = args or (), False
        parsed, rest = super().parse_known_args(args, namespace)
        if hasattr(parsed, "via"):
            _transport(parsed)
        return parsed, rest

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, rest = self.parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}{self._advice(rest[0])}")
        return parsed

    def _advice(self, word: str) -> str:
        """What the user may have meant by a word that this verb does not take; "" if there is no guess."""
        from difflib import get_close_matches  # rarely needed

        known = self._option_string_actions
        option = word.partition("=")[0]
        if option == "--via":
            return f": `{self.prog}` is for the daemon of this machine, so run it there"
        if option.startswith("-"):
            return "".join(f": did you mean {close}?" for close in get_close_matches(option, known, 1))
        if "--session" in known:
            return f": to name an agent, write -s {word}"
        if self.prog == "shellsession stop":
            return f": it ends the daemon; `shellsession kill {word}` closes one session"
        return ""

    def print_help(self, file: Any = None) -> None:
        """Print the help. Raises OSError if that fails, which argparse would ignore."""
        print(self.format_help(), end="", file=file)

    def error(self, message: str) -> NoReturn:
        """Raise InvalidRequest, as JSON if ``--json`` is anywhere: it may come after the wrong word."""
        ErrorFormat.json = ErrorFormat.json or "--json" in self._words
        self.print_usage(sys.stderr)
        raise InvalidRequest(message)


class _Formatter(argparse.HelpFormatter):
    """Formats help. argparse makes one for each added argument, and would import shutil (2 ms) to learn the width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=min(width() or 100, 100) - 2)

    def _set_color(self, *values: Any, **keywords: Any) -> None:
        """Put off loading the colours until help is printed: Python 3.14 loads dataclasses for them (12 ms)."""
        self._color_arguments = values, keywords

    def __getattr__(self, name: str) -> Any:
        if name not in ("_theme", "_decolor"):  # the attributes that _set_color sets
            raise AttributeError(name)
        values, keywords = self._color_arguments
        vars(argparse.HelpFormatter)["_set_color"](self, *values, **keywords)
        return vars(self)[name]

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLES) else super()._fill_text(text, width, indent)


def add_socket(to: argparse.ArgumentParser) -> None:
    to.add_argument("--socket", metavar="PATH", help="the daemon's socket (default: $SHELLSESSION_SOCKET, or your own)")


def add_place(to: argparse.ArgumentParser) -> None:
    """Add --socket and --via. With the latter, ``socket`` of the parsed words is a transport."""
    add_socket(to)
    to.add_argument(
        "--via",
        metavar="WORDS",
        help="a program that leads to the daemon elsewhere, such as 'ssh box' (default: $SHELLSESSION_VIA; '': here);"
        " --socket then is a path there",
    )


def check_here(verb: str) -> None:
    """Refuse a verb that is only for the daemon here if the user has set another. Raises InvalidRequest."""
    if os.environ.get(VIA):
        raise InvalidRequest(
            f"`shellsession {verb}` is for the daemon of this machine, but {VIA} names another: run it there, or unset"
            f" {VIA}"
        )


def _transport(args: argparse.Namespace) -> None:
    """Replace ``socket`` by the transport to the daemon elsewhere, if the words or the environment name one."""
    via = os.environ.get(VIA) if args.via is None else args.via
    if via:
        import shlex

        from ..daemon.client.places import transport_of

        try:
            words = shlex.split(via)
        except ValueError as error:
            raise InvalidRequest(f"--via {via!r:.100}: {error}") from None
        args.socket = transport_of(args.socket, words, os.environ.get(REMOTE) or None)


def add_agent(to: argparse.ArgumentParser) -> None:
    to.add_argument("agent", metavar="AGENT", type=name, help="whose session: a name, as `shellsession ls` shows it")


def add_idle_ttl(parser: argparse.ArgumentParser, condition: str = "") -> None:
    """Add --idle-ttl, of the agent's session in the daemon. ``condition``: what it needs."""
    parser.add_argument(
        "--idle-ttl",
        metavar="S",
        type=seconds,
        default=...,
        help=f"{condition}close the session after S idle seconds (0: never; default: as the daemon does, usually 3600)",
    )


def add_timeout(to: argparse.ArgumentParser, what: str) -> None:
    to.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        default=...,
        help=f"{what} for at most S seconds (0: no limit; default: the session's limit, usually 120)",
    )


def add_json(to: argparse.ArgumentParser, what: str) -> None:
    text = f'{what}; an error as {{"error": {{"code", "message"}}}}'
    to.add_argument("--json", action=_Json, nargs=0, default=False, help=text)


def seconds(text: str) -> float | None:
    """Parse a time limit in seconds; 0 means no limit, and returns None."""
    try:
        value = float(text)
        check_seconds("it", value or None)
    except ValueError:  # InvalidRequest is one
        raise argparse.ArgumentTypeError(
            f"{text!r:.40} is not a number of seconds, or too large; 0 means no limit"
        ) from None
    return value or None


def variable(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE."""
    name, is_set, value = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError("a variable needs a name: write NAME=VALUE")
    if not is_set:
        raise argparse.ArgumentTypeError(f"{name!r:.40} has no value: write {name:.40}=VALUE")
    return name, value


def number(text: str) -> float:
    """Parse a number."""
    with suppress(ValueError):
        return float(text)
    raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number")


def count(text: str) -> int:
    """Parse a whole number from 0."""
    return _number(text, 0)


def positive(text: str) -> int:
    """Parse a whole number from 1."""
    return _number(text, 1)


def _number(text: str, least: int) -> int:
    with suppress(ValueError):  # int() also refuses more than 4300 digits
        if least <= (value := int(text)) <= sys.maxsize:
            return value
    raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from {least} to {sys.maxsize}")
