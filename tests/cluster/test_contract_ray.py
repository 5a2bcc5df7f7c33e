"""The promises of every session, for one on a node of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import test_contract
from clusters import LONG
from test_contract import *  # noqa: F403 - its tests

from shellsession import Session, Workflow
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


def test_workflow_runs_and_is_resumed_in_a_session_of_a_cluster(agents: RayAgents, place: Path) -> None:
    workflow = Workflow.loads(
        """
steps:
- run: echo up; exec sleep 1000
  background: true
  ready: {output: ^up}
- id: size
  run: export V=one; SIZE=3
  outputs: [SIZE]
- run: '[[ -e ok ]]; echo "$V ${{SEEN}}"'
  env: {SEEN: "${{ steps.size.outputs.SIZE }}"}
""".replace("${{SEEN}}", "$SEEN")
    )
    with agents.session("flow", cwd=str(place)) as session:
        assert [one.outcome for one in workflow.run(session, durable=True).steps] == ["success", "success", "failure"]
        (place / "ok").touch()
        report = workflow.run(session, resume=True)
        assert (report.ok, report.steps[2].output) == (True, "one 3\n"), report.to_markdown()
        session.close()


def test_events_of_a_session_of_a_cluster_come(agents: RayAgents, place: Path) -> None:
    with agents.session("noticed", cwd=str(place)) as session:
        session.run("(echo ready; until [ -e go ]; do sleep 0.05; done; exit 3) &")
        events = session.events(pattern="^ready$", timeout=LONG)
        assert next(events).kind == "printed"
        (place / "go").touch()
        assert next(events).text == "exit status 3"
        session.close()
