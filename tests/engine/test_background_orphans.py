"""Orphans belong to their job: it runs as long as they do, and no later call counts them as its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from escapes import SHEDDER
from system import PATIENCE, SOAK, is_alive, unique_seconds, wait_until, with_argument

from shellsession import Session

FORKING = "(while :; do (sleep {0} & echo $! >>pids); sleep 0.01; done) >/dev/null 2>&1 &"
GROWN = "n=$(wc -l <pids); until (( $(wc -l <pids) > n + 3 )); do :; done"


def test_a_job_runs_as_long_as_an_orphan_of_it(sh: Session, place: Path) -> None:
    theirs, others = unique_seconds(), unique_seconds()
    os.mkfifo(place / "go")
    first = sh.run(f"(read x <go; setsid sleep {theirs} &) >/dev/null 2>&1 &").background
    sh.run(f"sleep {others} &")
    sh.run("echo >go")
    wait_until(lambda: with_argument(theirs) and not any(is_alive(pid) for pid in first), "only the orphan is left")
    job, later = sh.jobs()
    (orphan,) = wait_until(lambda: with_argument(theirs), "it has become sleep")  # in execve(2) it shows no words
    assert (job.pids, job.alive(), job.status) == (first, [orphan], "running")
    assert job.kill() == (orphan,)
    wait_until(lambda: not job.running, "its end")
    assert later.alive() == with_argument(others)
    for _ in range(17):  # all tags come round
        sh.run(f"sleep {unique_seconds()} &")
    assert not job.running
    assert sum(len(one.alive()) for one in sh.jobs()) == 18


def test_a_job_runs_though_each_of_it_ends_as_it_has_started_the_next(sh: Session, place: Path) -> None:
    """Who looks finds one that ends, and the next one was not there yet."""
    sh.run("f() { [ -e over ] || (f &); }; f >/dev/null 2>&1 &")
    (job,) = sh.jobs()
    for _ in range(1000):
        assert job.running
    (place / "over").touch()
    wait_until(lambda: not job.running, "its end")


@pytest.mark.parametrize("jobs_before", [0, 1, 17])
def test_orphans_of_an_older_job_are_its_own(sh: Session, place: Path, jobs_before: int) -> None:
    """They become bash's children during a later call, and are not that call's to end."""
    for _ in range(jobs_before):
        sh.run(f"sleep {unique_seconds()} &")
    theirs, ours = unique_seconds(), unique_seconds()
    sh.run(FORKING.format(theirs) + " until [ -s pids ]; do :; done")
    assert sh.run(GROWN).background == ()
    sh.run(f"{GROWN}; (setsid sleep {ours} &); sleep {ours}", timeout=0.01, on_timeout="yield")
    wait_until(lambda: len(with_argument(ours)) == 2, "the later call is at its end")
    result = sh.interrupt()
    assert (result.outcome, result.state_kept) == ("interrupted", True)
    assert with_argument(ours) == []
    started = [int(pid) for pid in (place / "pids").read_text().split()]
    assert not set(started) & set(result.killed)
    assert all(is_alive(pid) for pid in started)
    sh.close()
    assert with_argument(theirs) == []


def test_no_look_takes_an_orphan_of_an_older_job_for_newer(sh: Session) -> None:
    """However the look and the death of its parent fall."""
    sh.run("while :; do (sleep 0.2 &); done >/dev/null 2>&1 &")
    family = sh.engine.live().family
    older = family.present()
    looks = 300 if SOAK else 60
    assert [found for _ in range(looks) if (found := family.newer(older))] == []


@pytest.mark.parametrize("shed", ["ulimit -Sx unlimited", "ulimit -Sx 0"])
def test_a_tag_that_was_shed_is_there_again_once_something_runs(sh: Session, shed: str) -> None:
    first, later = unique_seconds(), unique_seconds()
    sh.run(f"{shed}; sleep {unique_seconds()} &")
    sh.run(f"setsid sleep {first} & setsid env -i sleep {later} &")
    wait_until(lambda: with_argument(first) and with_argument(later), "they run")
    assert sh.run("kill -9 $$").outcome == "shell_exited"
    assert with_argument(first) == with_argument(later) == []


# A host; its arguments are a command, and one that goes before it.
_HOST = """
import os, sys
from shellsession import Session

with Session() as sh:
    sh.run("true")
    if sys.argv[2:]:
        directory = sh.engine.live().slot.directory
        os.rename(directory, directory + "-away")
        open(directory, "x").close()
        sh.run("true")
    print(sh.run(sys.argv[1]).outcome)
"""


@pytest.mark.parametrize("spoilt", [[], ["spoilt"]], ids=["behind a link", "spoilt"])
def test_what_shed_its_tag_is_known_by_its_pipe_wherever_that_lies(spoilt: list[str], tmp_path: Path) -> None:
    seconds = unique_seconds()
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    command = f"({SHEDDER}; exec setsid sleep {seconds}) & until pgrep -xf 'sleep {seconds}'; do :; done; kill -9 $$"
    host = subprocess.run(
        [sys.executable, "-c", _HOST, command, *spoilt],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "link")},
        capture_output=True,
        text=True,
        check=True,
    )
    left = with_argument(seconds)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert (host.stdout, left) == ("shell_exited\n", [])


@pytest.mark.sampled
@pytest.mark.parametrize("end", ["exit 3", "kill -9 $$", "exec true"])
@pytest.mark.parametrize("job", ["sleep {} &", "setsid sleep {} &", "sleep {} & disown", "(setsid nohup sleep {} &)"])
def test_what_an_earlier_call_left_is_killed_with_the_shell(sh: Session, job: str, end: str) -> None:
    """The kernel hangs it up, or we kill it: which of both was quicker is not to be seen in the result."""
    seconds = unique_seconds()
    sh.run(job.format(seconds))
    pids = wait_until(lambda: with_argument(seconds), "the job")
    result = sh.run(end)
    assert (result.outcome, result.killed) == ("shell_exited", tuple(pids))
    assert with_argument(seconds) == []


@pytest.mark.parametrize("end", ["exit 3", "set -r"])
@pytest.mark.parametrize("merged", [False, True], ids=["stderr", "merged"])
def test_what_a_call_started_itself_is_killed_with_the_shell(sh: Session, merged: bool, end: str) -> None:
    pid = sh.open().pid
    result = sh.run(f"sleep {unique_seconds()} & echo $!; {end}", merge_stderr=merged)
    ours = {pid} if end == "set -r" else set()  # that shell lives on, and is killed
    assert set(result.killed) == {int(re.findall(r"^\d+$", result.stdout, re.MULTILINE)[0])} | ours


@pytest.mark.parametrize("end", [Session.restart, Session.close])
def test_a_call_whose_shell_another_thread_ends_reports_all_that_went_with_it(
    sh: Session, end: Callable[[Session], None]
) -> None:
    seconds = unique_seconds()
    earlier = sh.run(f"sleep {unique_seconds()} &").background
    pid = sh.pid
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sh.run, f"sleep {seconds} & sleep {seconds}")
        wait_until(lambda: len(with_argument(seconds)) == 2, "both of its own")
        pids = with_argument(seconds)
        end(sh)
        assert {*running.result(PATIENCE).killed} == {pid, *earlier, *pids}


@pytest.mark.parametrize("job", ["sleep {} &", "setsid sleep {} &"])
def test_the_call_that_reports_the_shells_end_reports_what_went_with_it(sh: Session, job: str) -> None:
    seconds = unique_seconds()
    sh.run(job.format(seconds))
    pids = wait_until(lambda: with_argument(seconds), "the job")
    pid = sh.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "its end")
    result = sh.run("true")
    assert (result.ran, result.killed) == (False, tuple(pids))
    assert with_argument(seconds) == []


def test_what_got_away_from_a_call_is_killed_with_the_shell_too(sh: Session) -> None:
    seconds = unique_seconds()
    earlier = sh.run(f"setsid sleep {unique_seconds()} &").background
    result = sh.run(f"setsid sleep {seconds} & until [ $(pgrep -fx 'sleep {seconds}') ]; do :; done; echo $!; exit 3")
    assert sorted(result.killed) == sorted([*earlier, int(result.stdout)])
