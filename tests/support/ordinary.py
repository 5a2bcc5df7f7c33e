"""Runs the command line as an ordinary user, also if the tests run as root, to whom nothing is closed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import shellsession as package

USER: Final = 54321 if os.getuid() == 0 else os.getuid()

_PACKAGES: Final = "packages"  # in a home

# Everything is imported before the change of user: Python may be where only root can read.
_PROGRAM: Final = """
import ctypes, gettext, locale, os
import {modules}
import shellsession.__main__, shellsession.cli.main, _ctypes
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({user})
    os.setuid({user})
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, as a program is that was just started
raise SystemExit(shellsession.__main__.main())
"""
_MODULES: Final = {
    "serve": "shellsession.cli.serve, shellsession.daemon.server.service, shellsession.daemon.server.log,"
    " shellsession.engine.verbs.expect, sqlite3",
    "run": "shellsession.cli.run, shellsession.daemon.client.session, encodings.ascii",
}


def shellsession(verb: str, *words: str, modules: str = "") -> list[str]:
    """The words that start the command line. ``modules``: what that verb imports."""
    program = _PROGRAM.format(modules=modules or _MODULES[verb], user=USER)
    return [sys.executable, "-c", program, verb, *words]


@contextmanager
def home() -> Iterator[Path]:
    """A directory of that user, for every directory that an environment names. It has a copy of the package."""
    place = Path(tempfile.mkdtemp(prefix="ordinary-", dir="/tmp"))
    try:
        os.chown(place, USER, -1)
        copied(place).parent.mkdir()
        subprocess.run(["cp", "-a", Path(package.__file__).parent, copied(place)], check=True)
        subprocess.run(["chmod", "-R", "a+rX", copied(place).parent], check=True)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def copied(place: Path) -> Path:
    """The package's copy in this home. That user can read it also where the clone is closed to others."""
    return place / _PACKAGES / "shellsession"


def environment(place: Path) -> dict[str, str]:
    directories = dict.fromkeys(("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"), str(place))
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(copied(place).parent), **directories}


def pipe() -> tuple[int, int]:
    """A pipe of that user: its end for reading, and its end for writing."""
    ends = os.pipe()
    os.fchown(ends[0], USER, -1)
    return ends


def forging(pipe: int, text: str) -> str:
    """A command that writes the text to every file in /proc that leads to the pipe, except those of the test."""
    leads = rf"-lname 'pipe:\[{os.fstat(pipe).st_ino}\]' ! -path '/proc/{os.getpid()}/*'"
    return f"find /proc/[0-9]*/fd {leads} 2>/dev/null | while read -r file; do echo '{text}' >$file; done"
