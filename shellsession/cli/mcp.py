"""``shellsession mcp``: serve a session's verbs as tools of the Model Context Protocol on stdin and stdout.

The session belongs to this client alone, unless an agent is named: then it is that agent's, which others may share.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from typing import Final

from . import arguments
from .words import name

EXAMPLES: Final = (
    ("shellsession mcp", "the command to configure in an MCP client"),
    ("shellsession mcp -s builder", "over the session of agent builder, which you can `attach` to"),
)
_DESCRIPTION: Final = """\
Serve the tools bash, send, wait, interrupt, restart, jobs and read_output over stdio, until the client closes it. A
call that would take longer than --patience hands its command back running."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("mcp", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    arguments.add_socket(parser)
    parser.add_argument(
        "-s", "--session", metavar="AGENT", type=name, help="use this agent's session, held by the daemon"
    )
    limit = "seconds that a command may run if the model names no limit (default: 600)"
    parser.add_argument("--timeout", metavar="S", type=float, default=600.0, help=limit)
    patience = "seconds that a call may take (default: 45; clients give up after about 60)"
    parser.add_argument("--patience", metavar="S", type=float, default=45.0, help=patience)
    return parser


def main(words: Sequence[str]) -> int:
    args = own_parser().parse_args(words)
    from ..integrations.mcp import serve  # raises MissingExtra

    # The SDK's thread that reads stdin cannot be woken. Let Ctrl-C end this process, and bash with it, as SIGTERM does.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve(args.session, args.socket, patience=args.patience, timeout=args.timeout)
    return 0
