"""What a loss costs on a cluster, as docs/cluster.md has it: each agent that is affected gets one error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from clusters import add_node
from gates import Gate
from system import PATIENCE, wait_until
from test_ray_agents import LEASE, about, lose, node_of, running

from shellsession import DaemonUnavailable, OutcomeUnknown
from shellsession.cluster import RayAgents


@pytest.fixture
def agents(cluster: Any, place: Path) -> Iterator[RayAgents]:
    with RayAgents(cwd=str(place), timeout=PATIENCE, lease=LEASE) as agents:
        yield agents


def test_a_killed_daemon(agents: RayAgents, gate: Gate, pool: ThreadPoolExecutor) -> None:
    agents.place([f"a{i}" for i in range(6)])
    for i in range(6):
        agents.run(f"a{i}", "X=old")
    first = node_of(agents, "a0").name
    idle = next(f"a{i}" for i in range(1, 6) if node_of(agents, f"a{i}").name == first)
    result = running(agents, "a0", gate, pool)
    os.kill(about(agents, "a0")["daemon"], signal.SIGKILL)
    with pytest.raises(OutcomeUnknown):
        result.result(PATIENCE)
    with pytest.raises(DaemonUnavailable):
        agents.run(idle, "touch never")
    for agent in ("a0", idle):
        assert agents.run(agent, 'echo "[$X]"; ls never').stdout == "[]\n"
        assert node_of(agents, agent).name == first
    assert gate.count == 1


def test_an_agent_gets_one_error_for_its_node(agents: RayAgents, pool: ThreadPoolExecutor, cluster: Any) -> None:
    """Meanwhile the others can be listed."""
    agents.run("a", "true")
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            agents.nodes()

    def error_of_next() -> Exception | None:
        try:
            agents.run("a", "true")
        except (OutcomeUnknown, DaemonUnavailable) as error:
            return error
        return None

    looks = pool.submit(look)
    try:
        lose(agents, "a")
        wait_until(error_of_next, "the loss of the node")
        assert agents.run("a", "echo fresh").stdout == "fresh\n"
    finally:
        over.set()
        looks.result(PATIENCE)
        add_node(cluster)


_DRIVER = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
from shellsession.cluster import RayAgents
RayAgents(name="outlived", lifetime="detached").run("a", "X=kept; " + sys.argv[2])
"""


def test_a_command_outlives_the_driver_of_detached_agents(cluster: Any, gate: Gate) -> None:
    with subprocess.Popen([sys.executable, "-c", _DRIVER, cluster.address, gate.text]) as process:
        gate.until_begun()
        process.kill()
    agents = RayAgents(name="outlived", lifetime="detached", timeout=PATIENCE)
    try:
        with ThreadPoolExecutor(1) as pool:
            after = pool.submit(agents.run, "a", "echo $X")
            gate.open()
            assert after.result(PATIENCE).stdout == "kept\n"
    finally:
        agents.close()
    assert gate.count == 1
