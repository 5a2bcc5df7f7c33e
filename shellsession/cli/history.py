"""``shellsession history``: list the commands of one agent, with id, status and time, from the daemon's audit log."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from . import arguments, log
from .words import name

EXAMPLES: Final = (
    ("shellsession history builder", "its last 20 commands, and how they ended"),
    ("shellsession history -n 0 --json builder", "all of them, as JSON"),
)
_DESCRIPTION: Final = """\
List the commands of one agent: when each ended, its id, its status, and how long it took. "began" means that no end is
recorded: it still runs, or it ran when the daemon was killed."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("history", "[OPTIONS] AGENT", _DESCRIPTION, EXAMPLES)
    log.add_options(parser)
    parser.add_argument("session", metavar="AGENT", type=name, help="whose commands")
    return parser


def main(words: Sequence[str]) -> int:
    return log.run(own_parser().parse_args(words))
