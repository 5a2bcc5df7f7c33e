"""A command that is cut at its time limit: all of it is interrupted at one moment, and what bash makes of that."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shellsession import Session
from shellsession.engine import endings
from shellsession.engine.shell import kill

pytestmark = pytest.mark.usefixtures("company")

# Long enough for bash to begin, short enough to wait for.
SOON = 0.3


@pytest.mark.parametrize("command", ["sleep 100 | cat", "cat <(sleep 100)", "sleep 100 | sh -c cat | cat"])
@pytest.mark.parametrize("isolated", [False, True])
def test_no_part_of_a_command_lives_on_another_s_end(
    sh: Session, monkeypatch: pytest.MonkeyPatch, command: str, isolated: bool
) -> None:
    """What follows would be run: as with Ctrl-C, which the kernel sends to all of them at once."""
    send = os.kill

    def send_slowly(pid: int, number: int) -> None:
        send(pid, number)
        time.sleep(0.02)  # as long as another needs to read the end of its input

    monkeypatch.setattr(os, "kill", send_slowly)
    result = sh.run(f"{command}; echo went on", timeout=SOON, isolated=isolated)
    assert (result.outcome, result.exit_code, result.stdout) == ("timed_out", 130, "")


def test_what_follows_a_child_that_ends_as_it_likes_is_interrupted(sh: Session) -> None:
    text = "v=7; sh -c 'trap \"exit 0\" INT; sleep 100 & wait'; sleep 100; echo went on"
    result = sh.run(text, timeout=SOON)
    assert (result.outcome, result.exit_code, result.stdout) == ("timed_out", 130, "")
    assert sh.run("echo $v").stdout == "7\n"


def test_a_trap_of_the_shell_is_run_once_for_an_interrupt_and_to_its_end(sh: Session) -> None:
    result = sh.run("trap 'echo in; for i in 1 2 3; do sleep 0.03; done; echo out' INT; sleep 100", timeout=SOON)
    assert (result.outcome, result.stdout, result.state_kept) == ("timed_out", "in\nout\n", True)


def test_an_interrupt_that_was_struck_half_way_is_done_again(sh: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for strike in (1, 2, 3):
        calls = itertools.count(1)

        def kill_or_be_struck(*signalled: Any, calls: Iterator[int] = calls, strike: int = strike) -> None:
            if next(calls) == strike:
                raise KeyboardInterrupt
            kill(*signalled)

        with monkeypatch.context() as patch:
            patch.setattr(endings, "kill", kill_or_be_struck)
            with pytest.raises(KeyboardInterrupt):
                sh.run("sleep 100 | cat; echo after", timeout=SOON)
        assert sh.run("echo $?").stdout == "130\n"


@pytest.mark.parametrize("first", ["(trap '' INT; exec sleep 100)", "sh -c 'trap \"exit 0\" INT; sleep 100 & wait'"])
def test_nothing_follows_where_the_shell_is_killed(sh: Session, first: str) -> None:
    result = sh.run(f"{first}; echo went on", timeout=SOON, on_timeout="kill")
    assert (result.outcome, result.stdout, result.state_kept) == ("timed_out", "", False)
