"""``shellsession log``: show who ran what, when, and how it ended, from the daemon's audit log.

It reads the log's files, and needs no running daemon.
"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..errors import ShellSessionError
from ..models import LONGEST
from . import arguments
from .arguments import show, show_json, span, table, talk
from .words import name

EXAMPLES: Final = (
    ("shellsession log", "the last 20 commands"),
    ("shellsession log -s builder -n 0 --json", "every command of this agent, one JSON object per line"),
)
_DESCRIPTION: Final = """\
Show which commands ran, when they ended, and how, from the daemon's audit log. "began" means that no end is recorded:
it still runs, or it ran when the daemon was killed. The log has the size of each output, but no output, and *** in
place of secrets."""
_BEGAN: Final = "began"  # as ``audit.BEGAN``, which is imported late
_KEY_SHOWN: Final = 24  # characters of a key: tools make some of 74
_NAME_ANOTHER: Final = "use --audit to name another"
# The daemon may have been started with another home directory, and this module does not ask it.
_WHERE_IT_IS: Final = f"`shellsession status` shows where the daemon writes it; {_NAME_ANOTHER}"


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("log", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    parser.add_argument("-s", "--session", metavar="AGENT", type=name, help="only the commands of this agent")
    add_options(parser)
    return parser


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``log`` and ``history`` have."""
    parser.add_argument("-n", metavar="N", type=arguments.count, default=20, help="the last N (default: 20; 0: all)")
    arguments.add_socket(parser)
    parser.add_argument(
        "--audit", metavar="PATH", help="the log (default: SHELLSESSION_AUDIT, or where that daemon writes it)"
    )
    arguments.add_json(parser, "print the lines as they were recorded")


def main(words: Sequence[str]) -> int:
    return run(own_parser().parse_args(words))


def run(args: argparse.Namespace) -> int:
    """Print what the log has of the chosen agent, or of all."""
    arguments.check_here("log")
    from ..daemon.server import audit

    hint = _NAME_ANOTHER if args.audit else _WHERE_IT_IS
    if args.audit:
        path = os.path.abspath(args.audit)
    else:
        from ..daemon.protocol.endpoint import socket_path

        path = audit.path_for(socket_path(args.socket))
    if not path:
        raise ShellSessionError(f"the audit log is switched off ({audit.VARIABLE}={audit.OFF}); {hint}")
    try:
        mode = os.stat(path).st_mode  # `read` takes a missing file for an empty log; opening a FIFO would block
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
            raise ShellSessionError(f"no audit log at {path}: it is not a file; {hint}")
        entries = list(audit.read(path, args.session, args.n or None if args.json else None))
    except OSError as error:
        raise ShellSessionError(f"no audit log at {path}: {error.strerror}; {hint}") from error
    if args.json:
        for entry in entries:
            show_json(entry)
    elif not entries:
        talk("no command was run yet" if args.session is None else f"the log has no command of agent {args.session!r}")
    else:
        shown = _latest(entries)[-args.n :]
        has_keys = any("key" in entry for entry in shown)
        titles = ("ENDED", "AGENT", "ID", "STATUS", "TOOK", *["KEY"] * has_keys, "COMMAND")
        show(*table(titles, [_row(entry, has_keys) for entry in shown]))
    return 0


def _latest(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last line of each command: its end, or its beginning if no end is recorded."""
    latest: list[dict[str, Any] | None] = []
    begun: dict[tuple[str, ...], int] = {}  # the places of beginnings without an end
    for entry in entries:
        is_end = entry.get("outcome") != _BEGAN
        # Another daemon gives the same ids, and its clients may be the same.
        moment = entry.get("began" if is_end else "time")
        names = tuple(str(one) for one in (entry.get("agent"), entry.get("id"), entry.get("client"), moment))
        if not is_end:
            begun[names] = len(latest)
        elif (place := begun.pop(names, None)) is not None:
            latest[place] = None
        latest.append(entry)
    return [entry for entry in latest if entry is not None]


def _row(entry: Mapping[str, Any], has_keys: bool) -> tuple[object, ...]:
    """The table row of an entry. The file may contain anything, so a missing field shows as ``-``."""
    outcome, took, status = entry.get("outcome", "-"), entry.get("duration"), entry.get("exit_code", "-")
    began, key = "began " * (outcome == _BEGAN), str(entry.get("key", "-"))
    if entry.get("ran") is False and outcome != "refused":
        outcome = "not run"
    elif outcome == "exited":
        outcome = status
    elif outcome == "shell_exited" and status is not None:
        outcome = f"{outcome} {status}"
    return (
        began + str(entry.get("time", "-"))[:19].replace("T", " ") + "Z",
        entry.get("agent", "-"),
        entry.get("id") or "-",
        outcome,
        span(took) if isinstance(took, int | float) and 0 <= took <= LONGEST else "-",
        *[key[:_KEY_SHOWN] + "…" * (len(key) > _KEY_SHOWN)] * has_keys,
        entry.get("command", "-"),
    )
