"""Background jobs: the call returns at once, and their output never enters another result."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from system import PATIENCE, is_alive, unique_seconds, wait_until, with_argument

from shellsession import TTY, Job, Limits, Session

Make = Callable[..., Session]
STREAMS = pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])


@pytest.fixture
def go(place: Path) -> Iterator[Callable[[], None]]:
    """Lets a job go on that reads a line from the FIFO ``go``."""
    os.mkfifo(place / "go")
    keep = os.open(place / "go", os.O_RDWR | os.O_CLOEXEC)

    def write_a_line() -> None:
        os.write(keep, b"\n")

    yield write_a_line
    os.close(keep)


def last_job(sh: Session) -> Job:
    return sh.jobs()[-1]


def test_the_call_returns_at_once_and_names_the_pids(sh: Session) -> None:
    seconds = unique_seconds()
    result = sh.run(f"sleep {seconds} & echo $!")
    assert (result.outcome, result.exit_code) == ("exited", 0)
    assert result.background == (int(result.stdout),)
    wait_until(lambda: with_argument(seconds) == list(result.background), "that child, once it is a sleep")
    assert result.duration < PATIENCE


def test_a_call_without_children_names_none(sh: Session) -> None:
    assert sh.run("/bin/true; (true); echo | cat").background == ()
    assert sh.jobs() == []


def test_what_runs_at_the_prompt_is_no_job_of_the_command(sh: Session) -> None:
    """As direnv, starship and others have it."""
    sh.run("hook() { local s=$?; n=$(sleep 0.03; echo $((n + 1))); return $s; }; PROMPT_COMMAND=hook")
    assert sh.run("(exit 4)").exit_code == 4
    left = sh.run(f"sleep {unique_seconds()} & echo $!")
    assert left.background == (int(left.stdout),)
    again = sh.run("echo $?")
    assert (again.stdout, again.background) == ("0\n", ())
    assert [job.pids for job in sh.jobs()] == [left.background]


def test_a_later_call_does_not_name_older_children(sh: Session) -> None:
    older = sh.run(f"sleep {unique_seconds()} &").background
    assert sh.run("true").background == ()
    newer = sh.run(f"sleep {unique_seconds()} &").background
    assert newer != older
    assert [job.pids for job in sh.jobs()] == [older, newer]


@STREAMS
def test_its_output_belongs_to_its_job(sh: Session, go: Callable[[], None], tty: bool) -> None:
    first = sh.run("echo now; { read x; echo later; echo worse >&2; } <go &", tty=tty)
    assert first.stdout == "now\n"
    assert "worse" not in first.stderr
    go()
    job = last_job(sh)
    wait_until(lambda: not job.running, "the job's end")
    assert (job.stdout, job.stderr, job.status) == ("later\n", "worse\n", "ended")
    nxt = sh.run("echo mine")
    assert (nxt.stdout, nxt.stderr) == ("mine\n", "")


@STREAMS
def test_noise_never_enters_another_result(sh: Session, tty: bool) -> None:
    sh.run("while :; do echo noise; echo noise >&2; done &", tty=tty)
    for i in range(30):
        result = sh.run(f"echo {i}; echo e{i} >&2", tty=tty)
        assert (result.stdout, result.stderr) == (f"{i}\n", f"e{i}\n")
    job = last_job(sh)
    wait_until(lambda: "noise\n" in job.stdout and "noise\n" in job.stderr, "the noise in its own record")


def test_noise_on_the_terminal_itself_is_nobodys_output(sh: Session) -> None:
    sh.run("while :; do echo noise; done >/dev/tty &")
    job = last_job(sh)
    for i in range(10):
        assert sh.run(f"echo {i}", tty=False).stdout == f"{i}\n"
    assert job.kill()


def test_all_jobs_that_run_are_kept_and_the_last_that_have_ended(sh: Session) -> None:
    sh.run("sleep 1000 &")
    for _ in range(105):
        sh.run("sleep 1002 &")
    for job in sh.jobs()[1:]:
        os.kill(job.pids[0], signal.SIGTERM)
    wait_until(lambda: sum(job.running for job in sh.jobs()) == 1, "the end of the others")
    sh.run("sleep 1001 &")
    first, *ended, last = sh.jobs()
    assert (first.command, first.running, last.command) == ("sleep 1000 &", True, "sleep 1001 &")
    assert (len(ended), any(job.running for job in ended)) == (99, False)


@pytest.mark.parametrize(("printed", "text"), [(5 << 20, 0), (0, 5 << 20)], ids=["output", "text"])
def test_of_what_has_ended_no_more_is_remembered_than_is_good(
    sh: Session, go: Callable[[], None], printed: int, text: int
) -> None:
    sh.run("sleep 1000 &")
    limits = Limits(max_output=5 << 20)
    for number in range(6):  # of 5 MiB each: three are 15, and 16 is the most
        command = f": {number}; {{ read <go; head -c {printed} /dev/zero; }} & #{'x' * text}"
        sh.run(command, tty=False, limits=limits)
        go()
        wait_until(lambda: not last_job(sh).running, "its end")
    sh.run("sleep 1001 &")
    first, *ended, last = sh.jobs()
    assert (first.command, [job.command[:3] for job in ended], last.command) == (
        "sleep 1000 &",
        [": 3", ": 4", ": 5"],
        "sleep 1001 &",
    )
    assert all(len(job.output("stdout")[0]) == printed and len(job.command) > text for job in ended)


def test_the_shell_writing_through_a_saved_descriptor_is_the_earlier_calls(sh: Session) -> None:
    sh.run("exec 7>&1 8>&2; echo first")
    nxt = sh.run("echo saved >&7; echo savederr >&8; echo mine")
    assert (nxt.stdout, nxt.stderr) == ("mine\n", "")
    job = sh.jobs()[0]
    wait_until(lambda: job.stdout == "saved\n" and job.stderr == "savederr\n", "the output of the first call")
    assert job.command.startswith("exec 7>&1")


@STREAMS
def test_a_job_never_blocks_because_nobody_calls(sh: Session, place: Path, tty: bool) -> None:
    """Ten times what a pipe or a terminal holds, while no call is running."""
    called = sh.run("{ head -c 10000000 /dev/zero | tr '\\0' x; echo >done; } &", tty=tty)
    wait_until((place / "done").exists, "the job's end")
    job = last_job(sh)
    wait_until(lambda: not job.running, "the job's end")
    kept, omitted = job.output("stdout")
    assert len(called.stdout_bytes) + called.stdout_omitted + len(kept) + omitted == 10_000_000
    assert len(kept) == 1 << 20


def test_its_output_is_bounded_as_any(sh: Session, go: Callable[[], None]) -> None:
    sh.run("{ read x; seq 1000; } <go & disown", limits=Limits(max_output=100))
    job = last_job(sh)
    go()
    wait_until(lambda: not job.running, "the job's end")
    assert 0 < len(job.stdout) <= 100 + len("[... 3 793 bytes omitted ...]")


def test_no_character_of_it_is_cut_where_some_are_missing(sh: Session, place: Path) -> None:
    text = "until [ -e go ]; do sleep 0.05; done; for i in {1..1000}; do printf 'éé\n'; done"
    sh.run(f"{{ {text}; }} &", limits=Limits(max_output=102))
    job = last_job(sh)
    (place / "go").touch()
    wait_until(lambda: not job.running, "the job's end")
    assert job.output("stdout")[1] > 0
    assert "\ufffd" not in job.stdout


def test_a_job_can_be_killed_with_all_below_it(sh: Session) -> None:
    seconds = unique_seconds()
    sh.run(f"X=1; {{ sleep {seconds} | sleep {seconds}; }} &")
    job = last_job(sh)
    wait_until(lambda: len(with_argument(seconds)) == 2, "both sleeps")
    assert (job.status, job.running, bool(job.alive())) == ("running", True, True)
    sleepers = set(with_argument(seconds))
    assert sleepers <= set(job.kill()) <= sleepers | set(job.pids)  # the subshell may end before its own signal
    wait_until(lambda: not with_argument(seconds), "the end of both")
    wait_until(lambda: not job.running, "the end of the job")
    assert job.status == "ended"
    assert job.kill() == ()
    assert sh.run("echo $X").stdout == "1\n"


def test_a_number_that_was_given_away_is_not_the_job(sh: Session, go: Callable[[], None]) -> None:
    sh.run("read x <go & echo")
    go()
    job = last_job(sh)
    wait_until(lambda: not job.running, "the job's end")
    assert job.alive() == []
    assert job.kill() == ()


def test_wait_asks_bash_for_the_status(sh: Session, go: Callable[[], None]) -> None:
    sh.run("{ read x; exit 7; } <go &")
    go()
    assert sh.run("wait $!").exit_code == 7


@pytest.mark.parametrize(
    "way", ["nohup sleep {} >/dev/null 2>&1 &", "setsid sleep {} &", "(sleep {} &)", "sleep {} & disown"]
)
def test_every_kind_of_background_is_named(sh: Session, way: str) -> None:
    seconds = unique_seconds()
    result = sh.run(way.format(seconds))
    assert result.outcome == "exited"
    (pid,) = wait_until(lambda: with_argument(seconds), "the sleep")
    assert pid in result.background
    assert sh.run("echo next").stdout == "next\n"
    assert is_alive(pid)


def test_a_server_serves_while_other_calls_run(sh: Session) -> None:
    sh.run("coproc SERVER { while read line; do echo served $line; done; }")
    for i in range(5):
        assert (
            sh.run(f"echo {i} >&${{SERVER[1]}}; read answer <&${{SERVER[0]}}; echo $answer").stdout == f"served {i}\n"
        )


def test_a_job_says_what_it_is(sh: Session) -> None:
    sh.run(f"sleep {unique_seconds()} & : the name")
    assert ": the name" in repr(last_job(sh))
    assert "running" in repr(last_job(sh))


def test_a_record_stays_readable_after_the_session(sh: Session, go: Callable[[], None]) -> None:
    sh.run("{ read x; echo later; sleep 1000; } <go &")
    job = last_job(sh)
    go()
    wait_until(lambda: job.stdout == "later\n", "the output")
    sh.close()
    assert (job.stdout, job.status) == ("later\n", "ended")


def test_many_jobs_do_not_pile_up(sh: Session, go: Callable[[], None]) -> None:
    for _ in range(120):
        sh.run("read x <go &")
    assert len(sh.jobs()) == 120
    for _ in range(120):
        go()
    wait_until(lambda: not any(job.running for job in sh.jobs()), "the end of all")
    sh.run("sleep 1000 &")
    assert 100 <= len(sh.jobs()) <= 101


def test_the_reading_thread_is_there_only_for_jobs(sh: Session, go: Callable[[], None]) -> None:
    import threading

    def readers() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "shellsession-jobs"]

    wait_until(lambda: not readers(), "the end of earlier tests' thread")
    sh.run("echo hi | cat")
    assert readers() == []
    sh.run("read x <go &")
    assert len(readers()) == 1
    sh.run("{ sleep 1000; } &")
    assert len(readers()) == 1
    sh.close()
    wait_until(lambda: not readers(), "the end of the thread")


def test_a_job_that_was_waited_for_gives_the_terminal_back(sh: Session) -> None:
    """It went on reading the terminal after its end, and took the answers of later commands."""
    sh.run(f"sleep {unique_seconds()} & pid=$!")
    sh.run("kill $pid; wait $pid")
    for _ in range(5):
        assert sh.run("read x; echo got $x", stdin=TTY).outcome == "input"
        assert sh.send("it\n").stdout == "got it\n"


def test_the_last_word_of_a_job_on_the_terminal_is_kept(sh: Session, go: Callable[[], None]) -> None:
    """The next call came before the thread that reads for jobs, and threw it away: of 150, 39 were lost."""
    for _ in range(25):
        sh.run("{ read x; echo last word; } <go >/dev/tty &")
        job, deadline = last_job(sh), time.monotonic() + PATIENCE
        go()
        while job.alive():
            assert time.monotonic() < deadline
        heard = bytearray()

        def is_heard(job: Job = job, heard: bytearray = heard) -> bool:
            heard.extend(sh.run("true").stdout_bytes)
            return b"last word" in heard + job.output("terminal")[0]

        wait_until(is_heard, "the last word")


def test_what_a_job_said_to_the_terminal_is_kept_when_another_call_has_it(sh: Session, go: Callable[[], None]) -> None:
    sh.run("{ read x; echo one; read x; echo two; } <go >/dev/tty &")
    job = last_job(sh)
    go()
    wait_until(lambda: job.output("terminal")[0] == b"one\n", "its first word")
    sh.run("true", stdin=TTY)
    go()
    heard = bytearray()  # by calls: where it had already ended, it cannot be told whose a late word is

    def is_heard() -> bool:
        heard.extend(sh.run("true").stdout_bytes)
        return b"two" in heard + job.output("terminal")[0]

    wait_until(is_heard, "its second word")
    assert job.output("terminal")[0].startswith(b"one\n")


def test_a_job_is_older_however_many_have_come_and_gone_since(sh: Session, place: Path) -> None:
    seconds = unique_seconds()
    os.mkfifo(place / "go")
    sh.run(f"(read x <go; sleep {seconds} &) >/dev/null 2>&1 &")
    for _ in range(15):  # with the first, as many as there are generations
        sh.run(f"sleep {unique_seconds()} &")
        last_job(sh).kill()
        wait_until(lambda: not last_job(sh).running, "it is gone")
    sh.run(f"echo >go; until pgrep -xf 'sleep {seconds}'; do :; done; sleep 100", timeout=PATIENCE, idle_timeout=0.3)
    assert len(with_argument(seconds)) == 1
