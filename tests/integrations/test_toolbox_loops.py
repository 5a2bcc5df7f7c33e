"""The verbs as models call them from one loop after another, with ``asyncio.run`` for each call."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import pytest
from system import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import AsyncSession, NotRunning, Session, SessionBusy
from shellsession.integrations.binding import run_to_end
from shellsession.integrations.toolbox import Toolbox

# What was in the middle of something as its loop was closed cannot put it in order any more.
COLLECTED: Final = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def tools() -> Iterator[Toolbox]:
    session = AsyncSession()
    yield Toolbox(session, patience=PATIENCE, tick=0.05)
    asyncio.run(session.close())


@pytest.fixture
def hasty() -> Iterator[Toolbox]:
    """Hands a command back after 0.1 seconds."""
    session = AsyncSession()
    yield Toolbox(session, patience=0.1, tick=0.05)
    asyncio.run(session.close())


def ask(call: Callable[[], Awaitable[str]]) -> str:
    """In a loop of its own."""

    async def main() -> str:
        async with asyncio.timeout(PATIENCE):
            return await call()

    return asyncio.run(main())


def handed_back(tools: Toolbox) -> str:
    """A command that runs on, in no loop any more; what it can be found by. Later calls are not hasty."""
    seconds = unique_seconds()
    said = ask(lambda: tools.bash(f"X=kept; echo begun; sleep {seconds}"))
    assert "still running" in said
    tools._patience = PATIENCE
    if "begun" not in said:
        ask(lambda: tools.wait(until="begun"))
    wait_until(lambda: with_argument(seconds), "the command")
    return seconds


def test_calls_that_are_made_at_once_wait_for_each_other_in_every_loop(tools: Toolbox) -> None:
    async def main() -> list[str]:
        return await asyncio.gather(*(tools.bash(f"echo {number}; sleep 0.02") for number in range(3)))

    for _ in range(3):
        assert asyncio.run(main()) == ["0", "1", "2"]


@COLLECTED
def test_a_loop_that_is_closed_in_the_middle_of_calls_keeps_nobody_from_the_next(tools: Toolbox) -> None:
    loop, seconds = asyncio.new_event_loop(), unique_seconds()
    calls = [loop.create_task(tools.bash(f"sleep {seconds}")), loop.create_task(tools.bash("echo never"))]

    async def begun() -> None:
        await asyncio.to_thread(wait_until, lambda: with_argument(seconds), "the command")

    loop.run_until_complete(begun())
    loop.close()
    assert not any(call.done() for call in calls)
    assert ask(tools.restart) == "[a fresh bash was started]"
    assert ask(lambda: tools.bash("echo on")) == "on"
    del calls
    gc.collect()
    assert ask(lambda: tools.bash("echo on")) == "on"


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        (lambda tools: tools.wait(), "[ended by its time limit after "),
        (lambda tools: tools.send("x"), "[ended by its time limit after "),
        (lambda tools: tools.bash("echo $X"), "kept"),
        (lambda tools: tools.interrupt(), "[ended: interrupted on request; "),
    ],
    ids=["wait", "send", "bash", "interrupt"],
)
def test_a_command_whose_time_limit_passed_between_two_loops_is_ended_by_the_first_call(
    hasty: Toolbox, verb: Callable[[Toolbox], Awaitable[str]], said: str
) -> None:
    seconds = handed_back(hasty)
    hasty._limit.deadline = time.monotonic()  # as time passes
    assert ask(lambda: verb(hasty)).startswith(said)
    assert with_argument(seconds) == []
    with pytest.raises(NotRunning):
        ask(hasty.wait)
    assert ask(lambda: hasty.bash("echo $X")) == "kept"


@pytest.mark.parametrize("verb", ["wait", "interrupt"])
def test_a_command_that_one_loop_timed_out_is_reported_in_the_next(hasty: Toolbox, verb: str) -> None:
    async def until_ended() -> str:
        said = await hasty.bash("sleep 1000")
        hasty._limit.go_off(hasty._end)  # as its alarm does
        assert hasty._limit._ending is not None
        await hasty._limit._ending
        return said

    assert "still running" in ask(until_ended)
    assert ask(getattr(hasty, verb)).startswith("[ended by its time limit after ")
    with pytest.raises(NotRunning):
        ask(getattr(hasty, verb))


@COLLECTED
@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_a_time_out_that_a_closed_loop_began_is_finished_in_the_next(hasty: Toolbox, how: str) -> None:
    seconds = handed_back(hasty)
    loop = asyncio.new_event_loop()

    async def ctrl_c() -> None:
        hasty._limit.go_off(hasty._end)  # as its alarm does

    loop.run_until_complete(ctrl_c())
    if how == "cancelled":  # as asyncio.run does at its end
        assert hasty._limit._ending is not None
        hasty._limit._ending.cancel()
        loop.run_until_complete(asyncio.wait([hasty._limit._ending]))
    loop.close()
    assert ask(lambda: hasty.bash("echo $X")) == "kept"
    assert with_argument(seconds) == []
    gc.collect()


def test_the_alarm_of_a_loop_that_stands_still_is_its_successors(hasty: Toolbox) -> None:
    """As where loops take turns: when it goes on, another command may run."""
    loop = asyncio.new_event_loop()
    try:
        assert "still running" in loop.run_until_complete(hasty.bash("sleep 1000"))
        before = hasty._limit._alarm
        assert before is not None
        assert "still running" in ask(hasty.wait)
        assert before.cancelled()
        assert hasty._limit._alarm is not None
    finally:
        loop.close()


def test_a_call_that_is_not_awaited_refuses_to_wait_for_itself() -> None:
    async def outer() -> None:
        with Session() as session, pytest.raises(SessionBusy, match="a callback of a running command"):
            run_to_end(Toolbox(session).bash("true"))

    run_to_end(outer())
