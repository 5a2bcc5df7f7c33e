"""Shared by the tests of the sandbox: whether this machine can have one, and tests that run as an ordinary user."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

# Imported before a change of user: Python itself may be where only root can read.
import shellsession.branch.branch
import shellsession.engine.verbs.expect  # noqa: F401
from shellsession import Sandbox, Session
from shellsession.branch.mounts import fault

needs_bwrap: Final = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed (apt install bubblewrap)"
)

USERS: Final = ["as who we are", "as an ordinary user"] if os.getuid() == 0 else ["as who we are"]
ORDINARY: Final = 54321
_ALARM: Final = 50


@contextmanager
def open_place(user: str) -> Iterator[Path]:
    """An empty directory that this user can reach and write."""
    place = Path(tempfile.mkdtemp(prefix="sandbox-", dir="/tmp"))
    try:
        if "ordinary" in user:
            os.chown(place, ORDINARY, ORDINARY)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def run_as(user: str, scenario: Callable[[], object]) -> None:
    """Call the function here, or in a child that becomes an ordinary user. A failure there is a failure here."""
    if "ordinary" not in user:
        scenario()
        return
    reading, writing = os.pipe()
    child = fork_as(user, scenario, writing)
    os.close(writing)
    with open(reading, encoding="utf-8") as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    if said.startswith("skip: "):
        pytest.skip(said.removeprefix("skip: "))
    assert (said, status) == ("", 0)


def fork_as(user: str, scenario: Callable[[], object], writing: int) -> int:
    """Fork a child that calls the function, and writes its failure to the descriptor ``writing``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork beside threads
        child = os.fork()
    if child == 0:
        said = ""
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_ALARM)
            if "ordinary" in user:
                _become_ordinary()
            scenario()
        except pytest.skip.Exception as skipped:
            said = f"skip: {skipped}"
        except BaseException:
            said = traceback.format_exc()
        finally:
            with suppress(OSError):
                os.write(writing, said[-60_000:].encode())
            os._exit(0)
    return child


def _become_ordinary() -> None:
    os.setgroups([])
    os.setgid(ORDINARY)
    os.setuid(ORDINARY)
    os.environ.pop("XDG_RUNTIME_DIR", None)
    os.environ["HOME"] = "/"
    os.chdir("/")


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def mine(user: str) -> Iterator[Path]:
    """A directory that the user of the test can write."""
    with open_place(user) as place:
        yield place


@pytest.fixture
def ours() -> Iterator[Path]:
    """A directory of the current user."""
    with open_place("as who we are") as place:
        yield place


def on_branch(place: Path) -> dict[str, Any]:
    """The options of a session on a branch of a directory in the place."""
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, as a program is that was just started
    if reason := fault():
        pytest.skip(reason)
    for name in ("branched", "layers"):
        (place / name).mkdir()
    return {"branch": place / "branched", "branch_dir": place / "layers"}


def sandboxed(place: Path, **options: Any) -> Session:
    return Session(cwd=place, timeout=20, sandbox=Sandbox(write=[place], **options))
