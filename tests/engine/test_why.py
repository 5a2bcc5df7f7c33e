"""What commands wait for: a corpus of hangs, each run for real. `make soak` runs all of them."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon
from hangs import HANGS, peers
from samples import sample
from system import PATIENCE, SOAK, wait_until

from shellsession import TTY, RemoteSession, Sandbox, Session, connect
from shellsession.engine.kernel import activity, proc, why as kernel_why
from shellsession.engine.kernel.why import Scene, look
from shellsession.text import reason_of

_OF_EACH_KIND = {hang.kinds: name for name, hang in reversed(HANGS.items())}.values()
_PROGRAMS = ("node", "psql", "ssh", "sqlite3", "curl", "git", "vi", "less", "make", "perl", "mkfifo")


@pytest.fixture
def fields(tmp_path: Path) -> Iterator[dict[str, object]]:
    with peers(tmp_path) as found:
        yield found


@pytest.mark.parametrize("where", ["here", "daemon", "sandbox"] if SOAK else ["here"])
@pytest.mark.parametrize("name", dict.fromkeys((*_OF_EACH_KIND, *sample(HANGS, 8))))
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
            result, reason = sh.poll(), "" if why.kind == "unknown" else str(why)
            if (right and reason_of(result)[1] == reason) or time.monotonic() > until:
                break
        assert (right, reason_of(result)[1]) == (True, reason), str(why)
        sh.interrupt()


def test_socket_where_the_kernel_names_no_protocol_is_found(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc, "protocol", lambda path: "")
    with Session() as sh:
        for name in ("connection v6", "accept on a unix socket", "udp"):
            hang = HANGS[name]
            sh.run(hang.command.format(**fields), timeout=0.2, on_timeout="yield")
            wait_until(lambda hang=hang: hang.words.format(**fields) in str(sh.why()), name)  # type: ignore[misc]
            sh.interrupt()


def test_call_of_a_file_or_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such calls take long only where a disk does; so the process of this test makes another one."""
    path = tmp_path / "file"
    with path.open("w") as file, subprocess.Popen(["sleep", "60"], pass_fds=[file.fileno()]) as process:
        wait_until(lambda: proc.state(process.pid) == "S", "its sleep")
        calls = {name: number for number, name in reversed(kernel_why._CALLS.items())}
        said = {}
        for name in ("read", "write", "sync"):
            call = (calls[name], file.fileno(), 0, 0, 0, 0, 0)
            monkeypatch.setattr(activity, "system_call", lambda pid, thread, call=call: call)
            said[name] = look([process.pid], Scene())
        process.kill()
    assert {one.kind for one in said.values()} == {"disk"}
    assert [str(one) for one in said.values()] == [
        f"sleep reads the file {path}",
        f"sleep writes the file {path}",
        f"sleep waits until {path} is on the disk",
    ]


def test_line_masks_secrets_and_shows_no_control_character(tmp_path: Path) -> None:
    with Session(stdin=TTY, redact=True, cwd=tmp_path) as sh:
        asked = sh.run("read -p 'token ghp_abcdefghijklmnopqrstuvwxyz0123456789 ok? ' x")
        assert reason_of(asked)[1] == str(sh.why()) == 'bash reads the terminal after "token *** ok?"'
        sh.interrupt()
        waits = sh.run("mkfifo $'a\\n; b\\e[m'; cat a*", timeout=1, on_timeout="yield")
        assert str(sh.why()) == "cat opens the FIFO a\\n; b\\x1b[m, which nobody writes"
        assert reason_of(waits) == ("the time limit passed", str(sh.why()).replace(";", ","))


def test_text_with_little_room_leaves_the_line_out(tmp_path: Path) -> None:
    with Session(cwd=tmp_path) as sh:
        result = sh.run("mkfifo f; cat f", timeout=1)
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
