"""Many threads use one session, and exceptions reach a call from outside."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from escapes import SHEDDER
from system import PATIENCE, unique_seconds, until, wait_until, with_argument

from shellsession import AsyncSession, Session, SessionClosed, ShellUnavailable
from shellsession.engine.io.threads import Poller

pytestmark = pytest.mark.usefixtures("company")


def test_threads_are_served_one_after_the_other(sh: Session) -> None:
    sh.run("n=0")
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda i: sh.run(f"m=$n; /bin/true; n=$((m + 1)); echo {i}").stdout, range(40)))
    assert results == [f"{i}\n" for i in range(40)]
    assert sh.run("echo $n").stdout == "40\n"


def test_sessions_of_different_threads_do_not_wait_for_each_other(new_session: Callable[..., Session]) -> None:
    """Each waits for all others, so one after the other would never end."""
    sessions = [new_session() for _ in range(4)]
    command = "touch {0}; until [ $(ls | wc -l) = 4 ]; do sleep 0.01; done; echo {0}"
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda i: sessions[i].run(command.format(i)).stdout, range(4)))
    assert results == [f"{i}\n" for i in range(4)]


@pytest.mark.parametrize("way", ["close", "restart"])
@pytest.mark.parametrize(
    "command",
    [
        "sleep {}",
        "trap '' INT TERM HUP; sleep {}",
        "setsid sleep {} & wait",
        f"({SHEDDER}; exec setsid sleep {{}})",  # as su(1) does with pam_limits
        f"({SHEDDER}; setsid sh -c 'sleep {{}} & wait') & wait",
    ],
)
def test_another_thread_ends_a_running_call(sh: Session, way: str, command: str) -> None:
    seconds = unique_seconds()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sh.run, "echo partial; " + command.format(seconds))
        wait_until(lambda: with_argument(seconds), "the command")
        getattr(sh, way)()
        result = running.result(PATIENCE)
    assert (result.stdout, result.outcome, result.state_kept) == ("partial\n", "shell_exited", False)
    assert way in result.reason
    assert with_argument(seconds) == []
    assert result.killed
    if way == "restart":
        assert sh.run("echo fresh").stdout == "fresh\n"
    else:
        with pytest.raises(SessionClosed):
            sh.run("true")


def test_who_waits_for_a_turn_on_a_closed_session_is_notified(sh: Session) -> None:
    seconds = unique_seconds()
    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(sh.run, f"sleep {seconds}")
        wait_until(lambda: with_argument(seconds), "the command")
        waiting = threads.submit(sh.run, "touch second")
        sh.close()
        assert running.result(PATIENCE).outcome == "shell_exited"
        error = waiting.exception(10)
        assert error is None or isinstance(error, SessionClosed)
        if error is None:  # it came in before the close
            assert waiting.result().outcome in ("exited", "shell_exited")


def main_thread_waits() -> bool:
    """Is it inside a call, where Ctrl-C is to come, and not still on its way there?"""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return frame is not None and frame.f_code in (Poller.wait.__code__, Poller.spin.__code__)


@pytest.mark.parametrize("verb", ["run", "wait", "stream"])
def test_control_c_interrupts_the_command_and_keeps_the_shell(sh: Session, verb: str) -> None:
    seconds = unique_seconds()
    sh.run("X=1")
    shell = sh.pid

    def ctrl_c() -> None:
        wait_until(lambda: with_argument(seconds), "the command")
        wait_until(main_thread_waits, "the call")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    other = threading.Thread(target=ctrl_c)
    if verb == "wait":
        sh.run(f"sleep {seconds}", timeout=0.05, on_timeout="yield")
    calls: dict[str, Callable[[], object]] = {
        "run": lambda: sh.run(f"Y=2; sleep {seconds}; echo never"),
        "wait": sh.wait,
        "stream": lambda: list(sh.stream(f"Y=2; sleep {seconds}; echo never")),
    }
    other.start()
    with pytest.raises(KeyboardInterrupt):
        calls[verb]()
    other.join()
    assert with_argument(seconds) == []
    assert sh.run("echo $X").stdout == "1\n"
    assert sh.pid == shell


def test_a_signal_handler_of_the_host_runs_while_a_call_waits(sh: Session) -> None:
    heard: list[int] = []
    old = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        result = sh.run("kill -USR1 $PPID; sleep 0.05; echo done")
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert (heard, result.stdout) == ([signal.SIGUSR1], "done\n")


def test_a_job_may_be_looked_at_from_another_thread(sh: Session) -> None:
    sh.run("while :; do echo noise; done &")
    with ThreadPoolExecutor(2) as threads:
        looks = threads.submit(lambda: [len(sh.jobs()[0].stdout) for _ in range(200)])
        for i in range(50):
            assert sh.run(f"echo {i}").stdout == f"{i}\n"
        assert len(looks.result(PATIENCE)) == 200


def test_who_has_looked_at_anothers_command_leaves_nothing_behind(sh: Session) -> None:
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sh.run, f"sleep {unique_seconds()}")
        wait_until(lambda: sh.state == "running", "the command")
        assert (sh.poll().outcome, sh.wait(0.001).outcome) == ("running", "running")
        assert sh._waiters == []
        sh.interrupt()
        assert running.result(PATIENCE).outcome == "interrupted"


def test_a_task_that_has_looked_at_anothers_command_leaves_nothing_behind_either(place: Path) -> None:
    async def main() -> None:
        async with AsyncSession(cwd=place) as sh:
            running = asyncio.create_task(sh.run(f"sleep {unique_seconds()}"))
            await until(lambda: sh.state == "running")
            assert (await sh.wait(0.001)).outcome == "running"
            looking = asyncio.create_task(sh.wait())
            await until(lambda: sh._waiters)
            looking.cancel()
            await asyncio.wait([looking])
            assert sh._waiters == []
            await sh.interrupt()
            assert (await running).outcome == "interrupted"

    asyncio.run(main())


def test_a_signal_handler_that_uses_the_session_leaves_its_thread_in_the_queue(sh: Session, place: Path) -> None:
    seconds, came = unique_seconds(), list[str]()
    in_handler = threading.Event()

    def handle(*_: object) -> None:
        in_handler.set()
        came.append(sh.run("echo here").stdout)

    def strike_and_interrupt(main: int) -> str:
        wait_until(lambda: any(one.thread == main for one in sh.line.places), "the main thread in the queue")
        signal.pthread_kill(main, signal.SIGALRM)
        assert in_handler.wait(PATIENCE)
        (place / "go").touch()
        wait_until(lambda: with_argument(seconds), "the main thread's command")
        return sh.interrupt().outcome

    before = signal.signal(signal.SIGALRM, handle)
    try:
        with ThreadPoolExecutor(2) as threads:
            threads.submit(sh.run, "until [ -e go ]; do sleep 0.01; done")
            wait_until(lambda: sh.state == "running", "the first command")
            sending = threads.submit(strike_and_interrupt, threading.get_ident())
            outcome = sh.run(f"sleep {seconds}", timeout=8).outcome
        assert (came, outcome, sending.result()) == (["here\n"], "interrupted", "interrupted")
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_restart_that_cannot_be_ends_nobodys_command(new_session: Callable[..., Session], tmp_path: Path) -> None:
    (first := tmp_path / "first").mkdir()
    session = new_session(cwd=first)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(session.run, f"cd {tmp_path}; kept=1; until [ -e go ]; do sleep 0.01; done; echo kept")
        wait_until(lambda: session.cwd == str(tmp_path), "the command")
        first.rmdir()
        with pytest.raises(ShellUnavailable, match="first' is not a directory"):
            session.restart()
        (tmp_path / "go").touch()
        assert (running.result(PATIENCE).stdout, session.run("echo $kept").stdout) == ("kept\n", "1\n")


def test_nor_does_one_with_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        (first := tmp_path / "first").mkdir()
        async with AsyncSession(cwd=first) as sh:
            text = f"cd {tmp_path}; until [ -e go ]; do sleep 0.01; done; echo kept"
            running = asyncio.create_task(sh.run(text, timeout=PATIENCE))
            await until(lambda: sh.cwd == str(tmp_path))
            first.rmdir()
            with pytest.raises(ShellUnavailable, match="first' is not a directory"):
                await sh.restart()
            (tmp_path / "go").touch()
            assert (await running).stdout == "kept\n"

    asyncio.run(main())
