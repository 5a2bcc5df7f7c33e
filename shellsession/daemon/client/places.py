"""``transport_of``: the way to the daemon that the arguments of ``connect`` name."""

from __future__ import annotations

import os

from ...errors import InvalidRequest
from ..protocol.endpoint import socket_path
from .transport import Transport, UnixTransport

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence


def transport_of(
    socket: str | os.PathLike[str] | Transport | None,
    via: Sequence[str] | None = None,
    remote: str | None = None,
) -> Transport:
    """The transport for the arguments of ``connect``. A transport as ``socket`` is used as it is."""
    if socket is not None and not isinstance(socket, (str, os.PathLike)):
        return socket
    if via is None:
        if remote is not None:
            raise InvalidRequest("remote names the program behind via: give via, too")
        return UnixTransport(socket_path(socket))
    from .via import ViaTransport

    path = None if socket is None else os.fspath(socket)
    return ViaTransport(via, "shellsession" if remote is None else remote, path)
