"""Where the daemon's socket is, and how to connect to it. Client and daemon share this.

A socket of another user is never trusted. Each start of the command line loads this module, so it uses
``_socket.socket``, the base class of ``socket.socket``: importing ``socket`` takes half as long as Python's start.
"""

from __future__ import annotations

import os
from _socket import AF_UNIX, SO_PEERCRED, SO_SNDTIMEO, SOCK_STREAM, SOL_SOCKET, socket
from binascii import crc32
from errno import ENOPROTOOPT

from ...engine.kernel.proc import namespaces
from ...errors import DaemonUnavailable, InvalidRequest, ShellUnavailable

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final


VARIABLE: Final = "SHELLSESSION_SOCKET"
# sockaddr_un has 108 bytes for a path, with its NUL: unix(7).
_LONGEST: Final = 107
# How many seconds to wait for a daemon. A daemon greets at once. One that is stopped (SIGSTOP) still accepts
# connections, as many as the backlog holds, and sends nothing.
PATIENCE: Final = 15.0
_SO_PEERPIDFD: Final = 77  # <asm-generic/socket.h>


def socket_path(wanted: str | os.PathLike[str] | None = None) -> str:
    """The absolute path of the socket: ``wanted``, or SHELLSESSION_SOCKET, or in this user's private directory.

    There its name tells containers apart, which may share the directory.

    Raises DaemonUnavailable for a path that is too long for a socket, and InvalidRequest for a value that is no path.
    """
    if wanted is None:
        path = os.environ.get(VARIABLE, "")
    else:
        from ...options import path_of

        path = path_of("socket", wanted)
    if wanted is not None and not path:  # such as an unset variable: the default would reach the wrong daemon
        raise InvalidRequest("the socket's path is empty: leave out --socket (socket=) for the default one")
    path = os.path.abspath(path) if path else _usual()
    if len(os.fsencode(path)) > _LONGEST:
        raise DaemonUnavailable(
            f"the socket's path has more than {_LONGEST} bytes, the most that Linux allows: {path}; set {VARIABLE}"
            " to a shorter one"
        )
    return path


def is_usual(path: str) -> bool:
    """Is this the path of the socket if nobody names one?"""
    try:
        return path == _usual()
    except DaemonUnavailable:
        return False


def lasting_name(path: str) -> str:
    """The name of a daemon for what outlives it: its socket's path.

    That of the usual socket has no namespaces, whose ids change when a container is started again.
    """
    return os.path.dirname(path) if is_usual(path) else path


def _usual() -> str:
    # Short, as the path may not be long. Should two containers have the same name, the greeting tells them apart.
    return os.path.join(_home(), f"socket-{crc32(namespaces().encode()):08x}")


def _home() -> str:
    from ...engine.io.directories import private_home

    try:
        return private_home(make=False)
    except ShellUnavailable as error:
        raise DaemonUnavailable(f"{error}, or set {VARIABLE} to the socket of a daemon") from error


def confined_marker(path: str) -> str:
    """The file beside the socket of a daemon with a default sandbox or rules.

    While it exists, no client starts a plain daemon there.
    """
    return f"{path}.confines"


def reach(path: str) -> socket | None:
    """Connect to the daemon at that path; None when none listens. Raises DaemonUnavailable for any other failure."""
    ours = socket(AF_UNIX, SOCK_STREAM)
    # unix(7): how long connect blocks while the backlog is full. A struct timeval, whose first field is seconds.
    timeout = memoryview(bytearray(16))
    timeout.cast("l")[0] = int(PATIENCE)
    ours.setsockopt(SOL_SOCKET, SO_SNDTIMEO, timeout)
    try:
        ours.connect(path)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        ours.close()
        return None
    except OSError as error:
        ours.close()
        raise DaemonUnavailable(f"the daemon at {path} cannot be reached: {error.strerror}") from error
    # The client sends its whole environment next. So the daemon must run as the same user, or as root, who can read
    # that anyway.
    if (user := peer(ours)[1]) not in (os.geteuid(), 0):
        ours.close()
        raise DaemonUnavailable(
            f"the daemon at {path} belongs to user {user}, not you: nothing was sent; name another socket"
        )
    return ours


def peer(ours: socket) -> tuple[int, int]:
    """The pid and the user id of the peer, from the kernel: unix(7), SO_PEERCRED."""
    pid, user, _ = memoryview(ours.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)).cast("i")  # three integers of 4 bytes
    return pid, user


def peer_process(ours: socket) -> int | None:
    """A descriptor of the process that has connected, as pidfd_open(2) gives one. Another process never has it.

    None if this kernel has none (before 6.5). Raises OSError if the process has ended.
    """
    try:
        return memoryview(ours.getsockopt(SOL_SOCKET, _SO_PEERPIDFD, 4)).cast("i")[0]
    except OSError as error:
        if error.errno == ENOPROTOOPT:
            return None
        raise
