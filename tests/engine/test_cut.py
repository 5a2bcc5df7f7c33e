"""A command at its time limit: all its processes are interrupted at one moment, and bash reacts as usual."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bashes import BACKGROUND_IGNORES_INTERRUPT
from system import PATIENCE, PYTHON, descendants, mentioning, stat_fields, unique_seconds, wait_until, with_argument

from shellsession import Session
from shellsession.engine.kernel import proc, signals
from shellsession.engine.verbs import collect, interrupt, shell_end

pytestmark = pytest.mark.usefixtures("company")

# Long enough for bash to begin, short enough to wait for.
SOON = 0.3

# A program that heeds SIGINT and ends well, as pytest does; one that ignores it and soon ends well by itself, which was
# told that it goes on; and one that must be killed.
HEEDS, ENDS = (
    f"{PYTHON} -ISc " + shlex.quote(f"import signal, sys, time; {handling}; time.sleep(100)")
    for handling in (
        "signal.signal(2, lambda *_: sys.exit(0))",
        "signal.signal(2, signal.SIG_IGN); signal.signal(signal.SIGCONT, lambda *_: sys.exit(time.sleep(0.05)))",
    )
)
IGNORES = "(trap '' INT; exec sleep 100)"


@pytest.mark.sampled
@pytest.mark.parametrize("program", [HEEDS, ENDS, IGNORES], ids=["heeds", "ends", "ignores"])
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
        "timeout 50 bash -c {!r}'; echo went on'; echo went on",
        "set -m; {}; echo went on",
        "set -m; for i in 1 2 3; do {}; echo went on; done",
        "(set -m; {}; echo went on); echo went on",
        "cp $BASH . && ./bash -c {!r}'; echo went on'",
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


# Programs that wait as system(3) does: they ignore SIGINT and SIGQUIT for as long as their child runs. One would start
# another then, one cleans up, one, as su(1), has ignored both before and ends well, and one traces its child, which can
# do nothing without it, as `strace -o FILE`.
STARTS_ANOTHER = 'os.system("sleep {}"); os.system("printf \'went %s\' on"); time.sleep(0.05)'
CLEANS_UP = """try: os.system("sleep {}")
except KeyboardInterrupt: print("cleaned", flush=True)
time.sleep(0.05)"""
HEED = "preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in (2, 3)]"
AS_SU = f"""for number in (2, 3): signal.signal(number, signal.SIG_IGN)
subprocess.run(["sleep", "{{}}"], {HEED}); time.sleep(0.05)"""
TRACES = f"""import ctypes
trace, (trace_me, go_on) = ctypes.CDLL(None).ptrace, (0, 7)
for number in (2, 3): signal.signal(number, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "{{}}"], preexec_fn=lambda: [trace(trace_me, 0, 0, 0), *({HEED[11:]})()])
while os.WIFSTOPPED(status := os.waitpid(child.pid, 0)[1]):
    trace(go_on, child.pid, 0, {{signal.SIGTRAP: 0}}.get(number := os.WSTOPSIG(status), number))
signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), 2)"""


@pytest.mark.sampled
@pytest.mark.parametrize("command", ["{}; echo went on", "({} && echo went on)", "bash -c {!r}'; echo went on'"])
@pytest.mark.parametrize(
    ("code", "stdout"),
    [(STARTS_ANOTHER, ""), (CLEANS_UP, "cleaned\n"), (AS_SU, ""), (TRACES, "")],
    ids=["starts another", "cleans up", "as su", "traces"],
)
def test_nothing_follows_a_program_that_ignores_sigint_while_its_child_runs(
    sh: Session, monkeypatch: pytest.MonkeyPatch, command: str, code: str, stdout: str
) -> None:
    """It was taken for one that was started with `&`, and bash interrupted while it lived."""
    monkeypatch.setattr(interrupt, "_ROUNDS", ((signal.SIGINT, PATIENCE),))  # it has its turn on a busy machine, too
    seconds = unique_seconds()
    code = "import os, signal, subprocess, sys, time\n" + code.replace("{}", seconds)
    program = f"{PYTHON} -ISc {shlex.quote(code)}"
    sh.run("v=7")
    sh.run(command.replace("{!r}", shlex.quote(program)).replace("{}", program), timeout=0.05, on_timeout="yield")
    bash = sh.pid or 0
    wait_until(
        lambda: with_argument(seconds) and {stat_fields(pid)[0] for pid in descendants(bash)} == {"S"}, "its child"
    )
    result = sh.interrupt()
    assert (result.outcome, result.stdout, result.exit_code) == ("interrupted", stdout, 130)
    assert "went on" not in result.stderr
    assert result.duration < PATIENCE, "none was held that another one waits for"
    assert sh.run("echo $v").stdout == "7\n"


def test_a_subshell_that_is_killed_as_it_is_seized_is_reaped(sh: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who traces is told of its end first: its parent waited for that for ever."""
    look = interrupt.stopped_at

    def look_too_late(pid: int) -> tuple[int, int, int]:
        if pid != sh.pid:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: proc.state(pid) == "Z", "its end")
        return look(pid)

    monkeypatch.setattr(interrupt, "stopped_at", look_too_late)
    result = sh.run(f"v=7; ( {HEEDS}; echo went on )", timeout=SOON)
    assert (result.outcome, result.stdout) == ("timed_out", "")
    assert sh.run("echo $v").stdout == "7\n"


def test_what_may_not_be_signalled_is_not_waited_for_nor_reported_as_killed(
    sh: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a setuid program, where we are an ordinary user."""
    monkeypatch.setattr(interrupt, "_STARVED", 2 * PATIENCE)
    monkeypatch.setattr(shell_end, "ROUNDS", 3)
    send, seconds = os.kill, unique_seconds()

    def refuse(pid: int, number: int) -> None:
        if mentioning(seconds) == [pid]:
            raise PermissionError
        send(pid, number)

    monkeypatch.setattr(signals, "os", SimpleNamespace(**{**vars(os), "kill": refuse}))
    began = time.monotonic()
    sh.run(f"trap '' HUP; sleep {seconds}", timeout=0.05, on_timeout="yield")
    wait_until(lambda: with_argument(seconds), "its sleep")
    result = sh.interrupt()
    (pid,) = mentioning(seconds)
    send(pid, signal.SIGKILL)
    assert (result.outcome, result.state_kept, pid in result.killed) == ("interrupted", False, False)
    assert time.monotonic() - began < PATIENCE


def test_nothing_follows_a_program_that_takes_its_time_to_die(sh: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one with much memory does, and any on a busy machine: bash was interrupted before it had ended."""
    bash, looks = sh.open().engine.live(), itertools.count(1)
    send, hear, dying = signals.kill, collect.pump, list[int]()

    def send_late(pids: list[int], number: int) -> list[int]:
        if number != signal.SIGKILL:
            return send(pids, number)
        dying.extend(pids)
        return pids

    def hear_and_send(*given: Any) -> Any:
        came = yield from hear(*given)
        # After more looks than there are within the time that a round of signals has; or bash is interrupted already.
        if dying and (next(looks) > 60 or proc.state(bash.pid) != "T"):
            send(dying)
            wait_until(lambda: proc.state(bash.pid) == "T" or bash.idle(), "bash to stay, or come to its end")
            dying.clear()
        return came

    monkeypatch.setattr(interrupt, "kill", send_late)
    monkeypatch.setattr(collect, "pump", hear_and_send)
    result = sh.run(f"v=7; {IGNORES}; echo went on", timeout=SOON)
    assert (result.outcome, result.stdout, result.state_kept) == ("timed_out", "", True)
    assert sh.run("echo $v").stdout == "7\n"


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


# A program that does not heed SIGINT is the shell's to end, whose trap has as long as what it interrupts.
CLEANS = (
    'bash -c \'trap "kill \\$!; wait; echo cleaned" INT; (trap "echo graceful; exit" TERM; sleep 100 & wait) & wait\''
)


@pytest.mark.parametrize(
    ("command", "stdout"),
    [
        ("trap 'echo in' INT; sleep 100; echo went on", "in\nwent on\n"),
        ("trap 'sleep 0.1; echo in' INT; sleep 100 & wait", "in\n"),
        ("trap 'sleep 0.1; echo in' INT; sleep 100 & sleep 100", "in\n"),
        (f"trap 'sleep 0.1; echo in' INT; {IGNORES}", "in\n"),
        (CLEANS, "graceful\ncleaned\n" if BACKGROUND_IGNORES_INTERRUPT else "cleaned\n"),
        ("{ sleep 100; echo went on; } & wait", ""),
        ("( sleep 100; echo went on ) & ( sleep 100 ) & wait", ""),
        ("coproc { sleep 100; echo went on >&2; }; wait", ""),
        ("set -m; sleep 100; echo went on", ""),
        ("trap 'echo $?' ERR; sh -c 'sleep 100'; echo went on", "130\n"),
        ("(trap 'echo out' EXIT; sleep 100); echo went on", "out\n"),
        ("timeout 50 bash -c 'sleep 100; echo went on'", ""),
    ],
)
def test_what_traps_and_background_commands_make_of_a_cut(
    sh: Session, monkeypatch: pytest.MonkeyPatch, command: str, stdout: str
) -> None:
    monkeypatch.setattr(interrupt, "_TRAP", PATIENCE)  # it has its turn on a busy machine, too
    seconds = unique_seconds()
    sh.run(f"v=7; {command}".replace("100", seconds), timeout=0.05, on_timeout="yield")
    sleeps = command.count("sleep 100")
    wait_until(lambda: len(with_argument(seconds)) == sleeps, "all that sleep")
    result = sh.interrupt()
    printed = re.sub("(in\n)+", "in\n", result.stdout)  # a trap may run once more: docs/limits.md
    assert (result.outcome, printed, result.state_kept) == ("interrupted", stdout, True)
    assert "went on" not in result.stderr
    assert "Stopped" not in result.stderr
    assert sh.run("trap - INT; jobs -r; echo $v").stdout == "7\n"


def test_what_has_ended_by_itself_is_not_reported_as_killed(sh: Session) -> None:
    leaves_a_zombie = "import subprocess, time; child = subprocess.Popen(['true']); print(child.pid); time.sleep(100)"
    first = sh.run(f"{PYTHON} -ISuc {shlex.quote(leaves_a_zombie)}", timeout=0.05, on_timeout="yield")
    zombie = int(first.stdout + sh.wait(until=r"^\d+$").stdout)
    wait_until(lambda: stat_fields(zombie)[:1] == ["Z"], "its end")
    result = sh.interrupt()
    assert (result.outcome, len(result.killed), zombie in result.killed) == ("interrupted", 1, False)


@pytest.mark.parametrize("first", ["(trap '' INT; exec sleep 100)", "sh -c 'trap \"exit 0\" INT; sleep 100 & wait'"])
def test_nothing_follows_where_the_shell_is_killed(sh: Session, first: str) -> None:
    result = sh.run(f"{first}; echo went on", timeout=SOON, on_timeout="kill")
    assert (result.outcome, result.stdout, result.state_kept) == ("timed_out", "", False)


def test_what_a_read_that_was_cut_had_taken_is_for_no_later_one(sh: Session, place: Path) -> None:
    """Bash reads ahead. It is cut there about one time in five: none of thirty would be luck."""
    (place / "big").write_text("".join(f"row {number}\n" for number in range(200_000)))
    (place / "small").write_text("hello\n")
    for _ in range(30):
        assert sh.run("while read -r l; do n=$l; done <big", timeout=0.03).outcome == "timed_out"
        assert sh.run('read -r l <small; echo "$l"').stdout == "hello\n"
