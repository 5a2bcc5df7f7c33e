"""Shells are stopped and traced during an interrupt, also if an exception is raised in the middle of that."""

from __future__ import annotations

import itertools
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from system import PATIENCE, wait_until

from shellsession import Session
from shellsession.engine.kernel import proc
from shellsession.engine.verbs import collect, interrupt

pytestmark = pytest.mark.usefixtures("company")

# Long enough for bash to begin, short enough to wait for.
SOON = 0.3


def test_a_shell_that_may_not_be_traced_is_kept_all_the_same(sh: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(interrupt, "_trace", refuse)
    result = sh.run("v=7; (sleep 100; echo went on); echo went on", timeout=SOON)
    assert (result.outcome, result.stdout) == ("timed_out", "")
    assert sh.run("echo $v").stdout == "7\n"


@pytest.mark.parametrize("moment", range(1, 12))
def test_an_interrupted_trace_is_let_go(sh: Session, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    calls = itertools.count(1)
    trace = interrupt._trace

    def trace_or_be_interrupted(*request: int) -> None:
        trace(*request)
        if next(calls) == moment:
            raise KeyboardInterrupt

    sh.run("v=7")
    with monkeypatch.context() as patch:
        patch.setattr(interrupt, "_trace", trace_or_be_interrupted)
        with pytest.raises(KeyboardInterrupt):
            sh.run("sleep 100; echo after", timeout=SOON)
    assert sh.run("echo $v").stdout == "7\n"


def test_a_shell_that_was_stopped_behind_its_mark_is_let_go_on(sh: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, stops = collect.ask, iter([signal.SIGSTOP])

    def ask_one_that_is_stopped(bash: Any, *question: Any) -> Any:
        for number in stops:
            bash.signal(number)
        return ask(bash, *question)

    monkeypatch.setattr(collect, "ask", ask_one_that_is_stopped)
    result = sh.run("v=7; sleep 100", timeout=SOON)
    assert (result.outcome, result.state_kept) == ("timed_out", True)
    assert sh.run("echo $v").stdout == "7\n"


def test_a_shell_that_is_traced_just_now_is_alive(sh: Session) -> None:
    shell = sh.open().engine.live()
    shell.signal(signal.SIGSTOP)
    while proc.state(shell.pid) != "T":
        os.sched_yield()
    interrupt.seize(shell.pid)
    try:
        assert not shell.dead
    finally:
        interrupt.detach(shell.pid)
        shell.signal(signal.SIGCONT)
    assert sh.run("echo on").stdout == "on\n"


def test_a_host_that_waits_for_any_child_sees_no_stop(sh: Session) -> None:
    told: list[int] = []

    def reap(*_: object) -> None:
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                told.append(found[1])

    before = signal.signal(signal.SIGCHLD, reap)
    try:
        sh.run("v=7")
        assert sh.run("sleep 100; echo went on", timeout=0.1).stdout == ""
        assert sh.run("echo $v").stdout == "7\n"
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert not any(map(os.WIFSTOPPED, told))


def test_a_trace_that_another_thread_gives_up_costs_nothing(sh: Session) -> None:
    """As the collector may: only who traces can let go, and the end of its thread does."""
    shell = sh.open().engine.live()
    sh.run("v=7", timeout=PATIENCE)
    shell.signal(signal.SIGSTOP)
    while proc.state(shell.pid) != "T":
        os.sched_yield()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(interrupt.seize, shell.pid).result()
        interrupt.detach(shell.pid)
    wait_until(lambda: proc.tracer(shell.pid) == 0, "the end of the thread")
    shell.signal(signal.SIGCONT)
    assert sh.run("echo $v").stdout == "7\n"
