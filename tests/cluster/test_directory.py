"""Where the directory places agents when nodes and relays fail. The nodes and relays are not real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorUnavailableError
from system import PATIENCE

from shellsession.cluster.directory import Directory

Make = Callable[..., Directory]


class Relay:
    """Answers for its sessions; so many times it cannot yet."""

    def __init__(self, agents: list[str], failures: int = 0) -> None:
        self._agents, self._failures = agents, failures
        self.agents = SimpleNamespace(remote=self._answer)
        self.is_killed = False

    def kill(self) -> None:
        self.is_killed = True

    async def _answer(self) -> list[dict[str, str]]:
        self._failures -= 1
        if self._failures >= 0:
            raise ActorUnavailableError("it restarts", b"0" * 16)
        return [{"agent": agent} for agent in self._agents]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Relay]:
    """The nodes of the cluster."""
    nodes = dict[str, Relay]()
    one = {"NodeManagerAddress": "", "Resources": {"CPU": 1.0}, "Alive": True}
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": name, **one} for name in nodes])
    monkeypatch.setattr(ray, "kill", Relay.kill)
    return nodes


@pytest.fixture
def make(nodes: dict[str, Relay], monkeypatch: pytest.MonkeyPatch) -> Make:
    def make(restarted: bool, lease: float) -> Directory:
        context = SimpleNamespace(was_current_actor_reconstructed=restarted)
        monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
        monkeypatch.setattr("shellsession.cluster.directory._FRESH", 0.0)
        options = {"max_sessions": 100, "per_node": 100, "idle_ttl": None, "resources": None, "lease": lease}
        directory = Directory("d", "first", options)
        monkeypatch.setattr(directory, "_relay", nodes.__getitem__)
        return directory

    return make


def place(directory: Directory, agent: str) -> Any:
    async def placed() -> Any:
        found: Any = await directory.place("first", {}, [agent])
        return found[0][0]

    return placed()


def test_the_daemon_of_a_lost_node_gets_no_longer_lease(make: Make, nodes: dict[str, Relay]) -> None:
    async def main() -> None:
        nodes.update({"n": Relay([]), "m": Relay([])})
        directory = make(restarted=False, lease=0.3)
        lost = await place(directory, "a")
        assert await directory.hold(lost, "p")
        del nodes[lost]
        assert await place(directory, "a") != lost
        assert not await directory.hold(lost, "p")

    asyncio.run(main())


def test_a_node_that_cannot_answer_yet_keeps_its_agents(make: Make, nodes: dict[str, Relay]) -> None:
    """After a restart of both, the directory learns of the agent late, but places it nowhere else."""

    async def ask(directory: Directory) -> None:
        for _ in range(1000):
            await directory.hold("n", "p")

    async def main() -> None:
        nodes.update({"empty": Relay([]), "n": Relay(["a", "b"], failures=10)})
        directory = make(restarted=True, lease=0.05)
        relay = asyncio.create_task(ask(directory))
        assert await place(directory, "a") == "n"
        relay.cancel()

    asyncio.run(main())


async def ask(directory: Directory, name: str) -> None:
    """A relay that asks for its lease until it is not wanted."""
    while await directory.hold(name, "p"):
        pass


def test_new_agent_of_a_restarted_directory_does_not_wait_for_a_dead_node(make: Make, nodes: dict[str, Relay]) -> None:
    """The relay of a node that hung lives on after Ray has given up the node."""

    async def main() -> None:
        nodes["n"] = Relay([])
        directory = make(restarted=True, lease=0.3)
        zombie = asyncio.create_task(ask(directory, "zombie"))
        assert await asyncio.wait_for(place(directory, "new"), PATIENCE) == "n"
        await asyncio.wait_for(zombie, PATIENCE)

    asyncio.run(main())


def test_node_that_never_answers_a_restarted_directory_is_given_up(
    make: Make, nodes: dict[str, Relay], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its daemon hangs, but not its relay."""
    monkeypatch.setattr("shellsession.cluster.directory._LEARN", 0.1)

    async def main() -> None:
        nodes.update({"n": Relay([]), "hung": Relay([], failures=1_000_000)})
        directory = make(restarted=True, lease=0.3)
        relay = asyncio.create_task(ask(directory, "hung"))
        assert await asyncio.wait_for(place(directory, "new"), PATIENCE) == "n"
        assert nodes["hung"].is_killed
        await asyncio.wait_for(relay, PATIENCE)

    asyncio.run(main())


def test_node_that_joins_after_a_restart_delays_no_new_agent(make: Make, nodes: dict[str, Relay]) -> None:
    """It has no agents of an earlier directory, so nobody waits for its answer."""

    async def main() -> None:
        nodes["n"] = Relay([])
        directory = make(restarted=True, lease=0.3)
        await place(directory, "a")
        nodes["late"] = Relay([], failures=10**12)
        await directory.nodes()
        relay = asyncio.create_task(ask(directory, "late"))
        assert await asyncio.wait_for(place(directory, "new"), PATIENCE) in nodes
        relay.cancel()

    asyncio.run(main())


def test_restarted_directory_asks_all_nodes_at_once(
    make: Make, nodes: dict[str, Relay], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each relay answers when all have been asked."""
    monkeypatch.setattr("shellsession.cluster.directory._ANSWER", 2 * PATIENCE)

    async def main() -> None:
        asked, all_asked = list[str](), asyncio.Event()

        class Last(Relay):
            async def _answer(self) -> list[dict[str, str]]:
                asked.append("")
                if len(asked) == 3:
                    all_asked.set()
                await all_asked.wait()
                return await super()._answer()

        nodes.update({name: Last([f"a-{name}"]) for name in "nml"})
        directory = make(restarted=True, lease=PATIENCE)
        assert await asyncio.wait_for(place(directory, "a-m"), PATIENCE) == "m"
        assert len(asked) == 3

    asyncio.run(main())


def test_a_relay_may_start_slower_than_its_lease(make: Make, nodes: dict[str, Relay]) -> None:
    async def main() -> None:
        nodes["n"] = Relay([])
        directory = make(restarted=False, lease=1e-9)
        await place(directory, "a")
        assert await place(directory, "a") == "n"
        assert not nodes["n"].is_killed

    asyncio.run(main())
