"""If bash cannot start, the error says why, and what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import kinds
import pytest
from sandboxes import USERS, needs_bwrap, open_place
from system import PATIENCE

# A container with nothing that can be written: no /tmp, no /dev/shm.
READ_ONLY: Final = ("bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev")
# The same with a current directory, perhaps a repository, that can be written.
AT_WORK: Final = (*READ_ONLY, "--tmpfs", "/mnt", "--chdir", "/mnt")
WRAPPERS: Final = {"nothing": READ_ONLY, "nothing but the current directory": AT_WORK}
# A container with one place that can be written (to be named in TMPDIR), where somebody else was quicker.
TAKEN: Final = (*READ_ONLY, "--tmpfs", "/mnt", "sh", "-c", 'touch "/mnt/shellsession-$(id -u)"; exec "$@"', "sh")
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
        "daemon_unavailable: no place for .*XDG_RUNTIME_DIR .* or set SHELLSESSION_SOCKET to ",
    ),
}


@needs_bwrap
@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize(("session", "told"), SESSIONS.values(), ids=SESSIONS)
def test_where_nothing_can_be_written_it_says_what_to_set(session: str, told: str, wrapper: tuple[str, ...]) -> None:
    """In the directory where somebody works our files are out of place, and each process may work in another."""
    found = said(wrapper, "-c", SAYS.format(session=session))
    assert re.fullmatch(f"{told}.*\n", found), found
    assert f"/dev/shm/shellsession-{os.getuid()} (Read-only file system)" in found
    assert "[Errno" not in found


@needs_bwrap
@pytest.mark.parametrize("session", [session for session, _ in SESSIONS.values()], ids=SESSIONS)
@pytest.mark.parametrize("name", ["XDG_RUNTIME_DIR", "TMPDIR"])
def test_with_what_it_says_it_runs(session: str, name: str) -> None:
    program = SAYS.format(session=session) + "from shellsession.daemon.client.admin import shutdown; shutdown()"
    assert said((*READ_ONLY, "--tmpfs", "/mnt"), "-c", program, **{name: "/mnt"}) == "hi\n"


@needs_bwrap
def test_where_others_have_all_places_a_session_has_its_own_and_a_daemon_none() -> None:
    """A socket that each process looks for elsewhere would be a daemon for each."""
    assert said(TAKEN, "-c", SAYS.format(session="Session()"), TMPDIR="/mnt") == "hi\n"
    session, told = SESSIONS["the daemon's"]
    found = said(TAKEN, "-c", SAYS.format(session=session), TMPDIR="/mnt")
    assert re.fullmatch(f"{told}.*\n", found), found
    assert f"/mnt/shellsession-{os.getuid()} (Not a directory)" in found


@pytest.mark.sampled
@needs_bwrap
@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("verb", ["run", "ls", "status", "stop", "serve"])
def test_where_nothing_can_be_written_the_command_line_says_so_too(verb: str, wrapper: tuple[str, ...]) -> None:
    words = ["run", "--", "true"] if verb == "run" else [verb]
    found = said(wrapper, "-m", "shellsession", *words)
    assert re.fullmatch(r"shellsession: no place for .*; set .* or set SHELLSESSION_SOCKET to .*\n", found)


_OUTSIDE: Final = "bwrap --dev-bind / /"
_BARE: Final = "--tmpfs /dev --dev-bind /dev/null /dev/null --dev-bind /dev/urandom /dev/urandom"
_ALONE: Final = """
os.getuid() or (os.setgroups([]), os.setgid(54321), os.setuid(54321))  # root has no such limit
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
"""
_NO_TERMINAL: Final = "unavailable: bash needs a terminal, and none could be opened: .*; mount devpts at /dev/pts, "
_NO_PROCESS: Final = "no more processes can be started: end some, or raise the limit .*ulimit -u.*pids.max"
_FEW: Final = "limit_reached: this process may open 20 files .* Raise the limit "
# Where it is, what has become of the host before, whose session it asks for, and what that says.
REFUSED: Final = {
    "no /dev/pts": (f"{_OUTSIDE} --tmpfs /dev/pts", "", "Session()", _NO_TERMINAL),
    "no /dev/ptmx": (f"{_OUTSIDE} {_BARE}", "", "Session()", _NO_TERMINAL),
    "no more processes": ("", _ALONE, "Session(cwd='/')", f"limit_reached: {_NO_PROCESS}"),
    "no more processes, a daemon": (
        "",
        _ALONE,
        "connect('a', cwd='/')",
        f"daemon_unavailable: no daemon .*{_NO_PROCESS}",
    ),
    "few files, and more allowed": (
        "",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 30))",
        "Session()",
        f"{_FEW}.ulimit -n, or resource.setrlimit; up to 30 is allowed., or close sessions",
    ),
    "few files, and no more allowed": (
        "",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))",
        "Session()",
        f"{_FEW}of the program that starts it .ulimit -Hn: no more than 20 is allowed here., or close sessions",
    ),
}


@pytest.mark.parametrize(("wrapper", "before", "session", "told"), REFUSED.values(), ids=REFUSED)
def test_what_stands_in_the_way_is_named(wrapper: str, before: str, session: str, told: str) -> None:
    if wrapper and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed (apt install bubblewrap)")
    # Loaded before it becomes another user: Python itself may be where only root looks.
    loaded = "import os, resource, shellsession.engine.verbs.expect\nfrom shellsession import Session, connect\n"
    with open_place(USERS[-1]) as place:
        program = f"{loaded}{before}{SAYS.format(session=session)}"
        found = said(tuple(wrapper.split()), "-c", program, XDG_RUNTIME_DIR=str(place))
    assert re.match(told, found), found
    assert "[Errno" not in found


# A container whose /dev/pts has that many terminals at the most.
_FEW_TERMINALS: Final = (
    *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
    "mount -t devpts -o newinstance,ptmxmode=0666,max={} devpts /dev/pts && mount --bind /dev/pts/ptmx /dev/ptmx"
    ' && exec "$@"',
    "sh",
)
_TAKEN: Final = r"limit_reached: no pseudo terminal is free, and nothing was run: .*kernel\.pty\.max.*tty=False\n"
_CALLS: Final = """
from shellsession import Session, ShellSessionError, connect
with {session} as sh:
    sh.run("X=kept")
    for tty in (True, False):
        try: print(sh.run("echo $X", tty=tty).stdout, end="")
        except ShellSessionError as error: print(f"{{error.code}}: {{error}}")
"""


def with_terminals(most: int, program: str) -> str:
    wrapper = tuple(word.format(most) for word in _FEW_TERMINALS)
    if subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no /dev/pts of our own can be mounted here")
    with open_place("as who we are") as place:  # a short path, as a socket's must be
        return said(wrapper, "-c", program, XDG_RUNTIME_DIR=str(place))


@pytest.mark.parametrize(
    "session", ["Session(tty=False)", "in_a_loop(lambda: AsyncSession(tty=False))", "connect('a', tty=False)"]
)
def test_a_session_with_pipes_needs_one_terminal_and_names_what_it_lacks_of_a_second(session: str) -> None:
    ends = "from shellsession.daemon.client.admin import shutdown; shutdown()" if "connect" in session else ""
    tests = f"import sys; sys.path.insert(0, {str(Path(kinds.__file__).parent)!r})\n"
    ours = f"{tests}from kinds import in_a_loop\nfrom shellsession import AsyncSession\n"
    found = with_terminals(1, ours + _CALLS.format(session=session) + ends)
    assert re.fullmatch(f"{_TAKEN}kept\n", found), found


@pytest.mark.parametrize("session", ["Session()", "Session(tty=False).open() as first, Session(tty=False)"])
def test_a_session_that_gets_no_terminal_at_its_start_names_what_it_lacks(session: str) -> None:
    found = with_terminals(1, SAYS.format(session=session))
    assert re.fullmatch(_TAKEN, found), found
