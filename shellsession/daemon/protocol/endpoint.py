"""Where the daemon's socket is, and how to connect to it: the same for client and daemon.

Law: another user's socket is never trusted. Each start of the command line loads this: ``_socket.socket`` is the class
below ``socket.socket``, and all that is needed here; the module ``socket`` takes as long as half of Python's start.
"""

from __future__ import annotations

import os
from _socket import AF_UNIX, SO_PEERCRED, SO_SNDTIMEO, SOCK_STREAM, SOL_SOCKET, socket

from ...errors import DaemonUnavailable, InvalidRequest, ShellUnavailable

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final


VARIABLE: Final = "SHELLSESSION_SOCKET"
# sockaddr_un has 108 bytes for a path, with its NUL: unix(7).
_LONGEST: Final = 107
# A daemon greets at once; one that is stopped (SIGSTOP) takes connections all the same, as many as may wait, and says
# nothing. In seconds.
PATIENCE: Final = 15.0


def socket_path(wanted: str | os.PathLike[str] | None = None) -> str:
    """The socket's path: as wanted, as SHELLSESSION_SOCKET says, or in this user's private directory.

    Raises DaemonUnavailable where no socket can have that path, and InvalidRequest for a value that is no path.
    """
    if wanted is None:
        path = os.environ.get(VARIABLE, "")
    else:
        from ...options import path_of

        path = path_of("socket", wanted)
    if wanted is not None and not path:  # of a variable that is not set: another daemon than was meant would do it
        raise InvalidRequest("the socket's path is empty: leave --socket (socket=) away for the usual one")
    path = os.path.abspath(path) if path else os.path.join(_home(), "socket")
    if len(os.fsencode(path)) > _LONGEST:
        raise DaemonUnavailable(
            f"the socket's path has more than {_LONGEST} bytes, which no socket can: {path}; set {VARIABLE}"
        )
    return path


def _home() -> str:
    from ...engine.io.directories import private_home

    try:
        return private_home(make=False)
    except ShellUnavailable as error:
        raise DaemonUnavailable(f"{error}, or {VARIABLE} to where a daemon listens") from error


def reach(path: str) -> socket | None:
    """Connect to the daemon at that path; None when none listens. Raises DaemonUnavailable for any other failure."""
    ours = socket(AF_UNIX, SOCK_STREAM)
    # unix(7): how long connect waits where as many wait already as may, as a struct timeval, which begins with seconds.
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
    # The client sends its whole environment next: only to a daemon of its own user, or of root, who can read it anyway.
    if (user := peer(ours)[1]) not in (os.geteuid(), 0):
        ours.close()
        raise DaemonUnavailable(f"who listens at {path} is user {user}, not you: nothing was sent")
    return ours


def peer(ours: socket) -> tuple[int, int]:
    """The process and the user at the other end, as the kernel has them: unix(7), SO_PEERCRED."""
    pid, user, _ = memoryview(ours.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)).cast("i")  # three numbers of 4 bytes
    return pid, user
