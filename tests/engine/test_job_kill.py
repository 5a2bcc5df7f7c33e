"""``Job.kill`` never ends the session's bash, its host or a fork of that, and closes what the job had."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from forks import fork, in_child
from system import descriptors, is_alive, unique_seconds, wait_until, with_argument

from shellsession import Session, SessionClosed
from shellsession.engine.io.streams import Stream, Streams
from shellsession.engine.kernel import activity


def test_a_fork_of_the_host_has_the_reading_ends_and_lives(sh: Session) -> None:
    """As a worker of multiprocessing: it got SIGKILL."""
    sh.run(f"sleep {unique_seconds()} &", tty=False)
    reading, writing = os.pipe()
    if (worker := fork()) == 0:
        os.close(writing)
        os.read(reading, 1)  # the end of the file comes with the test's end
        os._exit(7)
    os.close(reading)
    job = sh.jobs()[0]
    assert job.kill() == job.pids
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 7


def test_a_forked_child_kills_neither_its_parent_nor_the_parents_jobs(sh: Session) -> None:
    sh.run(f"sleep {unique_seconds()} &")
    job = sh.jobs()[0]

    def kill() -> None:
        with pytest.raises(SessionClosed, match="forked child"):
            job.kill()

    in_child(kill)
    assert job.running
    assert job.kill() == job.pids


def test_the_shell_that_holds_a_calls_streams_is_no_part_of_the_job(sh: Session) -> None:
    sh.run("X=kept; exec 3>&2")
    job = sh.jobs()[0]
    assert job.running
    assert job.kill() == ()
    assert sh.run("echo $X").stdout == "kept\n"


def test_who_holds_only_its_streams_is_killed_too(sh: Session, place: Path) -> None:
    """Its bash has nothing to do with it any more, nor has the job's first process."""
    seconds = unique_seconds()
    sh.run("exec 3>&2")
    sh.run(f"sleep {seconds} & X=kept")  # has 3, too
    (holder,) = wait_until(lambda: with_argument(seconds), "the sleep")
    assert sh.jobs()[0].kill() == (holder,)
    wait_until(lambda: not is_alive(holder), "its end")
    assert sh.run("echo $X").stdout == "kept\n"


def test_ctrl_c_while_a_stream_becomes_the_jobs_leaves_no_descriptor(
    sh: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was the shell's no more, and not yet the job's, was nobody's to close."""
    sh.run("true", tty=False)
    detach = Streams.detach

    def interrupted(streams: Streams, stream: Stream) -> bool:
        is_detached = detach(streams, stream)
        signal.raise_signal(signal.SIGINT)
        return is_detached

    monkeypatch.setattr(Streams, "detach", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sh.run(f"sleep {unique_seconds()} &", tty=False)
    monkeypatch.undo()
    directory = sh.engine.live().slot.directory
    assert any(directory in target for _, target in descriptors())
    sh.close()
    wait_until(lambda: not any(directory in target for _, target in descriptors()), "the end of its streams")


def test_a_job_is_reported_though_each_of_it_ends_as_it_has_started_the_next(sh: Session) -> None:
    for number in range(40):
        assert sh.run("f() { f & }; f >/dev/null 2>&1 &").background, number
        sh.jobs()[-1].kill()


@pytest.mark.parametrize(
    "command",
    [
        "f() { (f &); }; f >/dev/null 2>&1 &",
        "f() { (f &); }; f &",  # found by its streams, too, which takes its time
        "while :; do (sleep 1000 &); done >/dev/null 2>&1 &",
    ],
)
def test_who_starts_others_without_end_is_killed_with_them(sh: Session, command: str) -> None:
    for _ in range(3):
        sh.run(command)
        job = sh.jobs()[-1]
        assert job.kill()
        wait_until(lambda: not job.running, "its end")  # noqa: B023  # asked at once


def test_who_has_got_the_number_of_a_terminal_that_was_closed_meanwhile_is_not_killed(
    sh: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look at all descriptors takes a while, in which a job ends, and its terminal's number is given to another."""
    with subprocess.Popen(["sleep", unique_seconds()]) as stranger:
        try:
            sh.run(f"sleep {unique_seconds()} &")
            job = sh.jobs()[0]

            def ends_meanwhile(_: object, files: set[tuple[int, int]]) -> Iterator[tuple[int, tuple[int, int]]]:
                for pid in job.pids:
                    os.kill(pid, signal.SIGKILL)
                wait_until(lambda: not job._open.keys() - {job._lent}, "the end of its streams")
                yield from ((stranger.pid, file) for file in files)

            monkeypatch.setattr(activity, "holders", ends_meanwhile)
            assert stranger.pid not in job.kill()
        finally:
            stranger.kill()
