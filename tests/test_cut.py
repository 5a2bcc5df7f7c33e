"""A command that is cut at its time limit: all of it is interrupted at one moment, and what bash makes of that."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shellsession import Session
from shellsession.engine import ladder, processes, tracing
from shellsession.engine.shell import kill

pytestmark = pytest.mark.usefixtures("company")

# Long enough for bash to begin, short enough to wait for.
SOON = 0.3

# A program that heeds SIGINT and ends well, as pytest does; and one that must be killed.
HEEDS = f"{shlex.quote(sys.executable)} -ISc " + shlex.quote(
    "import signal, sys, time; signal.signal(2, lambda *_: sys.exit(0)); time.sleep(100)"
)
IGNORES = "(trap '' INT; exec sleep 100)"


@pytest.mark.parametrize("program", [HEEDS, IGNORES], ids=["heeds", "ignores"])
@pytest.mark.parametrize(
    "command",
    [
        "{}; echo went on",
        "{}; /bin/echo went on",
        "{}\necho went on",
        "{} && echo went on",
        "{} || echo went on",
        "if {}; then echo went on; else echo went on; fi",
        "for i in 1 2; do {}; echo went on; done",
        "f() {{ {}; echo went on; }}; f",
        "( {}; echo went on)",
        "( {} ); echo went on",
        "( ( {} ); echo went on); echo went on",
        "{{ {}; echo went on; }} | cat",
        "{} | cat; echo went on",
        "cat | {}; echo went on",
        "x=$( {}; echo went on >&2); echo went on",
        "eval {!r}'; echo went on'",
        "cat <({}); echo went on",
        "sleep 100 & {}; echo went on",
        "(trap '' INT; {}; echo went on); echo went on",
        "bash -c {!r}'; echo went on'",
    ],
)
def test_nothing_follows_a_program_that_ends_in_its_own_way(sh: Session, command: str, program: str) -> None:
    """Bash itself would go on, and so it does after Ctrl-C at a prompt."""
    text = command.replace("{!r}", shlex.quote(program)).replace("{}", program).replace("{{", "{").replace("}}", "}")
    sh.run("v=7")
    for isolated in (False, True) if command.startswith("{};") else (False,):
        result = sh.run(text, timeout=0.1, isolated=isolated)
        assert (result.outcome, result.stdout) == ("timed_out", ""), isolated
        assert "went on" not in result.stderr
    assert sh.run("echo $v").stdout == "7\n"


def test_a_shell_that_may_not_be_traced_is_kept_all_the_same(sh: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(tracing, "_trace", refuse)
    result = sh.run("v=7; (sleep 100; echo went on); echo went on", timeout=SOON)
    assert (result.outcome, result.stdout) == ("timed_out", "")
    assert sh.run("echo $v").stdout == "7\n"


@pytest.mark.parametrize("strike", range(3, 10))  # before, while it is seized, signals are put off
def test_a_trace_that_was_struck_half_way_is_let_go(sh: Session, monkeypatch: pytest.MonkeyPatch, strike: int) -> None:
    calls = itertools.count(1)
    trace = tracing._trace

    def trace_or_be_struck(*request: int) -> None:
        trace(*request)
        if next(calls) == strike:
            raise KeyboardInterrupt

    sh.run("v=7")
    with monkeypatch.context() as patch:
        patch.setattr(tracing, "_trace", trace_or_be_struck)
        with pytest.raises(KeyboardInterrupt):
            sh.run("sleep 100; echo after", timeout=SOON)
    assert sh.run("echo $v").stdout == "7\n"


def test_a_shell_that_is_traced_just_now_is_alive(sh: Session) -> None:
    shell = sh.open()._engine.live()
    shell.signal(signal.SIGSTOP)
    while processes.state(shell.pid) != "T":
        os.sched_yield()
    tracee = tracing._Tracee(shell.pid)
    try:
        assert not shell.dead
    finally:
        tracee.let_go()
        shell.signal(signal.SIGCONT)
    assert sh.run("echo on").stdout == "on\n"


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
    for strike in (1, 2, 3, 4):
        calls = itertools.count(1)

        def kill_or_be_struck(*signalled: Any, calls: Iterator[int] = calls, strike: int = strike) -> None:
            if next(calls) == strike:
                raise KeyboardInterrupt
            kill(*signalled)

        with monkeypatch.context() as patch:
            patch.setattr(ladder, "kill", kill_or_be_struck)
            with pytest.raises(KeyboardInterrupt):
                sh.run("sleep 100 | cat; echo after", timeout=SOON)
        assert sh.run("echo $?").stdout == "130\n"


@pytest.mark.parametrize("first", ["(trap '' INT; exec sleep 100)", "sh -c 'trap \"exit 0\" INT; sleep 100 & wait'"])
def test_nothing_follows_where_the_shell_is_killed(sh: Session, first: str) -> None:
    result = sh.run(f"{first}; echo went on", timeout=SOON, on_timeout="kill")
    assert (result.outcome, result.stdout, result.state_kept) == ("timed_out", "", False)
