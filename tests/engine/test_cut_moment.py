"""An interrupt comes once, when bash can handle it, and a trap that it runs gets time to end."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from bashes import INTERRUPT_ENDS_INIT
from system import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import Session
from shellsession.engine.kernel import activity, proc
from shellsession.engine.kernel.signals import kill
from shellsession.engine.verbs import call as command, interrupt

pytestmark = pytest.mark.usefixtures("company")

# Long enough for bash to begin, short enough to wait for.
SOON = 0.3
READ = 0  # its number on x86-64
APART = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]


def test_a_trap_that_is_busy_has_its_time(sh: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "_TRAP", PATIENCE)
    works = "end=$((SECONDS + 2)); while ((SECONDS < end)); do :; done; echo out"
    seconds = unique_seconds()
    sh.run(f"v=7; trap 'echo in; {works}' INT; sleep {seconds}", timeout=0.05, on_timeout="yield")
    wait_until(lambda: with_argument(seconds), "its sleep")
    result = sh.interrupt()
    assert (result.outcome, result.stdout, result.state_kept) == ("interrupted", "in\nout\n", True)
    assert sh.run("trap - INT; echo $v").stdout == "7\n"


def _stop_where(pid: int, seized: threading.Event, is_there: Callable[[int, int, int, int], bool]) -> None:
    """Stop a stopped bash again at that system call: entry or exit, its number, first argument, and what it gives."""
    interrupt.seize(pid)
    os.kill(pid, signal.SIGCONT)
    number = first = 0
    for _ in range(200):
        interrupt.continue_traced(pid)
        while proc.state(pid) != "t":
            if activity.system_call(pid)[:2] == (READ, 0):
                seized.set()
            time.sleep(0)
        what, value, argument = interrupt.stopped_at(pid)
        if what == interrupt.ENTRY:
            number, first = value, argument
        if is_there(what, number, first, value):
            break
    os.kill(pid, signal.SIGSTOP)
    interrupt.detach(pid)


def _behind_its_read(what: int, number: int, first: int, given: int) -> bool:
    return what == interrupt.EXIT and (number, first) == (READ, 0) and given > 0


def _in_its_wait_for_a_child(what: int, number: int, first: int, given: int) -> bool:
    """Where it puts in its handler for that: `sleep` has the command's stdin, and bash its own again."""
    return what == interrupt.ENTRY and (number, first) == (interrupt.SET_HANDLER, signal.SIGINT)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="knows the number of read there only")
@pytest.mark.parametrize("is_there", [_behind_its_read, _in_its_wait_for_a_child])
def test_an_interrupt_waits_until_bash_can_take_it(
    sh: Session, monkeypatch: pytest.MonkeyPatch, is_there: Callable[[int, int, int, int], bool]
) -> None:
    """Amid our line, it would take the rest for a line of its own, and its quote for one that is not closed."""
    monkeypatch.setattr(command, "LOOK_PLAIN", PATIENCE)  # who looks at a stopped shell makes it go on
    shell = sh.open().engine.live()
    sh.run("v=7")
    wait_until(shell.idle, "the prompt")
    shell.signal(signal.SIGSTOP)
    wait_until(lambda: proc.state(shell.pid) == "T", "bash to stop")
    seized = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(_stop_where, shell.pid, seized, is_there)
        assert seized.wait(PATIENCE)
        result = sh.run("echo begun; sleep 100; echo went on", timeout=2)
        stopped.result()
    assert (result.outcome, result.stdout, result.state_kept) == ("timed_out", "begun\n", True)
    assert sh.run("echo $v").stdout == "7\n"


def test_a_trap_of_the_shell_is_run_once_for_an_interrupt_and_to_its_end(
    sh: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupt, "_TRAP", PATIENCE)  # it has its turn on a busy machine, too
    seconds = unique_seconds()
    text = f"trap 'echo in; for i in 1 2 3; do sleep 0.03; done; echo out' INT; sleep {seconds}"
    sh.run(text, timeout=0.05, on_timeout="yield")
    wait_until(lambda: with_argument(seconds), "its sleep")
    result = sh.interrupt()
    assert (result.outcome, result.stdout, result.state_kept) == ("interrupted", "in\nout\n", True)


@pytest.mark.parametrize("command", ["trap '' INT; sleep 100", "(trap '' INT; sleep 100)"])
def test_only_what_a_trap_runs_is_waited_for(sh: Session, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr(interrupt, "_TRAP", 2 * PATIENCE)
    began = time.monotonic()
    result = sh.run(command, timeout=0.1)
    assert (result.outcome, result.state_kept) == ("timed_out", True)
    assert time.monotonic() - began < PATIENCE


def test_an_interrupt_that_was_interrupted_half_way_is_done_again(sh: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for moment in (1, 2, 3, 4):
        calls = itertools.count(1)

        def kill_or_be_interrupted(*signalled: Any, calls: Iterator[int] = calls, moment: int = moment) -> list[int]:
            if next(calls) == moment:
                raise KeyboardInterrupt
            return kill(*signalled)

        with monkeypatch.context() as patch:
            patch.setattr(interrupt, "kill", kill_or_be_interrupted)
            with pytest.raises(KeyboardInterrupt):
                sh.run("sleep 100 | cat; echo after", timeout=SOON)
        assert sh.run("echo $?").stdout == "130\n"


@pytest.mark.parametrize(("where", "name"), [(interrupt, "kill"), (interrupt, "_trace")], ids=["signals", "traces"])
def test_nothing_is_begun_where_an_interrupt_was_interrupted_half_way(
    sh: Session, monkeypatch: pytest.MonkeyPatch, where: object, name: str
) -> None:
    """Bash was let go on until it was done again, with its program at its end by then."""
    shell, run, act = sh.open().engine.live(), interrupt.Escalation.run, getattr(where, name)
    for moment in range(1, 100):
        acts, runs = itertools.count(1), itertools.count(1)

        def act_and_be_interrupted(*given: Any, acts: Iterator[int] = acts, moment: int = moment) -> Any:
            came = act(*given)
            if next(acts) == moment:
                raise KeyboardInterrupt
            return came

        def run_late(escalation: interrupt.Escalation, runs: Iterator[int] = runs) -> Any:
            if next(runs) > 1:
                wait_until(lambda: proc.state(shell.pid) == "T" or shell.idle(), "bash to stay, or come to its end")
            return run(escalation)

        with monkeypatch.context() as patch:
            patch.setattr(where, name, act_and_be_interrupted)
            patch.setattr(interrupt.Escalation, "run", run_late)
            try:
                result = sh.run("sleep 100; echo after", timeout=0.1)
            except KeyboardInterrupt:
                assert sh.run("echo $?").stdout == "130\n", moment
                continue
        assert (result.outcome, result.stdout) == ("timed_out", "")
        return
    raise AssertionError("it is interrupted without end")


@pytest.mark.parametrize(
    ("traps", "stdout"),
    [
        ("", ""),
        ("trap 'echo in; exit' INT; ", "in\n"),
        ("trap 'echo out' EXIT; ", "out\n" if INTERRUPT_ENDS_INIT else "out\nwent on\nwent on\n"),
    ],
)
def test_the_first_process_of_a_pid_namespace_goes_on_with_nothing(
    sh: Session, monkeypatch: pytest.MonkeyPatch, traps: str, stdout: str
) -> None:
    """The kernel drops the interrupt of one that has no trap: it ran all that followed."""
    if shutil.which(APART[0]) is None or subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no PID namespaces to be had")
    monkeypatch.setattr(interrupt, "_ROUNDS", ((signal.SIGINT, PATIENCE),))  # it has its turn on a busy machine, too
    seconds = unique_seconds()
    script = f"{traps}sleep {seconds}; echo went on; sleep 0.1; echo went on"
    text = f"v=7; {shlex.join([*APART, 'bash', '-c', script])}; echo went on"
    sh.run(text, timeout=0.05, on_timeout="yield")
    wait_until(lambda: with_argument(seconds), "its sleep")
    result = sh.interrupt()
    assert (result.outcome, result.stdout, result.exit_code) == ("interrupted", stdout, 130)
    assert sh.run("echo $v").stdout == "7\n"
