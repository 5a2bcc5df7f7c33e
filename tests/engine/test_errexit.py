"""``set -e`` ends the text at its first failing command, as ``bash -e`` ends a script, and the shell lives."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bashes import VERSION
from conftest import emptied
from errexit_scripts import MADE, SCRIPTS
from hypothesis import assume, given
from reference import ENVIRONMENT
from system import PATIENCE, SOAK, wait_until
from writing import some_texts, texts

from shellsession import TTY, Session
from shellsession.engine.io.control_socket import ControlSocket

pytestmark = pytest.mark.usefixtures("company")

# Bash 5.0 itself ends where `command` runs a builtin that fails.
ENDS_BASH = re.compile("command false" if VERSION == (5, 0) else r"\A\Z")
ALL = [script for script in (*SCRIPTS, *MADE) if not ENDS_BASH.search(script)]
# A sourced text may `return`, and has traps of its own to see.
UNLIKE_A_SCRIPT = re.compile(rb"trap|return|set -[TE]")


def of_a_script(text: bytes, place: Path, *options: str) -> tuple[bytes, int]:
    """Return what a script with this text prints to stdout, and its status. Its messages begin as at a prompt."""
    (script := place.parent / "script").write_bytes(text + b"\n")
    with open(os.devnull) as empty:
        done = subprocess.run(
            ["bash", *options, script],
            cwd=place,
            env=ENVIRONMENT,
            stdin=empty,
            capture_output=True,
            check=False,
            timeout=PATIENCE,
        )
    return re.sub(rb"\S*/script: line \d+: ", b"bash: ", done.stdout), done.returncode


@pytest.mark.sampled
@pytest.mark.parametrize("options", ["set -e", "set -euo pipefail"])
@pytest.mark.parametrize("script", [script for script in ALL if script in SCRIPTS])
def test_a_text_under_set_e_prints_and_returns_what_a_script_does(
    script: str, options: str, new_session: Callable[..., Session], tmp_path: Path
) -> None:
    text = f"{options}\n{script}".encode()
    result = new_session(env=ENVIRONMENT, agent_env=False, tty=False).run(text)
    assert (result.stdout_bytes, result.exit_code) == of_a_script(text, tmp_path)
    assert (result.outcome, result.state_kept) == ("exited", True)


def test_a_text_with_errexit_prints_and_returns_what_a_script_of_bash_e_does(
    new_session: Callable[..., Session], tmp_path: Path
) -> None:
    seed = os.environ.get("PYTEST_XDIST_WORKER", "")
    for script in ALL if SOAK else random.Random(seed).sample(ALL, 40):
        with new_session(env=ENVIRONMENT, agent_env=False, tty=False) as sh:
            result = sh.run(script, errexit=True)
            expected = of_a_script(script.encode(), tmp_path, "-e")
            assert (script, result.stdout_bytes, result.exit_code) == (script, *expected)
            assert sh.run("trap; case $- in *[eE]*) echo on;; esac").stdout == "", script
            assert result.state_kept, script


@pytest.mark.parametrize("more", [{}, {"isolated": True}, {"cwd": "/"}, {"env": {"Q": "1"}}, {"timeout": 0.3}])
def test_errexit_is_on_for_one_command_with_every_option(sh: Session, more: dict[str, Any]) -> None:
    pid, text = sh.open().pid, "sleep 100; echo never" if "timeout" in more else "echo $Q; false; echo never"
    for _ in range(2):
        assert "never" not in sh.run(text, errexit=True, **more).stdout
        assert sh.run("false; echo on").stdout == "on\n"
    assert sh.run("set -e; true", errexit=True).ok
    assert sh.run("false; echo on", errexit=False).stdout == "on\n"
    sh.run("set -e")
    assert not sh.run("false; echo never", errexit=True).stdout
    assert "e" in sh.run("echo $-").stdout  # it was on before
    assert sh.pid == pid


def test_errexit_beside_an_err_trap_of_the_user_ends_the_shell_as_set_e_does(sh: Session) -> None:
    sh.run("trap 'echo mine' ERR")
    result = sh.run("false; echo never", errexit=True)
    assert (result.outcome, result.stdout) == ("shell_exited", "mine\n")
    assert "`set -e` does that" in result.reason


@some_texts
@given(text=texts())
def test_a_generated_text_under_set_e_prints_and_returns_what_a_script_does(text: bytes, place: Path) -> None:
    assume(not UNLIKE_A_SCRIPT.search(text))
    text = b"set -e\n" + text
    with Session(cwd=emptied(place), env=ENVIRONMENT, agent_env=False, tty=False, timeout=PATIENCE) as sh:
        result = sh.run(text)
    assert (result.stdout_bytes, result.exit_code) == of_a_script(text, emptied(place))


def test_a_text_that_prints_error_keeps_its_shell_under_set_e(sh: Session) -> None:
    result = sh.run('set -euo pipefail; [ -f nowhere ] || { echo "ERROR: no file"; false; }; echo never')
    assert (result.stdout, result.exit_code, result.state_kept) == ("ERROR: no file\n", 1, True)


def test_the_state_of_a_shell_outlives_a_command_that_fails_under_set_e(sh: Session) -> None:
    sh.run("cd /usr; A=1; f() { false; echo never; }")
    result = sh.run("set -euo pipefail\nB=2\nls /nope\necho never")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "`set -e` is on" in result.reason
    assert sh.run("echo $A $B $PWD").stdout == "1 2 /usr\n"
    assert sh.run("f; echo never").stdout == ""  # it is on for the next text, too
    assert sh.run("set +e; f; echo on").stdout == "never\non\n"


@pytest.mark.parametrize("text", ["set -e; false", "set -Ee; false", "set -e; true", "set -e; set +e", "echo errexit"])
def test_nothing_of_ours_is_left_behind_a_text_under_set_e(sh: Session, text: str) -> None:
    sh.run(text)
    sh.run("set +e")
    assert sh.run("trap; echo $-").stdout.strip("\n") == sh.run("echo $-").stdout.strip("\n")
    assert ("E" in sh.run("echo $-").stdout) == ("E" in text)


def test_an_err_trap_of_the_user_is_left_alone_and_set_e_ends_the_shell(sh: Session) -> None:
    sh.run("source /dev/stdin <<<'trap \"echo mine\" ERR'")
    result = sh.run("set -e; false")
    assert (result.outcome, result.stdout) == ("shell_exited", "mine\n")
    assert "`set -e` does that" in result.reason


@pytest.mark.parametrize("more", [{}, {"tty": False}, {"stdin": "word\n"}, {"cwd": "/"}, {"env": {"Q": "1"}}])
def test_set_e_keeps_the_shell_with_every_option(sh: Session, more: dict[str, str]) -> None:
    pid = sh.open().pid
    result = sh.run("set -e; read x || :; echo $x$Q; false; echo never", **more)  # type: ignore[arg-type]
    assert (result.outcome, result.exit_code) == ("exited", 1)
    assert result.stdout == ("word\n" if "stdin" in more else "1\n" if "env" in more else "\n")
    assert sh.run("set +e").ok
    assert sh.run("trap; echo on").stdout == "on\n"
    assert sh.pid == pid


def test_a_command_under_set_e_keeps_the_status_of_the_one_before(sh: Session) -> None:
    sh.run("set -e; (exit 7) || echo caught")
    sh.run("(exit 7)")
    assert sh.run("echo $?; :").stdout == "7\n"


def test_a_command_under_set_e_is_ended_handed_back_and_answered(sh: Session) -> None:
    assert sh.run("set -e; sleep 1000; echo never", timeout=0.2).outcome == "timed_out"
    came = sh.run("read x; echo got $x; false; echo never", stdin=TTY, timeout=0.2, on_timeout="yield")
    assert came.outcome in ("input", "running")
    ended = sh.send("word\n", timeout=PATIENCE)
    assert (ended.outcome, ended.exit_code) == ("exited", 1)
    assert "got word" in came.stdout + ended.stdout
    assert sh.run("set +e").ok
    assert sh.run("trap; echo on").stdout == "on\n"


def test_a_job_that_fails_under_set_e_ends_nothing(sh: Session) -> None:
    sh.run("set -e; false & wait $! || echo failed")
    sh.run("(exit 3) &")
    wait_until(lambda: not any(job.running for job in sh.jobs()), "its end")
    assert sh.run("echo on").stdout == "on\n"


def test_startup_commands_under_set_e_fail_as_they_did(new_session: Callable[..., Session]) -> None:
    session = new_session(startup=["set -e"])
    assert session.run("false; echo never").stdout == ""
    assert session.run("echo on").stdout == "on\n"


@pytest.mark.parametrize("text", ["set -u -e", "set -o pipefail -e", "set -f -uo pipefail -e"])
def test_set_e_behind_other_options_keeps_the_shell(sh: Session, text: str) -> None:
    assert sh.run(f"{text}; false; echo never").state_kept


@pytest.mark.parametrize("text", ["source lib", "trap 'echo mine' err", "setup"])
def test_an_err_trap_that_a_text_sets_unseen_under_set_e_stays(sh: Session, text: str, tmp_path: Path) -> None:
    (tmp_path / "lib").write_text("trap 'echo mine' ERR")
    (tmp_path / "functions").write_text("setup() { trap 'echo mine' ERR; }")
    sh.run(". ./functions; set -e", cwd=tmp_path)
    sh.run(text, cwd=tmp_path)
    assert sh.run("set +e; trap -p").stdout == "trap -- 'echo mine' ERR\n"


def traps_of_the_user(sh: Session) -> str:
    return sh.run("trap -p ERR; case $- in *[eE]*) echo on;; esac").stdout


@pytest.mark.parametrize("text", ["source lib", "trap 'echo mine' err", "setup", "command trap 'echo mine' 'E'RR"])
def test_an_err_trap_that_a_text_sets_unseen_with_errexit_stays(sh: Session, text: str, tmp_path: Path) -> None:
    (tmp_path / "lib").write_text("trap 'echo mine' ERR")
    (tmp_path / "functions").write_text("setup() { trap 'echo mine' ERR; }")
    sh.run(". ./functions; set -- E", cwd=tmp_path)
    sh.run(text, cwd=tmp_path, errexit=True)
    assert traps_of_the_user(sh) == "trap -- 'echo mine' ERR\n"
    assert sh.run("true", errexit=True).ok  # nor does it get lost beside one that is set already
    assert traps_of_the_user(sh) == "trap -- 'echo mine' ERR\n"


def test_an_err_trap_of_an_inherited_function_stays_beside_errexit(new_session: Callable[..., Session]) -> None:
    sh = new_session(env={**ENVIRONMENT, "BASH_FUNC_setup%%": "() {  trap 'echo mine' ERR\n}"}, tty=False)
    sh.run("setup")
    sh.run("true", errexit=True)
    assert traps_of_the_user(sh) == "trap -- 'echo mine' ERR\n"


def test_an_err_trap_of_a_function_stays_beside_errexit_in_a_restored_shell(
    new_session: Callable[..., Session], tmp_path: Path
) -> None:
    (tmp_path / "functions").write_text("setup() { trap 'echo mine' ERR; }")
    old = new_session(tty=False)
    old.run(". ./functions", cwd=tmp_path)
    sh = new_session(snapshot=old.snapshot(), tty=False)
    sh.run("setup")
    sh.run("true", errexit=True)
    assert traps_of_the_user(sh) == "trap -- 'echo mine' ERR\n"


@pytest.mark.parametrize("text", ["sleep 100", "kill -INT $$; sleep 100", "kill -INT $BASHPID", "exit 1 2", "a; ("])
def test_nothing_of_errexit_is_left_behind_a_text_that_is_cut_off(sh: Session, text: str) -> None:
    for _ in range(2):
        sh.run(text, errexit=True, timeout=0.3)
        assert traps_of_the_user(sh) == ""
        assert sh.run("false; echo on").stdout == "on\n"


@pytest.mark.parametrize("status", [0, 1, 7])
def test_a_text_with_errexit_sees_the_status_of_the_one_before(sh: Session, status: int) -> None:
    sh.run(f"(exit {status})")
    assert sh.run("echo $? ${PIPESTATUS[@]}", errexit=True).stdout.startswith(f"{status} ")


@pytest.mark.skipif(VERSION < (5, 1), reason="an older bash reads its input in short pieces")
def test_errexit_in_a_shell_without_traps_asks_bash_nothing(sh: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, send = list[bytes](), ControlSocket.send

    def note(control: ControlSocket, lines: bytes) -> None:
        sent.append(lines)
        send(control, lines)

    monkeypatch.setattr(ControlSocket, "send", note)
    sh.run("true")
    sent.clear()
    assert sh.run("false; echo never", errexit=True).exit_code == 1
    assert len(sent) == 1
    assert traps_of_the_user(sh) == ""


def test_a_syntax_error_under_set_e_ends_the_shell_and_the_reason_says_so(sh: Session) -> None:
    sh.run("set -e")
    result = sh.run("echo a\n)")
    assert (result.stdout, result.exit_code, result.state_kept) == ("a\n", 2, False)
    assert "with `set -e`, a syntax error" in result.reason
