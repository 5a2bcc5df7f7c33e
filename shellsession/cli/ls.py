"""``shellsession ls``: the agents that have a session, and what each runs.

Law: it only looks, and starts nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from . import arguments
from .arguments import escaped, show, show_json, span, table, talk

EXAMPLES: Final = (
    ("shellsession ls", "who is there, and what runs"),
    ("shellsession ls --json", "the same for programs, with nothing cut or rounded"),
)
_DESCRIPTION: Final = """\
List the agents that have a session: new (no bash yet), idle, or running a command; and attached, where somebody sits
there (`shellsession attach`), and the agent's own calls wait."""


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("ls", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    own.add_argument("--names", action="store_true", help="only the names, one on a line")
    arguments.add_json(own, "print a JSON list")
    arguments.add_socket(own)
    return own


def main(words: Sequence[str]) -> int:
    given = own_parser().parse_args(words)
    from ..daemon.client import admin

    found = admin.agents(given.socket)
    if given.json:
        show_json(found)
    elif given.names:
        show(*(escaped(one["agent"]) for one in found))
    elif not found:
        talk("no agent has a session: `shellsession run -s NAME -- COMMAND` opens one")
    else:
        rows = [
            (
                one["agent"],
                one["pid"] or "-",
                one["state"] + (", attached" if one["attached"] else ""),
                span(one["age"]),
                span(one["idle"]),
                one["jobs"],
                one["cwd"],
                one["command"],
            )
            for one in found
        ]
        show(*table(("AGENT", "PID", "STATE", "AGE", "IDLE", "JOBS", "CWD", "COMMAND"), rows, state=2))
    return 0
