"""``shellsession attach``: a person sits down at an agent's session, sees what runs there, and runs commands too.

Law: what the person's arguments mean; what is seen and done there is told in ``spectator`` and ``attached``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from ..daemon.client import connect
from ..daemon.endpoint import socket_path
from ..daemon.transport import ConnectionLost
from ..errors import DaemonUnavailable
from . import arguments
from .attached import Attached
from .spectator import Line, Spectator
from .terminal import Terminal

EXAMPLES: Final = (
    ("shellsession attach a1", "sit down at the session of agent a1; Ctrl-] leaves it as it is"),
    ("shellsession attach a1 --read-only", "only look on; Ctrl-C leaves"),
    ("shellsession attach a1 --others refuse", "answer a1's own calls with SessionBusy meanwhile"),
)
_DESCRIPTION: Final = """\
Sit down at an agent's session: see what runs there, and run commands yourself. An agent that has none gets one (not
with --read-only). Keys go to the command that runs; Ctrl-] leaves at any time, and what runs goes on. Ctrl-C interrupts
the command; if nothing happens within a second, press it again to kill it. What is typed to a command that the agent
began is not echoed, unless the command does so itself: it may have asked for a password. Ctrl-Z at the prompt only
suspends this: the session stays yours meanwhile. A second person who attaches sees what runs, and is next when you
leave. Lines typed at the prompt are kept as they are, secrets too, in attach_history, beside the audit log."""


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("attach", "[OPTIONS] AGENT", _DESCRIPTION, EXAMPLES)
    own.add_argument("--read-only", action="store_true", help="see what runs, and type nothing")
    own.add_argument(
        "--others", choices=("wait", "refuse"), default="wait", help="what the agent's own calls do meanwhile"
    )
    arguments.add_socket(own)
    arguments.add_agent(own)
    return own


def main(words: Sequence[str]) -> int:
    """Stay until the person leaves."""
    given = own_parser().parse_args(words)
    path = socket_path(given.socket)
    with Terminal() as terminal:
        if not given.read_only:
            connect(given.agent, path).disconnect()
        try:
            with closing(Line(given.agent, path)) as line:
                if given.read_only:
                    Spectator(terminal, line).look_on()
                else:
                    Attached(terminal, line).sit(given.others)
        except ConnectionLost:
            raise DaemonUnavailable(
                "the daemon has ended, and every session with it: attach again for a fresh one"
            ) from None
        finally:
            terminal.begin_line()
    return 0
