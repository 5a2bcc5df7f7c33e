"""``shellsession mcp``: a session's verbs as tools of a Model Context Protocol server on stdin and stdout.

Law: the session is the client's own unless an agent is named; then it is that agent's, which others may share.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from typing import Final

from . import arguments
from .words import name

EXAMPLES: Final = (
    ("shellsession mcp", "what an MCP client is told to start"),
    ("shellsession mcp -s builder", "over the session of agent builder, which you can `attach` to"),
)
_DESCRIPTION: Final = """\
Serve the tools bash, send, wait, interrupt, restart and jobs over stdio, until the client closes it. A call that would
outlast --patience hands its command back running."""


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("mcp", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    arguments.add_socket(own)
    own.add_argument("-s", "--session", metavar="AGENT", type=name, help="use this agent's session, held by the daemon")
    limit = "seconds that a command may run where the model names no limit (default: 600)"
    own.add_argument("--timeout", metavar="S", type=float, default=600.0, help=limit)
    patience = "seconds that a call may take (default: 45; clients give up after about 60)"
    own.add_argument("--patience", metavar="S", type=float, default=45.0, help=patience)
    return own


def main(words: Sequence[str]) -> int:
    given = own_parser().parse_args(words)
    from ..integrations.mcp import serve  # raises MissingExtra

    # The SDK's thread that reads stdin cannot be woken: Ctrl-C ends us as SIGTERM does, and our bash with us.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve(given.session, given.socket, patience=given.patience, timeout=given.timeout)
    return 0
