"""Commands that exceed their time limit: the call returns in time, the state is kept, nothing else is left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from bashes import VERSION
from conftest import chosen
from system import PYTHON, descendants, is_alive, unique_seconds, wait_until, with_argument

from shellsession import Result, Session

pytestmark = pytest.mark.usefixtures("company")

# What a loaded machine may add to a limit before we call it a hang; how fast it really is, the benchmarks say.
SAFETY = 15.0
# Long enough for every command here to be at what it never ends.
LIMIT = 0.25


@dataclass(frozen=True, slots=True)
class Outliver:
    """A command that does not end by itself.

    ``NAP`` stands for a number of seconds that nothing else sleeps. ``state``: "kept", or "perhaps" where bash
    itself cannot be stopped without its death. ``ends``: how the call may come back.
    """

    command: str
    state: Literal["kept", "perhaps"] = "kept"
    ends: tuple[str, ...] = ("timed_out",)

    def __str__(self) -> str:
        return self.command[:60]


ASKS = ("timed_out", "interrupted")
# Woken up when found stopped: then it goes on, and ends or not.
STOPS = ("timed_out", "exited")

# HOSTILE.md B, in its order.
LISTED = [
    Outliver("while :; do :; done"),
    Outliver("sleep NAP"),
    Outliver("sleep NAP | cat"),
    Outliver("while :; do sleep 0.1; done"),
    Outliver("trap '' INT; sleep NAP"),
    Outliver("trap '' INT; while :; do :; done", "perhaps"),
    Outliver(f"{PYTHON} -c 'import signal,time;signal.signal(2,signal.SIG_IGN);time.sleep(NAP)'"),
    Outliver("(trap '' INT TERM HUP; while :; do sleep 1; done)"),
    Outliver("(sleep NAP &) ; sleep NAP"),
    Outliver("setsid -w sleep NAP"),
    Outliver("setsid sleep NAP & sleep NAP"),
    Outliver("read x </dev/tty", ends=ASKS),
    Outliver("cat <(sleep NAP)"),
    Outliver("wait_f() { sleep NAP; }; wait_f; echo post"),
    Outliver("sleep NAP & wait"),
    Outliver("yes"),
    Outliver('eval "sleep NAP"; echo post'),
    Outliver('bash -c "while :; do :; done"'),
    Outliver("for i in $(seq 1 100000000); do :; done", "perhaps"),
    Outliver("coproc sleep NAP; wait"),
    *([Outliver("sudo -n sleep NAP")] if shutil.which("sudo") else []),
    Outliver("( set -m; sleep NAP & wait )"),
    Outliver('[[ $(printf "%050000d" 0) =~ (0*)*1 ]]', "perhaps", STOPS),
    Outliver('printf "%2000000000d" 1 >/dev/null', "perhaps", STOPS),
    Outliver("kill -STOP $BASHPID", ends=STOPS),
    Outliver("sleep NAP & kill -STOP $!; wait"),
    Outliver("exec 9<>fifo; read -u 9 x"),
]

MORE = [
    # First: it takes 5 s (a shell may have got no processor), and the others run beside it.
    Outliver("PROMPT_COMMAND='sleep NAP'", "perhaps", STOPS),
    Outliver("wait"),  # for the older job, which is not ours to end
    Outliver("for ((;;)); do :; done"),
    Outliver("until false; do true; done"),
    Outliver("while read -r x; do :; done < <(yes)"),
    Outliver("f() { while :; do :; done; }; f | cat"),
    Outliver("{ while :; do :; done; } & wait"),
    Outliver("trap 'echo no' INT; while :; do sleep 0.05; done", "perhaps"),
    Outliver("trap 'true' INT; while :; do :; done", "perhaps"),
    Outliver("trap '' INT TERM HUP QUIT; sleep NAP"),
    Outliver("trap 'sleep NAP' EXIT; sleep NAP"),
    Outliver("trap 'sleep NAP' INT; sleep NAP", "perhaps"),
    Outliver("trap 'kill -STOP $$' INT; sleep NAP", "perhaps"),
    Outliver("nohup sleep NAP >/dev/null 2>&1"),
    Outliver("timeout 100 sleep NAP"),
    Outliver("env -i sleep NAP | env -i sleep NAP"),
    Outliver("setsid setsid sleep NAP & (setsid sleep NAP &) ; wait"),
    Outliver("(sleep NAP; echo late) & (sleep NAP; echo later >&2) & wait"),
    Outliver("x=$(sleep NAP); echo $x"),
    Outliver("x=`sleep NAP`"),
    Outliver("mapfile x < <(sleep NAP)"),
    Outliver("cat <<<$(sleep NAP)"),
    Outliver("if sleep NAP; then echo yes; fi"),
    Outliver("sleep NAP && echo yes || echo no"),
    Outliver("! sleep NAP"),
    Outliver("time sleep NAP"),
    Outliver("command sleep NAP; builtin echo post"),
    Outliver("cat /dev/zero >/dev/null"),
    Outliver("yes >&2"),
    Outliver("yes | tr y n | grep -v q"),
    Outliver("cat fifo"),
    Outliver("echo x >fifo"),
    Outliver("cat </dev/tty", ends=ASKS),
    Outliver("stty raw </dev/tty; sleep NAP"),
    Outliver("exec 7>&1 8>&2; sleep NAP >&7"),
    Outliver("set -x; sleep NAP; set +x"),
    Outliver("set -m; sleep NAP"),
    Outliver("set -e; trap 'echo err' ERR; sleep NAP; echo post", "perhaps"),
    Outliver("exec sleep NAP", "perhaps"),
    Outliver("exec >/dev/null 2>&1; sleep NAP"),
    Outliver("disown -a; sleep NAP & disown; sleep NAP"),
    Outliver(f'{PYTHON} -c \'import subprocess as s; s.run(["sleep", "NAP"])\''),
    Outliver("coproc A { sleep NAP; }; read -u ${A[0]} x"),
    # Before bash 5.2 no interrupt is taken while a pattern is replaced: here that takes seconds.
    Outliver(
        "printf -v x '%0100000d' 0; while :; do x=${x//0/00}; x=${x//00/0}; done",
        "kept" if VERSION >= (5, 2) else "perhaps",
    ),
    Outliver("(kill -STOP $BASHPID)"),
    # The first of each ignores the interrupt: what comes after it was not interrupted yet when it starts.
    Outliver("(trap '' INT; sleep NAP); while :; do sleep 0.5; done"),
    Outliver(f"(trap '' INT; sleep NAP){'; sleep NAP' * 9}"),
]


def prepared(sh: Session) -> int:
    """The state of HOSTILE.md B; the pid of the older job."""
    older = unique_seconds()
    sh.run(f"v=7; mkdir sub; mkfifo sub/fifo; cd sub; ff() {{ echo F; }}; sleep {older} &", check=True)
    (pid,) = wait_until(lambda: with_argument(older), "the older job runs")
    return pid


def check_what_is_left(sh: Session, result: Result, older: int, seconds: str, place: Path) -> None:
    assert result.state_kept or result.signal is not None or result.exit_code is not None, result
    wait_until(lambda: not with_argument(seconds), f"no `sleep {seconds}` is left")
    after = sh.run("echo $v ${PWD##*/} $(ff)")
    if result.state_kept:
        assert after.stdout == "7 sub F\n", after
        assert is_alive(older), "the older job is not ours to end"
        assert sh.pid is not None
        wait_until(lambda: descendants(sh.pid or 0) == {older}, "nothing but the older job is left")
    else:
        assert (after.stdout, after.outcome) == (f"{place.name}\n", "exited"), after
        wait_until(lambda: not descendants(sh.pid or 0), "the fresh shell has no children")


def outlived(outliver: Outliver, sh: Session, place: Path) -> None:
    older, seconds = prepared(sh), unique_seconds()
    result = sh.run("echo begun\n" + outliver.command.replace("NAP", seconds), timeout=LIMIT)
    assert result.stdout.startswith("begun\n")
    assert result.duration < LIMIT + SAFETY
    assert result.outcome in outliver.ends, result
    assert result.outcome == "exited" or result.reason
    if outliver.state == "kept":
        assert result.state_kept, result
    check_what_is_left(sh, result, older, seconds, place)


def outlived_in_a_session(outliver: Outliver, place: Path, on_terminal: bool) -> None:
    with Session(cwd=place, timeout=20.0, tty=on_terminal) as sh:
        outlived(outliver, sh, place)


@pytest.fixture(scope="module")
def begun(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Outliver, Future[None]]]:
    """All of them in sessions of their own, a few side by side: they wait most of the time. In the tests' order."""
    with ThreadPoolExecutor(4) as pool:
        yield {
            outliver: pool.submit(outlived_in_a_session, outliver, tmp_path_factory.mktemp("place"), outliver in LISTED)
            for (outliver,) in chosen(request, "outliver")
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("outliver", LISTED, ids=str)
def test_it_is_back_at_the_limit_and_the_shell_lives(outliver: Outliver, begun: dict[Outliver, Future[None]]) -> None:
    begun[outliver].result()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("outliver", MORE, ids=str)
def test_more_is_back_and_the_shell_lives(outliver: Outliver, begun: dict[Outliver, Future[None]]) -> None:
    begun[outliver].result()


def test_a_fork_storm_is_ended_whole(sh: Session, place: Path) -> None:
    older, seconds = prepared(sh), unique_seconds()
    storm = "f() { for i in {1..300}; do sleep NAP & sleep 0.01 & done; wait; }; f & f & sleep 9"
    result = sh.run(storm.replace("NAP", seconds), timeout=0.5)
    assert (result.outcome, result.state_kept) == ("timed_out", True)
    check_what_is_left(sh, result, older, seconds, place)


@pytest.mark.parametrize(
    "greedy",
    [
        "(ulimit -v 60000; x=$(yes); echo survived)",
        "(ulimit -v 300000; '{python}' -c 'x = bytearray(1 << 30)')",
        '(ulimit -v 60000; a=(); while :; do a+=("${{a[@]-x}}" y); done)',
    ],
    ids=["substitution", "program", "array"],
)
def test_a_memory_limit_ends_what_is_under_it_and_not_the_shell(greedy: str, sh: Session, place: Path) -> None:
    older = prepared(sh)
    result = sh.run(greedy.format(python=PYTHON), timeout=SAFETY)
    assert (result.outcome, result.state_kept) == ("exited", True)
    assert result.exit_code != 0
    check_what_is_left(sh, result, older, unique_seconds(), place)


def test_the_host_keeps_no_descriptor_of_what_it_ended(sh: Session) -> None:
    sh.run("sleep 30 | cat", timeout=0.05)
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(5):
        sh.run("sleep 30 | cat", timeout=0.05)
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1
