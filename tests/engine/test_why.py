"""What commands wait for: a corpus of hangs, each run for real. `make soak` runs all of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon
from hangs import HANGS, peers
from samples import sample
from system import PATIENCE, SOAK

from shellsession import TTY, RemoteSession, Sandbox, Session, connect
from shellsession.text import reason_of

_PROGRAMS = ("node", "psql", "ssh", "sqlite3", "curl", "git", "vi", "less", "make", "perl", "mkfifo")


@pytest.fixture
def fields(tmp_path: Path) -> Iterator[dict[str, object]]:
    with peers(tmp_path) as found:
        yield found


@pytest.mark.parametrize("where", ["here", "daemon", "sandbox"] if SOAK else ["here"])
@pytest.mark.parametrize("name", sample(HANGS, 8))
def test_hang_is_named_by_why_and_by_its_result(
    name: str, where: str, fields: dict[str, Any], daemon: Daemon, tmp_path: Path
) -> None:
    hang = HANGS[name]
    command = hang.command.format(**fields)
    for program in _PROGRAMS:
        if program in command.split() and not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    if where == "sandbox" and not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    stdin = TTY if hang.asks else None
    session: Session | RemoteSession = Session(stdin=stdin)
    if where == "daemon":
        session = connect(f"hang {name}", daemon.socket, stdin=stdin)
    elif where == "sandbox":
        session = Session(stdin=stdin, sandbox=Sandbox(write=[str(tmp_path)], network=True))
    with session as sh:
        sh.run("true")
        sh.run(command, timeout=0.3, on_timeout="yield", env={"TERM": "xterm"})
        until = time.monotonic() + PATIENCE
        while True:  # a program takes a while to get where it hangs
            why = sh.why()
            right = why.kind in hang.kinds.split() and hang.words.format(**fields) in str(why)
            result = sh.poll()
            if (right and reason_of(result)[1] == str(why)) or time.monotonic() > until:
                break
        assert (right, reason_of(result)[1]) == (True, str(why)), str(why)
        sh.interrupt()


def test_line_masks_secrets_and_shows_no_control_character(tmp_path: Path) -> None:
    with Session(stdin=TTY, redact=True, cwd=tmp_path) as sh:
        asked = sh.run("read -p 'token ghp_abcdefghijklmnopqrstuvwxyz0123456789 ok? ' x")
        assert reason_of(asked)[1] == str(sh.why()) == 'bash reads the terminal after "token *** ok?"'
        sh.interrupt()
        waits = sh.run("mkfifo $'a\\n; b\\e[m'; cat a*", timeout=0.3, on_timeout="yield")
        assert str(sh.why()) == "cat opens the FIFO a\\n; b\\x1b[m, which nobody writes"
        assert reason_of(waits) == ("the time limit passed", str(sh.why()).replace(";", ","))


def test_text_with_little_room_leaves_the_line_out(tmp_path: Path) -> None:
    with Session(cwd=tmp_path) as sh:
        result = sh.run("mkfifo f; cat f", timeout=0.3)
        assert "which nobody writes" in result.for_model()
        assert "which nobody writes" not in result.for_model(200)


def test_name_that_a_process_gave_itself_shows_no_arguments() -> None:
    title = "import ctypes,time; ctypes.CDLL(None).prctl(15, b'tool --key abc'); time.sleep(50)"
    with Session() as sh:
        sh.run(["python3", "-c", title], timeout=0.3, on_timeout="yield")
        until = time.monotonic() + PATIENCE
        while str(why := sh.why()) != "tool sleeps" and time.monotonic() < until:
            pass
        assert (str(why), why.comm) == ("tool sleeps", "tool")
