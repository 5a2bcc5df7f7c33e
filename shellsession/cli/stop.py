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

from . import arguments
from .arguments import talk

EXAMPLES: Final = (
    ("shellsession stop", "running commands get a few seconds to end (see `shellsession serve --patience`)"),
    ("shellsession stop --socket /run/ci/socket", "another daemon"),
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
    from ..daemon.protocol import endpoint

    path = endpoint.socket_path(args.socket)
    pid = admin.shutdown(path)
    if endpoint.reach(path) is None:  # else another daemon has started
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(endpoint.confined_marker(path))
    talk(f"no daemon listens at {path}: nothing to stop" if pid is None else f"the daemon (pid {pid}) has ended")
    return 0
