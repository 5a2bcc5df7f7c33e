"""The directories of programs that contracts ask for: made once in each process, and removed at its end."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from contextlib import suppress
from typing import Final

from ..errors import ShellUnavailable
from .contract import Programs

_made: Final = dict[Programs, str]()


def directory(programs: Programs) -> str:
    """The path of the directory. Raises ShellUnavailable."""
    path = _made.get(programs)
    if path is None or not os.access(os.path.join(path, programs.names[0]), os.X_OK):
        path = _made[programs] = _make(programs)
    return path


def _make(programs: Programs) -> str:
    """Make it where programs may run. Sandboxes have a /tmp of their own, so that is not the first choice."""
    refused = []
    for place in ("/var/tmp", tempfile.gettempdir(), os.path.expanduser("~")):
        try:
            path = tempfile.mkdtemp(prefix=programs.prefix, dir=place)
            atexit.register(_remove, path, os.getpid())
            _fill(path, programs)
        except OSError as error:
            refused.append(f"{place} ({error.strerror})")
            continue
        if os.access(os.path.join(path, programs.names[0]), os.X_OK):
            return path
        refused.append(f"{place} (mounted noexec)")
    raise ShellUnavailable(
        f"no place for programs that the tool needs: {', '.join(refused)};"
        " set TMPDIR to a directory where you can write and programs may run"
    )


def _fill(path: str, programs: Programs) -> None:
    for name in programs.names:
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            file.write(programs.text)
            os.fchmod(file.fileno(), 0o555)
    for name, target in programs.links:
        os.symlink(target, os.path.join(path, name))
    # Others may run them: a command may change its user (`su`). Nobody is to write there by mistake.
    os.chmod(path, 0o555)


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # not a forked child
        with suppress(OSError):
            os.chmod(path, 0o700)
        shutil.rmtree(path, ignore_errors=True)
