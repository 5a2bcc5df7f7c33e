"""``shellsession ls``: list the agents that have a session, and what each runs. It starts no daemon."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from . import arguments
from .arguments import escaped, show, show_json, span, table, talk

EXAMPLES: Final = (
    ("shellsession ls", "all agents, and what they run"),
    ("shellsession ls --json", "the same for programs, with nothing cut or rounded"),
)
_DESCRIPTION: Final = """\
List the agents that have a session, by name, and its state: new (no bash yet), idle, or running a command, and for how
long that has been running (RUNS). It is also attached if a person uses it (`shellsession attach`); the agent's own
calls wait then."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("ls", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    parser.add_argument("--names", action="store_true", help="only the names, one per line")
    arguments.add_json(parser, "print a JSON list")
    arguments.add_place(parser)
    return parser


def main(words: Sequence[str]) -> int:
    args = own_parser().parse_args(words)
    from ..daemon.client import admin

    found = sorted(admin.agents(args.socket), key=lambda one: str(one["agent"]))
    if args.json:
        show_json(found)
    elif args.names:
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
                "-" if one["running_for"] is None else span(one["running_for"]),
                one["command"],
            )
            for one in found
        ]
        show(*table(("AGENT", "PID", "STATE", "AGE", "IDLE", "JOBS", "CWD", "RUNS", "COMMAND"), rows, state=2))
    return 0
