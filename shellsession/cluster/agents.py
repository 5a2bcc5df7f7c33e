"""``RayAgents`` and ``AsyncRayAgents``: one session per agent, on the nodes of a Ray cluster.

::

    driver --RayAgents--> relay (an actor per node) --> the node's daemon --> bash "a1", bash "a2", ...
              `--once per agent--> directory (one actor)

A session is that of ``connect``: only the way to the daemon is another one. So are its verbs, results and errors.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final, Generic, Literal, Self, TypeVar, Unpack

from ..agents import AgentInfo
from ..daemon.client.async_session import AsyncRemoteSession
from ..daemon.client.link import Link, Pool
from ..daemon.client.pipe import PipeChannel
from ..daemon.client.remote import Remote, check_elsewhere, opening
from ..daemon.client.session import RemoteSession
from ..daemon.protocol.endpoint import PATIENCE
from ..errors import AlreadyOpen, DaemonUnavailable, InvalidRequest, NoSuchAgent, SessionClosed, ShellSessionError
from ..extras import missing
from ..models import Result, check_seconds
from ..options import Rules, SessionOptions
from ..signatures import Command, RunOptions, refuse_unknown

try:
    import ray
    from ray.exceptions import GetTimeoutError, RayError
except ImportError as error:
    raise missing("ray", error) from error

from .directory import NAMESPACE, Directory
from .pipe import NodeTransport

S = TypeVar("S", bound=Remote)
T = TypeVar("T")
_ANSWER: Final = 10.0  # seconds that the nodes have to answer a question about them
_RESTART: Final = 120.0  # seconds that Ray may need to restart the directory; it may then wait for a lease
# Only the head has this resource. The directory is there, as Ray itself ends without its head. (A soft affinity does
# not hold an actor that needs no resources: the node that Ray asks first takes it.)
_HEAD: Final = "node:__internal_head__"


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node that holds sessions. ``node``: its id in Ray. ``agents``: how many have a place there.

    ``nice``: the niceness of its commands; None while it has no daemon. Ray gives its workers 15, and only root can
    undo that. To avoid it, set RAY_worker_niceness=0 where `ray start` runs.
    """

    node: str
    address: str
    agents: int
    nice: int | None


class _AgentTransport(Pool):
    """The way to one agent's session, on whichever node that is. All sessions on a node share its idle connections."""

    is_local = False

    def __init__(self, cluster: _Cluster, agent: str) -> None:
        self._cluster, self._agent = cluster, agent
        self._node: NodeTransport | None = None

    def __str__(self) -> str:
        return str(self._node or "no node yet")

    def _placed(self, anew: bool = False) -> NodeTransport:
        """The agent's node. Raises DaemonUnavailable once if it was lost, so that the caller knows."""
        self._cluster.refuse_fork()
        node = self._node
        if node is not None and node.is_lost:
            raise self._lost(node)
        if node is None or anew:
            node = self._node = self._cluster.place([self._agent])[0]
        return node

    def _lost(self, node: NodeTransport) -> DaemonUnavailable:
        """The error for the loss of the node. The next call goes to another one."""
        self._node = None
        node.pool.close()
        return DaemonUnavailable(
            f"{node} was lost, or another driver closed these agents, and the session of agent {self._agent!r} is"
            " gone; nothing was run: run the command again for a fresh session"
        )

    def _call(self, function: Callable[[NodeTransport], T], anew: bool = False) -> T:
        node = self._placed(anew)
        try:
            return function(node)
        except DaemonUnavailable as error:
            if node.is_lost:  # since a moment ago
                raise self._lost(node) from error
            raise

    def inherited(self) -> dict[str, Any]:
        # The session is to be opened. If it was open before, the agent may be on another node by now.
        return self._call(NodeTransport.inherited, anew=True)

    def reach(self) -> PipeChannel | None:
        return self._call(NodeTransport.reach)

    def connect(self, start: bool) -> PipeChannel:
        return self._call(lambda node: node.connect(start))

    def take(self, incarnation: str = "") -> Link | None:
        return None if (node := self._node) is None else node.pool.take(incarnation)

    def give_back(self, link: Link) -> None:
        if (node := self._node) is None:
            link.close()
        else:
            node.pool.give_back(link)

    def close(self) -> None:
        """Does nothing: the connections are not only ours."""


class _Cluster:
    """A driver's view of the directory and the nodes. All calls block."""

    def __init__(self, directory: Any, driver: str, named: dict[str, Any], lease: float, patience: float) -> None:
        self.directory, self._driver, self._named, self._patience = directory, driver, named, patience
        self._limit = lease + _RESTART
        self._placed = set[str]()  # the agents to which this driver gave their places
        self._nodes: dict[str, NodeTransport] = {}
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def refuse_fork(self) -> None:
        """Raise InvalidRequest in a forked child, where calls of Ray would wait for ever."""
        if self._owner != os.getpid():
            raise InvalidRequest("these agents belong to the process that made them: make new ones in a forked child")

    def ask(self, call: Any) -> Any:
        """The answer of the directory. Raises DaemonUnavailable if it is gone, and the errors that it returns."""
        self.refuse_fork()
        try:
            answer = ray.get(call, timeout=self._limit)
        except GetTimeoutError as error:
            raise DaemonUnavailable(
                f"the directory of these agents has not answered for {self._limit:g} s; nothing was run: try again, or"
                " close these agents and make new ones"
            ) from error
        except RayError as error:
            raise DaemonUnavailable(
                "these agents are gone, as another driver closed them or their first driver ended: make new ones"
                f" ({str(error).strip().partition(chr(10))[0]})"
            ) from error
        if isinstance(answer, ShellSessionError):
            raise answer
        return answer

    def place(self, agents: Sequence[str]) -> list[NodeTransport]:
        with self._lock:
            lost = [node.name for node in self._nodes.values() if node.is_lost]
        places = self.ask(self.directory.place.remote(self._driver, self._named, list(agents), lost))
        with self._lock:
            self._placed.update(agent for agent, (*_, is_new) in zip(agents, places, strict=True) if is_new)
        return [self._known(*place) for *place, _ in places]

    def forget(self, agent: str) -> None:
        """Free the place of an agent whose session was closed."""
        self.ask(self.directory.forget.remote(agent))
        self._placed.discard(agent)

    def _known(self, name: str, address: str, relay: Any) -> NodeTransport:
        with self._lock:
            node = self._nodes.get(name)
            if node is None or node.relay._actor_id != relay._actor_id:  # a lost node that is back has another relay
                node = self._nodes[name] = NodeTransport(name, address, relay, self._patience)
            return node

    def _answers(self, method: str) -> Iterator[tuple[NodeTransport, int, Any]]:
        """Each node whose relay answers, the number of its agents, and that answer."""
        found = self.ask(self.directory.nodes.remote())
        calls = [getattr(relay, method).remote() for _, _, relay, _ in found]
        answered, _ = ray.wait(calls, num_returns=len(calls), timeout=_ANSWER) if calls else ([], [])
        for (name, address, relay, count), call in zip(found, calls, strict=True):
            with suppress(RayError):  # the directory does not know yet that the node is lost
                if call in answered:
                    yield self._known(name, address, relay), count, ray.get(call)

    def node_infos(self) -> list[NodeInfo]:
        return [
            NodeInfo(node.name, node.address, count, about["nice"]) for node, count, about in self._answers("about")
        ]

    def agent_infos(self) -> list[AgentInfo]:
        known = AgentInfo.__dataclass_fields__.keys()
        return [
            AgentInfo(**{name: value for name, value in one.items() if name in known})
            for _, _, agents in self._answers("agents")
            for one in agents
        ]

    def disconnect(self) -> None:
        for node in self._nodes.values():
            node.pool.close()

    def leave(self) -> None:
        """End the agents that this driver has placed; all, if it is the first one."""
        with suppress(DaemonUnavailable):  # another driver has closed them
            if self.ask(self.directory.leave.remote(self._driver, list(self._placed))):
                ray.kill(self.directory)

    def close(self) -> None:
        with suppress(DaemonUnavailable):  # as above
            self.ask(self.directory.close.remote())
        ray.kill(self.directory)


def _is_resources(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(name, str) and isinstance(amount, int | float) and amount > 0 for name, amount in value.items()
    )


class _RayAgents(Generic[S]):
    """The common base class of RayAgents and AsyncRayAgents."""

    _kind: type[S]

    def __init__(
        self,
        max_sessions: int = 10_000,
        idle_ttl: float | None = 3600.0,
        *,
        per_node: int = 1000,
        resources: dict[str, float] | None = None,
        lifetime: Literal["job", "detached"] = "job",
        name: str | None = None,
        lease: float = 45.0,
        patience: float = PATIENCE,
        **session_options: Unpack[SessionOptions],
    ) -> None:
        """``max_sessions``, ``idle_ttl`` and ``session_options``: as of ``Agents``. Paths are those of the nodes.

        ``per_node``: how many agents a node may have. ``resources``: only nodes with these Ray resources get agents
        (default: every node with a CPU). ``name``: drivers that use the same name share the agents. ``lifetime``: "job"
        ends all sessions with the first of these drivers, when it ends or drops its RayAgents; "detached" keeps them
        until ``close()``. ``lease``: seconds after which a node that is cut off ends its sessions; its agents are
        placed anew after that. ``patience``: seconds to wait for an answer from a node that has been silent for
        5 s. After a second failed attempt, its running commands raise OutcomeUnknown.

        The options about the cluster, except ``patience``, are those of the first driver. If another one names a value
        that is neither the first driver's nor the default, its first verb raises AlreadyOpen. Raises InvalidRequest.
        """
        own = ("max_sessions", "idle_ttl", "per_node", "resources", "lifetime", "name", "lease", "patience")
        refuse_unknown(type(self).__name__, session_options, (*own, *SessionOptions.__annotations__))
        if not ray.is_initialized():
            raise InvalidRequest("this process is not connected to a Ray cluster: call ray.init() first")
        for option, value in (("max_sessions", max_sessions), ("per_node", per_node)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidRequest(f"{option} must be a number of sessions, 1 or more, not {value!r:.100}")
        check_seconds("idle_ttl", idle_ttl)
        for option, seconds in (("lease", lease), ("patience", patience)):
            check_seconds(option, seconds)
            if seconds is None or seconds < 1:
                raise InvalidRequest(f"{option} must be a number of seconds, 1 or more, not {seconds!r:.100}")
        if lifetime not in ("job", "detached"):
            raise InvalidRequest(f'lifetime is "job" or "detached", not {lifetime!r:.100}')
        if lifetime == "detached" and name is None:
            raise InvalidRequest("detached agents need a name=, by which the next driver finds them")
        if name is not None and (not isinstance(name, str) or not name):
            raise InvalidRequest(f"name must be a text, not {name!r:.100}")
        if resources is not None and not _is_resources(resources):
            raise InvalidRequest(f'resources is a dict such as {{"GPU": 1}}, not {resources!r:.100}')
        check_elsewhere(session_options)
        self._opening, self._default_rules = opening(session_options, {}), Rules.of(session_options)
        self._rules: dict[str, Rules] = {}  # of agents that were not closed
        self._lasts = lifetime == "detached"
        name = f"shellsession-{secrets.token_hex(8)}" if name is None else name
        options: dict[str, Any] = {"max_sessions": max_sessions, "idle_ttl": idle_ttl, "per_node": per_node}
        options |= {"resources": resources, "lifetime": lifetime, "lease": lease}
        defaults = signature(_RayAgents.__init__).parameters
        named = {option: value for option, value in options.items() if value != defaults[option].default}
        actor = ray.remote(Directory).options(
            name=name,
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached" if self._lasts else None,
            num_cpus=0,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=10_000,
            enable_task_events=False,
            resources={_HEAD: 0.001},
            scheduling_strategy="DEFAULT",  # not the driver's placement group
        )
        driver = secrets.token_hex(8)
        directory = actor.remote(name, driver, options)
        self._cluster = _Cluster(directory, driver, named, lease, patience)
        self._sessions: dict[str, S] = {}
        self._lock = threading.Lock()
        self._closed = False

    def __reduce__(self) -> Any:
        raise TypeError("agents cannot be pickled: make RayAgents with the same name= in the other process")

    def session(self, agent: str, **options: Unpack[SessionOptions]) -> S:
        """The agent's session; it is placed and opened by its first verb. ``options`` apply if that opens it."""
        if not isinstance(agent, str):
            raise InvalidRequest(f"an agent's name must be a str, not {agent!r:.100}")
        refuse_unknown(f"{type(self).__name__}.session", options, SessionOptions.__annotations__)
        with self._lock:
            if self._closed:
                raise SessionClosed("these agents were closed: make new RayAgents")
            session, before, named = self._sessions.get(agent), self._rules.get(agent, Rules()), Rules.of(options)
            if session is None or session.closed:
                check_elsewhere(options)
                # The last session may have been on another node, which alone remembers this.
                rules = self._rules[agent] = before.next(named)
                others: Any = {name: value for name, value in options.items() if name not in Rules._fields}
                fields = {**self._opening, **opening({**others, **rules.options()}, {})}
                transport = _AgentTransport(self._cluster, agent)
                session = self._sessions[agent] = self._kind(agent, transport, True, fields, transport)
            elif lacks := self._default_rules.next(before).lacks(named):
                if session.is_opened:
                    raise AlreadyOpen(
                        f"agent {agent!r} has a session without this {lacks[0]} already: close it, or leave out"
                        f" {lacks[0]}="
                    )
                rules = self._rules[agent] = before.next(named)
                session.opening = {**session.opening, **opening(rules.options(), {})}
            return session

    def _forget(self, agent: str) -> S:
        """Forget the agent, and return its session. Raises NoSuchAgent."""
        with self._lock:
            session = self._sessions.pop(agent, None)
        if self._cluster.ask(self._cluster.directory.find.remote(agent)) is None:
            self._rules.pop(agent, None)
            raise NoSuchAgent(f"agent {agent!r} has no session: it has run nothing yet, or was closed")
        if session is not None and not session.closed:
            return session
        transport = _AgentTransport(self._cluster, agent)
        return self._kind(agent, transport, True, self._opening, transport)

    def _end(self) -> None:
        with self._lock:
            self._closed = True
            self._sessions.clear()
        self._cluster.disconnect()


class RayAgents(_RayAgents[RemoteSession]):
    """One session per agent, on the nodes of a Ray cluster: as ``Agents``. All methods are safe from many threads.

    Leaving a ``with`` block closes the agents, unless they are detached. If several drivers share them, the first
    driver's block closes all, and that of another one closes those to which it gave their places.
    """

    _kind = RemoteSession

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        if not self._lasts:
            self._cluster.leave()

    def run(self, agent: str, command: Command, **options: Unpack[RunOptions]) -> Result:
        """Run a command in the agent's session. ``options`` are those of ``Session.run``."""
        while True:
            session = self.session(agent)
            try:
                return session.run(command, **options)
            except SessionClosed:  # by its idle_ttl, or another driver: nothing was run
                if not session.closed:
                    raise

    def restart(self, agent: str) -> None:
        """Start a fresh bash for the agent."""
        self.session(agent).restart()

    def place(self, agents: Sequence[str]) -> None:
        """Choose the nodes of many agents at once, before they run their first commands. Raises TooManySessions."""
        self._cluster.place(agents)

    def nodes(self) -> list[NodeInfo]:
        """The nodes that may have agents."""
        return self._cluster.node_infos()

    def list(self) -> list[AgentInfo]:
        """The state of every agent that has a session, on all nodes."""
        return self._cluster.agent_infos()

    def close(self, agent: str | None = None) -> None:
        """Close one agent's session, or all of them, for every driver. Raises NoSuchAgent."""
        if agent is None:
            self._end()
            self._cluster.close()
        else:
            self._forget(agent).close()
            self._rules.pop(agent, None)  # not before it is closed: else its next session would not be confined
            self._cluster.forget(agent)


class AsyncRayAgents(_RayAgents[AsyncRemoteSession]):
    """As ``RayAgents``, for asyncio."""

    _kind = AsyncRemoteSession

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end()
        if not self._lasts:
            await asyncio.to_thread(self._cluster.leave)

    async def run(self, agent: str, command: Command, **options: Unpack[RunOptions]) -> Result:
        """As ``RayAgents.run``."""
        while True:
            session = self.session(agent)
            try:
                return await session.run(command, **options)
            except SessionClosed:
                if not session.closed:
                    raise

    async def restart(self, agent: str) -> None:
        """As ``RayAgents.restart``."""
        await self.session(agent).restart()

    async def place(self, agents: Sequence[str]) -> None:
        """As ``RayAgents.place``."""
        await asyncio.to_thread(self._cluster.place, agents)

    async def nodes(self) -> list[NodeInfo]:
        """As ``RayAgents.nodes``."""
        return await asyncio.to_thread(self._cluster.node_infos)

    async def list(self) -> list[AgentInfo]:
        """As ``RayAgents.list``."""
        return await asyncio.to_thread(self._cluster.agent_infos)

    async def close(self, agent: str | None = None) -> None:
        """As ``RayAgents.close``."""
        if agent is None:
            self._end()
            await asyncio.to_thread(self._cluster.close)
        else:
            await (await asyncio.to_thread(self._forget, agent)).close()
            self._rules.pop(agent, None)
            await asyncio.to_thread(self._cluster.forget, agent)
