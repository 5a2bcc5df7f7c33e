"""``shellsession status``: show the state of the daemon. It starts none.

The exit status 3 means that no daemon is running, as with ``systemctl status``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from ..errors import DaemonUnavailable
from . import arguments
from .arguments import escaped, show, show_json, span

EXAMPLES: Final = (
    ("shellsession status", "its version, uptime and load"),
    ("shellsession status --json", "the same for programs"),
)
_DESCRIPTION: Final = """\
Show the state of the daemon. The exit status is 0 if it is running, 3 if it is not, and 125 if it does not reply."""
NO_DAEMON: Final = 3


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("status", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    arguments.add_json(parser, "print a JSON object")
    arguments.add_socket(parser)
    return parser


def main(words: Sequence[str]) -> int:
    args = own_parser().parse_args(words)
    arguments.check_here("status")
    from ..daemon.client import admin
    from ..daemon.protocol import endpoint

    path = endpoint.socket_path(args.socket)
    try:
        found = admin.stats(path)
    except DaemonUnavailable as error:
        if (other := endpoint.reach(path)) is not None:  # it listens, but does not reply
            other.close()
            raise
        arguments.tell_error(error.code, str(error))
        return NO_DAEMON
    if args.json:
        show_json({**found, "socket": path})
        return 0
    lines = {
        "daemon": f"{found['version']} (protocol {found['protocol']}), pid {found['pid']}, up {span(found['uptime'])}",
        "socket": path,
        "agents": f"{found['agents']}, {found['running']} of them running a command",
        "clients": f"{found['connections']} connected (this one too), {found['requests']} requests served",
        "audit log": found["audit_fault"].removeprefix("audit log ") or found["audit"] or "none",
    }
    if found["state"]:
        lines["state"] = found["state_fault"] or f"{found['state']}, {found['state_size'] // 1024} KiB"
    if (lease := found["lease"]) is not None:
        lines["lease"] = f"{lease['seconds']:g} s, of which {lease['left']:.1f} s are left"
    show(*(f"{name:<11}{escaped(text)}" for name, text in lines.items()))
    return 0
