"""A tool that runs in threads of a loop: a cancelled call ends its own command, and no other."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from system import PATIENCE, unique_seconds, until, wait_until, with_argument

from shellsession import Agents, Session
from shellsession.contracts import langchain
from shellsession.integrations.threads import call_in_thread


async def started(seconds: str) -> None:
    await asyncio.to_thread(wait_until, lambda: with_argument(seconds), "the command's start")


@pytest.mark.parametrize("way", ["the task is cancelled", "a flag is set"])
def test_the_command_of_a_cancelled_call_is_ended(way: str) -> None:
    async def main() -> None:
        with Session() as session:
            flag, seconds = threading.Event(), unique_seconds()
            bash = langchain.tool(session, persistent=True)
            task = asyncio.create_task(call_in_thread(bash, {"command": f"X=kept; sleep {seconds}"}, flag.is_set))
            await started(seconds)
            flag.set() if way == "a flag is set" else task.cancel()
            error: Any = langchain.BashToolError if flag.is_set() else asyncio.CancelledError
            with pytest.raises(error):
                await task
            assert with_argument(seconds) == []
            assert await call_in_thread(bash, {"command": "echo $X"}) == "kept\n"

    asyncio.run(main())


def test_the_cancellation_keeps_its_message() -> None:
    """As anyio's scopes do (``move_on_after``, ``fail_after``), which cancel again and again."""

    async def main() -> None:
        with Session() as session:
            seconds = unique_seconds()
            bash = langchain.tool(session, persistent=True)
            task = asyncio.create_task(call_in_thread(bash, {"command": f"sleep {seconds}"}))
            await started(seconds)
            while not task.done():
                task.cancel("by their scope")
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError, match="by their scope"):
                await task
            assert with_argument(seconds) == []

    asyncio.run(main())


def test_calls_that_take_long_keep_nobody_else_from_a_thread(place: Path) -> None:
    """As many may run as there are agents; and what else needs the loop's threads has them."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        with Agents() as agents:
            line = f"touch {place}/begun; until [ -e {place}/go ]; do sleep 0.01; done; echo long"
            bash = langchain.tool(agents, agent="long")
            long = asyncio.create_task(call_in_thread(bash, {"command": line}))
            await until((place / "begun").exists)
            async with asyncio.timeout(PATIENCE):
                assert await call_in_thread(langchain.tool(agents, agent="quick"), {"command": "echo"}) == "\n"
                await loop.run_in_executor(None, (place / "go").touch)
            assert await long == "long\n"

    asyncio.run(main())


def test_a_cancelled_call_in_the_queue_ends_no_other(place: Path) -> None:
    async def main() -> None:
        with Session() as session:
            seconds = unique_seconds()
            bash = langchain.tool(session)
            call = {"command": f"sleep {seconds} & until [ -e {place}/go ]; do sleep 0.01; done; echo whole"}
            first = asyncio.create_task(asyncio.to_thread(bash, call))  # of another loop, or of none
            await started(seconds)
            second = asyncio.create_task(call_in_thread(bash, {"command": "echo never"}))
            await asyncio.to_thread(wait_until, lambda: len(session.line.places) == 2, "its place in the queue")
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            assert not first.done()
            (place / "go").touch()
            assert await first == "whole\n"

    asyncio.run(main())
