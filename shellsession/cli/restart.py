"""``shellsession restart``: a fresh bash for an agent.

Law: the session stays the agent's; only its shell, and all that runs in it, is ended.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from . import arguments

EXAMPLES: Final = (
    ("shellsession restart builder", "when its shell is in a state that nobody wants"),
    ("shellsession restart --socket /run/ci/socket builder", "of another daemon"),
)
_DESCRIPTION: Final = """\
Give an agent a fresh bash, in the directory and with the environment that its session was opened with.
All that runs in the old one is ended, background jobs too."""


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("restart", "[OPTIONS] AGENT", _DESCRIPTION, EXAMPLES)
    arguments.add_socket(own)
    arguments.add_agent(own)
    return own


def main(words: Sequence[str]) -> int:
    given = own_parser().parse_args(words)
    from ..daemon.client.admin import Visit

    with Visit(given.agent, given.socket) as visit:
        visit.restart()
    return 0
