"""``transport_of``: the way to the daemon that the arguments of ``connect`` name."""

from __future__ import annotations

from ...errors import InvalidRequest
from ..protocol.endpoint import socket_path
from .transport import Transport, UnixTransport

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def transport_of(socket: Any, via: Sequence[str] | None = None, remote: str | None = None) -> Transport:
    """Return the transport for the arguments of ``connect``. ``socket`` may be a transport already.

    Raises InvalidRequest, and DaemonUnavailable for a path that is too long.
    """
    if hasattr(socket, "is_local"):
        made: Transport = socket
        return made
    if via is None:
        if remote is not None:
            raise InvalidRequest("remote= needs via=")
        return UnixTransport(socket_path(socket))
    from ...options import path_of
    from .via import ViaTransport

    path = None if socket is None else path_of("socket", socket)
    return ViaTransport(via, "shellsession" if remote is None else remote, path)
