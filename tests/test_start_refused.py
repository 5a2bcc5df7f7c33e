"""Where bash cannot be started, who asks is told what stands in the way, and what to do: nobody has to guess."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Final

import pytest
from sandboxes import needs_bwrap
from support import PATIENCE

# A container with nothing that can be written: no /tmp, no /dev/shm.
READ_ONLY: Final = ("bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev")
_PLACES: Final = ("XDG_RUNTIME_DIR", "TMPDIR", "TEMP", "TMP", "SHELLSESSION_SOCKET")
SAYS: Final = """
from shellsession import Session, ShellSessionError, connect
try:
    with {session} as sh: print(sh.run("echo hi").stdout, end="")
except ShellSessionError as error: print(f"{{error.code}}: {{error}}")
"""


def said(wrapper: tuple[str, ...], *words: str, **variables: str) -> str:
    """What a Python with nothing that names a place says there, but for what is given."""
    environment = {name: value for name, value in os.environ.items() if name not in _PLACES}
    done = subprocess.run(
        [*wrapper, sys.executable, *words],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd="/",
        check=False,
    )
    return done.stdout + done.stderr


SESSIONS: Final = {
    "its own": ("Session()", "unavailable: no place for the files of sessions: .*set XDG_RUNTIME_DIR or TMPDIR to "),
    "the daemon's": (
        "connect('a')",
        "daemon_unavailable: no place for .*XDG_RUNTIME_DIR .* or SHELLSESSION_SOCKET to ",
    ),
}


@needs_bwrap
@pytest.mark.parametrize(("session", "told"), SESSIONS.values(), ids=SESSIONS)
def test_where_nothing_can_be_written_it_says_what_to_set(session: str, told: str) -> None:
    found = said(READ_ONLY, "-c", SAYS.format(session=session))
    assert re.fullmatch(f"{told}.*\n", found), found
    assert f"/dev/shm/shellsession-{os.getuid()} (Read-only file system)" in found
    assert "[Errno" not in found


@needs_bwrap
@pytest.mark.parametrize("session", [session for session, _ in SESSIONS.values()], ids=SESSIONS)
@pytest.mark.parametrize("name", ["XDG_RUNTIME_DIR", "TMPDIR"])
def test_with_what_it_says_it_runs(session: str, name: str) -> None:
    program = SAYS.format(session=session) + "from shellsession.daemon.control import shutdown; shutdown()"
    assert said((*READ_ONLY, "--tmpfs", "/mnt"), "-c", program, **{name: "/mnt"}) == "hi\n"


@needs_bwrap
@pytest.mark.parametrize("verb", ["run", "ls", "status", "stop", "serve"])
def test_where_nothing_can_be_written_the_command_line_says_so_too(verb: str) -> None:
    words = ["run", "--", "true"] if verb == "run" else [verb]
    found = said(READ_ONLY, "-m", "shellsession", *words)
    assert re.fullmatch(r"shellsession: no place for .*; set XDG_RUNTIME_DIR .* or SHELLSESSION_SOCKET to .*\n", found)
