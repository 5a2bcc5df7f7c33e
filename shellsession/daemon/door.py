"""The daemon's door: one listening socket in the file system, private from its first moment.

Law: only this daemon's own socket is removed, and nothing that stands in its place.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from typing import Final

from ..errors import DaemonUnavailable
from .place import locked, reach

# Clients that connect while the loop is busy wait here.
_BACKLOG: Final = 4096


class Door:
    """``socket`` listens at ``path``. ``lock``: see ``place.locked``. Raises DaemonUnavailable when a daemon does."""

    def __init__(self, path: str, lock: int | None = None) -> None:
        self.path = path
        with locked(path, lock):
            self._listen()

    @property
    def stands(self) -> bool:
        """Is the file at the path still ours?"""
        with suppress(OSError):
            return _identity(self.path) == self._born
        return False

    def set_up_again(self) -> None:
        """Somebody removed the file (who tidies up /tmp, for one): without it no client finds us any more.

        Raises DaemonUnavailable, when another daemon has taken the place.
        """
        with locked(self.path):
            self._listen()

    def close(self) -> None:
        """Nobody comes in any more, and the file is gone."""
        self.socket.close()
        with suppress(OSError, DaemonUnavailable), locked(self.path):
            if self.stands:
                os.unlink(self.path)

    def _listen(self) -> None:
        path = self.path
        if (other := reach(path)) is not None:
            other.close()
            raise DaemonUnavailable(
                f"a daemon listens at {path} already: use that one, or end it with `shellsession stop`"
            )
        if os.path.exists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise DaemonUnavailable(f"{path} is no socket, and is left as it is: name another place")
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            with suppress(FileNotFoundError):
                os.unlink(path)  # left by one that was killed
            ours.bind(path)
            ours.listen(_BACKLOG)
            self._born = _identity(path)
        except OSError as error:
            ours.close()
            raise DaemonUnavailable(f"no socket could be made at {path}: {error.strerror}") from error
        finally:
            os.umask(before)
        self.socket = ours


def _identity(path: str) -> tuple[int, int]:
    """A number alone is given to the next file at once, on some file systems."""
    found = os.lstat(path)
    return found.st_ino, found.st_ctime_ns
