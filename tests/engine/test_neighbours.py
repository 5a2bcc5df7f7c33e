"""Sessions of one user: output that one writes to another's streams between calls is in no result."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sandboxes
from marks import answers
from sandboxes import needs_bwrap, run_as, sandboxed
from system import is_alive, wait_until

from shellsession import TTY, Session

user, mine = sandboxes.user, sandboxes.mine
NewSession = Callable[..., Session]
CALLS = pytest.mark.parametrize(
    "options", [{}, {"tty": False}, {"stdin": TTY}, {"merge_stderr": True}], ids=["terminal", "pipe", "stdin", "merged"]
)


def paths(sh: Session) -> list[str]:
    """Those of all streams that it has."""
    shell = sh.engine.live()
    return [os.fsdecode(stream.path) for stream in (shell.terminal, *shell.streams)]


def intrude(sh: Session) -> None:
    """Somebody who knows the paths of its streams writes to each, and goes."""
    for path in paths(sh):
        with open(path, "wb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NOCTTY)) as stream:
            stream.write(b"INTRUDER\n")


@CALLS
def test_what_arrives_between_two_calls_is_dropped(sh: Session, options: dict[str, Any]) -> None:
    expected = sh.run("echo out; echo err >&2; (exit 4)", **options)
    intrude(sh)
    after = sh.run("echo out; echo err >&2; (exit 4)", **options)
    assert (after.stdout, after.stderr, after.exit_code) == (expected.stdout, expected.stderr, 4)
    answers(sh)


def test_what_arrives_before_the_first_call_is_dropped(sh: Session) -> None:
    sh.open()
    intrude(sh)
    answers(sh)
    assert sh.jobs() == []


def test_a_shell_that_dies_between_two_calls_is_announced(sh: Session) -> None:
    sh.run("true")
    pid = sh.pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "its end")
    result = sh.run("true")
    assert (result.outcome, result.signal, result.ran) == ("shell_exited", signal.SIGKILL, False)
    answers(sh)


@pytest.mark.parametrize("shut_in", [pytest.param(True, marks=needs_bwrap, id="in a sandbox"), False])
def test_a_running_command_gets_what_others_write_unless_they_are_in_a_sandbox(
    user: str, mine: Path, shut_in: bool
) -> None:
    def scenario() -> None:
        victim = Session(cwd=mine, timeout=20)
        intruder = sandboxed(mine) if shut_in else Session(cwd=mine, timeout=20)
        with victim, intruder:
            victim.run("mkfifo go")
            victim.run("echo mine; read x <go; echo mine too", timeout=0.05, on_timeout="yield")
            targets = " ".join(map(shlex.quote, paths(victim)))
            assert (
                intruder.run(f"for p in {targets}; do {{ echo INTRUDER >$p; }} 2>/dev/null; done").outcome == "exited"
            )
            (mine / "go").write_bytes(b"\n")
            result = victim.wait()
            assert ("INTRUDER" in result.stdout + result.stderr) is not shut_in
            assert (result.exit_code, result.outcome) == (0, "exited")
            answers(victim)

    run_as(user, scenario)
