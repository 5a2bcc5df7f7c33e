"""Files and named pipes of one session, in the directory of its slot."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from ...errors import LimitReached
from ..io.directories import UNLISTED, fresh_directory, is_private, make_private
from ..io.streams import Stream, pipe_stream

T = TypeVar("T")
_OPEN_PRIVATE: Final = partial(os.open, mode=0o600)
# A slot's directory is in that of the host, which is in the directory of all hosts of this user.
_DEPTH: Final = 3


class Files:
    """Makes files (mode 0600) and named pipes for one session, in the directory of its slot.

    If that directory becomes unusable, ``directory`` changes to a new one.
    """

    def __init__(self, directory: str) -> None:
        self.directory = self._first = directory
        self._secret = os.urandom(8).hex()  # the start of each name, so that nobody can guess it
        self._pipes = 0  # made so far
        self._written: set[str] = set()  # the names of files that may exist

    def path(self, name: str) -> bytes:
        """The path of the file with that name."""
        return os.fsencode(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, f"{self._secret}-{name}")

    def write(self, name: str, data: bytes) -> bytes:
        """Write a file, and return its path. Raises LimitReached."""

        def make(path: str) -> None:
            self._written.add(name)
            with open(path, "xb", opener=_OPEN_PRIVATE) as file:
                os.fchmod(file.fileno(), 0o600)  # as for pipes: see streams.pipe_stream
                file.write(data)

        try:
            self._put(name, make)
        except OSError as error:
            self.remove(name)
            raise LimitReached(
                f"the command's {name} ({len(data)} bytes) could not be written to {self.directory}: {error};"
                " nothing was run; make room there, or set XDG_RUNTIME_DIR to another directory"
            ) from error
        return self.path(name)

    def pipe(self) -> Stream:
        """A new named pipe. Raises OSError."""
        self._pipes += 1
        return self._put(f"pipe-{self._pipes}", pipe_stream)

    def _put(self, name: str, make: Callable[[str], T]) -> T:
        """Make something at the path of that name, in a new directory if the present one cannot be used."""
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
        """Remove all files after the end of their command. They may use memory (tmpfs)."""
        while self._written:
            self.remove(next(iter(self._written)))

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self._path(name))
        self._written.discard(name)

    def close(self) -> None:
        """Remove the directory, unless it is the slot's, which the guard removes."""
        if self.directory != self._first and is_private(self.directory):
            with suppress(OSError):
                os.chmod(self.directory, 0o700)
            shutil.rmtree(self.directory, ignore_errors=True)
