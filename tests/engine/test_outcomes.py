"""A command that ends its shell returns at once with its true status, and the next one gets a fresh shell."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from system import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import InvalidRequest, Session
from shellsession.engine.kernel import proc

pytestmark = pytest.mark.usefixtures("company")

Make = Callable[..., Session]
KERNEL = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])

BY_ITSELF = "the command ended the session's bash, with exit status {}"
# The command, what bash would report of itself, the signal that killed it.
ENDINGS = {
    "exit": ("exit 3", 3, None),
    "exit of nothing": ("(exit 5); exit", 5, None),
    "exit in a function": ("f() { exit 4; }; f", 4, None),
    "set -e with an ERR trap": ("trap : ERR; set -e; false; echo never", 1, None),
    "set -e in the call before, with an ERR trap": ("false", 1, None),
    "exec of a program": ("exec sh -c 'echo replaced; exit 6'", 6, None),
    "exec of another bash": ("exec bash --norc -c 'exit 8'", 8, None),
    "SIGKILL": ("kill -9 $$", 137, 9),
    "SIGHUP": ("kill -HUP $$; while :; do :; done", 129, 1),
    "SIGSEGV": ("kill -SEGV $$", 139, 11),
    "unset variable under -u": ("set -u; echo $nope; echo never", 1, None),
    "exit trap": ("trap 'echo bye; exit 9' EXIT; exit 1", 9, None),
    "logout from a sourced file": ("echo 'exit 11' >f; . ./f; echo never", 11, None),
}


@pytest.mark.parametrize(("command", "status", "number"), ENDINGS.values(), ids=ENDINGS)
def test_the_end_of_the_shell_is_reported(
    sh: Session, place: Path, command: str, status: int, number: int | None
) -> None:
    sh.run("X=1")
    if command == "false":
        sh.run("trap : ERR; set -e")
    first = sh.pid
    result = sh.run(f"echo partial; echo perr >&2; {command}")
    if "-u" in command and result.outcome == "exited":
        assert result.exit_code == status  # a prompt goes on after it
        return
    assert (result.outcome, result.exit_code, result.signal) == ("shell_exited", status, number)
    assert not result.state_kept
    assert result.stdout.startswith("partial\n")
    assert result.stderr.startswith("perr\n")
    assert "never" not in result.stdout
    assert result.duration < PATIENCE
    nxt = sh.run("echo [$X] $? $PWD")
    assert (nxt.stdout, nxt.outcome) == (f"[] 0 {place}\n", "exited")
    assert sh.pid != first


CLOSE_ALL = 'for f in /proc/self/fd/*; do eval "exec ${f##*/}>&-"; done'
# The command, and what is said of its end.
EDITING = (
    ", or switched its line editing (`set +o emacs`) in a function or in an `eval`;"
    " what followed in the command may not have run"
)
REASONS = {
    "exit": ("exit 3", BY_ITSELF.format(3)),
    "exit 0": ("exit 0", BY_ITSELF.format(0)),
    "exec": ("exec true", BY_ITSELF.format(0)),
    "set -e": ("trap : ERR; set -e; false", f"{BY_ITSELF.format(1)}; `set -e` does that when a command fails"),
    "set -eu": (
        "set -eu; : $unset_name",
        f"{BY_ITSELF.format(1)}; with `set -e`, a syntax error, an unset variable, or another error in bash itself "
        "does that",
    ),
    "a signal": ("kill -9 $$", "the session's bash was killed by signal 9 (SIGKILL)"),
    "a signal without a name": ("kill -35 $$", "the session's bash was killed by signal 35"),
    "all descriptors closed": (CLOSE_ALL, f"{BY_ITSELF.format(1)}; closing the descriptors from 10 to 12 does that"),
    **{
        f"descriptor {number} closed": (
            f'n={number}; eval "exec $n>&-"',
            "the command closed descriptors that the session's bash needs (10 to 12)" + EDITING * (number == 12),
        )
        for number in (10, 11, 12)
    },
    "set -r": ("set -r", "the shell cannot run another command: `set -r` refuses every redirection"),
    "ulimit": ("ulimit -n 9", "the shell cannot run another command: it may open too few files (`ulimit -n`)"),
}


@pytest.mark.parametrize(("command", "reason"), REASONS.values(), ids=REASONS)
def test_the_reason_says_how_the_shell_ended(sh: Session, command: str, reason: str) -> None:
    result = sh.run(command)
    assert (result.outcome, result.reason) == ("shell_exited", reason)


def test_set_e_is_named_where_an_earlier_call_switched_it_on(sh: Session) -> None:
    sh.run("trap : ERR; set -e")
    assert "`set -e`" in sh.run("false").reason


@pytest.fixture
def _ignored_children() -> Iterator[None]:
    """The kernel reaps this process's children itself, and waitpid(2) has no status to tell."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.skipif(
    KERNEL < (6, 15), reason="before Linux 6.15 no pidfd tells of an end that somebody else was told of"
)
@pytest.mark.parametrize(
    ("command", "status", "number", "how"),
    [("exit 3", 3, None, "with exit status 3"), ("kill -9 $$", 137, 9, "killed by signal 9")],
)
@pytest.mark.usefixtures("_ignored_children")
def test_a_status_that_went_elsewhere_is_reported_by_the_kernel(
    sh: Session, command: str, status: int, number: int | None, how: str
) -> None:
    result = sh.run(command)
    assert (result.outcome, result.exit_code, result.signal) == ("shell_exited", status, number)
    assert how in result.reason


@pytest.mark.usefixtures("_ignored_children")
def test_where_no_kernel_tells_it_the_result_says_so(sh: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "exit_status", lambda pidfd: None)
    result = sh.run("echo partial; exit 3")
    assert (result.outcome, result.exit_code, result.stdout) == ("shell_exited", None, "partial\n")
    assert "SIGCHLD is ignored" in result.reason


def test_exec_gives_its_program_the_calls_streams(sh: Session) -> None:
    result = sh.run("exec sh -c 'cat; echo replaced; echo err >&2; exit 6'", stdin="typed\n")
    assert (result.stdout, result.stderr) == ("typed\nreplaced\n", "err\n")


def test_an_exec_that_fails_keeps_the_shell(sh: Session) -> None:
    result = sh.run("X=1; exec /no/such/program; echo on $X")
    assert (result.outcome, result.state_kept) == ("exited", True)
    assert sh.run("echo $X").stdout == "1\n"


def test_a_program_that_took_the_place_of_bash_is_waited_for(sh: Session) -> None:
    result = sh.run("exec sleep 100", timeout=0.2)
    assert (result.outcome, result.state_kept) == ("timed_out", False)
    assert sh.run("echo fresh").stdout == "fresh\n"


def test_what_an_ended_shell_left_is_gone(sh: Session) -> None:
    seconds = unique_seconds()
    result = sh.run(f"setsid sleep {seconds} & sleep {seconds} & (sleep {seconds} &); kill -9 $$")
    assert result.outcome == "shell_exited"
    assert with_argument(seconds) == []


def test_a_command_is_never_run_again(sh: Session, place: Path) -> None:
    for command in ("echo x >>count; exit 3", "echo x >>count; kill -9 $$", "echo x >>count; exec false"):
        assert sh.run(command).outcome == "shell_exited"
    sh.run("true")
    assert (place / "count").read_text() == "x\n" * 3


def test_a_shell_killed_between_calls_is_reported_or_replaced(sh: Session) -> None:
    """Nobody can know the moment: either the call says that its shell was gone, or it ran in a fresh one."""
    import os
    import signal

    sh.run("X=1")
    os.kill(sh.pid or 0, signal.SIGKILL)
    result = sh.run("echo [$X]")
    assert (result.stdout, result.outcome) in {("[]\n", "exited"), ("", "shell_exited")}
    assert sh.run("echo [$X]").stdout == "[]\n"


@pytest.mark.parametrize("options", [{}, {"tty": False}, {"stdin": "x"}], ids=["terminal", "pipe", "stdin"])
def test_a_shell_without_a_descriptor_left_is_reported_and_replaced(
    sh: Session, place: Path, options: dict[str, Any]
) -> None:
    """At a prompt the command would be run: here it has streams of its own, and they cannot be opened."""
    sh.run('ulimit -S -n 40; for i in {3..9} {13..39}; do eval "exec $i</dev/null"; done')
    result = sh.run("echo hi; touch ran", **options)
    assert (result.outcome, result.ran, result.state_kept) == ("shell_exited", False, False)
    assert "descriptors" in result.reason
    assert not (place / "ran").exists()
    assert sh.run("echo again").stdout == "again\n"


@pytest.mark.parametrize("hidden", ["exec 1>&- 2>&-", "exec >/dev/null 2>&1", "exec 0<&- 1>&- 2>&-"])
def test_closing_the_calls_streams_closes_them_for_the_call(sh: Session, hidden: str) -> None:
    result = sh.run(f"echo a; {hidden}; echo b")
    assert result.stdout == "a\n"
    nxt = sh.run("echo back; echo err >&2")
    assert (nxt.stdout, nxt.stderr) == ("back\n", "err\n")


# -- start-up commands


def test_startup_commands_run_after_every_start(new_session: Make, place: Path) -> None:
    session = new_session(startup=["X=1", b"f() { echo f$X; }", "echo started >>log; cd /"])
    assert session.run("f; pwd").stdout == "f1\n/\n"
    session.run("X=2")
    session.restart()
    assert session.run("f").stdout == "f1\n"
    session.run("exit 3")
    assert session.run("f").stdout == "f1\n"
    session.run("sleep 100", timeout=0.1, on_timeout="kill")
    assert session.run("f").stdout == "f1\n"
    assert (place / "log").read_text() == "started\n" * 4


def test_startup_commands_leave_no_status_and_no_output(new_session: Make) -> None:
    session = new_session(startup=["echo noise; echo err >&2; (exit 3)"], check_startup=False)
    result = session.run("echo $?")
    assert (result.stdout, result.stderr) == ("0\n", "")


def test_one_startup_command_may_be_given_alone(new_session: Make) -> None:
    assert new_session(startup="X=alone").run("echo $X").stdout == "alone\n"


@pytest.mark.parametrize("bad", ["a\0b", 5], ids=["nul", "number"])
def test_a_startup_command_that_cannot_be_run_is_refused(new_session: Make, bad: object) -> None:
    with pytest.raises(InvalidRequest):
        new_session(startup=[bad]).run("true")


def test_a_background_job_of_the_startup_runs_on(new_session: Make) -> None:
    seconds = unique_seconds()
    session = new_session(startup=[f"sleep {seconds} &"])
    assert session.run("echo hi").stdout == "hi\n"
    assert len(wait_until(lambda: with_argument(seconds), "the job")) == 1
    session.close()
    assert with_argument(seconds) == []
