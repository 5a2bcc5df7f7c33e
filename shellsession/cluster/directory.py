"""``Directory``: the actor that knows which agent is on which node, and whether the nodes are there.

It places agents, and answers for the leases of the nodes' daemons. If Ray restarts it, it asks the nodes which
agents they have; only which driver placed them is lost.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ..errors import AlreadyOpen, DaemonUnavailable, TooManySessions
from .relay import Relay

NAMESPACE: Final = "shellsession"
# How many seconds an answer about the nodes of the cluster is used, and the pause between two questions to a node.
_FRESH: Final = 1.0
# A node has this many seconds to answer for its sessions.
_ANSWER: Final = 10.0
# A relay may take this many seconds to start: Ray may install the job's packages first.
_START: Final = 600.0
# A new directory asks a node for its sessions for this many seconds, or for a longer lease. Then it gives the node up.
_LEARN: Final = 60.0
# An agent keeps its place for this many seconds until it has a session.
_RESERVED: Final = 120.0


class _Node:
    """A node and its relay. ``agents``: when they were placed there."""

    def __init__(self, name: str, address: str, relay: Any) -> None:
        self.name, self.address, self.relay = name, address, relay
        self.made, self.asked = time.monotonic(), 0.0  # when the relay asked for the lease; 0: it has not started yet
        self.agents: dict[str, float] = {}


class Directory:
    """Places agents on the nodes that have ``resources``, at most ``per_node`` on each.

    ``options``: those about the cluster, as the first driver has them.

    An agent of a lost node is placed anew when the lease of its daemon is surely over: so it never has two shells.
    """

    def __init__(self, name: str, driver: str, options: dict[str, Any]) -> None:
        self._name, self._driver, self._options = name, driver, options
        self._max_sessions: int = options["max_sessions"]
        self._per_node: int = options["per_node"]
        self._resources: dict[str, float] = options["resources"] or {}
        self._lease: float = options["lease"]
        self._serve = ["--max-sessions", str(self._per_node), "--idle-ttl", str(options["idle_ttl"] or 0)]
        self._nodes: dict[str, _Node] = {}
        self._by: dict[str, str] = {}  # the driver that placed each agent, unless an earlier directory placed it
        self._asked: dict[str, str] = {}  # the process of each node's relay that has asked for the lease
        self._lost: dict[str, float] = {}  # when the lease of an agent's lost daemon is over
        self._back: dict[str, float] = {}  # when a lost node may be used again: then its old relay is surely gone
        self._learning: dict[str, asyncio.Task[None]] = {}  # the questions to nodes that a new directory does not know
        self._there: set[str] | None = None  # the nodes that Ray had at the last look
        self._looked = float("-inf")
        self._closing = asyncio.Event()
        self._lock = asyncio.Lock()
        with warnings.catch_warnings(action="ignore"):  # Ray's own code uses what Ray has deprecated
            restarted = ray.get_runtime_context().was_current_actor_reconstructed
        # The nodes that may have agents of an earlier directory; None until Ray has named them.
        self._earlier: set[str] | None = None if restarted else set()
        # Agents that no node knows may be on one that was lost before: they wait as long as its lease.
        self._unknown_until = time.monotonic() + self._lease if restarted else 0.0

    async def hold(self, name: str, process: str) -> bool:
        """Answer a relay that asks for its lease, after a third of that. False: the node is not wanted any more.

        The first answer to a process comes at once: after a restart of either actor, the lease may end soon.
        """
        if (node := self._nodes.get(name)) is not None:
            node.asked = time.monotonic()
        elif name in self._back or (self._there is not None and name not in self._there):
            return False  # it was lost: its agents get shells elsewhere when this lease is over
        elif self._earlier is None or name in self._earlier:
            self._unknown_until = time.monotonic() + self._lease
        if self._asked.get(name) == process:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._lease / 3)
        self._asked[name] = process
        return not self._closing.is_set()

    async def place(
        self, driver: str, named: dict[str, Any], agents: Sequence[str], lost: Sequence[str] = ()
    ) -> list[tuple[str, str, Any, bool]] | Exception:
        """The node, its address and its relay for each agent, and whether the place is new; or the error to raise.

        ``named``: the options that the driver names. ``lost``: nodes of which the driver knows that Ray has given them
        up. They are looked at again.
        """
        for option, value in named.items():
            if value != (first := self._options[option]):
                return AlreadyOpen(
                    f"the first driver made the agents of {self._name!r} with {option}={first!r}, not {value!r:.100}:"
                    f" leave out {option}=, or close these agents first"
                )
        if not self._nodes.keys().isdisjoint(lost):
            self._looked = float("-inf")
        try:
            return [await self._place(driver, agent) for agent in agents]
        except (TooManySessions, DaemonUnavailable) as error:
            return error

    async def find(self, agent: str) -> tuple[str, str, Any] | None:
        """As ``place``, for an agent that has a place."""
        async with self._lock:
            await self._look()
        node = self._node_of(agent)
        return None if node is None else (node.name, node.address, node.relay)

    async def forget(self, agent: str) -> None:
        """Free the agent's place: its session was closed."""
        self._by.pop(agent, None)
        for node in self._nodes.values():
            node.agents.pop(agent, None)

    async def nodes(self) -> list[tuple[str, str, Any, int]]:
        """Each node, its address, its relay, and the number of its agents."""
        async with self._lock:
            await self._look()
        return [(node.name, node.address, node.relay, len(node.agents)) for node in self._nodes.values()]

    async def leave(self, driver: str, agents: Sequence[str]) -> bool:
        """End the agents that a driver has placed; all, if it is the first driver. Returns whether that was all.

        Of ``agents``, other drivers may have placed some again.
        """
        if driver == self._driver:
            await self.close()
            return True
        async with self._lock:
            await self._look()
        ours = {agent for agent in agents if self._by.get(agent, driver) == driver}
        placed = [(node, ours & node.agents.keys()) for node in self._nodes.values()]
        await _all([node.relay.end.remote(list(there)) for node, there in placed if there])
        for _, there in placed:
            for agent in there:
                await self.forget(agent)
        return False

    async def close(self) -> None:
        """End every daemon and relay."""
        self._closing.set()
        await _all([node.relay.stop.remote() for node in self._nodes.values()])
        for node in self._nodes.values():
            ray.kill(node.relay)

    def _node_of(self, agent: str) -> _Node | None:
        return next((node for node in self._nodes.values() if agent in node.agents), None)

    async def _place(self, driver: str, agent: str) -> tuple[str, str, Any, bool]:
        while True:
            async with self._lock:
                await self._look()
                if (left := self._left(agent)) <= 0:
                    known = self._node_of(agent)
                    node = known or await self._room()
                    node.agents[agent] = time.monotonic()
                    if known is None:
                        self._by[agent] = driver
                    return node.name, node.address, node.relay, known is None
            await self._wait(left)

    async def _wait(self, most: float) -> None:
        """Wait until a node has answered for its sessions, for this many seconds at most."""
        if self._learning:
            await asyncio.wait(self._learning.values(), timeout=most, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(most)

    def _left(self, agent: str) -> float:
        """How many seconds the agent may still have a shell on a lost node, or on one that has not answered yet."""
        if self._node_of(agent) is not None:
            return 0.0
        return self._lost.get(agent, self._unknown_until) - time.monotonic()

    async def _room(self) -> _Node:
        """The node with the fewest agents. Raises TooManySessions, DaemonUnavailable."""
        if not self._nodes:
            raise DaemonUnavailable(
                f"no node of the Ray cluster has {self._resources or 'any CPU'}, or none of these answers:"
                " add a node, change resources=, or try again"
            )
        if self._is_full():
            await asyncio.gather(*map(self._learn, self._nodes.values()))
            if self._is_full():
                raise TooManySessions(
                    f"{sum(len(node.agents) for node in self._nodes.values())} agents have sessions on"
                    f" {len(self._nodes)} nodes, which is the limit (max_sessions {self._max_sessions}, per_node"
                    f" {self._per_node}): close one, add a node, or raise the limit"
                )
        return min(self._nodes.values(), key=lambda node: len(node.agents))

    def _is_full(self) -> bool:
        counts = [len(node.agents) for node in self._nodes.values()]
        return sum(counts) >= self._max_sessions or min(counts) >= self._per_node

    async def _look(self) -> None:
        """Learn which nodes there are, and drop those that are lost."""
        if time.monotonic() - self._looked < _FRESH and self._nodes:
            return
        new = list[asyncio.Task[None]]()
        there = {one["NodeID"]: one for one in await asyncio.to_thread(ray.nodes) if one["Alive"]}
        self._there, now = set(there), time.monotonic()
        if self._earlier is None:
            self._earlier = self._there
        for name, node in list(self._nodes.items()):
            silence, most = (now - node.asked, self._lease) if node.asked else (now - node.made, _START)
            if name not in there or silence > most:
                del self._nodes[name]
                self._lost = {agent: until for agent, until in self._lost.items() if until > now}
                self._lost |= dict.fromkeys(node.agents, (node.asked or now) + self._lease)
                self._give_up(node)
        for name, one in there.items():
            known = name in self._nodes or name in self._learning
            if not known and self._back.get(name, 0.0) <= now and self._is_wanted(one["Resources"]):
                self._back.pop(name, None)
                node = _Node(name, one["NodeManagerAddress"], self._relay(name))
                if name in self._earlier:
                    new.append(asyncio.create_task(self._admit(node)))
                    self._learning[name] = new[-1]
                else:
                    self._nodes[name] = node
        self._looked = now
        if new:
            await asyncio.wait(new, timeout=_ANSWER)

    async def _admit(self, node: _Node) -> None:
        """Use the node when it has answered for its sessions; give it up if it does not answer."""
        try:
            while not await self._learn(node):
                if self._there is not None and node.name not in self._there:
                    return
                if time.monotonic() - node.made > max(self._lease, _LEARN):
                    self._give_up(node)
                    return
                await asyncio.sleep(_FRESH)
            self._nodes[node.name] = node
        finally:
            del self._learning[node.name]

    def _give_up(self, node: _Node) -> None:
        """End the relay. The node may be used again when the lease of its daemon is surely over."""
        self._back[node.name] = time.monotonic() + self._lease
        with suppress(RayError, ValueError):
            ray.kill(node.relay)

    def _is_wanted(self, resources: dict[str, float]) -> bool:
        wanted = self._resources or {"CPU": 0.001}  # not a head without CPUs
        return all(resources.get(name, 0.0) >= amount for name, amount in wanted.items())

    def _relay(self, node: str) -> Any:
        """The relay on a node. It outlives the job, so that it can end the daemon then."""
        actor = ray.remote(Relay).options(
            name=f"relay-{self._name}-{node}",
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=10_000,
            enable_task_events=False,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        mine = ray.get_runtime_context().current_actor
        return actor.remote(self._name, node, mine, self._lease, self._serve)

    async def _learn(self, node: _Node) -> bool:
        """Ask a node which agents have sessions there. False if it does not answer: then it keeps those known."""
        try:
            infos = await asyncio.wait_for(node.relay.agents.remote(), _ANSWER)
        except (RayError, TimeoutError):
            return False
        now = time.monotonic()
        reserved = {agent: placed for agent, placed in node.agents.items() if now - placed < _RESERVED}
        node.agents = {**reserved, **{info["agent"]: now - _RESERVED for info in infos}}
        return True


async def _all(calls: Sequence[Any]) -> None:
    """Wait until the calls have been answered or have failed, for ``_ANSWER`` seconds at most."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), _ANSWER)
