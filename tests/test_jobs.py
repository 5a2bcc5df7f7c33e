"""Jobs: what a call left running has an id and an exit status, can be waited for, and released."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import kinds
import pytest
from system import is_alive, unique_seconds, wait_until, with_argument

from shellsession import AsyncSession, InvalidRequest, Limits, NoSuchOutput, NotRunning, Session, connect

sh = kinds.sh

pytestmark = pytest.mark.usefixtures("company")

# A job that waits for the file "go", and one that outlives its session.
_GO = "(until [ -e go ]; do sleep 0.02; done; echo Ready on 80; exit 3) &"
_SERVER = "setsid sleep {} >/dev/null 2>&1 </dev/null &"


@pytest.fixture
def seconds() -> Iterator[str]:
    """The argument of a `sleep` that a test may leave running."""
    yield (argument := unique_seconds())
    for pid in with_argument(argument):
        os.kill(pid, signal.SIGKILL)


def test_a_job_has_an_id_and_an_exit_status_which_changes_nothing_in_the_shell(sh: Session, place: Path) -> None:
    (pid,) = sh.run(_GO).background
    sh.run("sleep 1000 &")
    first, last = sh.jobs()
    assert (first.id, first.exit_code, first.status) == ("j1", None, "running")
    assert last.kill()
    assert last.wait(10)
    assert last.exit_code == 128 + signal.SIGKILL
    (place / "go").touch()
    assert first.wait(10)
    sh.run("(exit 7)")
    assert (first.exit_code, sh.jobs()[0].exit_code, first.status) == (3, 3, "ended")
    assert sh.run(f"echo $?; wait {pid}; echo $?").stdout == "7\n3\n"


def test_an_exit_status_that_nobody_knows_is_none(sh: Session, place: Path) -> None:
    sh.run(_GO)
    sh.run("disown")  # bash then calls each end a success
    sh.run(f"{_GO} disown")
    sh.run("(sleep 1000 &)")  # an orphan, which bash did not start
    sh.jobs()[-1].kill()
    (place / "go").touch()
    jobs = sh.jobs()
    assert [job.wait(10) for job in jobs] == [True] * 3
    assert [job.exit_code for job in jobs] == [None] * 3


def test_threads_that_ask_at_the_same_time_all_get_the_exit_status(sh: Session, place: Path) -> None:
    """Also for two jobs at once: bash is asked for one after the other."""
    sh.run(_GO)
    sh.run(_GO)
    jobs = sh.jobs()
    (place / "go").touch()
    assert [job.wait(10) for job in jobs] == [True] * 2
    together, codes = threading.Barrier(6), list[int | None]()

    def ask(job: Any) -> None:
        together.wait(10)
        codes.append(job.exit_code)

    threads = [threading.Thread(target=ask, args=(job,)) for job in jobs * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert codes == [3] * 6


def test_while_a_command_runs_the_exit_status_waits(sh: Session, place: Path) -> None:
    sh.run("set -e")  # nor does the question end the shell
    sh.run(_GO)
    sh.run("touch go; sleep 1000", timeout=0.1, on_timeout="yield")
    (job,) = sh.jobs()
    assert job.wait(10)
    assert job.exit_code is None
    sh.interrupt()
    assert job.exit_code == 3


def test_a_job_is_waited_for_until_it_prints(sh: Session, place: Path) -> None:
    sh.run(_GO)
    (job,) = sh.jobs()
    assert not job.wait(0.01)
    assert not job.wait(0.01, until="Ready")
    (place / "go").touch()
    assert job.wait(10, until=r"Ready on \d+")
    assert not job.wait(until="never")
    assert job.stdout == "Ready on 80\n"
    wrong: Any
    for wrong in ("(", b"Ready", 7):
        with pytest.raises(InvalidRequest, match=r"until: .* is not a regular expression"):
            job.wait(until=wrong)


def test_what_it_printed_before_its_call_returned_counts(sh: Session) -> None:
    sh.run("echo starting; echo Ready; sleep 1000 &")
    assert sh.jobs()[0].wait(10, until="^Ready$")


def test_a_callback_gets_the_job_once_it_ends(sh: Session, place: Path) -> None:
    sh.run(_GO)
    (job,) = sh.jobs()
    ended, seen = threading.Event(), list[str]()

    def note(one: Any) -> None:
        seen.append(one.id)
        ended.set()

    job.on_end(note)
    assert not seen
    (place / "go").touch()
    assert ended.wait(10)
    assert seen == ["j1"]
    ended.clear()
    sh.run("sleep 1000 &")
    sh.jobs()[-1].on_end(note)
    sh.close()
    assert ended.wait(10)
    assert seen == ["j1", "j2"]


def test_a_callback_of_asyncio_may_be_a_coroutine_function() -> None:
    async def main() -> None:
        ended = asyncio.Event()

        async def note(_: object) -> None:
            ended.set()

        async with AsyncSession() as sh:
            await sh.run("sleep 1000 &")
            sh.jobs()[0].on_end(note)
            sh.jobs()[0].kill()
            await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(main())


def test_a_released_job_outlives_its_session(sh: Session, seconds: str) -> None:
    sh.run(_SERVER.format(seconds))
    sh.run("sleep 1000 &")
    server, other = sh.jobs()
    server.release()
    assert ([job.id for job in sh.jobs()], [job.id for job in sh.jobs(released=True)]) == (["j2"], ["j1"])
    sh.run("sleep 1000", timeout=0.05)  # its end kills nothing of another call
    sh.restart()
    assert (other.running, other.exit_code, server.running) == (False, None, True)
    assert sh.jobs(released=True)[0].kill() == server.pids
    assert server.wait(10)


def test_close_spares_a_released_job_and_its_children(place: Path, seconds: str) -> None:
    with Session(cwd=place) as sh:
        sh.run(f"nohup bash -c 'sleep {seconds} & (sleep {seconds} &); wait' >/dev/null 2>&1 &")
        wait_until(lambda: len(with_argument(seconds)) == 2, "its children")
        (job,) = sh.jobs()
        job.release()
    assert [one.id for one in sh.jobs(released=True)] == ["j1"]
    assert len(with_argument(seconds)) == 2
    job.kill()
    assert job.wait(10)
    assert with_argument(seconds) == []


def test_a_later_session_of_the_agent_knows_what_was_released(place: Path, seconds: str, request: Any) -> None:
    socket, agent = request.getfixturevalue("daemon").socket, request.node.name
    with connect(agent, socket, False, cwd=place) as sh:
        sh.run(_SERVER.format(seconds))
        sh.jobs()[0].release()
        sh.close()
    with connect(agent, socket, False, cwd=place) as sh:
        sh.run("sleep 1000 &")
        assert ([job.id for job in sh.jobs()], [job.id for job in sh.jobs(released=True)]) == (["j2"], ["j1"])
        (job,) = sh.jobs(released=True)
        pid = job.pids[0]
        assert job.kill() == (pid,)
        wait_until(lambda: not is_alive(pid), "its end")
        sh.close()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("text", "why"),
    [("setsid sleep 1000 &", "writes to the session's own stream"), ("sleep 1000 >/dev/null 2>&1 &", "SIGHUP")],
    ids=["its output", "its terminal"],
)
def test_a_job_that_would_end_with_the_session_is_not_released(sh: Session, text: str, why: str) -> None:
    sh.run(text)
    (job,) = sh.jobs()
    with pytest.raises(InvalidRequest, match=f"job j1 cannot be released: .*{why}.*setsid COMMAND >FILE"):
        job.release()
    assert not job.released
    job.kill()
    assert job.wait(10)
    with pytest.raises(NotRunning, match="it has ended"):
        job.release()


def test_output_of_a_job_is_read_in_parts(sh: Session, place: Path) -> None:
    sh.run(
        "(until [ -e go ]; do sleep 0.02; done; printf '%s\\n' one two three; printf 'a part'"
        "; until [ -e on ]; do sleep 0.02; done; echo ', and four'; echo five >&2) &",
        tty=False,
    )
    (job,) = sh.jobs()
    assert sh.read_output("j1") == sh.read_output("j1", tail=3) == "[nothing new; since=0 shows only what is new]"
    (place / "go").touch()
    assert job.wait(30, until="part")
    mark = "\n[since=20 shows only what is new]"
    assert sh.read_output("j1") == sh.read_output("j1", since=0) == f"one\ntwo\nthree\na part{mark}"
    assert sh.read_output("j1", tail=2) == f"three\na part{mark}"
    assert sh.read_output("j1", since=8) == f"three\na part{mark}"
    assert sh.read_output("j1", since=20) == "[nothing new; since=20 shows only what is new]"
    assert sh.read_output("j1", lines=(2, 3)) == "two\nthree\n"
    assert sh.read_output("j1", grep="^t") == "2:two\n3:three\n"
    (place / "on").touch()
    assert job.wait(30)
    assert sh.read_output("j1", since=20) == ", and four\n"
    assert sh.read_output("j1", tail=1) == "a part, and four\n"
    assert sh.read_output("j1", "stderr") == "five\n"
    assert sh.read_output("j1", since=31) == ""
    with pytest.raises(NoSuchOutput, match="'j2' is not kept"):
        sh.read_output("j2")


def test_gap_in_the_output_of_a_job_is_marked(sh: Session, place: Path) -> None:
    job_of = "(until [ -e go ]; do sleep 0.02; done; seq 100000) &"
    sh.run(job_of, tty=False, limits=Limits(max_output=1000))
    (job,) = sh.jobs()
    (place / "go").touch()
    assert job.wait(30)
    assert sh.read_output("j1", tail=2) == "99999\n100000\n"
    printed = "".join(f"{number}\n" for number in range(1, 100_001))
    assert sh.read_output("j1", since=588_800) == printed[588_800:]
    kept = sh.read_output("j1", tail=1000)
    assert kept.startswith("[... 587 896 bytes omitted ...]\n")
    assert kept.endswith("99999\n100000\n")
    assert " bytes omitted ...]" in sh.read_output("j1", since=100)
    assert sh.read_output("j1", lines=(1, 2)) == "1\n2\n"


def test_output_of_a_command_is_read_from_its_end(sh: Session) -> None:
    result = sh.run("seq 20000; printf end", tty=False)
    assert sh.read_output(result.id, tail=2) == "20000\nend"
    printed = "".join(f"{number}\n" for number in range(1, 20_001)) + "end"
    assert sh.read_output(result.id, since=100_000) == printed[100_000:]
    assert sh.read_output(result.id, since=10**9) == ""
    result = sh.run("seq 3; sleep 1000", tty=False, timeout=0.05, on_timeout="yield")
    assert sh.wait(until="^3$").matched
    assert sh.read_output(result.id, tail=1) == "3\n[since=6 shows only what is new]"
    sh.interrupt()
    for wrong in ({"tail": 0}, {"since": -1}, {"tail": 5, "since": 5}, {"tail": 5, "grep": "x"}, {"tail": True}):
        with pytest.raises(InvalidRequest, match=r"tail|since"):
            sh.read_output(result.id, **cast(Any, wrong))
