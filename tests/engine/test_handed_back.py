"""Commands that were handed back, and run on between calls."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest
from system import PATIENCE, in_thread, unique_seconds, wait_until, with_argument

from shellsession import TTY, AsyncSession, Limits, Session, SessionBusy

pytestmark = pytest.mark.usefixtures("company")

STREAMS = pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
# Far more than a pipe or a terminal holds: who writes it stands still unless it is read.
FLOOD = "head -c 20000000 /dev/zero | tr '\\0' x; echo >flooded; sleep {seconds}"


@pytest.fixture
def go(place: Path) -> Path:
    """What a command reads with ``read x <go``: it goes on once the test writes a line there."""
    os.mkfifo(fifo := place / "go")
    return fifo


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


def test_what_came_meanwhile_is_received_at_once(sh: Session, go: Path) -> None:
    heard: list[bytes] = []
    text = "echo a; read x <go; echo b; sleep 1000"
    sh.run(text, timeout=0.02, on_timeout="yield", on_output=lambda _, data: heard.append(data))
    go.write_text("\n")
    wait_until(lambda: b"".join(heard) == b"a\nb\n", "the callback, though nobody calls")
    assert sh.interrupt().outcome == "interrupted"


def test_a_callback_that_fails_meanwhile_is_reported_by_the_next_verb(sh: Session, go: Path) -> None:
    called = threading.Event()

    def fail(_: str, data: bytes) -> None:
        called.set()
        raise ValueError("mine")

    sh.run("read x <go; echo a; sleep 1000", timeout=0.02, on_timeout="yield", on_output=fail)
    go.write_text("\n")
    assert called.wait(20)
    with pytest.raises(ValueError, match="mine"):
        sh.wait(20)
    assert sh.run("echo on").stdout == "on\n"


def test_expect_sees_what_came_meanwhile(sh: Session, place: Path, go: Path) -> None:
    text = "echo one; read x <go; echo two; echo >said; read x; echo $x"
    sh.run(text, stdin=TTY, timeout=0.02, on_timeout="yield")
    go.write_text("\n")
    wait_until((place / "said").exists, "the words")
    assert sh.expect_exact("one") == 0
    assert sh.expect_exact("two") == 0
    sh.type("three\n")
    assert sh.expect_exact("three") == 0
    assert sh.wait().exit_code == 0


def test_one_that_ends_meanwhile_is_reported_by_the_next_verb(sh: Session, place: Path, go: Path) -> None:
    sh.run("read x <go; echo done; echo >said; (exit 7)", timeout=0.02, on_timeout="yield")
    go.write_text("\n")
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


# -- callbacks


def test_a_callback_of_the_readers_thread_cannot_use_the_session(sh: Session, go: Path) -> None:
    """It waited for the verb that waited for it, and with it all that the thread reads for others."""
    said: list[object] = []
    called, waits = threading.Event(), threading.Event()

    def call_back(_: str, data: bytes) -> None:
        called.set()
        assert waits.wait(PATIENCE)
        try:
            sh.interrupt()
        except SessionBusy as error:
            said.append(error)

    sh.run("read x <go; echo a; sleep 1000", timeout=0.02, on_timeout="yield", on_output=call_back)
    go.write_text("\n")
    assert called.wait(PATIENCE)
    thread, results = in_thread(lambda: sh.wait(0.2))
    waits.set()
    wait_until(lambda: said, "the refusal")
    thread.join(PATIENCE)
    assert results[0].outcome == "running"
    assert sh.interrupt().outcome == "interrupted"


def test_nobody_waits_longer_than_asked_for_a_callback_that_does_not_return(sh: Session, place: Path) -> None:
    """It may wait for the very thread that waits: that has to take something first, out of a queue that is full."""
    heard = list[bytes]()
    called, go = threading.Event(), threading.Event()

    def call_back(_: str, data: bytes) -> None:
        heard.append(data)
        called.set()
        assert go.wait(PATIENCE)

    text = "until [ -e {0} ]; do sleep 0.05; done; echo {0}"
    sh.run(
        f"{text.format('a')}; {text.format('b')}; read x; echo $x",
        stdin=TTY,
        timeout=0.02,
        on_timeout="yield",
        on_output=call_back,
    )
    (place / "a").touch()
    assert called.wait(PATIENCE)
    for result in (sh.wait(0.05), sh.poll()):
        assert (result.outcome, result.stdout) == ("running", "")
        assert "on_output" in result.reason
    with pytest.raises(pexpect.TIMEOUT):
        sh.expect("a", 0.05)
    with pytest.raises(SessionBusy):
        sh.send("never\n", 0.05)
    go.set()
    (place / "b").touch()
    assert sh.expect("b", PATIENCE) == 0
    assert sh.send("c\n", PATIENCE).stdout.split() == ["a", "b", "c"]
    assert b"".join(heard).split() == [b"a", b"b", b"c"]


def test_who_was_let_go_leaves_it_being_read(sh: Session, place: Path) -> None:
    heard = list[bytes]()
    called, go = threading.Event(), threading.Event()

    def call_back(_: str, data: bytes) -> None:
        heard.append(data)
        called.set()
        assert go.wait(PATIENCE)

    text = "until [ -e {0} ]; do sleep 0.05; done; echo {0}"
    sh.run(f"{text.format('a')}; {text.format('b')}", tty=False, timeout=0.02, on_timeout="yield", on_output=call_back)
    (place / "a").touch()
    assert called.wait(PATIENCE)
    assert sh.wait(0.05).outcome == "running"
    go.set()
    (place / "b").touch()
    wait_until(lambda: heard == [b"a\n", b"b\n"], "the callback, though nobody calls")
    assert sh.wait(PATIENCE).stdout == "a\nb\n"


def test_one_reader_reads_it_whoever_has_waited(place: Path) -> None:
    """Who waits tells all who do, while another thread is on its way into a verb: two would read, and call back."""
    with Session(cwd=place) as sh:
        assert sh.run("read x", stdin=TTY, timeout=0.02, on_timeout="yield").runs_on
        reader = sh.engine.unattended_reader
        assert sh._withdraw()
        assert sh.engine.unattended_reader is reader is not None
        assert sh.send("x\n").outcome == "exited"


@pytest.mark.parametrize("way", ["closed", "collected"])
def test_a_callback_that_does_not_return_keeps_no_session_from_its_end(place: Path, way: str) -> None:
    called, go, seconds = threading.Event(), threading.Event(), unique_seconds()

    def call_back(_: str, __: bytes) -> None:
        called.set()
        go.wait()

    session = Session(cwd=place)
    text = f"until [ -e a ]; do sleep 0.01; done; yes & sleep {seconds}"
    session.run(text, tty=False, timeout=0.02, on_timeout="yield", on_output=call_back)
    (place / "a").touch()
    assert called.wait(PATIENCE)
    sessions = [session]
    del session
    try:
        ending, came = in_thread(sessions[0].close if way == "closed" else sessions.clear)
        ending.join(PATIENCE)
        assert came == [None]
        assert with_argument(seconds) == []
    finally:
        go.set()


def test_nor_the_program_from_its_own(place: Path) -> None:
    seconds = unique_seconds()
    program = f"""
import threading
from shellsession import Session
called = threading.Event()
def call_back(*_):
    called.set()
    threading.Event().wait()
sh = Session()
text = "until [ -e a ]; do sleep 0.01; done; echo a; sleep {seconds}"
assert sh.run(text, timeout=0.02, on_timeout="yield", on_output=call_back).runs_on
open("a", "w").close()
assert called.wait({PATIENCE})
"""
    subprocess.run([sys.executable, "-c", program], cwd=place, check=True, timeout=PATIENCE)
    assert with_argument(seconds) == []


def test_a_callback_that_exits_does_not_stop_the_reading_for_others(
    new_session: Callable[..., Session], go: Path
) -> None:
    called = threading.Event()

    def leave(_: str, data: bytes) -> None:
        called.set()
        raise SystemExit(3)

    one, other = new_session(), new_session()
    other.run("mkfifo then; { read x <then; echo later; } &")
    one.run("read x <go; echo a; sleep 1000", timeout=0.02, on_timeout="yield", on_output=leave)
    go.write_text("\n")
    assert called.wait(20)
    other.run("echo >then")
    wait_until(lambda: other.jobs()[0].stdout == "later\n", "the job's word")
    with pytest.raises(SystemExit):
        one.wait(20)


def test_a_stream_that_another_thread_waits_for_ends_with_its_result(sh: Session, go: Path) -> None:
    pieces = sh.stream("echo one; read x <go; echo two")
    assert next(pieces) == ("stdout", b"one\n")
    thread, results = in_thread(sh.wait)
    go.write_text("\n")
    thread.join(PATIENCE)
    (waited,) = results
    assert waited.outcome == "exited"
    assert list(pieces)[-1] == waited


def test_jobs_can_be_asked_while_they_end(sh: Session) -> None:
    """Another thread takes their streams away meanwhile."""
    seen = 0
    for number in range(60):
        sh.run(f"sleep 0.00{number % 9 + 1} &")
        for job in sh.jobs()[-1:]:  # on a busy machine it may have ended before we look
            seen += 1
            while job.running:
                pass
    assert seen


def test_what_was_handed_back_for_its_silence_is_no_failure(new_session: Callable[..., Session]) -> None:
    session = new_session()
    result = session.run("echo begun; read x", stdin=TTY, idle_timeout=0.1, on_timeout="yield", check=True)
    assert result.runs_on
    while result.runs_on:
        result = session.send("\n")
    assert result.exit_code == 0
