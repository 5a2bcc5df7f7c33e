"""``shellsession log``: who ran what, when, and how it ended, from the daemon's audit log.

Law: it reads files, and needs no daemon.
"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..errors import ShellSessionError
from ..models import LONGEST
from . import arguments
from .arguments import show, show_json, span, table, talk
from .words import name

EXAMPLES: Final = (
    ("shellsession log", "the last 20 commands"),
    ("shellsession log -s builder -n 0 --json", "all that this agent ran, one JSON object on a line"),
)
_DESCRIPTION: Final = """\
Show which commands ran, when they ended, and how: from the daemon's audit log, which knows sizes of output and no
output, and has *** in the place of secrets."""
_OTHER: Final = "--audit names another"
# The daemon may have another home, and this room asks no daemon.
_ITS_OWN: Final = f"`shellsession status` says where a daemon's own is; {_OTHER}"


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("log", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    own.add_argument("-s", "--session", metavar="AGENT", type=name, help="only the commands of this agent")
    own.add_argument("-n", metavar="N", type=arguments.count, default=20, help="the last N (default: 20; 0: all)")
    own.add_argument(
        "--audit", metavar="PATH", help="the log (default: where a daemon writes it, unless told otherwise)"
    )
    arguments.add_json(own, "print the lines as they were recorded")
    return own


def main(words: Sequence[str]) -> int:
    given = own_parser().parse_args(words)
    from ..daemon.server import audit

    path, hint = (given.audit, _OTHER) if given.audit else (audit.default_path(), _ITS_OWN)
    try:
        mode = os.stat(path).st_mode  # `read` takes a missing file for an empty log; to open a FIFO would be to wait
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
            raise ShellSessionError(f"no audit log at {path}: it is no file; {hint}")
        entries = list(audit.read(path, given.session, given.n or None))
    except OSError as error:
        raise ShellSessionError(f"no audit log at {path}: {error.strerror}; {hint}") from error
    if given.json:
        for entry in entries:
            show_json(entry)
    elif not entries:
        talk("nothing was run yet" if given.session is None else f"the log has nothing of agent {given.session!r}")
    else:
        show(*table(("ENDED", "AGENT", "STATUS", "TOOK", "COMMAND"), map(_row, entries)))
    return 0


def _row(entry: Mapping[str, Any]) -> tuple[object, ...]:
    """The file may hold anything: what is not there shows as ``-``."""
    outcome, took, status = entry.get("outcome", "-"), entry.get("duration"), entry.get("exit_code", "-")
    if entry.get("ran") is False:
        outcome = "not run"
    elif outcome == "exited":
        outcome = status
    elif outcome == "shell_exited" and status is not None:
        outcome = f"{outcome} {status}"
    return (
        str(entry.get("time", "-"))[:19].replace("T", " ") + "Z",
        entry.get("agent", "-"),
        outcome,
        span(took) if isinstance(took, int | float) and 0 <= took <= LONGEST else "-",
        entry.get("command", "-"),
    )
