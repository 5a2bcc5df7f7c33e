"""``shellsession send``: type into the terminal of a running command, and see what it answers.

Law: what is typed is what was given, and Enter.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Final

from . import arguments, results

EXAMPLES: Final = (
    (
        "shellsession send --timeout 5 builder Ann",
        "answer what this asks: shellsession run -i -s builder --"
        """ 'read -p "name? " n; read -n 1 -p "sure? " s; echo "$n $s"'""",
    ),
    ("shellsession send -n builder y", "one key, without Enter"),
)
_DESCRIPTION: Final = """\
Type a line into the terminal of the command that was handed back running (see `shellsession run -i`), then print what
comes until it waits for input, ends, or the time limit passes. It exits with 0 while the command runs on, and with the
command's status when it has ended. Ctrl-C ends the command. While a person sits there (`shellsession attach`), this
waits for its turn, and --timeout counts from then; while another process stays with the command, this waits, too, until
that comes back or --timeout has passed: then it exits with 125, and nothing was typed. What it waits for it says, if
stderr is a terminal."""


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("send", "[OPTIONS] AGENT TEXT", _DESCRIPTION, EXAMPLES)
    own.add_argument("-n", action="store_true", help="do not press Enter after it")
    arguments.add_timeout(own, "stay with it")
    arguments.add_json(own, "print the whole result as one JSON object")
    arguments.add_socket(own)
    arguments.add_agent(own)
    own.add_argument("text", metavar="TEXT", help="what to type")
    return own


def main(words: Sequence[str]) -> int:
    given = own_parser().parse_args(words)
    from .results import stay

    text = os.fsencode(given.text if given.n else given.text + "\n")
    result, interrupted = stay(given, lambda visit: visit.send(text, given.timeout))
    return 0 if result.runs_on else results.status(result, interrupted)
