"""What is asked of the daemon itself, and of an agent's session by who only visits it.

Law: nothing is started and no session is opened by it: who looks leaves everything as it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any

from ..engine import processes
from ..engine.waiting import Poller, Steps, Wait, drive
from ..errors import DaemonUnavailable, ShellSessionError
from .client import RemoteSession
from .endpoint import PATIENCE, peer, reach, socket_path
from .jobs import RemoteJob
from .link import ConnectionLost, Wire
from .records import field, from_part, to_error
from .wire import Message, encode

Place = str | os.PathLike[str] | None


class Visit(RemoteSession):
    """An agent's session as it is: where there is none, or no daemon, verbs raise NoSuchAgent, DaemonUnavailable."""

    def __init__(self, agent: str, socket: Place = None) -> None:
        super().__init__(agent, socket_path(socket), False, {})

    def connect(self) -> None:
        """Nothing is to be opened."""

    def close(self) -> None:
        """End the session, for every client. Raises NoSuchAgent where there is none."""
        self.ask(self._said("close"))

    def _meaning(self, error: ShellSessionError) -> ShellSessionError:
        return error  # it had no session that could have been closed meanwhile


def agents(socket: Place = None) -> list[dict[str, Any]]:
    """What ``Agents.list`` tells of each session. Raises DaemonUnavailable."""
    return from_part(_asked(socket, {"verb": "list"}).parts)


def stats(socket: Place = None) -> dict[str, Any]:
    """The daemon's version, pid, uptime, what it counts, and where its audit log is. Raises DaemonUnavailable."""
    return dict(field(_asked(socket, {"verb": "stats"}).header, "value", dict))


def jobs(agent: str, socket: Place = None, output: bool = False) -> list[dict[str, Any]]:
    """What the agent's commands left running: number, command, pids, alive, running, status; with what it has written
    since its call came back (stdout, stderr; what of it was not kept), if wanted. Raises NoSuchAgent.
    """
    with Visit(agent, socket) as visit:
        found: list[dict[str, Any]] = from_part(visit.ask(visit._said("jobs")).parts)
        for one in found:
            one["status"] = "running" if field(one, "running", bool) else "ended"
            job = RemoteJob(visit._job_request, one)
            for name in ("stdout", "stderr") if output else ():
                one[name], one[f"{name}_omitted"] = job._shown(name)
    return found


def _asked(socket: Place, header: dict[str, Any]) -> Message:
    """The daemon's own answer: it is about no agent."""
    with Visit("", socket) as visit:
        return visit.ask((header, ()))


def shutdown(socket: Place = None) -> int | None:
    """End the daemon, whatever its version, and wait until its process is gone; its pid, None where none listens.

    Where it is in a PID namespace that cannot be seen from here, for the end of its socket, and the pid is its own.
    Raises DaemonUnavailable where its process lives on behind that.
    """
    path = socket_path(socket)
    if (ours := reach(path)) is None:
        return None
    listens, poller = peer(ours)[0], Poller()
    with closing(Wire(ours, poller)) as wire:
        try:
            drive(wire.meet(path), poller)
        except ConnectionLost:  # it was ending already
            return None
        told = int(wire.hello["pid"])
        is_seen = _is_called(listens, told)
        pid = listens if is_seen else told
        with _process(pid) if is_seen else nullcontext() as process:
            if not drive(_see_off(wire, process), poller):
                raise DaemonUnavailable(
                    f"the daemon at {path} (pid {pid}) has let go of its socket, and its process has not ended within"
                    f" {PATIENCE:g} s: end it (kill -9)"
                )
        return pid


def _is_called(pid: int, told: int) -> bool:
    """Is that the number by which the process knows itself? Then who greets is who listens, and is no proxy's daemon.

    In a PID namespace of its own (a container's, whose socket is shared) it has another one than here, and what it
    tells may be a stranger's here. ``pid`` is 0 where the kernel has no number for it that means anything to us.
    """
    return pid > 0 and (pid == told or processes.field(pid, b"NSpid").split()[-1:] == [b"%d" % told])


def _see_off(wire: Wire, process: int | None) -> Steps[bool]:
    """Is it gone?"""
    # In its own protocol: a daemon of another version must be able to go.
    request = {"protocol": wire.hello["protocol"], "id": wire.next_id(), "verb": "shutdown"}
    with suppress(ConnectionLost):  # the last thing that it does for its clients
        yield from wire.send(encode(request))
        while True:
            reply = yield from wire.receive()
            if "error" in reply.header:
                raise to_error(reply.header["error"], reply.parts)
    return process is None or bool((yield Wait((process,), time.monotonic() + PATIENCE)))


@contextmanager
def _process(pid: int) -> Iterator[int | None]:
    """A descriptor that can be read when the process has ended; None when it has."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        yield process
    finally:
        os.close(process)
