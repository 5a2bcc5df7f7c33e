"""The daemon's own log: JSON lines on stderr, or in a private file that is rotated by size.

A log file that the user names must be writable at the start. Later a failed write never stops the daemon.
"""

from __future__ import annotations

import io
import json
import logging
import os
import time
from logging.handlers import RotatingFileHandler
from typing import Final

from ...engine.io.directories import make_missing
from ...errors import ShellSessionError
from .audit import open_private

_MAX_BYTES: Final = 1 << 20
_OLD_FILES: Final = 2


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object on a line; an exception becomes its "traceback"."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class PrivateFile(RotatingFileHandler):
    """A log file that only its owner can read, whatever the umask is."""

    def _open(self) -> io.TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_private)


def _private(path: str, flags: int) -> int:
    try:
        return open_private(path, flags)
    except FileNotFoundError:
        make_missing(os.path.dirname(path))
        return open_private(path, flags)


def begin(level: str, path: str | None, wanted: bool) -> None:
    """Start logging, to the file at ``path`` or to stderr.

    ``wanted``: the user has named the file. Then it is made at once; raises ShellSessionError if that fails.
    """
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler()
    else:
        try:
            handler = PrivateFile(path, maxBytes=_MAX_BYTES, backupCount=_OLD_FILES, delay=not wanted)
        except OSError as error:
            raise ShellSessionError(
                f"the log file {path} cannot be written: {error.strerror}; name another one with --log-file"
            ) from error
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
