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

import psutil
import pytest
import ray
from clusters import LONG, add_node
from gates import Gate
from system import wait_until
from test_ray_agents import LEASE, about, directory_of, lose, node_of, running

from shellsession import DaemonUnavailable, OutcomeUnknown
from shellsession.cluster import RayAgents

pytestmark = pytest.mark.timeout(2 * LONG)


@pytest.fixture
def agents(cluster: Any, place: Path) -> Iterator[RayAgents]:
    with RayAgents(cwd=str(place), timeout=LONG, lease=LEASE) as agents:
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
        result.result(LONG)
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
        wait_until(error_of_next, "the loss of the node", LONG)
        assert agents.run("a", "echo fresh").stdout == "fresh\n"
    finally:
        over.set()
        looks.result(LONG)
        add_node(cluster)


def test_new_agent_answers_after_a_node_hung_and_the_directory_died(agents: RayAgents, cluster: Any) -> None:
    """Ray has given up the node, but its relay still asks the new directory for its lease."""
    agents.place(["a", "b", "c"])
    for name in "abc":
        agents.run(name, f"X={name}")
    hung, raylet = node_of(agents, "a").name, psutil.Process(about(agents, "a")["relay"]).parent()
    assert raylet is not None
    raylet.suspend()
    try:
        wait_until(lambda: hung not in {node["NodeID"] for node in ray.nodes() if node["Alive"]}, "the loss", LONG)
        os.kill(directory_of(agents), signal.SIGKILL)
        assert agents.run("new", "echo here").stdout == "here\n"
        assert [agents.run(name, "echo $X").stdout for name in "bc"] == ["b\n", "c\n"]
    finally:
        raylet.resume()
        add_node(cluster)


def test_directory_that_hangs_is_an_error_and_no_endless_wait(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with RayAgents(lease=1) as agents:
        pid = directory_of(agents)
        monkeypatch.setattr(agents._cluster, "_limit", 1.0)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(DaemonUnavailable, match="has not answered for 1 s"):
                agents.run("new", "true")
        finally:
            os.kill(pid, signal.SIGCONT)


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
    agents = RayAgents(name="outlived", lifetime="detached", timeout=LONG)
    try:
        with ThreadPoolExecutor(1) as pool:
            after = pool.submit(agents.run, "a", "echo $X")
            gate.open()
            assert after.result(LONG).stdout == "kept\n"
    finally:
        agents.close()
    assert gate.count == 1


_DEFAULTS = """
import ray
from clusters import LONG, running
from system import wait_until
from test_ray_agents import lose, node_of
from shellsession.cluster import RayAgents

with running(2, {}), RayAgents() as agents:
    names = {}
    agents.place(["a", "b"])
    for name in "ab":
        agents.run(name, "X=kept")
        names[node_of(agents, name).name] = name
    directory = ray.get(agents._cluster.directory.__ray_call__.remote(
        lambda _: ray.get_runtime_context().get_node_id()))
    lost = directory if directory in names else node_of(agents, "a").name
    lose(agents, names.pop(lost))
    wait_until(lambda: not {node["NodeID"]: node["Alive"] for node in ray.nodes()}[lost], "the end of the node", LONG)
    agents.run("new", "true")
    print(agents.run(*names.values(), "echo $X").stdout, end="")
"""


def test_loss_of_any_node_with_defaults_costs_no_agent_of_another_node() -> None:
    """Neither Ray's health checks nor the lease are set. Ray finds the loss after 16 s."""
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _DEFAULTS]
    done = subprocess.run(command, env=os.environ | path, capture_output=True, text=True, timeout=LONG)
    assert done.stdout.endswith("kept\n"), done.stderr  # after what Ray has to say
