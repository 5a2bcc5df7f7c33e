"""``shellsession interrupt``: end the running command of an agent, and keep the session.

It prints the command's output so far, so that none is lost.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from . import arguments, results

EXAMPLES: Final = (
    ("shellsession interrupt builder", "like Ctrl-C, then with stronger signals if the command ignores it"),
    ("shellsession interrupt --json builder", "its result, for programs"),
)
_DESCRIPTION: Final = """\
End the command that runs in the agent's session, even if another process waits for it, and keep the session. Print its
output so far. The exit status is 0 if the command has ended and the session's state is kept, and 125 if no command
runs."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("interrupt", "[OPTIONS] AGENT", _DESCRIPTION, EXAMPLES)
    arguments.add_json(parser, "print the whole result as one JSON object")
    arguments.add_place(parser)
    arguments.add_agent(parser)
    return parser


def main(words: Sequence[str]) -> int:
    args = own_parser().parse_args(words)
    from ..daemon.client.admin import Visit

    with Visit(args.agent, args.socket) as visit:
        result = visit.interrupt()
    results.show_result(result, args.agent, args.json)
    return 0 if result.state_kept else results.status(result)
