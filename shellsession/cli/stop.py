"""``shellsession stop``: end the daemon, and with it every session.

When it returns, the daemon's process has ended. If that process is not visible from here (in a container, for example),
its socket is gone.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ..daemon.protocol import endpoint
from ..engine.io.directories import homes
from . import arguments
from .arguments import talk

EXAMPLES: Final = (
    ("shellsession stop", "running commands get a few seconds to end (see `shellsession serve --patience`)"),
    ("shellsession stop --socket /run/ci/socket", "another daemon"),
)
_LIFTED: Final = (
    "the last one was killed, and had a sandbox or rules for all sessions: the next one has them only if you start it"
    " with the same options of `shellsession serve`"
)
_DESCRIPTION: Final = """\
End the daemon and every session, and return when it has ended. The exit status is 0 even if no daemon is running."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("stop", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    arguments.add_socket(parser)
    return parser


def main(words: Sequence[str]) -> int:
    args = own_parser().parse_args(words)
    arguments.check_here("stop")
    from ..daemon.client import admin

    path = endpoint.socket_path(args.socket)
    pid = admin.shutdown(path)
    lifted = endpoint.reach(path) is None and _allow_plain(path)  # else another daemon has started
    told = f"no daemon listens at {path}: nothing to stop" if pid is None else f"the daemon (pid {pid}) has ended"
    talk(f"{told}; {_LIFTED}" if lifted else told)
    return 0


def _allow_plain(path: str) -> bool:
    """Allow a plain daemon after one with a sandbox or rules that was killed. True if there was such a one."""
    with suppress(OSError):
        os.unlink(endpoint.confined_marker(path))
        with suppress(OSError):  # others use the directory, or it is the user's own
            if (directory := os.path.dirname(path)) in homes():
                os.rmdir(directory)
        return True
    return False
