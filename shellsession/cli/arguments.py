"""How the command line is written: its verbs, and what their arguments have in common.

Law: what a word means is the same for every verb.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from ..errors import InvalidRequest
from ..models import check_seconds
from .listing import show_json, talk, width
from .words import Asked, name

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
