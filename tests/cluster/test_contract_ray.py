"""The promises of every session, for one on a node of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import test_contract
from clusters import LONG
from test_contract import *  # noqa: F403 - its tests

from shellsession import Session
from shellsession.cluster import RayAgents

pytestmark = pytest.mark.timeout(2 * LONG)


@pytest.fixture(scope="module")
def agents(cluster: Any) -> Iterator[RayAgents]:
    with RayAgents() as agents:
        yield agents


@pytest.fixture  # type: ignore[no-redef]
def sh(agents: RayAgents, place: Path, request: pytest.FixtureRequest) -> Iterator[Session]:
    """A session on whichever node."""
    options: dict[str, Any] = {"cwd": str(place), "timeout": 20, **getattr(test_contract, "OPTIONS", {})}
    session = agents.session(request.node.name, **options)
    yield cast(Session, session)
    session.close()
