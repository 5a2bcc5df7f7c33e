"""Administration of the daemon: list its sessions, its statistics and an agent's jobs, visit a session, shut it down.

Nothing here starts a daemon or opens a session.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any, Self

from ...engine.io.threads import Poller, Steps, Wait, drive
from ...engine.kernel import proc
from ...errors import DaemonUnavailable, InvalidRequest, ShellSessionError
from ...redact import Redact, redact_from
from ...signatures import AnyJob
from ..protocol.endpoint import PATIENCE, lasting_name, reach, socket_path
from ..protocol.messages import field, from_part, to_error
from ..protocol.wire import Message, encode
from .exchange import Backend
from .link import Link
from .places import transport_of
from .remote import Remote
from .session import RemoteSession, RemoteThreadJob
from .transport import ConnectionLost, Transport, UnixTransport

Place = str | os.PathLike[str] | Transport | None


class Visit(RemoteSession):
    """An agent's session if it exists. If there is none, or no daemon, verbs raise NoSuchAgent or DaemonUnavailable."""

    def __init__(self, agent: str, socket: Place = None, transport: Transport | None = None) -> None:
        super().__init__(agent, transport or transport_of(socket), False, {})

    @classmethod
    def like(cls, other: Remote, agent: str | None = None) -> Self:
        return cls(other.agent if agent is None else agent, transport=other.transport)

    async def _open_session(self, backend: Backend, **more: object) -> None:
        """Does nothing: a visit uses only a session that exists."""

    @property
    def redact(self) -> Redact:
        """The session's redaction."""
        return redact_from(self._info("redact", bool, list))

    def close(self) -> None:
        """End the session, for every client. Raises NoSuchAgent if there is none."""
        self.ask(self.message("close"))

    def close_unused(self) -> None:
        """End the session if its bash has not been started, nor is about to be. Raises NoSuchAgent if there is none."""
        self.ask(self.message("close", unused=True))

    def _translate(self, error: ShellSessionError) -> ShellSessionError:
        return error  # NoSuchAgent stays as it is: a visit opened no session that somebody could have closed


def agents(socket: Place = None) -> list[dict[str, Any]]:
    """The description of each session, as in ``Agents.list``. Raises DaemonUnavailable.

    ``state_age``: for how many seconds the daemon has had the state of its shell; None if it has none. ``question``:
    the id of the oldest of its questions that wait for a person; "" if none does.
    """
    return from_part(_ask(socket, "list").parts)


def stats(socket: Place = None) -> dict[str, Any]:
    """The daemon's version, pid, uptime, counters, and the path of its audit log. Raises DaemonUnavailable.

    ``stored_ages``: how many seconds ago each agent that has a stored state, but no session, was last used.
    """
    reply = _ask(socket, "stats")
    return {**field(reply.header, "value", dict), "stored_ages": dict(from_part(reply.parts))}


def forget(agent: str | None, socket: Place = None) -> int:
    """Delete the records of one agent that has no session, or (None) of all. Returns how many. Raises InvalidRequest.

    Without a daemon, they are deleted from the database itself.
    """
    try:
        return int(field(_ask(socket, "forget", of=agent).header, "value", int))
    except DaemonUnavailable:
        path = socket_path(socket)  # type: ignore[arg-type]
        if (other := reach(path)) is not None:
            other.close()
            raise
    from ...store import forget_recorded  # slow to import, and rarely needed

    try:
        return forget_recorded(lasting_name(path), agent)
    except OSError as error:
        raise DaemonUnavailable(str(error)) from error


def follow_approvals(socket: Place = None, agent: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the questions that wait, as ``Daemon.approvals``, then each one again whenever it changes.

    ``state``: "open", "accepted", "declined", "cancelled" or "expired"; ``by``: the process that has answered. Ends
    with the daemon: raises DaemonUnavailable.
    """
    with Visit("", socket) as visit:
        reply = visit.ask(Message({"verb": "approvals", "of": agent}, ()))
        while True:
            yield from from_part(reply.parts)
            since = field(reply.header, "value", int)
            reply = visit.ask(Message({"verb": "approvals", "of": agent, "since": since}, ()))


def remembered(socket: Place = None, revoke: str | None = None) -> list[dict[str, Any]]:
    """The answers that last. ``revoke``: forget the one with that id before. Raises InvalidRequest if there is none."""
    return from_part(_ask(socket, "remembered", revoke=revoke).parts)


def renew(socket: Place = None, at: float | None = None) -> None:
    """Renew the daemon's lease. Raises InvalidRequest if it has none, and DaemonUnavailable if it is over.

    It counts from ``at``, a moment of CLOCK_BOOTTIME on the daemon's machine, or from when the request arrives.
    """
    _ask(socket, "renew", at=at)


def jobs(
    agent: str, socket: Place = None, output: bool = False, transport: Transport | None = None
) -> list[dict[str, Any]]:
    """The jobs that the agent's commands left running, as ``described``; the released ones first. Raises NoSuchAgent.

    Without ``output`` they lack stdout and stderr.
    """
    with Visit(agent, socket, transport) as visit:
        return [described(job, output) for released in (True, False) for job in visit.jobs(released)]


def find_job(visit: Visit, name: str) -> RemoteThreadJob:
    """The job with that id. Raises InvalidRequest, and NoSuchAgent."""
    for job in (*visit.jobs(), *visit.jobs(released=True)):
        if job.id == name:
            return job
    raise InvalidRequest(
        f"agent {visit.agent!r} has no job {name!r:.100}: `shellsession jobs {visit.agent}` lists those that it has"
    )


def described(job: AnyJob, output: bool = True) -> dict[str, Any]:
    """A job as JSON: id, command, pids, alive, status, running, exit_code and released.

    With ``output`` also stdout and stderr: what it wrote since its call returned, and the number of bytes omitted.
    """
    status = job.status  # first: once it has ended, all its output is there
    known: dict[str, Any] = {"id": job.id, "command": job.command, "pids": list(job.pids), "alive": job.alive()}
    known |= {"status": status, "running": status == "running", "exit_code": job.exit_code, "released": job.released}
    for name in ("stdout", "stderr") if output else ():
        known[name], known[f"{name}_omitted"] = job.text_of(name)
    return known


def _ask(socket: Place, verb: str, **fields: object) -> Message:
    """The reply to a request that is about no agent."""
    with Visit("", socket) as visit:
        return visit.ask(Message({"verb": verb, **fields}, ()))


def shutdown(socket: str | os.PathLike[str] | None = None) -> int | None:
    """End the daemon, of any version, and wait until its process has ended. Returns its pid; None if none listens.

    A daemon may be in a PID namespace that is not visible from here. Then the wait is for the end of its connection,
    and the pid is that of its own namespace. Raises DaemonUnavailable if the process has not ended 15 s later.
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
        own_pid = int(link.hello["pid"])
        is_visible = _has_pids(channel.pid, own_pid)
        pid = channel.pid if is_visible else own_pid
        with _process(pid) if is_visible else nullcontext() as process:
            if not drive(_end(link, process), poller):
                raise DaemonUnavailable(
                    f"the daemon at {path} (pid {pid}) has closed its socket, but its process has not ended within"
                    f" {PATIENCE:g} s: end it (kill -9)"
                )
        return pid


def _has_pids(pid: int, own_pid: int) -> bool:
    """Does one process have ``pid`` here, and ``own_pid`` in its own PID namespace?

    ``pid`` is that of the process that listens, or 0 if it is not visible here. ``own_pid`` is what the daemon calls
    itself. In a container with a shared socket the daemon has another pid than here. If these are two processes, a
    proxy listens.
    """
    return pid > 0 and (pid == own_pid or proc.field(pid, b"NSpid").split()[-1:] == [b"%d" % own_pid])


def _end(link: Link, process: int | None) -> Steps[bool]:
    """Ask the daemon to end, and wait for that. False if its process, where that is visible, lives on."""
    # In the daemon's own protocol, so that this ends a daemon of another version, too.
    request = {"protocol": link.hello["protocol"], "id": link.next_id(), "verb": "shutdown"}
    with suppress(ConnectionLost):  # the end of the connection is the answer
        yield from link.send(encode(request))
        while True:
            reply = yield from link.receive()
            if "error" in reply.header:
                raise to_error(reply.header["error"], reply.parts)
    return process is None or bool((yield Wait((process,), time.monotonic() + PATIENCE)))


@contextmanager
def _process(pid: int) -> Iterator[int | None]:
    """Yield a descriptor that is readable once the process has ended; None if it has ended already."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        yield process
    finally:
        os.close(process)
