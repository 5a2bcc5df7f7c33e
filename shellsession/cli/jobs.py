"""``shellsession jobs``: what the commands of an agent left running.

Law: it only looks, and does not disturb who uses the session.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from . import arguments
from .arguments import show, show_json, table, talk

EXAMPLES: Final = (
    ("shellsession jobs builder", "servers and watchers that its commands started, and what became of them"),
    ("shellsession jobs --json builder", "the same for programs"),
)
_DESCRIPTION: Final = "List what earlier commands of an agent left running in the background; the latest is the last."


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("jobs", "[OPTIONS] AGENT", _DESCRIPTION, EXAMPLES)
    arguments.add_json(own, "print a JSON list, with what each has written since its call came back")
    arguments.add_socket(own)
    arguments.add_agent(own)
    return own


def main(words: Sequence[str]) -> int:
    given = own_parser().parse_args(words)
    from ..daemon.client import admin

    found = admin.jobs(given.agent, given.socket, given.json)
    if given.json:
        show_json(found)
    elif not found:
        talk(f"no command of {given.agent!r} left anything running")
    else:
        rows = [
            (
                one["number"],
                one["status"],
                ",".join(map(str, one["pids"])) or "-",
                one["command"],
            )
            for one in found
        ]
        show(*table(("JOB", "STATUS", "PIDS", "COMMAND"), rows, state=1))
    return 0
