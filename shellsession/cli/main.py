"""The start of the command line: which verb, and what its errors look like.

Law: data to stdout, talk to stderr; the start imports neither asyncio nor pydantic, as each call pays for it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final

from ..errors import ShellSessionError
from ..models import VERSION

# Each verb's file and what it does, as the help tells it.
VERBS: Final = {
    "serve": "run the daemon that holds the sessions",
}
# What timeout(1) exits with when it fails itself.
REFUSED: Final = 125


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="shellsession", description=__doc__)
    parser.add_argument("--version", action="version", version=f"shellsession {VERSION}")
    parser.add_argument("verb", choices=VERBS, metavar="VERB")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    verb = importlib.import_module(f".{given.verb}", __package__)
    try:
        status: int = verb.main(given.rest)
    except ShellSessionError as error:
        print(f"shellsession: {error}", file=sys.stderr)
        return REFUSED
    return status
