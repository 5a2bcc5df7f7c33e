"""``shellsession forget``: delete what is recorded about agents without a session. It starts no daemon."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from ..errors import NoSuchAgent
from . import arguments
from .arguments import talk
from .words import name

EXAMPLES: Final = (
    ("shellsession forget builder", "its next session starts anew: no directory, no rules"),
    ("shellsession forget --all", "those of every agent without a session"),
)
_DESCRIPTION: Final = """\
Delete the records of agents whose sessions have ended: the directory that the next session would start in, what ran
when the daemon ended, and the agent's rules. `kill` does so for an agent with a session."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("forget", "[OPTIONS] (AGENT... | --all)", _DESCRIPTION, EXAMPLES)
    parser.add_argument("--all", action="store_true", help="the records of all agents without a session")
    arguments.add_socket(parser)
    parser.add_argument("agents", metavar="AGENT", type=name, nargs="*", help="whose records")
    return parser


def main(words: Sequence[str]) -> int:
    parser = own_parser()
    args = parser.parse_args(words)
    arguments.check_here("forget")
    if bool(args.agents) == args.all:
        parser.error("name the agents, or use --all")
    from ..daemon.client import admin

    if args.all:
        talk(f"agents forgotten: {admin.forget(None, args.socket)}")
    elif missing := [agent for agent in dict.fromkeys(args.agents) if not admin.forget(agent, args.socket)]:
        raise NoSuchAgent(f"nothing is recorded about agent {', '.join(map(repr, missing))}")
    return 0
