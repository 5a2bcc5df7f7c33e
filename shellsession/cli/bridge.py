"""``shellsession bridge``: connect the pipe on stdin and stdout to this user's daemon.

A client elsewhere starts it, with ``via=["ssh", "box"]``. What the client sends goes to the daemon; nothing of it is
evaluated here.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Final

from ..daemon.client.bridge import Bridge
from ..daemon.client.process_state import process_state
from ..daemon.client.transport import UnixTransport
from ..daemon.protocol.endpoint import socket_path
from ..daemon.protocol.mux import FilePipe, PipeEnded
from ..errors import InvalidRequest
from . import arguments

EXAMPLES: Final = (
    ("shellsession bridge </dev/null | cat", "a check by hand: it prints its greeting, and ends"),
    ("shellsession bridge --socket /run/ci/socket </dev/null | cat", "the same for another daemon"),
)
_DESCRIPTION: Final = """\
Carry the connections of a client elsewhere to this user's daemon, over stdin and stdout, until stdin is closed. The
daemon is started if a session is to be opened and none runs. Clients start this program themselves: see --via."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("bridge", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    arguments.add_socket(parser)
    return parser


def main(words: Sequence[str]) -> int:
    args = own_parser().parse_args(words)
    if os.isatty(0) or os.isatty(1):
        raise InvalidRequest(
            "stdin and stdout of `shellsession bridge` are pipes to a client, which starts it: see `--via`"
        )
    bridge = Bridge(FilePipe(0, 1), UnixTransport(socket_path(args.socket)), process_state())
    try:
        while True:
            bridge.turn(None)
    except PipeEnded:
        return 0
