"""``shellsession status``: how the daemon is.

Law: it only looks; 3 says that there is none, as ``systemctl status`` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from ..errors import DaemonUnavailable
from . import arguments
from .arguments import escaped, show, show_json, span

EXAMPLES: Final = (
    ("shellsession status", "its version, its age, how busy it is"),
    ("shellsession status --json", "the same for programs"),
)
_DESCRIPTION: Final = """\
Show how the daemon is doing. It exits with 0 when one runs, 3 when none does, 125 when it does not answer."""
NO_DAEMON: Final = 3


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("status", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    arguments.add_json(own, "print a JSON object")
    arguments.add_socket(own)
    return own


def main(words: Sequence[str]) -> int:
    given = own_parser().parse_args(words)
    from ..daemon.client import admin
    from ..daemon.protocol import endpoint

    path = endpoint.socket_path(given.socket)
    try:
        found = admin.stats(path)
    except DaemonUnavailable as error:
        if (other := endpoint.reach(path)) is not None:  # it is there, and does not answer
            other.close()
            raise
        arguments.tell_error(error.code, str(error))
        return NO_DAEMON
    if given.json:
        show_json({**found, "socket": path})
        return 0
    lines = {
        "daemon": f"{found['version']} (protocol {found['protocol']}), pid {found['pid']}, up {span(found['uptime'])}",
        "socket": path,
        "agents": f"{found['agents']}, {found['running']} of them running a command",
        "clients": f"{found['connections']} connected (this one too), {found['requests']} requests served",
        "audit log": found["audit_fault"].removeprefix("audit log ") or found["audit"] or "none",
    }
    show(*(f"{name:<11}{escaped(text)}" for name, text in lines.items()))
    return 0
