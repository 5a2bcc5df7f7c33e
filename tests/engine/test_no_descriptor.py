"""A host without a free descriptor still finds and ends all processes that it must end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from system import (
    descriptors,
    descriptors_left,
    in_thread,
    nobody_reads_for_jobs,
    unique_seconds,
    wait_until,
    with_argument,
)

from shellsession import Session
from shellsession.engine.kernel import proc
from shellsession.engine.kernel.proc import SPARE


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Around every test here: the descriptors are as before."""
    wait_until(nobody_reads_for_jobs, "the end of who reads for those of earlier tests")
    before = descriptors()
    yield
    wait_until(nobody_reads_for_jobs, "the end of who reads for jobs")
    assert descriptors() == before


@pytest.fixture
def sh(place: Path) -> Iterator[Session]:
    with Session(cwd=place, timeout=20) as session:
        yield session.open()


def test_a_time_limit_ends_the_command_and_keeps_the_shell(sh: Session) -> None:
    sh.run("X=kept")
    seconds = unique_seconds()
    with descriptors_left(0):
        result = sh.run(f"setsid sleep {seconds}", timeout=0.3)
    assert (result.outcome, result.state_kept, len(result.killed)) == ("timed_out", True, 1)
    assert with_argument(seconds) == []
    assert sh.run("echo $X").stdout == "kept\n"


def end_by_close(sh: Session) -> None:
    sh.close()


def end_by_kill(sh: Session) -> None:
    assert sh.run("kill -9 $$").outcome == "shell_exited"


def end_by_limit(sh: Session) -> None:
    assert sh.run("while :; do :; done", timeout=0.05, on_timeout="kill").outcome == "timed_out"


@pytest.mark.parametrize("end", [end_by_close, end_by_kill, end_by_limit], ids=lambda end: end.__name__)
def test_nothing_outlives_the_shell(sh: Session, end: Callable[[Session], None]) -> None:
    seconds = unique_seconds()
    sh.run(f"setsid sleep {seconds} >/dev/null 2>&1 &")
    wait_until(lambda: with_argument(seconds), "it runs")
    sh.run("true")  # what it may have held of its call has been made anew
    with descriptors_left(0):
        end(sh)
    assert with_argument(seconds) == []


def test_a_job_is_still_seen_and_can_be_killed(sh: Session) -> None:
    seconds = unique_seconds()
    sh.run(f"sleep {seconds} &")
    (job,) = sh.jobs()
    with descriptors_left(0):
        assert job.alive() == list(job.pids)
        assert job.kill() == job.pids
    wait_until(lambda: not with_argument(seconds), "its end")


def test_many_threads_look_at_a_time(sh: Session) -> None:
    sh.run(f"sleep {unique_seconds()} & sleep {unique_seconds()} &")
    pid, pids = sh.pid, list(sh.jobs()[0].pids)
    assert pid is not None
    full = threading.Event()

    def look(bash: int = pid) -> list[list[int]]:
        full.wait()
        return [proc.children(bash) for _ in range(300)]

    threads = [in_thread(look) for _ in range(8)]
    with descriptors_left(0):
        full.set()
        for thread, _ in threads:
            thread.join()
    assert [found for _, (looks,) in threads for found in looks if found != pids] == []


def test_a_forked_child_holds_nothing_of_it(sh: Session) -> None:
    """And has one of its own, with its own sessions."""
    sh.run("true")
    spare = SPARE._fd
    assert spare >= 0
    assert not os.get_inheritable(spare)
    if (child := os.fork()) == 0:
        status = 1
        try:
            signal.alarm(20)
            sh.close()
            status = int((str(spare), os.devnull) in descriptors())
            with Session() as own:
                own.run("true")
                status += 2 * (SPARE._fd < 0)
            status += 4 * (SPARE._fd >= 0)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert spare == SPARE._fd
