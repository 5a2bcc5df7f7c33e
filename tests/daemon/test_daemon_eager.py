"""A request that comes alone is served at once, where Python can start a task so."""

from __future__ import annotations

import asyncio
import sys

from shellsession.daemon.server.connection import begin


def test_what_waits_for_nothing_has_ended_at_once_since_python_3_12() -> None:
    async def main() -> None:
        async def work() -> None:
            done.append(1)

        done: list[int] = []
        task = begin(work())
        assert (task is None) is bool(done) is (sys.version_info >= (3, 12))
        if task is not None:
            await task
        assert done == [1]

    asyncio.run(main())
