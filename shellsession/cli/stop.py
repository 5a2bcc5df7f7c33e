"""``shellsession stop``: end the daemon, and with it every session.

Law: when it comes back, the daemon's process is gone; where that cannot be seen from here (in a container, say), its
socket.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from . import arguments
from .arguments import talk

EXAMPLES: Final = (
    ("shellsession stop", "running commands get a few seconds to end (see `shellsession serve --patience`)"),
    ("shellsession stop --socket /run/ci/socket", "another daemon"),
)
_DESCRIPTION: Final = """\
End the daemon and every session, and come back when it is gone. It exits with 0 also when none runs."""


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("stop", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    arguments.add_socket(own)
    return own


def main(words: Sequence[str]) -> int:
    given = own_parser().parse_args(words)
    from ..daemon.client import admin
    from ..daemon.protocol import endpoint

    path = endpoint.socket_path(given.socket)
    pid = admin.shutdown(path)
    talk(f"no daemon listens at {path}: nothing to stop" if pid is None else f"the daemon (pid {pid}) has ended")
    return 0
