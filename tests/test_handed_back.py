"""Commands that run on while nobody calls, and commands that somebody else ends."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support import unique_seconds, wait_until, with_argument

from shellsession import TTY, AsyncSession, Limits, NotRunning, Result, Session, SessionBusy, ShellUnavailable

STREAMS = pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
# Far more than a pipe or a terminal holds: who writes it stands still unless it is read.
FLOOD = "head -c 20000000 /dev/zero | tr '\\0' x; echo >flooded; sleep {seconds}"


@STREAMS
def test_it_does_not_stand_still_while_nobody_calls(sh: Session, place: Path, tty: bool) -> None:
    seconds = unique_seconds()
    limits = Limits(max_output=1000)
    first = sh.run(FLOOD.format(seconds=seconds), timeout=0.02, on_timeout="yield", tty=tty, limits=limits)
    assert first.outcome == "running"
    wait_until((place / "flooded").exists, "the end of the flood")
    second = sh.poll()
    assert second.outcome == "running"
    third = sh.interrupt()
    told = sum(len(r.stdout_bytes) + r.stdout_omitted for r in (first, second, third))
    assert (told, third.outcome) == (20_000_000, "interrupted")
    assert sh.run("echo $((1 + 1))").stdout == "2\n"


@STREAMS
def test_an_asyncio_one_neither(place: Path, tty: bool) -> None:
    async def main() -> None:
        async with AsyncSession(cwd=place, timeout=20) as sh:
            text = FLOOD.format(seconds=unique_seconds())
            first = await sh.run(text, timeout=0.02, on_timeout="yield", tty=tty)
            await asyncio.to_thread(wait_until, (place / "flooded").exists, "the end of the flood")
            rest = await sh.interrupt()
            told = sum(len(r.stdout_bytes) + r.stdout_omitted for r in (first, rest))
            assert (told, rest.outcome) == (20_000_000, "interrupted")
            assert (await sh.run("echo on")).stdout == "on\n"

    asyncio.run(main())


def test_what_came_meanwhile_is_heard_at_once(sh: Session, place: Path) -> None:
    heard: list[bytes] = []
    sh.run(
        "echo a; sleep 0.05; echo b; echo >said; sleep 1000",
        timeout=0.02,
        on_timeout="yield",
        on_output=lambda _, data: heard.append(data),
    )
    wait_until(lambda: b"".join(heard) == b"a\nb\n", "the callback, though nobody calls")
    assert sh.interrupt().outcome == "interrupted"


def test_a_callback_that_fails_meanwhile_is_told_by_the_next_verb(sh: Session) -> None:
    called = threading.Event()

    def fail(_: str, data: bytes) -> None:
        called.set()
        raise ValueError("mine")

    sh.run("sleep 0.1; echo a; sleep 1000", timeout=0.02, on_timeout="yield", on_output=fail)
    assert called.wait(20)
    with pytest.raises(ValueError, match="mine"):
        sh.wait(20)
    assert sh.run("echo on").stdout == "on\n"


def test_expect_sees_what_came_meanwhile(sh: Session, place: Path) -> None:
    sh.run("echo one; sleep 0.05; echo two; echo >said; read x; echo $x", stdin=TTY, timeout=0.02, on_timeout="yield")
    wait_until((place / "said").exists, "the words")
    assert sh.expect_exact("one") == 0
    assert sh.expect_exact("two") == 0
    sh.type("three\n")
    assert sh.expect_exact("three") == 0
    assert sh.wait().exit_code == 0


def test_one_that_ends_meanwhile_is_told_by_the_next_verb(sh: Session, place: Path) -> None:
    sh.run("sleep 0.05; echo done; echo >said; (exit 7)", timeout=0.02, on_timeout="yield")
    wait_until((place / "said").exists, "the end")
    with pytest.raises(SessionBusy):
        sh.run("echo lost?")
    last = sh.wait()
    assert (last.stdout, last.exit_code) == ("done\n", 7)


def test_collection_and_close_end_it(new_session: Callable[..., Session]) -> None:
    for end in (lambda sh: sh.close(), lambda sh: None):
        seconds = unique_seconds()
        sh = Session(timeout=20)
        sh.run(f"yes & sleep {seconds}", timeout=0.02, on_timeout="yield")
        end(sh)
        del sh
        gc.collect()
        assert not with_argument(seconds)


# -- ended by somebody else


def in_thread(verb: Callable[[], Result]) -> tuple[threading.Thread, list[Result]]:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(verb()))
    thread.start()
    return thread, results


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
        wait_until(lambda sh=sh: sh._callers, "the thread in its verb")  # type: ignore[misc]
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


def test_many_interrupt_at_once(sh: Session) -> None:
    begun = threading.Event()
    thread, results = in_thread(
        lambda: sh.run(f"echo; sleep {unique_seconds()}", timeout=None, on_output=lambda *_: begun.set())
    )
    assert begun.wait(20)
    outcomes: list[object] = []

    def strike() -> None:
        try:
            outcomes.append(sh.interrupt())
        except NotRunning:  # came too late: it had ended
            outcomes.append(None)

    strikers = [threading.Thread(target=strike) for _ in range(8)]
    for striker in strikers:
        striker.start()
    for striker in (*strikers, thread):
        striker.join(20)
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
    wait_until(lambda: sh._callers, "the thread in its verb")
    assert sh.interrupt().outcome == "interrupted"
    thread.join(20)
    assert results[0].outcome == "interrupted"


# -- followed, and left


def test_a_stream_that_was_left_does_not_block_the_next_command(place: Path) -> None:
    async def main() -> None:
        async with AsyncSession(cwd=place, timeout=20) as sh:
            for number in range(5):
                seconds = unique_seconds()
                async for _ in sh.stream(f"echo begun; sleep {seconds}"):
                    break
                assert (await sh.run(f"echo {number}")).stdout == f"{number}\n"
                assert not with_argument(seconds)

    asyncio.run(main())


def test_a_stream_that_somebody_holds_does(place: Path) -> None:
    async def main() -> None:
        async with AsyncSession(cwd=place, timeout=20) as sh:
            pieces = sh.stream(f"echo begun; sleep {unique_seconds()}")
            assert await anext(pieces) == ("stdout", b"begun\n")
            with pytest.raises(SessionBusy):
                await sh.run("echo no")
            result = await sh.interrupt()
            assert result.outcome == "interrupted"
            assert await anext(pieces) == result

    asyncio.run(main())


# -- what two reviews found


def test_a_callback_of_the_readers_thread_cannot_use_the_session(sh: Session) -> None:
    """It waited for the verb that waited for it, and with it all that the thread reads for others."""
    said: list[object] = []
    called, go = threading.Event(), threading.Event()

    def call_back(_: str, data: bytes) -> None:
        called.set()
        assert go.wait(20)
        try:
            sh.interrupt()
        except SessionBusy as error:
            said.append(error)

    sh.run("sleep 0.05; echo a; sleep 1000", timeout=0.02, on_timeout="yield", on_output=call_back)
    assert called.wait(20)
    thread, results = in_thread(lambda: sh.wait(0.2))
    go.set()
    thread.join(20)
    assert said
    assert results[0].outcome == "running"
    assert sh.interrupt().outcome == "interrupted"


def test_a_callback_that_exits_does_not_stop_the_reading_for_others(new_session: Callable[..., Session]) -> None:
    called = threading.Event()

    def leave(_: str, data: bytes) -> None:
        called.set()
        raise SystemExit(3)

    one, other = new_session(), new_session()
    other.run("mkfifo go; { read x <go; echo later; } &")
    one.run("sleep 0.05; echo a; sleep 1000", timeout=0.02, on_timeout="yield", on_output=leave)
    assert called.wait(20)
    other.run("echo >go")
    wait_until(lambda: other.jobs()[0].stdout == "later\n", "the job's word")
    with pytest.raises(SystemExit):
        one.wait(20)


def test_typing_to_who_does_not_read_can_be_interrupted(sh: Session) -> None:
    sh.run(f"sleep {unique_seconds()}", stdin=TTY, timeout=0.05, on_timeout="yield")
    thread = threading.Thread(target=lambda: sh.type("x\n" * 100_000))
    thread.start()
    wait_until(lambda: sh._callers, "the thread in its verb")
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
    wait_until(lambda: sh._engine.attended, "the startup command")
    assert sh.interrupt().outcome == "interrupted"
    thread.join(20)
    assert "startup" in str(errors[0])


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


def test_a_stream_that_another_thread_waits_for_ends_with_its_result(sh: Session) -> None:
    pieces = sh.stream("echo one; sleep 0.1; echo two")
    assert next(pieces) == ("stdout", b"one\n")
    waited = sh.wait(20)
    assert waited.outcome == "exited"
    assert list(pieces)[-1] == waited


def test_jobs_can_be_asked_while_they_end(sh: Session) -> None:
    """Another thread takes their streams away meanwhile."""
    seen = 0
    for _ in range(60):
        sh.run("sleep 0.001 &")
        for job in sh.jobs()[-1:]:  # on a busy machine it may have ended before we look
            seen += 1
            while job.running:
                pass
    assert seen


def test_a_wish_of_which_nobody_is_left_to_hear_is_not_waited_for(place: Path) -> None:
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

    def strike(*_: object) -> None:
        try:
            outcomes.add(sh.interrupt().outcome)
        except (NotRunning, SessionBusy) as error:
            outcomes.add(error.code)

    old = signal.signal(signal.SIGALRM, strike)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.00037)
        for _ in range(300):
            assert sh.run("true").outcome in ("exited", "interrupted")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert outcomes
    assert sh.run("echo on").stdout == "on\n"


def test_what_was_handed_back_for_its_silence_is_no_failure(new_session: Callable[..., Session]) -> None:
    session = new_session()
    result = session.run("echo begun; read x", stdin=TTY, idle_timeout=0.1, on_timeout="yield", check=True)
    assert result.runs_on
    while result.runs_on:
        result = session.send("\n")
    assert result.exit_code == 0
