"""``shellsession send``: type a line into the terminal of a running command, and print its output."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Final

from . import arguments, results

EXAMPLES: Final = (
    (
        "shellsession send --timeout 5 builder Ann",
        "answer the first question of: shellsession run -i -s builder --"
        """ 'read -p "name? " n; read -n 1 -p "sure? " s; echo "$n $s"'""",
    ),
    ("shellsession send -n builder y", "one key, without Enter"),
    ("shellsession send --keys 'Down Down Enter' builder", "keys by name, for a program with menus"),
)
_DESCRIPTION: Final = """\
Type a line into the terminal of the command that was handed back running (see `shellsession run -i`), then print its
output until it waits for input, ends, or the time limit passes. The exit status is 0 while the command is still
running, and the command's status when it has ended. Ctrl-C ends the command. While a person is attached
(`shellsession attach`), this waits until they leave; --timeout starts only then. While another process waits for the
command, this waits, too, until that process returns; if --timeout passes first, it exits with 125, and nothing was
typed. If stderr is a terminal, it says what it is waiting for."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("send", "[OPTIONS] AGENT [TEXT]", _DESCRIPTION, EXAMPLES)
    parser.add_argument("-n", action="store_true", help="do not press Enter after it")
    parser.add_argument(
        "--keys", metavar="NAMES", help="keys to press after TEXT, as tmux names them: 'C-c', 'Up Up Enter', 'Escape :'"
    )
    arguments.add_timeout(parser, "wait for the command")
    arguments.add_json(parser, "print the whole result as one JSON object")
    arguments.add_place(parser)
    arguments.add_agent(parser)
    parser.add_argument("text", metavar="TEXT", nargs="?", help="what to type; may be missing if there are --keys")
    return parser


def main(words: Sequence[str]) -> int:
    parser = own_parser()
    args = parser.parse_args(words)
    if args.text is None and args.keys is None:
        parser.error("name what to type: TEXT, or --keys")
    from .results import follow

    text = b"" if args.text is None else os.fsencode(args.text if args.n else args.text + "\n")
    keys = (args.keys or "").split()
    result, interrupted = follow(args, lambda visit: visit.send(text, args.timeout, keys=keys))
    return 0 if result.runs_on else results.status(result, interrupted)
