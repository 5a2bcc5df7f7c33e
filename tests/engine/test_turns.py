"""Calls run in their order of arrival, but a restart goes first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path

import pytest
from system import PATIENCE, unique_seconds, until, wait_until, with_argument

from shellsession import AsyncSession, Result, Session, SessionBusy
from shellsession.engine.io.line import Line, ThreadPlace
from shellsession.engine.io.loop import TaskLine, TaskPlace


async def until_asleep(seconds: str) -> None:
    await asyncio.to_thread(wait_until, lambda: with_argument(seconds), "the command")


def test_a_restart_keeps_the_order_of_those_who_wait(place: Path) -> None:
    async def main() -> None:
        seconds = unique_seconds()
        async with AsyncSession(cwd=place, timeout=PATIENCE, startup=["sleep 0.1"]) as sh:
            running = asyncio.create_task(sh.run(f"X=old; sleep {seconds}"))
            await until_asleep(seconds)
            before = [asyncio.create_task(sh.run(f"echo {word}$X >>order")) for word in ("one", "two")]
            await asyncio.sleep(0)
            restart = asyncio.create_task(sh.restart())
            await running
            after = [asyncio.create_task(sh.run(f"echo {word}$X >>order")) for word in ("three", "four")]
            await asyncio.gather(restart, *before, *after)
        assert (place / "order").read_text(encoding="ascii").split() == ["one", "two", "three", "four"]

    asyncio.run(main())


def test_waiting_threads_before_and_after_a_restart_keep_their_order(sh: Session, place: Path) -> None:
    """Also the one whose turn has come when the restart does."""
    seconds = unique_seconds()
    with ThreadPoolExecutor(9) as threads:
        calls = [threads.submit(sh.run, f"X=old; sleep {seconds}")]
        wait_until(lambda: with_argument(seconds), "the command")

        def queue(call: Callable[..., object], *arguments: str) -> None:
            calls.append(threads.submit(call, *arguments))  # type: ignore[arg-type]
            wait_until(lambda: len(sh.line.places) == len(calls) or calls[0].done(), "its place")

        for number in range(6):
            queue(sh.run, f"echo {number}$X >>order")
        queue(sh.restart)
        for call in calls:
            call.result(PATIENCE)
    assert (place / "order").read_text(encoding="ascii").split() == list("012345")


def test_a_thread_that_got_the_turn_lets_a_restart_go_first() -> None:
    line, first, one, two = Line[ThreadPlace](), ThreadPlace(), ThreadPlace(), ThreadPlace()
    restart = ThreadPlace(is_restart=True)
    for place in (first, one, two):
        line.enter(place)
    line.leave(first)  # `one` has it from now on
    line.enter(restart)
    assert not line.has_turn(one)
    assert line.has_turn(restart)
    line.leave(restart)
    assert line.places == [one, two]
    assert line.has_turn(one)


def test_a_dropped_place_raises_why_and_lets_the_next_one_come() -> None:
    command, equal = b"echo".upper(), b"echo".upper()
    line, first = Line[ThreadPlace](), ThreadPlace()
    dropped, last = ThreadPlace(command=command), ThreadPlace(command=equal)
    for place in (first, dropped, last):
        line.enter(place)
    line.drop(command, KeyError("why"))
    with pytest.raises(KeyError, match="why"):
        dropped.wait_in(line, None)
    line.leave(dropped)
    line.leave(first)
    assert line.has_turn(last)
    last.begun = True
    line.drop(equal, KeyError("late"))
    assert line.has_turn(last)


def test_who_was_about_to_start_when_a_restart_came_keeps_his_place(place: Path) -> None:
    async def main() -> None:
        seconds = unique_seconds()
        startup = f"[ -e first ] || {{ touch first; sleep {seconds}; }}"
        async with AsyncSession(cwd=place, timeout=PATIENCE, startup=[startup]) as sh:
            runs = [asyncio.create_task(sh.run(f"echo {word} >>order")) for word in ("one", "two")]
            await until_asleep(seconds)
            await asyncio.gather(sh.restart(), sh.restart(), *runs)
        assert (place / "order").read_text(encoding="ascii").split() == ["one", "two"]

    asyncio.run(main())


@pytest.mark.parametrize("cancelled", list(permutations(range(3), 2)), ids=str)
def test_who_is_cancelled_keeps_nobody_waiting(cancelled: tuple[int, ...]) -> None:
    """Before its turn, and in the very moment when it has come."""

    async def main() -> list[int]:
        line, came = TaskLine(asyncio.get_running_loop()), list[int]()

        async def visit(number: int) -> None:
            place = await line.take(TaskPlace())
            came.append(number)
            line.leave(place)

        first = await line.take(TaskPlace())
        tasks = [asyncio.create_task(visit(number)) for number in range(3)]
        await asyncio.sleep(0)
        tasks[cancelled[0]].cancel()
        line.leave(first)  # the next one has it, and has not begun
        tasks[cancelled[1]].cancel()
        await asyncio.wait(tasks)
        assert line.places == []
        return came

    assert asyncio.run(main()) == [number for number in range(3) if number not in cancelled]


def test_a_restart_comes_before_who_got_the_turn_and_has_not_begun() -> None:
    async def main() -> list[str]:
        line, came = TaskLine(asyncio.get_running_loop()), list[str]()

        async def visit(name: str) -> None:
            place = await line.take(TaskPlace())
            came.append(name)
            line.leave(place)

        first = await line.take(TaskPlace())
        tasks = [asyncio.create_task(visit(name)) for name in ("one", "two")]
        await asyncio.sleep(0)
        line.leave(first)  # `one` has it from now on
        restart = await line.take(TaskPlace(is_restart=True))
        came.append("restart")
        line.leave(restart)
        await asyncio.gather(*tasks)
        return came

    assert asyncio.run(main()) == ["restart", "one", "two"]


def test_another_loop_that_runs_beside_is_refused_and_harms_nothing(place: Path) -> None:
    sh = AsyncSession(cwd=place, timeout=PATIENCE)
    verbs: list[Callable[[], Awaitable[object]]] = [
        lambda: sh.run("echo never"),
        lambda: sh.wait(),
        lambda: sh.poll(),
        lambda: sh.send("never"),
        lambda: sh.interrupt(),
        lambda: sh.restart(),
        lambda: sh.close(),
        lambda: anext(sh.stream("echo never")),
    ]

    async def beside() -> None:
        for verb in verbs:
            with pytest.raises(SessionBusy, match="another event loop"):
                await verb()
        await sh.close_if_idle(1e-9)

    async def main() -> None:
        running = asyncio.create_task(sh.run("X=1; until [ -e go ]; do sleep 0.01; done; echo a"))
        await until(lambda: sh.command)
        await asyncio.to_thread(asyncio.run, beside())
        (place / "go").touch()
        assert (await running).stdout == "a\n"
        assert not sh.closed

        async def after() -> Result:
            return await sh.run("echo $X")

        assert (await asyncio.to_thread(asyncio.run, after())).stdout == "1\n"

    asyncio.run(main())
    asyncio.run(sh.close())


def test_a_loop_that_was_stopped_in_a_verb_keeps_no_other_from_the_session(place: Path) -> None:
    sh = AsyncSession(cwd=place, timeout=PATIENCE)
    seconds = unique_seconds()
    first = asyncio.new_event_loop()
    running = first.create_task(sh.run(f"sleep {seconds}"))
    first.run_until_complete(until_asleep(seconds))

    async def elsewhere() -> Result:
        await sh.restart()
        return await sh.run("echo b")

    assert asyncio.run(elsewhere()).stdout == "b\n"
    asyncio.run(sh.close())
    running.cancel()
    first.run_until_complete(asyncio.wait([running]))
    first.close()
    assert with_argument(seconds) == []


def test_who_has_the_turn_when_the_loop_is_closed_leaves_in_order(place: Path) -> None:
    """Though another one waits, who cannot be woken any more."""
    sh = AsyncSession(cwd=place, timeout=PATIENCE)
    seconds = unique_seconds()
    verbs = [sh.run(f"sleep {seconds}"), sh.run("true")]

    async def main() -> list[asyncio.Task[Result]]:
        tasks = [asyncio.create_task(verb) for verb in verbs]
        await until_asleep(seconds)
        return tasks

    loop = asyncio.new_event_loop()
    tasks = loop.run_until_complete(main())
    loop.close()
    for verb in verbs:
        verb.close()
    assert sh.state != "running"
    asyncio.run(sh.close())
    for task in tasks:  # asyncio would say that they were destroyed
        task._log_destroy_pending = False  # type: ignore[attr-defined]
