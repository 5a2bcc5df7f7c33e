"""``Bridge``: connects the streams of a pipe to the daemon on this machine."""

from __future__ import annotations

from ...engine.kernel.proc import namespaces
from ...errors import ShellSessionError
from ...models import VERSION
from ..protocol import frames
from ..protocol.frames import frame, greeting
from ..protocol.mux import Mux, Pipe
from .transport import ConnectionLost, UnixTransport

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Bridge(Mux):
    """The end of a pipe that is beside the daemon. ``state``: what a session inherits there, see ``process_state``."""

    def __init__(self, pipe: Pipe, transport: UnixTransport, state: Mapping[str, Any]) -> None:
        super().__init__(pipe)
        self._transport = transport
        self.put(greeting(state, namespaces(), VERSION))

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
