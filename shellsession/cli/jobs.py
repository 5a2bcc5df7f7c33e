"""``shellsession jobs``: list what the commands of an agent left running.

It does not disturb other users of the session.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from . import arguments
from .arguments import show, show_json, table, talk

EXAMPLES: Final = (
    ("shellsession jobs builder", "servers and watchers that its commands started, and their state"),
    ("shellsession jobs --json builder", "the same for programs"),
)
_DESCRIPTION: Final = "List what earlier commands of an agent left running in the background, the latest last."


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("jobs", "[OPTIONS] AGENT", _DESCRIPTION, EXAMPLES)
    arguments.add_json(parser, "print a JSON list, with the output of each job since its command returned")
    arguments.add_socket(parser)
    arguments.add_agent(parser)
    return parser


def main(words: Sequence[str]) -> int:
    args = own_parser().parse_args(words)
    from ..daemon.client import admin

    found = admin.jobs(args.agent, args.socket, args.json)
    if args.json:
        show_json(found)
    elif not found:
        talk(f"no command of {args.agent!r} left anything running")
    else:
        rows = [(one["number"], one["status"], ",".join(map(str, one["pids"])) or "-", one["command"]) for one in found]
        show(*table(("JOB", "STATUS", "PIDS", "COMMAND"), rows, state=1))
    return 0
