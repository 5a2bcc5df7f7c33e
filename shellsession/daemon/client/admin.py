"""Questions to the daemon itself, its end, and an agent's session as it is.

Law: no daemon is started here, and no session is opened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any

from ...engine.io.threads import Poller, Steps, Wait, drive
from ...engine.kernel import proc
from ...errors import DaemonUnavailable, ShellSessionError
from ..protocol.endpoint import PATIENCE, socket_path
from ..protocol.messages import field, from_part, to_error
from ..protocol.wire import Message, encode
from .exchange import Backend
from .link import Link
from .remote import RemoteJob
from .session import RemoteSession
from .transport import ConnectionLost, Transport, UnixTransport

Place = str | os.PathLike[str] | None


class Visit(RemoteSession):
    """An agent's session as it is: where there is none, or no daemon, verbs raise NoSuchAgent, DaemonUnavailable."""

    def __init__(self, agent: str, socket: Place = None, transport: Transport | None = None) -> None:
        super().__init__(agent, transport or UnixTransport(socket_path(socket)), False, {})

    async def _open_session(self, backend: Backend) -> None:
        """Nothing is to be opened."""

    def close(self) -> None:
        """End the session, for every client. Raises NoSuchAgent where there is none."""
        self.ask(self._message("close"))

    def _meaning(self, error: ShellSessionError) -> ShellSessionError:
        return error  # it had no session that another client could have closed


def agents(socket: Place = None) -> list[dict[str, Any]]:
    """The description of each session, as in ``Agents.list``. Raises DaemonUnavailable."""
    return from_part(_ask(socket, "list").parts)


def stats(socket: Place = None) -> dict[str, Any]:
    """The daemon's version, pid, uptime, what it counts, and where its audit log is. Raises DaemonUnavailable."""
    return dict(field(_ask(socket, "stats").header, "value", dict))


def jobs(
    agent: str, socket: Place = None, output: bool = False, transport: Transport | None = None
) -> list[dict[str, Any]]:
    """What the agent's commands left running: number, command, pids, alive, running, status; with what it has written
    since its call came back (stdout, stderr; what of it was not kept), if wanted. Raises NoSuchAgent.
    """
    with Visit(agent, socket, transport) as visit:
        found: list[dict[str, Any]] = from_part(visit.ask(visit._message("jobs")).parts)
        for one in found:
            one["status"] = "running" if field(one, "running", bool) else "ended"
            job = RemoteJob(visit._ask_now, one)
            for name in ("stdout", "stderr") if output else ():
                one[name], one[f"{name}_omitted"] = job._shown(name)
    return found


def _ask(socket: Place, verb: str) -> Message:
    """The reply to a question that is about no agent."""
    with Visit("", socket) as visit:
        return visit.ask(Message({"verb": verb}, ()))


def shutdown(socket: Place = None) -> int | None:
    """End the daemon, whatever its version, and wait until its process is gone; its pid, None where none listens.

    Where it is in a PID namespace that cannot be seen from here, it is the end of its socket that is waited for, and
    the pid is the one that it has there. Raises DaemonUnavailable where its process lives on behind that.
    """
    path = socket_path(socket)
    if (channel := UnixTransport(path).reach()) is None:
        return None
    poller = Poller()
    with closing(Link(channel, poller)) as link:
        try:
            drive(link.read_greeting(), poller)
        except ConnectionLost:  # it was ending already
            return None
        said = int(link.hello["pid"])
        is_seen = _is_called(channel.pid, said)
        pid = channel.pid if is_seen else said
        with _process(pid) if is_seen else nullcontext() as process:
            if not drive(_end(link, process), poller):
                raise DaemonUnavailable(
                    f"the daemon at {path} (pid {pid}) has let go of its socket, and its process has not ended within"
                    f" {PATIENCE:g} s: end it (kill -9)"
                )
        return pid


def _is_called(pid: int, said: int) -> bool:
    """Does the process that listens know itself by the number in the greeting? Else a proxy listens.

    In a PID namespace of its own (a container's, whose socket is shared) the daemon has another number than here, and
    the one that it sends may be another process's here. ``pid`` is 0 where it has no number here.
    """
    return pid > 0 and (pid == said or proc.field(pid, b"NSpid").split()[-1:] == [b"%d" % said])


def _end(link: Link, process: int | None) -> Steps[bool]:
    """Ask the daemon to end, and wait for that; True once its process is gone, as far as it can be seen."""
    # In its own protocol: this ends a daemon of another version, too.
    request = {"protocol": link.hello["protocol"], "id": link.next_id(), "verb": "shutdown"}
    with suppress(ConnectionLost):  # that is its last answer
        yield from link.send(encode(request))
        while True:
            reply = yield from link.receive()
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
