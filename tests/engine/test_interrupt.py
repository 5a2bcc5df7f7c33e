"""Commands that another thread, task or signal handler interrupts."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from system import in_thread, stat_fields, unique_seconds, wait_until

from shellsession import TTY, AsyncSession, NotRunning, Session, SessionBusy, ShellUnavailable

pytestmark = pytest.mark.usefixtures("company")

ENDLESS = {
    "sleep": "echo begun; sleep {0}",
    "a loop": "echo begun; : {0}; while :; do :; done",
    "one that ignores INT": "trap '' INT; echo begun; sleep {0}; trap - INT",
    "a pipeline": "echo begun; sleep {0} | cat",
}


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_another_thread_interrupts_a_run(sh: Session, text: str) -> None:
    begun = threading.Event()
    sh.run("x=kept")
    thread, results = in_thread(
        lambda: sh.run(text.format(unique_seconds()), timeout=None, on_output=lambda *_: begun.set())
    )
    assert begun.wait(20)
    mine = sh.interrupt()
    thread.join(20)
    assert results == [mine]
    assert (mine.outcome, mine.stdout, mine.state_kept) == ("interrupted", "begun\n", True)
    assert sh.run("echo $x").stdout == "kept\n"


def test_an_interrupt_in_the_first_moment_is_not_lost(new_session: Callable[..., Session]) -> None:
    """Bash has not even started: the command that is about to be typed is meant."""
    for _ in range(20):
        sh = new_session()
        thread, results = in_thread(lambda sh=sh: sh.run(f"sleep {unique_seconds()}", timeout=None))  # type: ignore[misc]
        wait_until(lambda sh=sh: sh.line.places, "the thread in its verb")  # type: ignore[misc]
        mine = sh.interrupt()
        thread.join(20)
        assert results[0].outcome == "interrupted"
        assert mine == results[0]
        assert sh.run("echo on").stdout == "on\n"


def test_an_interrupt_is_for_one_command_only(sh: Session) -> None:
    """However the two meet, the next command is never hit."""
    for number in range(200):
        thread, results = in_thread(lambda: sh.run("sleep 0.001"))
        with suppress(NotRunning):
            assert sh.interrupt().outcome in ("interrupted", "exited")
        thread.join(20)
        assert sh.run(f"echo {number}").stdout == f"{number}\n"
        assert results[0].outcome in ("interrupted", "exited")


@pytest.mark.parametrize(("text", "outcome"), [("(exit 7)", "exited"), ("exit 7", "shell_exited")])
def test_what_has_ended_by_itself_is_reported_as_that(sh: Session, place: Path, text: str, outcome: str) -> None:
    """Though nobody has looked since."""
    sh.run(f"until [ -e go ]; do :; done; echo done; {text}", timeout=0.05, on_timeout="yield")
    (place / "go").touch()
    pid, shell = sh.pid, sh.engine.shell
    assert pid is not None
    assert shell is not None
    wait_until(lambda: stat_fields(pid)[:1] in ([], ["Z"]) or shell.idle(), "its end")
    result = sh.interrupt()
    assert (result.outcome, result.exit_code, result.signal, result.stdout) == (outcome, 7, None, "done\n")


def test_many_interrupt_at_once(sh: Session) -> None:
    begun = threading.Event()
    thread, results = in_thread(
        lambda: sh.run(f"echo; sleep {unique_seconds()}", timeout=None, on_output=lambda *_: begun.set())
    )
    assert begun.wait(20)
    outcomes: list[object] = []

    def ctrl_c() -> None:
        try:
            outcomes.append(sh.interrupt())
        except NotRunning:  # came too late: it had ended
            outcomes.append(None)

    others = [threading.Thread(target=ctrl_c) for _ in range(8)]
    for other in others:
        other.start()
    for other in (*others, thread):
        other.join(20)
    assert results[0].outcome == "interrupted"
    assert set(outcomes) <= {results[0], None}


def test_another_task_interrupts_a_run(place: Path) -> None:
    async def main() -> None:
        async with AsyncSession(cwd=place, timeout=20) as sh:
            await sh.run("x=kept")
            begun = asyncio.Event()
            text = f"echo begun; sleep {unique_seconds()}"
            task = asyncio.ensure_future(sh.run(text, timeout=None, on_output=lambda *_: begun.set()))
            await begun.wait()
            mine = await sh.interrupt()
            assert await task == mine
            assert (mine.outcome, mine.stdout) == ("interrupted", "begun\n")
            assert (await sh.run("echo $x")).stdout == "kept\n"
            with pytest.raises(NotRunning):
                await sh.interrupt()

    asyncio.run(main())


def test_another_thread_interrupts_who_waits(sh: Session) -> None:
    sh.run(f"sleep {unique_seconds()}", timeout=0.02, on_timeout="yield")
    thread, results = in_thread(lambda: sh.wait(None))
    wait_until(lambda: sh.line.places, "the thread in its verb")
    assert sh.interrupt().outcome == "interrupted"
    thread.join(20)
    assert results[0].outcome == "interrupted"


def test_typing_to_who_does_not_read_can_be_interrupted(sh: Session) -> None:
    sh.run(f"sleep {unique_seconds()}", stdin=TTY, timeout=0.05, on_timeout="yield")
    thread = threading.Thread(target=lambda: sh.type("x\n" * 100_000))
    thread.start()
    wait_until(lambda: sh.line.places, "the thread in its verb")
    assert sh.interrupt().outcome == "interrupted"
    thread.join(20)
    assert not thread.is_alive()


def test_an_interrupted_start_is_no_start(new_session: Callable[..., Session]) -> None:
    sh = new_session(startup=[f"sleep {unique_seconds()}; A=1", "B=2"])
    errors: list[ShellUnavailable] = []

    def start() -> None:
        try:
            sh.open()
        except ShellUnavailable as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    wait_until(lambda: sh.engine.attended, "the startup command")
    assert sh.interrupt().outcome == "interrupted"
    thread.join(20)
    assert "startup" in str(errors[0])


def test_who_waits_while_a_session_opens_is_not_notified_of_a_startup_command(
    new_session: Callable[..., Session], place: Path
) -> None:
    os.mkfifo(place / "gate")
    sh = new_session(startup=["read line <gate; echo of the startup"])
    opening, _ = in_thread(sh.open)
    wait_until(lambda: sh.engine.attended, "the startup command")
    told: list[NotRunning] = []

    def wait() -> None:
        with pytest.raises(NotRunning) as refused:
            sh.wait()
        told.append(refused.value)

    waiting, _ = in_thread(wait)
    wait_until(lambda: sh._waiters, "who waits")
    (place / "gate").write_text("go\n")
    opening.join(20)
    waiting.join(20)
    assert len(told) == 1


def test_an_interrupt_that_a_look_has_carried_out_is_reported(place: Path) -> None:
    """The daemon looks whether what was handed back has ended."""

    async def main() -> None:
        async with AsyncSession(cwd=place) as sh:
            for _ in range(5):
                await sh.run("echo hi; sleep 100", timeout=0.05, on_timeout="yield")
                look = asyncio.create_task(sh.do(sh.engine.look()))
                await asyncio.sleep(0)
                assert (await sh.interrupt()).outcome == "interrupted"
                await look
                assert (await sh.run("echo on")).stdout == "on\n"

    asyncio.run(main())


def test_an_interrupt_between_two_turns_means_the_next(place: Path) -> None:
    async def main() -> None:
        async with AsyncSession(cwd=place, timeout=20) as sh:
            await sh.run("true")
            first = asyncio.ensure_future(sh.run("true"))
            second = asyncio.ensure_future(sh.run(f"sleep {unique_seconds()}"))
            await first
            outcomes = [(await sh.interrupt()).outcome]
            if outcomes == ["exited"]:  # it was still the first one's turn
                outcomes = [(await sh.interrupt()).outcome]
            assert outcomes == ["interrupted"]
            assert (await second).outcome == "interrupted"

    asyncio.run(main())


def test_a_task_of_a_closed_loop_harms_no_later_shell(place: Path) -> None:
    sh = AsyncSession(cwd=place, timeout=20)

    async def leave_behind() -> None:
        begun = asyncio.Event()
        kept.append(asyncio.ensure_future(sh.run("echo; sleep 1000", on_output=lambda *_: begun.set())))
        await begun.wait()

    async def go_on() -> str:
        await sh.restart()
        await sh.run("x=kept")
        kept.clear()
        gc.collect()
        return (await sh.run("echo $x")).stdout

    kept: list[object] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave_behind())
    loop.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert asyncio.run(go_on()) == "kept\n"
        asyncio.run(sh.close())


def test_who_waits_for_the_end_of_a_verb_that_never_began_is_notified(place: Path) -> None:
    """Who had been handed the turn was cancelled before it took it."""

    async def main() -> None:
        async with AsyncSession(cwd=place, timeout=20) as sh:
            await sh.run("true")
            first = asyncio.ensure_future(sh.run("sleep 0.1"))
            await asyncio.sleep(0)
            second = asyncio.ensure_future(sh.run("echo b"))
            await first
            second.cancel()
            with suppress(NotRunning):
                await asyncio.wait_for(sh.interrupt(), 10)
            assert (await sh.run("echo on")).outcome == "exited"

    asyncio.run(main())


def test_a_signal_handler_may_interrupt(sh: Session) -> None:
    """Wherever its thread is on its way into a verb or out of one."""
    outcomes: set[str] = set()

    def ctrl_c(*_: object) -> None:
        try:
            outcomes.add(sh.interrupt().outcome)
        except (NotRunning, SessionBusy) as error:
            outcomes.add(error.code)

    old = signal.signal(signal.SIGALRM, ctrl_c)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.00037)
        for _ in range(300):
            assert sh.run("true").outcome in ("exited", "interrupted")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert outcomes
    assert sh.run("echo on").stdout == "on\n"
