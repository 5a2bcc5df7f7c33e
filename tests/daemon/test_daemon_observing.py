"""A verb that only watches a command ends once its client has left, and no timer keeps an answered request."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path
from typing import cast

import pytest
from system import PATIENCE

from shellsession import AsyncSession
from shellsession.daemon.server.connection import Connection, Listener
from shellsession.daemon.server.verbs import observing
from shellsession.engine.io.loop import TaskPlace


@pytest.mark.parametrize("left", ["before its turn", "at its turn"])
def test_who_has_left_for_good_is_waited_for_no_more(place: Path, left: str) -> None:
    """Also where it left while its verb was waiting behind another one."""

    async def main() -> None:
        async with AsyncSession(cwd=place) as session:
            assert (await session.run("sleep 1000", timeout=0.01, on_timeout="yield")).outcome == "running"
            listener = Listener("1.1.1", cast(Connection, None))
            line = session.line
            assert line is not None
            before = await line.take(TaskPlace())  # as another verb does

            async def look() -> str:
                with observing(session.engine, listener):
                    return (await session.do(session.engine.wait(None))).outcome

            looking = asyncio.create_task(look())
            await asyncio.sleep(0)
            if left == "before its turn":
                listener.abandon()
                await asyncio.sleep(0)
            line.leave(before)
            for _ in range(5):
                await asyncio.sleep(0)
            assert session.engine.attended is not None
            listener.abandon()
            assert await asyncio.wait_for(looking, PATIENCE) == "running"

    asyncio.run(main())


def test_a_request_that_was_answered_is_kept_by_no_clock() -> None:
    """Its listener may hold megabytes of output, and the moment by which its turn was to come be years away."""

    async def main() -> None:
        listener = Listener("1.1.1", cast(Connection, None))
        listener.drop_if_queued_for(1e6)
        held = weakref.ref(listener)
        listener.abandon()  # as the server does when it has answered
        del listener
        gc.collect()
        assert held() is None

    asyncio.run(main())
