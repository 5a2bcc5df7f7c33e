"""A coroutine that starts at once is an ordinary task from its first wait on."""

from __future__ import annotations

import asyncio

import pytest

from shellsession.daemon.server.connection import begin


def test_what_waits_for_nothing_has_ended_at_once() -> None:
    async def main() -> None:
        async def work() -> None:
            done.append(1)

        done: list[int] = []
        assert begin(work()) is None
        assert done == [1]

    asyncio.run(main())


def test_what_waits_goes_on_as_a_task() -> None:
    async def main() -> None:
        async def work() -> None:
            told.append(await future)
            await asyncio.sleep(0)
            told.append("end")

        told: list[str] = []
        future = asyncio.get_running_loop().create_future()
        task = begin(work())
        assert task is not None
        future.set_result("came")
        await task
        assert told == ["came", "end"]

    asyncio.run(main())


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_who_is_cancelled_while_it_waits_for_a_lock_hands_it_on(turns: int) -> None:
    """Also before the task had its first turn: else nobody would ever get that lock."""

    async def main() -> None:
        async def work(name: str) -> None:
            try:
                async with lock:
                    told.append(name)
            except asyncio.CancelledError:
                told.append(f"{name} cancelled")
                raise

        told: list[str] = []
        lock = asyncio.Lock()
        await lock.acquire()
        first, second = begin(work("first")), begin(work("second"))
        assert first is not None
        assert second is not None
        for _ in range(turns):
            await asyncio.sleep(0)
        first.cancel()
        lock.release()
        with pytest.raises(asyncio.CancelledError):
            await first
        await asyncio.wait_for(second, 20)
        assert told == ["first cancelled", "second"]

    asyncio.run(main())
