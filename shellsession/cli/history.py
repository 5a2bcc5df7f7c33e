"""The lines of earlier times at attach's prompt.

Law: they are their owner's alone, and where there can be no file they last until the end of this one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from ..engine.directories import make_private
from .editing import for_readline, from_readline

# Lines that are kept.
_REMEMBERED: Final = 2000


class History:
    """The lines of earlier times, in a file."""

    def __init__(self, path: str) -> None:
        import readline

        self._readline = readline
        self._path = path
        readline.set_history_length(_REMEMBERED)
        with suppress(OSError):
            make_private(os.path.dirname(path))
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            readline.read_history_file(path)

    def add(self, line: str) -> None:
        """Remember a line, unless it is the last one again."""
        last = self._readline.get_history_item(self._readline.get_current_history_length())
        if line.strip() and (last is None or line != from_readline(last)):
            self._readline.add_history(for_readline(line))
            with suppress(OSError):
                self._readline.append_history_file(1, self._path)
