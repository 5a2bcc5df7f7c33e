"""``shellsession wait``: wait for a command that was handed back running, print its output, exit with its status."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from . import arguments, results

EXAMPLES: Final = (
    ("shellsession wait builder", "until it ends, or waits for input"),
    ("shellsession wait --until 'Ready on' builder", "until it has printed this text"),
    ("shellsession wait --timeout 0.1 builder", "what it has printed by now; 124 means that it is still running"),
)
_DESCRIPTION: Final = """\
Wait for the running command until it ends, needs input, or the time is up. First comes what it has printed since the
last call, then the rest as it is printed. The exit status is the command's, or 124 while it is still running; with
--until it is 0 once the output matches. A command that was handed back because of --idle-timeout is handed back again
after each such silence. Ctrl-C ends the command, unless another process runs it and waits for it."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("wait", "[OPTIONS] AGENT", _DESCRIPTION, EXAMPLES)
    parser.add_argument("--until", metavar="RE", help="return once the output matches this regular expression")
    arguments.add_timeout(parser, "wait")
    arguments.add_json(parser, "print the whole result as one JSON object")
    arguments.add_place(parser)
    arguments.add_agent(parser)
    return parser


def main(words: Sequence[str]) -> int:
    args = own_parser().parse_args(words)
    from .results import follow

    return results.status(*follow(args, lambda visit: visit.wait(args.timeout, until=args.until)))
