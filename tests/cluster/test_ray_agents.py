"""Agents on the nodes of a Ray cluster: whatever is killed, nothing runs twice, and nothing is left behind."""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from clusters import LONG, add_node
from forks import fork
from gates import Gate
from system import is_alive, wait_until

from shellsession import (
    AgentInfo,
    AlreadyOpen,
    DaemonUnavailable,
    InvalidRequest,
    NoSuchAgent,
    OutcomeUnknown,
    Policy,
    PolicyRefused,
    SessionClosed,
    TooManySessions,
)
from shellsession.cluster import AsyncRayAgents, RayAgents
from shellsession.cluster.pipe import NodeTransport
from shellsession.cluster.relay import _ordinary
from shellsession.daemon.client import admin
from shellsession.daemon.client.pipe import PipeTransport
from shellsession.engine.kernel import proc

pytestmark = pytest.mark.timeout(2 * LONG)

LEASE = 20.0  # seconds: a few tests wait for its end. A relay and the directory can be started anew within it.


@pytest.fixture
def agents(cluster: Any, place: Path) -> Iterator[RayAgents]:
    with RayAgents(cwd=str(place), timeout=LONG, lease=LEASE) as agents:
        yield agents


@pytest.fixture
def gate(place: Path) -> Gate:
    return Gate(place)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def node_of(agents: RayAgents, agent: str) -> Any:
    """The transport to the node that the agent is on."""
    return agents.session(agent).transport._node  # type: ignore[attr-defined]


def about(agents: RayAgents, agent: str) -> dict[str, Any]:
    """The process ids of the agent's relay and daemon."""
    known: dict[str, Any] = ray.get(node_of(agents, agent).relay.about.remote())
    return known


def directory_of(agents: RayAgents) -> int:
    """The process id of the directory. Ray sends a lambda by value."""
    pid: int = ray.get(agents._cluster.directory.__ray_call__.remote(lambda _: os.getpid()))
    return pid


def running(agents: RayAgents, agent: str, gate: Gate, pool: ThreadPoolExecutor) -> Future[Any]:
    """Start the gate's command for the agent."""
    result = pool.submit(agents.run, agent, gate.text)
    gate.until_begun()
    return result


def is_gone(pid: int) -> bool:
    return not is_alive(pid)


def lose(agents: RayAgents, agent: str) -> list[int]:
    """Kill Ray's processes on the agent's node; the ids of the processes that are ours."""
    known = about(agents, agent)
    ours = [known["daemon"], *(child.pid for child in psutil.Process(known["daemon"]).children(recursive=True))]
    raylet = psutil.Process(known["relay"]).parent()
    assert raylet is not None
    for process in [raylet, *raylet.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # it has ended with the raylet
            process.kill()
    return ours


def test_agents_keep_their_state_on_several_nodes(agents: RayAgents) -> None:
    names = [f"a{i}" for i in range(6)]
    agents.place(names)
    for name in names:
        agents.run(name, f"X={name}; cd /")
    assert [agents.run(name, "echo $X $PWD").stdout for name in names] == [f"{name} /\n" for name in names]
    assert sorted(info.agent for info in agents.list()) == names
    assert all(isinstance(info, AgentInfo) for info in agents.list())
    assert sorted((node.agents, node.nice) for node in agents.nodes()) == [(2, os.nice(0))] * 3


def test_nodes_without_sessions_are_listed(agents: RayAgents) -> None:
    agents.run("a", "true")
    assert [info.agent for info in agents.list()] == ["a"]
    assert sorted(node.agents for node in agents.nodes()) == [0, 0, 1]


def test_commands_are_ordinary_processes(agents: RayAgents) -> None:
    """Ray gives its workers another priority, and variables that change how programs run."""
    assert agents.run("a", "nice; cat /proc/self/oom_score_adj").stdout == f"{os.nice(0)}\n0\n"
    assert agents.run("a", "env | grep -E '^(RAY_|PYTHONBREAKPOINT|OMP_NUM_THREADS|CUDA_VISIBLE)'").stdout == ""


def test_a_container_may_forbid_a_lower_oom_score(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    def set_score(score: int) -> None:
        asked.append(score)
        if score < 1000:
            raise PermissionError

    monkeypatch.setattr(proc, "oom_score", {os.getpid(): 1000, os.getppid(): 500}.__getitem__)
    monkeypatch.setattr(proc, "set_oom_score", set_score)
    with _ordinary():
        pass
    assert asked == [500, 1000]


def test_a_killed_relay_costs_nothing(agents: RayAgents, gate: Gate, pool: ThreadPoolExecutor) -> None:
    agents.run("a", "X=kept")
    relay = about(agents, "a")["relay"]
    result = running(agents, "a", gate, pool)
    os.kill(relay, signal.SIGKILL)
    wait_until(lambda: is_gone(relay), "the end of the relay", LONG)
    gate.open()
    assert result.result(LONG).stdout == "begun\nended\n"
    assert gate.count == 1
    assert agents.run("a", "echo $X").stdout == "kept\n"


def test_a_relay_that_is_killed_again_and_again_costs_nothing(cluster: Any) -> None:
    """Each new relay renews the lease at once, so the daemon lives on."""
    with RayAgents(timeout=LONG, lease=30 * LONG) as agents:
        agents.run("a", "X=kept")

        def is_renewed(since: float) -> bool:
            ask = node_of(agents, "a").relay.__ray_call__  # Ray sends a lambda by value
            now = time.monotonic()
            lease = ray.get(ask.remote(lambda relay: admin.stats(relay._socket)["lease"]))
            return bool(now + lease["left"] > since + lease["seconds"])

        for _ in range(5):
            relay, killed = about(agents, "a")["relay"], time.monotonic()
            os.kill(relay, signal.SIGKILL)
            assert agents.run("a", "echo $X").stdout == "kept\n"
            wait_until(partial(is_renewed, killed), "a renewal of the lease", LONG)


def head() -> str:
    """The id of the head."""
    (found,) = [node["NodeID"] for node in ray.nodes() if "node:__internal_head__" in node["Resources"]]
    return str(found)


def test_directory_of_default_options_is_on_the_head(cluster: Any) -> None:
    for _ in range(4):  # a free choice is seldom the head each time
        with RayAgents() as agents:
            node = agents._cluster.directory.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
            assert ray.get(node) == head()


def test_a_killed_directory_is_made_again(agents: RayAgents) -> None:
    agents.run("a", "X=kept")
    node = node_of(agents, "a").name
    os.kill(directory_of(agents), signal.SIGKILL)
    assert agents.run("a", "echo $X").stdout == "kept\n"
    found = agents._cluster.ask(agents._cluster.directory.find.remote("a"))
    assert found[0] == node
    assert agents.run("new", "echo here").stdout == "here\n"


def test_a_new_directory_renews_leases_at_once(cluster: Any) -> None:
    """Each restart takes seconds of a lease: only a prompt answer makes up for them."""
    with RayAgents(lease=100 * LONG) as agents:
        agents.run("a", "true")
        before = directory_of(agents)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: directory_of(agents) != before, "another directory", LONG)
        assert ray.get(agents._cluster.directory.hold.remote("a node", "a relay"), timeout=LONG)


def test_a_new_directory_asks_a_relay_that_failed_again(cluster: Any, place: Path) -> None:
    """The lease is long: two of Ray's workers have to start before it is over."""
    names = ["a0", "a1", "a2"]
    with RayAgents(cwd=str(place), timeout=LONG, lease=LONG) as agents:
        agents.place(names)
        for name in names:
            agents.run(name, "X=kept")
        nodes = [node["NodeID"] for node in ray.nodes()]
        last = max(names, key=lambda name: nodes.index(node_of(agents, name).name))
        for name in set(names) - {last}:  # so that another node is the first choice
            agents.close(name)
        node, relay, before = node_of(agents, last).name, about(agents, last)["relay"], directory_of(agents)
        os.kill(relay, signal.SIGSTOP)
        os.kill(before, signal.SIGKILL)
        directory = agents._cluster.directory
        found = directory.find.remote(last)
        wait_until(lambda: directory_of(agents) != before, "another directory", LONG)
        os.kill(relay, signal.SIGKILL)
        ray.get(found)
        wait_until(lambda: node in {known[0] for known in ray.get(directory.nodes.remote())}, "its answer", LONG)
        assert agents._cluster.place([last])[0].name == node
        assert agents.run(last, "echo $X").stdout == "kept\n"


def actors(name: str) -> set[int]:
    """The process ids of the cluster's actors of this class."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "".join(process.cmdline()[:1]).startswith(f"ray::{name}"):
                found.add(process.pid)
    return found


def test_a_lost_node_is_reported_once(agents: RayAgents, gate: Gate, pool: ThreadPoolExecutor, cluster: Any) -> None:
    agents.place([f"a{i}" for i in range(6)])
    for i in range(6):
        agents.run(f"a{i}", f"X={i}")
    first = node_of(agents, "a0").name
    idle, other = (
        next(f"a{i}" for i in range(1, 6) if (node_of(agents, f"a{i}").name == first) is same) for same in (True, False)
    )
    result = running(agents, "a0", gate, pool)
    left = lose(agents, "a0")
    with pytest.raises(OutcomeUnknown):
        result.result(LONG)
    with pytest.raises(DaemonUnavailable, match="nothing was run"):
        agents.run(idle, "touch never")
    assert agents.run(other, "echo $X").stdout == f"{other[1]}\n"
    assert agents.run(idle, 'echo "[$X]"; ls never').stdout == "[]\n"
    assert node_of(agents, idle).name != first
    assert gate.count == 1
    wait_until(lambda: all(map(is_gone, left)), "the end of the lost node's daemon", LONG)
    add_node(cluster)


def test_a_node_that_hung_has_no_second_shell(
    agents: RayAgents, gate: Gate, pool: ThreadPoolExecutor, cluster: Any
) -> None:
    """The agent gets a shell elsewhere only when its old one is surely gone, or about to be."""
    agents.run("a", "X=old")
    known = about(agents, "a")
    shell = agents.run("a", "echo $$").stdout
    raylet = psutil.Process(known["relay"]).parent()
    assert raylet is not None
    hung = [raylet, *raylet.children(recursive=True), psutil.Process(known["daemon"])]
    for process in hung:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    try:
        with pytest.raises((OutcomeUnknown, DaemonUnavailable)):
            agents.run("a", "true")
        assert agents.run("a", 'echo "[$X]"').stdout == "[]\n"
    finally:
        for process in hung:
            with suppress(psutil.NoSuchProcess):
                process.resume()
    wait_until(lambda: is_gone(int(shell)) and is_gone(known["daemon"]), "the end of the old shell", LONG)
    add_node(cluster)


def test_patience_ends_the_wait_for_a_silent_node(cluster: Any, place: Path, pool: ThreadPoolExecutor) -> None:
    options: dict[str, Any] = {"name": "patience", "cwd": str(place), "timeout": LONG, "lease": LONG}
    with RayAgents(**options, patience=1) as hasty, RayAgents(**options, patience=LONG) as patient:
        for agents in hasty, patient:
            agents.run("a", "true")
        daemon = psutil.Process(about(hasty, "a")["daemon"])
        daemon.suspend()
        try:
            result = pool.submit(patient.run, "a", "echo here")
            with pytest.raises(OutcomeUnknown):
                hasty.run("a", "true")
            assert not result.done()
        finally:
            daemon.resume()
        assert result.result(LONG).stdout == "here\n"
        hasty.run("a", "true")


_DRIVER = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
from shellsession.cluster import RayAgents
agents = RayAgents(name=sys.argv[2], lifetime=sys.argv[3], lease=6)
print(agents.run("a", "X=kept; sleep 1000 & echo $$ $!").stdout, flush=True)
sys.stdin.read()
"""


def driver(cluster: Any, *arguments: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Another driver, and the processes of its agent."""
    command = [sys.executable, "-c", _DRIVER, cluster.address, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, [int(pid) for pid in process.stdout.readline().split()]


def test_nothing_is_left_of_a_killed_job(cluster: Any) -> None:
    before = actors("Relay")
    process, pids = driver(cluster, "job's own", "job")
    with process:
        assert len(pids) == 2
        process.kill()
    wait_until(lambda: all(map(is_gone, pids)), "the end of the job's shells", LONG)
    wait_until(lambda: actors("Relay") <= before, "the end of the relays", LONG)


def test_an_agent_that_moved_has_one_shell(cluster: Any, place: Path) -> None:
    """One client finds the session lost. Meanwhile another has opened a new one, on another node."""
    first, second = (RayAgents(name="both", cwd=str(place), timeout=LONG, lease=LEASE) for _ in range(2))
    with first, second:  # the second one to be closed finds that done
        first.run("a", "X=old")
        daemon = about(first, "a")["daemon"]
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: is_gone(daemon), "the end of the daemon", LONG)
        ray.get(second._cluster.directory.forget.remote("a"))
        second.place(["b", "c", "d"])
        second.run("a", "X=new")
        with pytest.raises(DaemonUnavailable, match="nothing was run"):
            first.run("a", "echo $X")
        assert first.run("a", "echo $X").stdout == "new\n"


def test_with_of_a_second_driver_ends_only_its_agents(cluster: Any, place: Path) -> None:
    options: dict[str, Any] = {"name": "shared", "cwd": str(place), "timeout": LONG, "lease": LEASE}

    async def second() -> None:
        async with AsyncRayAgents(**options) as agents:
            await agents.run("a", "X=kept")
            await agents.run("closed", "true")
            await agents.close("closed")
            await agents.run("b", "echo $$ >b")

    with RayAgents(**options) as first:
        first.run("a", "true")
        asyncio.run(second())
        shell = int((place / "b").read_text())
        wait_until(lambda: is_gone(shell), "the end of the second driver's shell", LONG)
        assert [info.agent for info in first.list()] == ["a"]
        assert first.run("a", "echo $X").stdout == "kept\n"
        with RayAgents(**options) as third:
            third.run("a", "true")
            first.__exit__()
            with pytest.raises(DaemonUnavailable, match="another driver closed"):
                third.run("c", "true")


def test_agent_that_a_third_driver_made_anew_outlives_the_second(cluster: Any, place: Path) -> None:
    options: dict[str, Any] = {"name": "three", "cwd": str(place), "timeout": LONG, "lease": LEASE}
    with RayAgents(**options), RayAgents(**options) as third:
        with RayAgents(**options) as second:
            second.run("a", "X=second")
            third.close("a")
            third.run("a", "X=third")
        assert third.run("a", "echo $X").stdout == "third\n"


def test_options_of_the_first_driver_are_not_ignored_by_another(cluster: Any, place: Path) -> None:
    others: list[dict[str, Any]] = [{"max_sessions": 8}, {"idle_ttl": None}, {"per_node": 8}, {"lease": 2 * LEASE}]
    others += {"resources": {"CPU": 1}}, {"lifetime": "detached"}

    async def refused(other: dict[str, Any]) -> None:
        with pytest.raises(AlreadyOpen, match=f"not {next(iter(other.values()))!r}: leave out {next(iter(other))}="):
            await AsyncRayAgents(name="options", **other).run("a", "touch never")

    with RayAgents(name="options", cwd=str(place), lease=LEASE, per_node=7) as first:
        first.run("a", "X=kept")
        for other in others:
            asyncio.run(refused(other))
        for same in ({}, {"patience": 5, "per_node": 7, "lease": LEASE}):
            with RayAgents(name="options", **same) as second:  # type: ignore[arg-type]
                assert second.run("a", "echo $X; ls").stdout == "kept\n"


def test_agent_whose_end_the_directory_has_not_confirmed_stays_its_drivers(
    agents: RayAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would end the session that it gets again."""
    agents.place(["a"])
    monkeypatch.setattr(agents._cluster, "_limit", 1.0)
    directory = directory_of(agents)
    os.kill(directory, signal.SIGSTOP)
    try:
        with pytest.raises(DaemonUnavailable, match="has not answered"):
            agents._cluster.forget("a")
    finally:
        os.kill(directory, signal.SIGCONT)
    assert agents._cluster._placed == {"a"}


def test_a_forked_child_is_refused(agents: RayAgents) -> None:
    """Ray does not work there. A session of the parent would wait for ever."""
    session = agents.session("a")
    session.run("true")

    if (child := fork()) == 0:
        try:
            for use in (lambda: session.run("true"), lambda: agents.run("b", "true"), agents.nodes):
                with pytest.raises(InvalidRequest, match="forked child"):
                    use()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_sessions_share_the_connections_to_their_nodes(agents: RayAgents, monkeypatch: pytest.MonkeyPatch) -> None:
    connected = list[NodeTransport]()

    def connect(node: NodeTransport, start: bool) -> Any:
        connected.append(node)
        return PipeTransport.connect(node, start)

    monkeypatch.setattr(NodeTransport, "connect", connect)
    for agent in "abcdef":
        agents.run(agent, "true")
    for agent in "abc":
        agents.close(agent)
    agents.run("d", "true")
    assert len(connected) == len(set(connected)) == 3


def test_detached_agents_outlive_their_driver(cluster: Any) -> None:
    process, pids = driver(cluster, "kept/ones", "detached")
    with process:
        process.kill()
    with RayAgents(name="kept/ones", lifetime="detached") as agents:
        assert agents.run("a", "echo $X").stdout == "kept\n"
    assert not any(map(is_gone, pids))
    RayAgents(name="kept/ones", lifetime="detached").close()
    wait_until(lambda: all(map(is_gone, pids)), "the end of the shells", LONG)


def test_cancelled_commands_end_before_the_caller_goes_on(cluster: Any, place: Path) -> None:
    async def main() -> None:
        async with AsyncRayAgents(cwd=str(place), timeout=LONG, lease=LEASE) as agents:
            await agents.run("a", "X=kept")
            for i in range(20):
                task = asyncio.create_task(agents.run("a", f"touch begun; sleep 1000; touch {i}"))
                await asyncio.sleep(i % 8 * 0.0015)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert (await agents.run("a", "echo $X; ls [0-9]*")).stdout == "kept\n"

    asyncio.run(main())


def test_streams_wait_for_a_slow_reader(agents: RayAgents) -> None:
    sizes = []
    for item in agents.session("a").stream("head -c 5M /dev/zero; echo; sleep 0.1; echo end"):
        if isinstance(item, tuple):
            sizes.append(len(item[1]))
    assert sum(sizes) == (5 << 20) + 5
    stream = agents.session("a").stream("yes")
    next(stream)
    stream.close()
    assert agents.run("a", "echo on").stdout == "on\n"


def test_limits_and_closing(cluster: Any) -> None:
    with RayAgents(max_sessions=2, lease=LEASE) as agents:
        agents.run("a", "true")
        agents.run("b", "true")
        with pytest.raises(TooManySessions, match="max_sessions 2"):
            agents.run("c", "true")
        agents.close("a")
        agents.session("d")
        for name in "ad":
            with pytest.raises(NoSuchAgent):
                agents.close(name)
        assert agents.run("c", "echo on").stdout == "on\n"
    with pytest.raises(SessionClosed):
        agents.run("c", "true")


def test_an_agent_that_moves_stays_confined(agents: RayAgents) -> None:
    with agents.session("a", policy=Policy(deny_commands=["ls"])) as session:
        session.run("true")
        session.close()  # its node remembers nothing now, as another one would not
    with pytest.raises(PolicyRefused):
        agents.run("a", "ls")
    agents.close("a")
    agents.run("a", "ls")


def test_rules_that_are_named_for_a_session_that_is_there_are_not_ignored(agents: RayAgents) -> None:
    policy = Policy(deny_commands=["ls"])
    agents.session("named late")
    with pytest.raises(PolicyRefused):
        agents.session("named late", policy=policy).run("ls")
    agents.run("open", "true")
    with pytest.raises(AlreadyOpen, match="without this policy"):
        agents.session("open", policy=policy)
    agents.close("open")
    with pytest.raises(PolicyRefused):
        agents.session("open", policy=policy).run("ls")
    agents.close("open")
    agents.close("named late")


def test_what_cannot_be_is_refused(agents: RayAgents) -> None:
    wrongs: list[dict[str, Any]] = [{"lease": value} for value in (0.1, math.nan, None)]
    wrongs += {"patience": 0.1}, {"lifetime": "ever"}, {"lifetime": "detached"}, {"per_node": 0}, {"cwd": "here"}
    wrongs += {"resources": 5}, {"resources": {"GPU": "1"}}, {"name": 5}, {"name": ""}
    for wrong in wrongs:
        with pytest.raises(InvalidRequest):
            RayAgents(**wrong)
    with pytest.raises(InvalidRequest):
        agents.session(object())  # type: ignore[arg-type]
    for refused in (lambda: RayAgents(tmeout=3), lambda: agents.session("a", tmeout=3)):  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="did you mean timeout"):
            refused()
    with pytest.raises(TypeError, match="name="):
        pickle.dumps(agents)
    with pytest.raises(TypeError, match="session"):
        pickle.dumps(agents.session("a"))


def test_a_missing_resource_is_named(cluster: Any) -> None:
    with RayAgents(resources={"moon": 1}) as agents, pytest.raises(DaemonUnavailable, match="moon"):
        agents.run("a", "true")
