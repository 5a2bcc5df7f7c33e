"""``shellsession kill``: close sessions.

Law: when it comes back, no process of those sessions is left.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from ..errors import NoSuchAgent
from . import arguments
from .words import name

EXAMPLES: Final = (
    ("shellsession kill builder", "end its session, its command and its jobs"),
    ("shellsession kill --all", "those of every agent; the daemon stays"),
)
_DESCRIPTION: Final = "Close the sessions of agents, and end everything that runs in them. The daemon stays."


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("kill", "[OPTIONS] (AGENT... | --all)", _DESCRIPTION, EXAMPLES)
    own.add_argument("--all", action="store_true", help="the sessions of all agents")
    arguments.add_socket(own)
    own.add_argument("agents", metavar="AGENT", type=name, nargs="*", help="whose sessions")
    return own


def main(words: Sequence[str]) -> int:
    own = own_parser()
    given = own.parse_args(words)
    from ..daemon.client import admin

    if bool(given.agents) == given.all:
        own.error("name the agents, or say --all")

    if given.all:
        for one in admin.agents(given.socket):
            _close(one["agent"], given.socket)
    if missing := [agent for agent in dict.fromkeys(given.agents) if not _close(agent, given.socket)]:
        raise NoSuchAgent(f"agent {', '.join(map(repr, missing))} has no session here: it was closed, or never opened")
    return 0


def _close(agent: str, socket: str | None) -> bool:
    """Was there a session to close?"""
    from ..daemon.client.admin import Visit

    try:
        with Visit(agent, socket) as visit:
            visit.close()
    except NoSuchAgent:
        return False
    return True
