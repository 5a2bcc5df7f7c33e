"""``shellsession mcp``: serve a session's verbs as tools of the Model Context Protocol on stdin and stdout.

The session belongs to this client alone, unless an agent is named: then it is that agent's, which others may share.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from typing import Final

from ..errors import InvalidRequest
from ..text import MAX_CHARS
from . import arguments, flags
from .words import name

EXAMPLES: Final = (
    ("shellsession mcp", "the command to configure in an MCP client"),
    ("shellsession mcp --sandbox --write ~/project -C ~/project", "it can write this project only, without network"),
    (
        "shellsession mcp -s builder --branch ~/project --auto-checkpoints 20 --checkpoints",
        "it can undo what it did there",
    ),
    ("shellsession mcp --deny 'git push' --allow ls --allow cat --confirm", "ask the user about other commands"),
    ("shellsession mcp -s builder", "over the session of agent builder, which you can `attach` to"),
    ("shellsession mcp -s builder --via 'ssh box'", "over a session on another machine"),
)
_SESSION: Final = """\
They make the session of this server. With -s they make the agent's; if that is open already with other options, the
server does not start (already_open)."""
_RULES: Final = """\
The session holds them; with -s the daemon does, for every client of the agent. They need the extra "policy"."""
_DESCRIPTION: Final = """\
Serve the tools bash, send, wait, interrupt, restart, jobs and read_output over stdio, until the client closes it. A
call that would take longer than --patience hands its command back running."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("mcp", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    arguments.add_place(parser)
    parser.add_argument(
        "-s", "--session", metavar="AGENT", type=name, help="use this agent's session, held by the daemon"
    )
    arguments.add_idle_ttl(parser, "with -s, ")
    flags.add_recover(parser)
    limit = "seconds that a command may run if the model names no limit (default: 600)"
    parser.add_argument("--timeout", metavar="S", type=arguments.number, default=600.0, help=limit)
    patience = "seconds that a call may take (default: 45; clients give up after about 60)"
    parser.add_argument("--patience", metavar="S", type=arguments.number, default=45.0, help=patience)
    chars = f"the longest text that the model gets (default: {MAX_CHARS})"
    parser.add_argument("--max-chars", metavar="N", type=arguments.positive, default=MAX_CHARS, help=chars)
    monitor = "also offer the tool monitor, and the resource shellsession://notices"
    parser.add_argument("--monitor", action="store_true", help=monitor)
    checkpoints = "also offer the tools checkpoint, rollback and diff, which need --branch; rollback can take back"
    checkpoints += " single commands with --auto-checkpoints"
    parser.add_argument("--checkpoints", action="store_true", help=checkpoints)
    flags.add_session(parser, _SESSION)
    flags.add_rules(parser, _RULES)
    parser.add_argument(
        "--confirm",
        action="store_true",
        help="have the client ask its user before a command runs (MCP elicitation); with --allow, only about what that"
        " does not cover. Other clients of the agent are not asked",
    )
    return parser


def main(words: Sequence[str]) -> int:
    args = own_parser().parse_args(words)
    if args.session is None and hasattr(args.socket, "is_local"):
        raise InvalidRequest(f"{args.socket} leads to a daemon, which has a session for each agent: name one with -s")
    if args.session is None and args.idle_ttl is not ...:
        raise InvalidRequest("--idle-ttl is about an agent's session in the daemon: name one with -s")
    if args.session is None and (args.branch is not None or args.checkpoints):
        raise InvalidRequest(
            "--branch and --checkpoints are for an agent's session, in which you find the files again: name one with -s"
        )
    from ..integrations.mcp import serve  # raises MissingExtra

    # The SDK's thread that reads stdin cannot be woken. Let Ctrl-C end this process, and bash with it, as SIGTERM does.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve(
        args.session,
        args.socket,
        {**flags.options_of(args, asks=args.confirm), "recover": args.recover},
        flags.asking_policy(args, _never) if args.confirm else None,
        idle_ttl=args.idle_ttl,
        patience=args.patience,
        timeout=args.timeout,
        max_chars=args.max_chars,
        monitor=args.monitor,
        checkpoints=args.checkpoints,
    )
    return 0


def _never(*_: str) -> bool:
    """The answer where the server did not ask its client."""
    return False
