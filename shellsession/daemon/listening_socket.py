"""The daemon's one listening socket in the file system, private from its first moment.

Law: only this daemon's own socket is removed, and nothing that stands in its place.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from typing import Final

from ..engine.directories import homes
from ..errors import DaemonUnavailable
from .directory_lock import locked
from .endpoint import reach

# Clients that connect while the loop is busy wait here.
_BACKLOG: Final = 4096
# The last host of this user to leave removes the directory, perhaps each time when we have just locked it.
_ATTEMPTS: Final = 100


class Taken(DaemonUnavailable):
    """A daemon listens there."""


class ListeningSocket:
    """``socket`` listens at ``path``. ``lock``: see ``endpoint.locked``. Raises Taken if a daemon does."""

    def __init__(self, path: str, lock: int | None = None) -> None:
        self.path = path
        self.fault = ""  # why it could not be made again the last time
        self.file = -1  # the socket's file, held: its inode's number is given to no other file meanwhile
        self._set_up(lock)

    @property
    def in_place(self) -> bool:
        """Does the path still lead to our file? (Whatever its mode, owner, times and other names.)"""
        with suppress(OSError):
            return os.path.samestat(os.stat(self.path), os.fstat(self.file))
        return False

    def own(self) -> None:
        """This process is it that listens: so say the kernel, and we, to whom no answer comes (see ``peer``)."""
        self.socket.listen(_BACKLOG)

    def set_up_again(self) -> bool:
        """Somebody removed the file (who tidies up /tmp, for one): without it no client finds us any more.

        False where it is back by itself. Raises Taken, when another daemon has taken the place, and DaemonUnavailable
        where it cannot be made just now.
        """
        return self._set_up(None)

    def close(self) -> None:
        """Nobody comes in any more, and the file is gone. So is the directory of this user's hosts, if it is empty."""
        self.socket.close()
        directory = os.path.dirname(self.path)
        with suppress(OSError, DaemonUnavailable):
            if self.in_place:  # else to lock its directory could make that anew
                with locked(self.path):  # whoever starts a daemon there makes its socket first
                    if self.in_place:
                        os.unlink(self.path)
                    if directory in homes():  # another one is the user's own
                        os.rmdir(directory)
        os.close(self.file)

    def _set_up(self, lock: int | None) -> bool:
        for _ in range(_ATTEMPTS):
            with locked(self.path, lock):
                if self.in_place:
                    return False
                with suppress(FileNotFoundError):
                    self._listen()
                    return True
            lock = None
        raise DaemonUnavailable(f"no socket could be made at {self.path}: its directory is removed again and again")

    def _listen(self) -> None:
        """Raises FileNotFoundError where the directory was removed meanwhile."""
        path = self.path
        if (other := reach(path)) is not None:
            other.close()
            raise Taken(f"a daemon listens at {path} already: use that one, or end it with `shellsession stop`")
        if os.path.exists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise DaemonUnavailable(f"{path} is no socket, and is left as it is: name another place")
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            with suppress(FileNotFoundError):
                os.unlink(path)  # left by one that was killed
            ours.bind(path)
            ours.listen(_BACKLOG)
            file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            ours.close()
            raise
        except OSError as error:
            ours.close()
            raise DaemonUnavailable(f"no socket could be made at {path}: {error.strerror}") from error
        finally:
            os.umask(before)
        if self.file >= 0:
            os.close(self.file)
        self.socket, self.file = ours, file
