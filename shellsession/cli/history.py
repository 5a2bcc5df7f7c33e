"""The commands of earlier times at attach's prompt.

Law: they are their owner's alone, and where there can be no file they last until the end of this one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import IO, Final, cast

from ..engine.directories import make_missing
from .editing import as_bytes, as_text, for_readline, from_readline

# Commands that are kept, and how many more there may be before the file is cut: to write it anew for each takes long.
_REMEMBERED: Final = 2000
_MORE: Final = 500
# In the file each is a line. What stands for a line's end within one can be typed nowhere.
_WITHIN: Final = b"\0"


class History:
    """The commands of earlier times, in a file."""

    def __init__(self, path: str) -> None:
        import readline

        self._readline = readline
        self._path = path
        with suppress(OSError):
            make_missing(os.path.dirname(path))
            lines = self._lines()
            for line in lines[-_REMEMBERED:]:
                readline.add_history(for_readline(as_text(line.replace(_WITHIN, b"\n"))))
            if len(lines) > _REMEMBERED + _MORE:
                self._write(lines[-_REMEMBERED:])

    def add(self, command: str) -> None:
        """Remember a command, unless it is the last one again."""
        last = self._readline.get_history_item(self._readline.get_current_history_length())
        if command.strip() and (last is None or command != from_readline(last)):
            self._readline.add_history(for_readline(command))
            with suppress(OSError), self._open(os.O_WRONLY | os.O_APPEND | os.O_CREAT, "ab") as file:
                file.write(as_bytes(command).replace(b"\n", _WITHIN) + b"\n")

    def _open(self, flags: int, mode: str, path: str = "") -> IO[bytes]:
        """For its owner alone, also where somebody has removed it meanwhile."""
        return cast(IO[bytes], open(os.open(path or self._path, flags | os.O_CLOEXEC, 0o600), mode))

    def _lines(self) -> list[bytes]:
        with self._open(os.O_RDONLY | os.O_CREAT, "rb") as file:
            return [line for line in file.read().split(b"\n") if line]

    def _write(self, lines: list[bytes]) -> None:
        """Whole, or not at all."""
        path = os.path.realpath(self._path)  # a link stays one
        beside = f"{path}.{os.getpid()}"
        with self._open(os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "wb", beside) as file:
            file.write(b"".join(line + b"\n" for line in lines))
        os.replace(beside, path)
