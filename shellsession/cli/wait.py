"""``shellsession wait``: stay with a command that was handed back running.

Law: it ends as the command does, with its output and its status.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from . import arguments, results

EXAMPLES: Final = (
    ("shellsession wait builder", "until it ends, or waits for input"),
    ("shellsession wait --timeout 0.1 builder", "what it has printed by now; 124 says that it runs on"),
)
_DESCRIPTION: Final = """\
Stay with the command that was handed back running until it ends, waits for input, or the time limit passes. What it
has printed since the last time comes first, then the rest as it is printed. It exits with the command's status, and
with 124 while the command runs on. One that was handed back for its --idle-timeout is handed back so again, each time
that it is silent for that long. Ctrl-C ends the command, but not one that another process runs and waits for."""


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("wait", "[OPTIONS] AGENT", _DESCRIPTION, EXAMPLES)
    arguments.add_timeout(own, "stay with it")
    arguments.add_json(own, "print the whole result as one JSON object")
    arguments.add_socket(own)
    arguments.add_agent(own)
    return own


def main(words: Sequence[str]) -> int:
    given = own_parser().parse_args(words)
    from .results import stay

    return results.status(*stay(given, lambda visit: visit.wait(given.timeout)))
