"""A slow consumer of a command's output, on a loop with lazy tasks and on one with eager tasks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from system import PATIENCE

_factory: Any = None


@pytest.fixture(params=["lazy", "eager"], autouse=True)
def factory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task factory of the loop. An eager task runs at once, perhaps to its end, before its creator goes on."""
    if request.param == "eager":
        if sys.version_info < (3, 12):
            pytest.skip("eager tasks came with Python 3.12")
        monkeypatch.setattr(sys.modules[__name__], "_factory", asyncio.eager_task_factory)


def in_a_loop(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def run(place: Path) -> None:
        async def within() -> None:
            asyncio.get_running_loop().set_task_factory(_factory)
            async with asyncio.timeout(PATIENCE):
                await test(place)

        asyncio.run(within())

    run.__name__ = test.__name__
    return run


class Taker:
    """Takes one piece of output at a time. Each call returns only once ``gate`` is open."""

    def __init__(self) -> None:
        self.taken = 0
        self.gate = asyncio.Event()

    async def __call__(self, _: str, data: bytes) -> None:
        self.taken += len(data)
        await self.gate.wait()
