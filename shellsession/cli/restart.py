"""``shellsession restart``: give an agent a fresh bash.

The session stays open. Only its shell, and everything that runs in it, is ended.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from . import arguments

EXAMPLES: Final = (
    ("shellsession restart builder", "when its shell is in a bad state"),
    ("shellsession restart --socket /run/ci/socket builder", "an agent of another daemon"),
)
_DESCRIPTION: Final = """\
Give an agent a fresh bash, in the directory and with the environment that its session was opened with.
Everything that runs in the old one is ended, background jobs too."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("restart", "[OPTIONS] AGENT", _DESCRIPTION, EXAMPLES)
    arguments.add_place(parser)
    arguments.add_agent(parser)
    return parser


def main(words: Sequence[str]) -> int:
    args = own_parser().parse_args(words)
    from ..daemon.client.admin import Visit

    with Visit(args.agent, args.socket) as visit:
        visit.restart()
    return 0
