"""The cases of CASES.md about sessions; each test names its number."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from cases import CASES, PAGERS, Case
from system import PATIENCE, PYTHON, descendants, is_alive, unique_seconds, wait_until, with_argument

from shellsession import TTY, Limits, NotRunning, Session

pytestmark = pytest.mark.usefixtures("company")

NewSession = Callable[..., Session]


def matches(came: str, expected: str | re.Pattern[str]) -> bool:
    return came == expected if isinstance(expected, str) else bool(expected.search(came))


@pytest.mark.sampled
@pytest.mark.parametrize("on_terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_case_of_the_table(case: Case, on_terminal: bool, new_session: NewSession) -> None:
    sh = new_session(tty=on_terminal)
    for call in case.calls:
        result = sh.run(call.text)
        assert matches(result.stdout, call.stdout), result
        assert matches(result.stderr, call.stderr), result
        assert (result.exit_code, result.outcome) == (call.code, call.outcome), result
        assert result.state_kept == (call.outcome == "exited")


def test_7_stderr_written_last_is_never_late(sh: Session) -> None:
    for number in range(200):
        result = sh.run(f"echo out {number}; echo err {number} >&2")
        assert (result.stdout, result.stderr) == (f"out {number}\n", f"err {number}\n")


def test_8_two_sessions_at_once_see_only_their_own(new_session: NewSession) -> None:
    first, second = new_session(), new_session()
    seen: dict[str, list[str]] = {"x": [], "y": []}

    def work(sh: Session, name: str) -> None:
        for number in range(50):
            sh.run(f"{name}={number}")
            seen[name].append(sh.run('echo "$x $y"').stdout.strip())

    threads = [threading.Thread(target=work, args=pair) for pair in ((first, "x"), (second, "y"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen["x"] == seen["y"] == [str(number) for number in range(50)]


def test_13_a_character_written_in_two_halves_is_whole(sh: Session) -> None:
    assert sh.run(r"printf 'a\xe4\xb8'; sleep 0.02; printf '\x96b'").stdout == "a世b"


def test_18_a_background_command_returns_at_once(sh: Session) -> None:
    result = sh.run(f"sleep {unique_seconds()} &")
    assert (result.exit_code, result.outcome, result.stdout) == (0, "exited", "")
    assert result.duration < PATIENCE
    assert len(result.background) == 1


def test_53_a_prompt_is_answered(sh: Session) -> None:
    asked = sh.run("read -p 'name: ' n && echo \"Hello $n\"", stdin=TTY)
    assert asked.outcome == "input"
    assert "name: " in asked.stdout + asked.stderr
    answered = sh.send("John\n")
    assert (answered.stdout, answered.exit_code, answered.outcome) == ("Hello John\n", 0, "exited")


def test_55_cat_gets_a_line_and_the_end_of_file(sh: Session) -> None:
    assert sh.run("cat", stdin=TTY).outcome == "input"
    assert sh.send("x\n").stdout == "x\n"
    end = sh.send("\x04")
    assert (end.stdout, end.exit_code, end.outcome) == ("", 0, "exited")


@pytest.mark.parametrize(("program", "command", "shown"), PAGERS, ids=[command for _, command, _ in PAGERS])
def test_56_no_pager_holds_the_call(program: str, command: str, shown: str, sh: Session) -> None:
    result = sh.run(command, timeout=15)
    assert result.outcome in ("exited", "interrupted"), result
    assert shown in result.stdout
    assert result.outcome == "exited" or result.reason
    assert sh.run("echo next").stdout == "next\n"


def test_58_a_password_prompt_is_seen_and_answered_unechoed(sh: Session) -> None:
    ask = "import getpass; print('got', len(getpass.getpass('Password: ')))"
    asked = sh.run(f'{PYTHON} -c "{ask}"', stdin=TTY, echo=True)
    assert asked.outcome == "input"
    assert "Password: " in asked.stdout + asked.stderr
    answered = sh.send("secret\n")
    assert (answered.stdout.strip(), answered.outcome) == ("got 6", "exited")


def test_58_a_password_prompt_without_a_terminal_ends_and_says_why(sh: Session) -> None:
    result = sh.run(f'{PYTHON} -c "import getpass; getpass.getpass()"', timeout=15)
    assert result.outcome == "interrupted"
    assert "input" in result.reason
    assert sh.run("echo next").stdout == "next\n"


def test_59_input_for_a_finished_command_is_a_clear_error(sh: Session) -> None:
    sh.run("true", stdin=TTY)
    with pytest.raises(NotRunning, match="no running command"):
        sh.send("too late\n")
    assert sh.run("cat").stdout == ""


def test_60_a_timeout_keeps_partial_output_and_state(sh: Session) -> None:
    result = sh.run("x=1; mkdir d; cd d; echo start; sleep 30", timeout=2)
    assert (result.stdout, result.outcome, result.state_kept) == ("start\n", "timed_out", True)
    assert sh.run('echo "$x ${PWD##*/}"').stdout == "1 d\n"


def test_64_a_tree_of_children_is_ended_whole(sh: Session) -> None:
    seconds = unique_seconds()
    tree = f"bash -c 'sleep {seconds} & (sleep {seconds} & wait) & wait' & wait"
    result = sh.run(f"echo up; {tree}", timeout=2)
    assert (result.stdout, result.outcome) == ("up\n", "timed_out")
    wait_until(lambda: not with_argument(seconds), "the sleeps are gone")
    assert len(result.killed) >= 2


@pytest.mark.parametrize("command", ["setsid sleep {} &", "nohup sleep {} >/dev/null 2>&1 &", "(setsid sleep {} &)"])
def test_65_a_detached_process_is_listed_and_can_be_killed(command: str, sh: Session) -> None:
    seconds = unique_seconds()
    result = sh.run(command.format(seconds))
    (pid,) = wait_until(lambda: with_argument(seconds), "it runs")
    assert result.outcome == "exited"
    job = sh.jobs()[-1]
    assert job.running
    assert pid in {*job.pids, *(below for top in job.pids for below in descendants(top))}
    job.kill()
    wait_until(lambda: not with_argument(seconds), "it is gone")


def test_66_an_idle_limit_gives_what_came_and_then_the_rest(sh: Session, place: Path) -> None:
    os.mkfifo(place / "gate")
    first = sh.run("echo 1; read x <gate; echo 2", idle_timeout=0.2, on_timeout="yield")
    assert (first.outcome, first.exit_code) == ("idle", None)
    (place / "gate").write_text("go\n", encoding="utf-8")
    last = sh.wait()
    assert (first.stdout + last.stdout, last.outcome, last.exit_code) == ("1\n2\n", "exited", 0)


@pytest.mark.parametrize("noise", ["yes", "(trap '' INT TERM HUP; while :; do echo noise; done)", "yes >&2"])
def test_67_no_byte_of_a_timed_out_command_comes_later(noise: str, sh: Session) -> None:
    assert sh.run(noise, timeout=0.2).outcome == "timed_out"
    for _ in range(20):
        clean = sh.run("echo clean")
        assert (clean.stdout, clean.stderr) == ("clean\n", "")


def test_69_background_noise_belongs_to_its_own_call(sh: Session, place: Path) -> None:
    first = sh.run("(while :; do echo noise; sleep 0.01; done) & echo fg")
    assert first.stdout.replace("noise\n", "") == "fg\n"
    job = sh.jobs()[-1]
    wait_until(lambda: "noise\nnoise" in job.stdout, "the job's record has its noise")
    for number in range(20):
        assert sh.run(f"echo {number}").stdout == f"{number}\n"
    job.kill()
    wait_until(lambda: not job.running, "the job is gone")


def test_70_a_server_serves_the_next_calls(sh: Session, place: Path) -> None:
    (place / "page").write_text("served\n", encoding="utf-8")
    sh.run(f"{PYTHON} -u -m http.server 0 --bind 127.0.0.1 & server=$!")
    port = wait_until(lambda: re.findall(r"port (\d+)", sh.jobs()[-1].stdout), "the server says its port")[0]
    fetch = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/page').read().decode(), end='')"
    assert sh.run(f'{PYTHON} -c "{fetch}"').stdout == "served\n"
    sh.run("kill $server; wait $server")
    assert not sh.jobs()[-1].alive()


def test_72_what_runs_is_named_even_when_the_call_ends_the_shell(sh: Session) -> None:
    seconds = unique_seconds()
    result = sh.run(f"sleep {seconds} & echo $!; exit 3")
    assert (result.exit_code, result.outcome) == (3, "shell_exited")
    assert int(result.stdout) in {*result.background, *result.killed}
    wait_until(lambda: not with_argument(seconds), "nothing outlives its shell")


@pytest.mark.parametrize("on_terminal", [True, False], ids=["terminal", "pipe"])
def test_73_long_output_keeps_both_ends_and_counts_the_rest(on_terminal: bool, sh: Session) -> None:
    result = sh.run("seq 200000", tty=on_terminal, limits=Limits(max_output=10_000))
    whole = "".join(f"{number}\n" for number in range(1, 200_001))
    assert len(result.stdout_bytes) + result.stdout_omitted == len(whole)
    assert len(result.stdout_bytes) == 10_000
    assert (result.stdout[:5000], result.stdout[-5000:]) == (whole[:5000], whole[-5000:])


def test_73_endless_output_and_one_line_of_a_megabyte(sh: Session) -> None:
    result = sh.run("yes | head -c 100000000", tty=False)
    assert (len(result.stdout_bytes), result.stdout_omitted) == (1 << 20, 100_000_000 - (1 << 20))
    line = sh.run("head -c 1000000 /dev/zero | tr '\\0' x")
    assert (line.stdout_bytes, line.stdout_omitted) == (b"x" * 1_000_000, 0)


@pytest.mark.parametrize("limit", [100, 101, 102, 103, 105])
def test_73_no_character_is_split_at_the_gap(limit: int, sh: Session) -> None:
    result = sh.run("for i in {1..200}; do printf 世é; done", limits=Limits(max_output=limit))
    head, _, tail = re.split(r"(\[\.\.\. \d+ bytes omitted \.\.\.\])", result.stdout)
    assert set(head) == set(tail) == {"世", "é"}
    assert len(result.stdout_bytes) + result.stdout_omitted == 1000


def test_74_any_bytes_come_through(sh: Session) -> None:
    every = b"".join(bytes([number]) for number in range(256))
    result = sh.run(r'for i in {0..255}; do printf "\\x$(printf %x $i)"; done')
    assert result.stdout_bytes == every
    assert "\ufffd" in result.stdout
    assert len(sh.run("head -c 5000 /dev/urandom").stdout_bytes) == 5000


@pytest.mark.parametrize("limit", range(9))
def test_78_a_tiny_limit_is_never_exceeded(limit: int, sh: Session) -> None:
    result = sh.run("printf 0123456789; printf abcdefghij >&2", limits=Limits(max_output=limit))
    assert len(result.stdout_bytes) <= limit
    assert len(result.stdout_bytes) + result.stdout_omitted == len(result.stderr_bytes) + result.stderr_omitted == 10


@pytest.mark.parametrize(("cap", "kept"), [(1 << 20, 588_895), (1000, 1000)], ids=["whole", "capped"])
def test_80_the_spilled_file_is_complete_or_capped(cap: int, kept: int, sh: Session, place: Path) -> None:
    file = place / "spilled"
    sh.run("seq 100000", limits=Limits(max_output=100, spill=str(file), spill_max=cap))
    whole = b"".join(b"%d\n" % number for number in range(1, 100_001))
    assert file.read_bytes() == whole[:kept]


def test_81_a_restart_forgets_the_variables_and_goes_home(sh: Session, place: Path) -> None:
    sh.restart()  # with none running
    for number in range(3):
        sh.run(f"x={number}; cd /")
        sh.restart()
        assert sh.run('echo "[$x] $PWD"').stdout == f"[] {place}\n"


def test_82_startup_commands_run_after_every_start(new_session: NewSession) -> None:
    sh = new_session(startup=["x=started", "cd /"])
    assert sh.run("echo $x $PWD; x=changed").stdout == "started /\n"
    sh.restart()
    assert sh.run("echo $x $PWD").stdout == "started /\n"
    sh.run("x=changed; sleep 30", timeout=0.1, on_timeout="kill")
    assert sh.run("echo $x $PWD").stdout == "started /\n"
    sh.run("x=changed; exit 1")
    assert sh.run("echo $x $PWD").stdout == "started /\n"


def test_84_a_hundred_sessions_leave_nothing(place: Path) -> None:
    """No process and no descriptor, and so no terminal: one lives as long as its host side is open."""
    with Session(cwd=place) as warm:  # what a process keeps for all its sessions
        warm.run("true")

    def held() -> tuple[set[str], set[int]]:
        return set(os.listdir("/proc/self/fd")), descendants(os.getpid())

    before = held()
    for _ in range(100):
        with Session(cwd=place) as sh:
            assert sh.run("echo hi").stdout == "hi\n"
    assert held() == before


ENDINGS = {
    "85 collected": "del sh; gc.collect(); print('ended', flush=True); sys.stdin.read()",
    "85 interpreter exit": "",
    "85 exception": "raise SystemExit(3)",
    "85 SIGTERM": "os.kill(os.getpid(), 15); time.sleep(60)",
    "85 SIGKILL": "os.kill(os.getpid(), 9); time.sleep(60)",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_85_shells_end_with_their_host(ending: str, place: Path) -> None:
    seconds = unique_seconds()
    program = (
        "import gc, os, sys, time\nfrom shellsession import Session\n"
        f"sh = Session(cwd={str(place)!r})\nr = sh.run('setsid sleep {seconds} & echo $$')\n"
        f"print(r.stdout.strip(), flush=True)\n{ending}\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        shell = int(host.stdout.readline())
        if "ended" in ending:
            assert host.stdout.readline() == "ended\n"
        else:
            host.wait(20)
        wait_until(lambda: not is_alive(shell) and not with_argument(seconds), "shell and job are gone", 2.0)
