"""Time limits: valid values, what they end, and what a handed-back command may still do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from system import PATIENCE, is_alive, unique_seconds, wait_until, with_argument

from shellsession import (
    TTY,
    CommandFailed,
    CommandTimeout,
    InvalidRequest,
    NotRunning,
    Result,
    Session,
    SessionBusy,
    SessionClosed,
)

pytestmark = pytest.mark.usefixtures("company")

Make = Callable[..., Session]

# Long enough for bash to begin, short enough to wait for.
SOON = 0.3
ENOUGH = 1.0  # for bash to have printed what the result of a cut command has
BAD_SECONDS = [0, 0.0, -1, -0.001, float("nan"), float("inf"), 1e10, True, "5", b"5", [1]]


@pytest.mark.parametrize("name", ["timeout", "idle_timeout"])
@pytest.mark.parametrize("value", BAD_SECONDS, ids=repr)
def test_a_limit_that_is_no_time_is_refused(sh: Session, name: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=f"{name} must be a positive number of seconds"):
        sh.run("echo ran", **{name: value})  # type: ignore[arg-type]
    assert sh.pid is None


@pytest.mark.parametrize("value", BAD_SECONDS, ids=repr)
def test_a_session_refuses_such_a_limit_too(value: object) -> None:
    with pytest.raises(InvalidRequest, match="positive number of seconds"):
        Session(timeout=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["die", "", None, 1], ids=repr)
def test_a_session_refuses_an_unknown_policy(value: object) -> None:
    with pytest.raises(InvalidRequest, match="on_timeout"):
        Session(on_timeout=value)  # type: ignore[arg-type]


def test_waiting_refuses_such_a_limit_too(sh: Session) -> None:
    sh.run("sleep 100", timeout=SOON, on_timeout="yield")
    for value in BAD_SECONDS:
        with pytest.raises(InvalidRequest, match="positive number of seconds"):
            sh.wait(value)  # type: ignore[arg-type]
    assert sh.poll().outcome == "running"


def test_no_limit_is_a_limit_too(sh: Session) -> None:
    assert sh.run("echo ok", timeout=None).stdout == "ok\n"
    assert sh.run("echo ok", timeout=1e9).stdout == "ok\n"


def test_interrupt_ends_the_command_and_keeps_the_state(sh: Session) -> None:
    seconds = unique_seconds()
    sh.run("X=1; f() { echo f; }")
    shell = sh.pid
    result = sh.run(f"echo out; echo err >&2; Y=2; cd /; sleep {seconds}; echo not reached", timeout=ENOUGH)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert (result.outcome, result.state_kept, result.exit_code) == ("timed_out", True, 130)
    assert result.signal is not None
    assert len(result.killed) == 1
    assert not is_alive(result.killed[0])
    assert with_argument(seconds) == []
    assert ENOUGH <= result.duration < PATIENCE
    assert "time limit" in result.reason
    assert sh.run("echo $X$Y $PWD; f").stdout == "12 /\nf\n"
    assert sh.pid == shell


def test_kill_ends_the_shell_and_the_next_call_starts_a_fresh_one(sh: Session) -> None:
    seconds = unique_seconds()
    sh.run("X=1")
    shell = sh.pid
    result = sh.run(f"echo partial; sleep {seconds}", timeout=ENOUGH, on_timeout="kill")
    assert (result.stdout, result.outcome, result.state_kept) == ("partial\n", "timed_out", False)
    assert (result.exit_code, result.signal) == (137, 9)
    assert shell in result.killed
    assert with_argument(seconds) == []
    assert sh.run("echo [$X] $?").stdout == "[] 0\n"
    assert sh.pid != shell


def test_yield_lets_the_command_run_on(sh: Session, place: object) -> None:
    sh.run("mkfifo go")
    first = sh.run("echo one; read x <go; echo two $x; (exit 5)", timeout=ENOUGH, on_timeout="yield")
    assert (first.stdout, first.outcome, first.exit_code, first.state_kept) == ("one\n", "running", None, True)
    assert sh.poll().stdout == ""
    with open(f"{place}/go", "w", encoding="utf-8") as go:
        go.write("went\n")
    last = sh.wait()
    assert (last.stdout, last.outcome, last.exit_code) == ("two went\n", "exited", 5)
    assert sh.run("echo $x $?").stdout == "went 5\n"


def test_the_sessions_policy_and_limit_are_the_default(new_session: Make) -> None:
    session = new_session(timeout=SOON, on_timeout="yield")
    assert session.run("sleep 100").outcome == "running"
    assert session.wait().outcome == "running"
    assert session.interrupt().outcome == "interrupted"
    assert session.run("sleep 100", on_timeout="interrupt").outcome == "timed_out"


def test_another_run_meanwhile_is_refused(sh: Session) -> None:
    sh.run("sleep 100", timeout=SOON, on_timeout="yield")
    with pytest.raises(SessionBusy, match=r"wait\(\)"):
        sh.run("echo never")
    with pytest.raises(SessionBusy):
        next(iter(sh.stream("echo never")))
    assert sh.interrupt().outcome == "interrupted"
    assert sh.run("echo now").stdout == "now\n"


@pytest.mark.parametrize(
    "verb",
    [Session.wait, Session.poll, Session.interrupt, lambda sh: sh.send("x"), lambda sh: sh.expect("x")],
    ids=["wait", "poll", "interrupt", "send", "expect"],
)
@pytest.mark.parametrize("before", ["never", "ended"])
def test_without_a_running_command_there_is_nothing_to_do(
    sh: Session, verb: Callable[[Session], object], before: str
) -> None:
    if before == "ended":
        sh.run("true")
    with pytest.raises(NotRunning, match="no running command"):
        verb(sh)


def test_each_piece_comes_once(sh: Session, place: Path) -> None:
    text = "for i in 1 2 3 4; do echo $i; until [ -e go$i ]; do sleep 0.01; done; done"
    pieces = [sh.run(text, timeout=0.05, on_timeout="yield")]
    for number in range(1, 5):
        (place / f"go{number}").touch()
        pieces.append(sh.wait(0.05 if number < 4 else None))
    assert "".join(piece.stdout for piece in pieces) == "1\n2\n3\n4\n"
    assert [piece.outcome for piece in pieces] == ["running"] * 4 + ["exited"]


def test_pieces_are_never_cut_inside_a_character(sh: Session, place: object) -> None:
    sh.run("mkfifo go")
    first = sh.run("printf 'a\\xc3'; read x <go; printf '\\xa9b'", timeout=SOON, on_timeout="yield")
    second = sh.poll()
    with open(f"{place}/go", "w", encoding="utf-8") as go:
        go.write("\n")
    third = sh.wait()
    assert first.stdout_bytes + second.stdout_bytes + third.stdout_bytes == b"a\xc3\xa9b"
    assert first.stdout + second.stdout + third.stdout == "aéb"


def test_interrupt_gives_the_rest(sh: Session) -> None:
    seconds = unique_seconds()
    first = sh.run(f"echo a; sleep {seconds}", timeout=SOON, on_timeout="yield")
    wait_until(lambda: with_argument(seconds), "its sleep")
    result = sh.interrupt()
    assert (first.stdout + result.stdout, result.outcome, result.state_kept) == ("a\n", "interrupted", True)
    assert with_argument(seconds) == []
    assert result.reason


def test_a_command_that_ended_meanwhile_still_tells(sh: Session, place: object) -> None:
    sh.run("mkfifo go")
    sh.run("read x <go; echo done; touch gone; (exit 4)", timeout=SOON, on_timeout="yield")
    with open(f"{place}/go", "w", encoding="utf-8") as go:
        go.write("\n")
    wait_until(lambda: os.path.exists(f"{place}/gone"), "the command's last step")
    result = sh.wait()
    assert (result.stdout, result.exit_code, result.outcome) == ("done\n", 4, "exited")
    with pytest.raises(NotRunning):
        sh.wait()


@pytest.mark.parametrize("fd", [1, 2])
def test_idle_time_is_counted_from_the_last_output(sh: Session, fd: int) -> None:
    result = sh.run(f"for i in 1 2 3 4; do echo $i >&{fd}; sleep 0.1; done; sleep 100", idle_timeout=0.3)
    assert (result.outcome, result.exit_code) == ("idle", 130)
    printed = (result.stdout + result.stderr).split()  # all four, unless the machine stops bash for long
    assert result.duration >= 0.1 * (len(printed) - 1) + 0.3
    assert "idle" in result.reason


def test_an_idle_command_can_be_handed_back(sh: Session) -> None:
    result = sh.run("echo a; sleep 100", idle_timeout=ENOUGH, on_timeout="yield")
    assert (result.outcome, result.stdout, result.exit_code) == ("idle", "a\n", None)
    assert sh.interrupt().outcome == "interrupted"


def test_the_idle_limit_counts_only_while_somebody_stays(sh: Session) -> None:
    """Who has thought about it for longer than the limit hears what comes, and not at once that nothing has."""
    sh.run("sleep 100", idle_timeout=0.1, on_timeout="yield")
    time.sleep(0.1)
    begun = time.monotonic()
    assert sh.wait().outcome == "idle"
    assert time.monotonic() - begun >= 0.1
    sh.interrupt()


@pytest.mark.parametrize("limit", ["timeout", "idle_timeout"])
def test_check_raises_on_a_limit_with_the_result(sh: Session, limit: str) -> None:
    with pytest.raises(CommandTimeout) as caught:
        sh.run("echo partial; sleep 100", check=True, **{limit: ENOUGH})  # type: ignore[arg-type]
    assert isinstance(caught.value, TimeoutError)
    result: Result = caught.value.result
    assert result.stdout == "partial\n"
    assert result.killed
    assert sh.run("echo alive").stdout == "alive\n"


def test_check_says_nothing_about_a_command_that_runs_on(sh: Session) -> None:
    assert sh.run("sleep 100", timeout=SOON, on_timeout="yield", check=True).outcome == "running"
    assert sh.interrupt().outcome == "interrupted"


def test_check_raises_when_the_shell_ended(sh: Session) -> None:
    with pytest.raises(CommandFailed) as caught:
        sh.run("exit 3", check=True)
    assert caught.value.result.outcome == "shell_exited"


def test_only_what_the_command_started_dies(sh: Session) -> None:
    older, newer = unique_seconds(), unique_seconds()
    background = sh.run(f"sleep {older} &").background
    result = sh.run(f"sleep {newer} & sleep {newer}", timeout=SOON)
    assert result.outcome == "timed_out"
    assert with_argument(newer) == []
    assert with_argument(older) == list(background)


def test_a_running_command_ends_with_its_session(sh: Session) -> None:
    seconds = unique_seconds()
    sh.run(f"sleep {seconds}", timeout=SOON, on_timeout="yield")
    sh.close()
    assert with_argument(seconds) == []
    with pytest.raises(SessionClosed):
        sh.poll()


def test_restart_ends_a_running_command(sh: Session) -> None:
    seconds = unique_seconds()
    sh.run(f"sleep {seconds}", timeout=SOON, on_timeout="yield", stdin=TTY)
    sh.restart()
    assert with_argument(seconds) == []
    with pytest.raises(NotRunning):
        sh.poll()
    assert sh.run("echo fresh").stdout == "fresh\n"


def test_poll_never_waits(sh: Session) -> None:
    sh.run("sleep 100", timeout=SOON, on_timeout="yield")
    began = time.monotonic()
    for _ in range(20):
        assert sh.poll().outcome == "running"
    assert time.monotonic() - began < PATIENCE


def test_a_shell_that_gets_no_processor_is_waited_for(sh: Session) -> None:
    """On a busy machine bash could not answer in time, and was killed with all its state."""
    one = min(os.sched_getaffinity(0))
    busy = f"import os; os.sched_setaffinity(0, [{one}]); print(flush=True)\nwhile True: pass"
    sh.run("X=kept")
    assert sh.pid
    with subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE) as hog:
        try:
            assert hog.stdout
            hog.stdout.readline()
            os.sched_setaffinity(sh.pid, [one])
            os.setpriority(os.PRIO_PROCESS, sh.pid, 19)  # not SCHED_IDLE: other tests want this processor, too
            for _ in range(3):
                result = sh.run("while :; do /bin/true; done", timeout=0.05)
                assert (result.outcome, result.state_kept) == ("timed_out", True)
        finally:
            hog.kill()
    assert sh.run("echo $X").stdout == "kept\n"
