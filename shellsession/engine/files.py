"""One shell's private directory: what we put there for bash is what bash finds.

Law: whatever somebody makes of the directory (removed, replaced, shut), nothing is written through what stands there.
No file is found by listing: the directory cannot be read, and all names have a part that nobody can guess.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from ..errors import LimitReached
from .directories import UNLISTED, fresh_directory, is_private, make_private
from .streams import Stream, pipe_stream

T = TypeVar("T")
# No function of ours: Ctrl-C would strike in it, with the descriptor in nobody's hands.
_PRIVATELY: Final = partial(os.open, mode=0o600)
# A seat's directory is in that of the host, and this in the home of all hosts of this user.
_DEPTH: Final = 3


class Files:
    """Files (0600) and named pipes in ``directory``, which is the seat's until it can no longer be used."""

    def __init__(self, directory: str) -> None:
        self.directory = self._first = directory
        self._secret = os.urandom(8).hex()  # begins each name
        self._pipes = 0  # how many were made
        self._written: set[str] = set()  # files that may be there

    def path(self, name: str) -> bytes:
        return os.fsencode(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, f"{self._secret}-{name}")

    def write(self, name: str, data: bytes) -> bytes:
        """A file with that content; its path. Raises LimitReached."""

        def make(path: str) -> None:
            self._written.add(name)  # first: Ctrl-C may strike as soon as it is there
            with open(path, "xb", opener=_PRIVATELY) as file:
                os.fchmod(file.fileno(), 0o600)  # as for pipes: see streams.pipe_stream
                file.write(data)

        try:
            self._put(name, make)
        except OSError as error:
            self.remove(name)
            raise LimitReached(
                f"the command's {name} ({len(data)} bytes) could not be put into {self.directory}: {error};"
                " nothing was run; make room there, or set XDG_RUNTIME_DIR to another place"
            ) from error
        return self.path(name)

    def pipe(self) -> Stream:
        """A new named pipe. Raises OSError."""
        self._pipes += 1
        return self._put(f"pipe-{self._pipes}", pipe_stream)

    def _put(self, name: str, make: Callable[[str], T]) -> T:
        try:
            if not is_private(self.directory):
                make_private(self.directory, UNLISTED, _DEPTH if self.directory == self._first else 1)
            self.remove(name)
            return make(self._path(name))
        except (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError):
            self.close()
            self.directory = fresh_directory(UNLISTED)
            return make(self._path(name))

    def clear(self) -> None:
        """Remove all files: the command for which they were written has ended, and they may be in memory (tmpfs)."""
        while self._written:
            self.remove(next(iter(self._written)))

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self._path(name))
        self._written.discard(name)

    def close(self) -> None:
        """Remove the directory, unless it is the seat's, which the guard removes."""
        if self.directory != self._first and is_private(self.directory):
            with suppress(OSError):
                os.chmod(self.directory, 0o700)
            shutil.rmtree(self.directory, ignore_errors=True)
