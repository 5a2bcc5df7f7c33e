"""``shellsession kill``: close sessions. When it returns, no process of those sessions is left."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from ..errors import DaemonUnavailable, NoSuchAgent
from . import arguments
from .words import name

EXAMPLES: Final = (
    ("shellsession kill builder", "end its session, its command and its jobs"),
    ("shellsession kill --all", "end those of every agent; the daemon stays"),
)
_DESCRIPTION: Final = "Close the sessions of agents, and end everything that runs in them. The daemon keeps running."


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("kill", "[OPTIONS] (AGENT... | --all)", _DESCRIPTION, EXAMPLES)
    parser.add_argument("--all", action="store_true", help="the sessions of all agents")
    arguments.add_place(parser)
    parser.add_argument("agents", metavar="AGENT", type=name, nargs="*", help="whose sessions")
    return parser


def main(words: Sequence[str]) -> int:
    parser = own_parser()
    args = parser.parse_args(words)
    from ..daemon.client import admin

    if bool(args.agents) == args.all:
        parser.error("name the agents, or use --all")

    if args.all:
        for one in admin.agents(args.socket):
            _close(one["agent"], args.socket)
    if missing := [agent for agent in dict.fromkeys(args.agents) if not _close(agent, args.socket)]:
        raise NoSuchAgent(f"agent {', '.join(map(repr, missing))} has no session here: it was closed, or never opened")
    return 0


def _close(agent: str, socket: str | None) -> bool:
    """Close the agent's session; False if there was none."""
    from ..daemon.client.admin import Visit

    try:
        with Visit(agent, socket) as visit:
            visit.close()
    except NoSuchAgent:
        return False
    except DaemonUnavailable:  # it has ended, and its sessions with it: what it has recorded is left
        from ..daemon.client import admin

        if not (isinstance(socket, str | None) and admin.forget(agent, socket)):
            raise
    return True
