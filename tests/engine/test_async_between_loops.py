"""A command goes on after its loop has stopped: its output is read, so that it does not block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from system import PATIENCE, until, wait_until

from shellsession import AsyncSession

# More than a pipe holds (1 MiB): it ends only if it is read.
_SIZE = 3_000_000
_TEXT = f"until [ -e go ]; do sleep 0.01; done; yes | head -c {_SIZE}; touch done"
HANDED_BACK = pytest.mark.parametrize("handed_back", [False, True], ids=["job", "handed back"])
READING = "shellsession-jobs"


@pytest.fixture
def sh(place: Path) -> Iterator[AsyncSession]:
    session = AsyncSession(cwd=place, tty=False, timeout=PATIENCE)
    yield session
    asyncio.run(session.close())


@contextmanager
def stopped(sh: AsyncSession, handed_back: bool) -> Iterator[asyncio.AbstractEventLoop]:
    """The loop in which it was begun: it was stopped, and may go on at any time."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(begin(sh, handed_back))
        yield loop
    finally:
        loop.close()


async def begin(sh: AsyncSession, handed_back: bool) -> None:
    if handed_back:
        assert (await sh.run(_TEXT, timeout=0.01, on_timeout="yield")).runs_on
    else:
        await sh.run(f"({_TEXT}) & :")


async def end(sh: AsyncSession, handed_back: bool) -> None:
    """All that it has printed was read, whoever did."""
    if handed_back:
        result = await sh.wait()
        printed = len(result.stdout_bytes) + result.stdout_omitted
    else:
        (job,) = sh.jobs()
        await until(lambda: not job.running)
        data, omitted = job.output("stdout")
        printed = len(data) + omitted
    assert printed == _SIZE
    assert (await sh.run("echo on")).stdout == "on\n"


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == READING]


@HANDED_BACK
def test_once_its_loop_is_closed_a_thread_reads_it(sh: AsyncSession, place: Path, handed_back: bool) -> None:
    asyncio.run(begin(sh, handed_back))
    (place / "go").touch()
    wait_until((place / "done").exists, "its end, though no loop runs")
    asyncio.run(end(sh, handed_back))
    wait_until(lambda: not threads(), "the end of the thread")


@HANDED_BACK
def test_a_loop_in_which_no_verb_is_called_does_not_let_it_stand_still(
    sh: AsyncSession, place: Path, handed_back: bool
) -> None:
    async def second() -> None:
        (place / "go").touch()
        await until((place / "done").exists)
        await until(lambda: not any(job.running for job in sh.jobs()))
        await end(sh, handed_back)

    asyncio.run(begin(sh, handed_back))
    asyncio.run(second())


@HANDED_BACK
@pytest.mark.parametrize("look", [AsyncSession.jobs, lambda sh: sh.state], ids=["jobs", "state"])
def test_who_looks_in_another_loop_than_the_one_that_was_stopped_has_it_read_there(
    sh: AsyncSession, place: Path, handed_back: bool, look: Callable[[AsyncSession], object]
) -> None:
    async def second() -> None:
        (place / "go").touch()
        look(sh)
        await until((place / "done").exists)
        assert threads() == []
        await end(sh, handed_back)

    wait_until(lambda: not threads(), "the end of earlier tests' thread")
    with stopped(sh, handed_back):
        asyncio.run(second())


@HANDED_BACK
def test_who_looks_without_a_loop_has_a_thread_read_it(sh: AsyncSession, place: Path, handed_back: bool) -> None:
    with stopped(sh, handed_back) as loop:
        (place / "go").touch()
        assert sh.state == ("running" if handed_back else "idle")
        wait_until((place / "done").exists, "its end, though no loop runs")
        loop.run_until_complete(end(sh, handed_back))


@HANDED_BACK
def test_where_no_thread_can_be_had_the_next_loop_reads_it(
    sh: AsyncSession, place: Path, monkeypatch: pytest.MonkeyPatch, handed_back: bool
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    wait_until(lambda: not threads(), "the end of earlier tests' thread")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        asyncio.run(begin(sh, handed_back))
    (place / "go").touch()
    asyncio.run(end(sh, handed_back))


def test_a_loop_that_runs_is_not_deprived_of_what_it_reads(sh: AsyncSession, place: Path) -> None:
    """By who looks from another thread, with a loop of his own or without."""

    async def look() -> None:
        sh.jobs()

    async def main() -> None:
        await begin(sh, False)
        await asyncio.to_thread(sh.jobs)
        await asyncio.to_thread(lambda: asyncio.run(look()))
        (place / "go").touch()
        await until((place / "done").exists)
        assert threads() == []
        await end(sh, False)

    wait_until(lambda: not threads(), "the end of earlier tests' thread")
    asyncio.run(main())


def test_what_calls_back_is_read_by_the_next_loop_and_by_no_thread(sh: AsyncSession, place: Path) -> None:
    """The callback is of a loop's making: it may have to be awaited, and counts on being called in one."""
    heard, callers = list[bytes](), set[object]()

    async def hear(_: str, data: bytes) -> None:
        heard.append(data)
        callers.add((threading.current_thread(), asyncio.get_running_loop().is_running()))

    async def first() -> None:
        text = "until [ -e go ]; do sleep 0.01; done; echo said; until [ -e stop ]; do sleep 0.01; done"
        assert (await sh.run(text, timeout=0.01, on_timeout="yield", on_output=hear)).runs_on

    async def second() -> None:
        (place / "go").touch()
        assert sh.state == "running"
        await until(lambda: heard)
        (place / "stop").touch()
        assert (await sh.wait()).stdout == "said\n"

    asyncio.run(first())
    assert threads() == []
    asyncio.run(second())
    assert (heard, callers) == ([b"said\n"], {(threading.main_thread(), True)})
