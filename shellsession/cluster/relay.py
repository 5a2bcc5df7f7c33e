"""``Relay``: the actor on each node, between the pipes of the drivers and the node's daemon. It holds no session.

So Ray may kill and restart it at any time: the drivers open their pipes again, and ask the daemon for what they lost.
The daemon is no child of the actor. It lives as long as its lease, which the relay renews while the directory is there.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import ray
from ray.exceptions import ActorDiedError, RayError

from ..daemon.client import admin
from ..daemon.client.bridge import Bridge
from ..daemon.client.process_state import process_state
from ..daemon.client.transport import UnixChannel, UnixTransport
from ..daemon.protocol.endpoint import socket_path
from ..daemon.protocol.mux import Pipe, PipeEnded
from ..engine.kernel import proc
from ..errors import ProtocolError, ShellSessionError

# An argument or answer of up to 100 KB travels with its call; a larger one goes through Ray's object store.
PIECE: Final = 90_000
# This many calls of a pipe wait here for bytes; the oldest of more is answered without any.
_HELD: Final = 4
# A call is answered after this many seconds at most, and a pipe without a call for so long has lost its driver.
_TICK: Final = 10.0
_RETRY: Final = 0.2  # seconds until the directory is asked again while Ray restarts it
# What Ray sets for its workers. Commands get the value that the node has, if any.
_OF_WORKERS: Final = ("RAY_", "PYTHON", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
_BREAKPOINT: Final = "PYTHONBREAKPOINT"  # the raylet has Ray's one, too


class _DriversPipe(Pipe):
    """The node's end of a driver's pipe.

    Each call brings bytes of the driver, and is answered with bytes for the driver, as soon as there are some. So a
    command and its reply are one call. Calls are numbered, as Ray does not keep their order.
    """

    source = sink = None

    def __init__(self) -> None:
        self._incoming: deque[bytes] = deque()
        self._early: dict[int, bytes] = {}  # of calls that came before earlier ones
        self._calls: dict[int, asyncio.Future[bytes | None]] = {}  # those without an answer
        self._taken = self._answered = 0  # how many calls
        self.seen = time.monotonic()

    def take(self, number: int, data: bytes) -> asyncio.Future[bytes | None]:
        """Take a call; the future is for its answer, which is None when the pipe has ended."""
        self.seen = time.monotonic()
        answer = self._calls[number] = asyncio.get_running_loop().create_future()
        self._early[number] = data
        while self._taken in self._early:
            if next_data := self._early.pop(self._taken):
                self._incoming.append(next_data)
            self._taken += 1
        return answer

    @property
    def has_incoming(self) -> bool:
        return bool(self._incoming)

    def receive(self) -> bytes:
        return self._incoming.popleft()

    def send(self, pieces: Sequence[bytes]) -> int:
        if self._answered not in self._calls:
            raise BlockingIOError
        data = b"".join(pieces)[:PIECE]
        self._answer(data)
        return len(data)

    def release(self, held: int) -> None:
        """Answer the oldest calls without bytes, until this many are left."""
        while len(self._calls) > held and self._answered in self._calls:
            self._answer(b"")

    def end(self) -> None:
        for answer in self._calls.values():
            if not answer.done():
                answer.set_result(None)
        self._calls.clear()

    def _answer(self, data: bytes) -> None:
        answer = self._calls.pop(self._answered)
        self._answered += 1
        if not answer.done():
            answer.set_result(data)


class _Carried:
    """A driver's pipe and its bridge, on the actor's loop."""

    def __init__(self, transport: UnixTransport, state: dict[str, Any]) -> None:
        self.pipe = _DriversPipe()
        self._bridge = Bridge(self.pipe, transport, state)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._bridge.epoll.fileno(), self.turn)
        self.ended = False

    def turn(self) -> None:
        """Move what can be moved."""
        try:
            while self.pipe.has_incoming:
                self._bridge.receive()
            self._bridge.turn(0)
            self.pipe.release(_HELD)
        except (PipeEnded, ProtocolError):  # the driver sees the end, and opens another pipe
            self.end()

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self._loop.remove_reader(self._bridge.epoll.fileno())
            self._bridge.close()
            self.pipe.end()


class _NodeTransport(UnixTransport):
    """Connects to the node's daemon. One that it starts is an ordinary process, not a worker of Ray."""

    def connect(self, start: bool) -> UnixChannel:
        with _ordinary():
            return super().connect(start)


class Relay:
    """Carries the drivers' connections to the daemon of this node.

    ``directory``: the actor that must answer for the daemon's lease of ``lease`` seconds. ``serve``: options of the
    daemon.
    """

    def __init__(self, cluster: str, node: str, directory: Any, lease: float, serve: Sequence[str]) -> None:
        self._node, self._directory = node, directory
        self._me = ray.get_runtime_context().current_actor
        # A cluster's name may be longer than a path, and several nodes may be on one machine.
        mark = hashlib.blake2b(f"{cluster}\0{node}".encode(), digest_size=8).hexdigest()
        self._socket = os.path.join(os.path.dirname(socket_path()), f"ray-{mark}")
        self._transport = _NodeTransport(self._socket, ("--lease", str(lease), "--patience", "0", *serve))
        self._state = _state()
        self._pipes: dict[str, _Carried] = {}
        self._ticking: asyncio.Task[None] | None = None
        threading.Thread(target=self._keep_lease, name="shellsession-lease", daemon=True).start()

    async def carry(self, name: str, number: int, data: bytes) -> bytes | None:
        """Take bytes of a driver's pipe; the next bytes for the driver, or None when the pipe has ended."""
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick())
        if (carried := self._pipes.get(name)) is None:
            if number:  # of a relay that was killed
                return None
            carried = self._pipes[name] = _Carried(self._transport, self._state)
        if carried.ended:
            return None
        answer = carried.pipe.take(number, data)
        carried.turn()
        return await answer

    async def agents(self) -> list[dict[str, Any]]:
        """The sessions of this node, as ``admin.agents``."""
        return await asyncio.to_thread(self._agents)

    async def end(self, agents: Sequence[str]) -> None:
        """Close the sessions of these agents."""
        await asyncio.gather(*[asyncio.to_thread(self._close, agent) for agent in agents])

    async def stop(self) -> None:
        """End the daemon with all sessions."""
        await asyncio.to_thread(self._stop)

    async def about(self) -> dict[str, Any]:
        """The process ids of this actor and of the daemon, and the niceness of its commands; None without a daemon."""
        return await asyncio.to_thread(self._about)

    # -- in threads

    def _agents(self) -> list[dict[str, Any]]:
        return [] if self._is_free() else admin.agents(self._socket)

    def _about(self) -> dict[str, Any]:
        known: dict[str, Any] = {"relay": os.getpid(), "daemon": None, "nice": None}
        if not self._is_free():
            known["daemon"] = pid = admin.stats(self._socket)["pid"]
            known["nice"] = os.getpriority(os.PRIO_PROCESS, pid)
        return known

    def _close(self, agent: str) -> None:
        with suppress(ShellSessionError), admin.Visit(agent, self._socket) as visit:
            visit.close()

    def _stop(self) -> None:
        with suppress(ShellSessionError):
            admin.shutdown(self._socket)

    def _is_free(self) -> bool:
        """Does no daemon listen?"""
        if (channel := self._transport.reach()) is None:
            return True
        channel.close()
        return False

    def _keep_lease(self) -> None:
        """Renew the daemon's lease as long as the directory wants this node; after that, end both.

        The lease counts from before the question, so the directory knows when it is over at the latest.
        """
        pause, process = threading.Event(), secrets.token_hex(8)
        while True:
            asked = time.clock_gettime(time.CLOCK_BOOTTIME)
            try:
                wanted = self._directory.hold.remote(self._node, process).future().result()  # `ray.get` warns
            except ActorDiedError:  # for good: Ray restarts one that only crashed
                wanted = False
            except RayError:
                pause.wait(_RETRY)
                continue
            if not wanted:
                break
            with suppress(ShellSessionError):  # often there is no daemon yet
                admin.renew(self._socket, asked)
        self._stop()
        ray.kill(self._me)  # so that Ray does not restart it

    # -- on the loop

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            for name, carried in list(self._pipes.items()):
                carried.pipe.release(0)
                if carried.ended or time.monotonic() - carried.pipe.seen > 3 * _TICK:
                    carried.end()
                    del self._pipes[name]


def _state() -> dict[str, Any]:
    """What a session on this node inherits: the environment of the node, in the user's home directory.

    What a job adds to the environment of its workers (``runtime_env``) is kept; what Ray adds is not.
    """
    state, node = process_state(), proc.environment(os.getppid())  # the parent is the raylet
    env = {name: value for name, value in state["env"].items() if not name.startswith(_OF_WORKERS)}
    env |= {name: value for name, value in node.items() if name.startswith(_OF_WORKERS) and name != _BREAKPOINT}
    env = {name: value for name, value in env.items() if not name.startswith("RAY_")}
    home = env.get("HOME", "")
    return {**state, "env": env, "cwd": home if os.path.isdir(home) else "/"}


@contextmanager
def _ordinary() -> Iterator[None]:
    """Give processes that start meanwhile the priority of the raylet. Ray gives its workers nice 15 and OOM score 1000.

    Only root may lower the niceness, and in a container not even root may lower the OOM score below the container's.
    """
    raylet = os.getppid()
    nice, score = os.getpriority(os.PRIO_PROCESS, 0), proc.oom_score(os.getpid())
    try:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, min(nice, os.getpriority(os.PRIO_PROCESS, raylet)))
        with suppress(PermissionError):
            proc.set_oom_score(min(score, proc.oom_score(raylet)))
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        proc.set_oom_score(score)
