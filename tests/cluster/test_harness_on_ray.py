"""The adapters for harnesses on a cluster: all sessions of a sample or a runtime are on one node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from clusters import LONG

from shellsession.cluster import AsyncRayAgents
from shellsession.integrations.harness import Place

pytestmark = pytest.mark.timeout(2 * LONG)


def test_all_sessions_are_on_one_node(cluster: Any, place: Path) -> None:
    async def daemons() -> set[str]:
        """The process ids of the daemons of six sessions, which would be on three nodes."""
        async with AsyncRayAgents(cwd=str(place)) as agents:
            where = Place(agents.session)
            opened = [await where.open(f"a{number}") for number in range(3)]
            results = [await one.run("echo $PPID") for one in opened]
            results += await asyncio.gather(*(where.run("echo $PPID; sleep 0.1") for _ in range(3)))
            await where.write_file(str(place / "below" / "file"), b"text")
            assert await where.read_file(str(place / "below" / "file")) == b"text"
            return {result.stdout for result in results}

    assert len(asyncio.run(daemons())) == 1
