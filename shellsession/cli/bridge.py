"""``shellsession bridge``: connect the pipe on stdin and stdout to this user's daemon.

A client elsewhere starts it, with ``via=["ssh", "box"]``. What the client sends goes to the daemon; nothing of it is
evaluated here.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Final

from ..daemon.client.process_state import process_state
from ..daemon.client.transport import ConnectionLost, UnixTransport
from ..daemon.protocol import frames
from ..daemon.protocol.endpoint import socket_path
from ..daemon.protocol.frames import frame, greeting
from ..daemon.protocol.mux import Mux, PipeEnded
from ..errors import InvalidRequest, ShellSessionError
from ..models import VERSION
from . import arguments

EXAMPLES: Final = (
    ("shellsession bridge </dev/null | cat", "a check by hand: it prints its greeting, and ends"),
    ("shellsession bridge --socket /run/ci/socket </dev/null | cat", "the same for another daemon"),
)
_DESCRIPTION: Final = """\
Carry the connections of a client elsewhere to this user's daemon, over stdin and stdout, until stdin is closed. The
daemon is started if a session is to be opened and none runs. Clients start this program themselves: see --via."""


class _Bridge(Mux):
    """The end of the pipe that is beside the daemon."""

    def __init__(self, source: int, sink: int, transport: UnixTransport) -> None:
        super().__init__(source, sink)
        self._transport = transport

    def opening(self, number: int, how: bytes) -> None:
        try:
            channel = self._transport.reach() if how == frames.LOOK else self._transport.connect(how == frames.START)
            if channel is not None:
                channel.check()
        except ShellSessionError as error:
            self.put(frame(frames.REFUSED, number, str(error).encode("utf-8", "replace")[: frames.PAYLOAD_MAX]))
        except ConnectionLost:
            self.put(frame(frames.REFUSED, number))
        else:
            if channel is None:
                self.put(frame(frames.REFUSED, number))
            else:
                self.put(frame(frames.OPENED, number))
                self.add(number, channel.detach())


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
    transport = UnixTransport(socket_path(args.socket))
    bridge = _Bridge(0, 1, transport)
    bridge.put(greeting(process_state(), VERSION))
    try:
        while True:
            bridge.turn(None)
    except PipeEnded:
        return 0
