"""A shell with more children than one read of the kernel's list returns (about 600)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from system import SOAK, is_alive, unique_seconds, with_argument

from shellsession import Session
from shellsession.engine.kernel import proc

MANY = 900 if SOAK else 700


COMMAND = f"X=kept; for ((i = 0; i < {MANY}; i++)); do sleep {unique_seconds()} & done 2>/dev/null"


@pytest.fixture
def sh(place: Path) -> Iterator[Session]:
    with Session(cwd=place, timeout=50) as session:
        session.run(COMMAND, tty=False)
        yield session


def test_all_are_named_and_none_of_them_is_ended_with_a_later_command(sh: Session) -> None:
    (job,) = sh.jobs()
    assert len(job.pids) == MANY
    seconds = unique_seconds()
    result = sh.run(f"setsid sleep {seconds}", timeout=0.5)
    assert (result.outcome, result.state_kept, len(result.killed)) == ("timed_out", True, 1)
    assert with_argument(seconds) == []
    assert sh.run("echo $X", tty=False).stdout == "kept\n"
    assert len(job.alive()) == MANY
    assert len(job.kill()) == MANY
    sh.close()
    assert not any(is_alive(pid) for pid in job.pids)


def test_who_stands_in_the_list_after_those_that_go_meanwhile_is_seen(
    sh: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel finds its place in the list by counting: what has gone before it makes it skip as many."""
    pids = sh.jobs()[0].pids
    going, read = list(pids[: MANY // 3]), os.read
    shell = sh.pid
    assert shell is not None

    def read_and_have_some_go(fd: int, size: int) -> bytes:
        data = read(fd, size)
        if going and len(data) > 3000:
            for pid in going:
                os.kill(pid, signal.SIGKILL)
            while going:  # bash, at its prompt, reaps them
                going[:] = [pid for pid in going if proc.state(pid)]
        return data

    monkeypatch.setattr(os, "read", read_and_have_some_go)
    assert set(proc.children(shell)) >= set(pids[MANY // 3 :])
