"""The life of a daemon: its socket is born private, its signals are heard, and at its end nothing is left.

Law: it listens on one socket of the file system and on nothing else.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ..agents import AsyncAgents
from ..engine.guard import the_guard
from ..engine.spawn import raise_descriptors
from ..errors import DaemonUnavailable
from .acceptor import Acceptor
from .audit import Audit
from .connection import LOG
from .listening_socket import ListeningSocket, Taken
from .server import Server

_LOOK_AROUND: Final = 2.0  # seconds between two looks at whether our socket is still there
_ENDINGS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a daemon is run. ``patience``: seconds that running commands get at its end. ``audit``: a path, or None."""

    socket: str
    max_sessions: int = 1000
    idle_ttl: float | None = 3600.0
    patience: float = 5.0
    audit: str | None = None


def listen(path: str, lock: int | None = None) -> ListeningSocket:
    """The socket, listening. A signal that asks for the end waits from now on until somebody can hear it.

    Raises DaemonUnavailable when a daemon listens there already. ``lock``: see ``endpoint.locked``.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
    return ListeningSocket(path, lock)


def detach(listening: ListeningSocket) -> bool:
    """Leave the terminal, process group and directory of who started us; True in the daemon, False in its starter.

    The starter ends when the daemon itself listens: clients send nothing to a listener that has ended.
    """
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os.read(reader, 1)
        return False
    os.setsid()
    if os.fork():  # no leader of a session: it can never get a terminal again
        os._exit(0)
    listening.own()
    os.close(reader)
    os.close(writer)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    return True


def run(settings: Settings, listening: ListeningSocket) -> None:
    """Serve whoever comes through that door until a signal or a client asks for the end."""
    raise_descriptors()
    audit = Audit(settings.audit) if settings.audit else None
    try:
        asyncio.run(_serve(settings, listening, audit))
    finally:
        listening.close()
        if audit is not None:
            audit.close()


async def _serve(settings: Settings, listening: ListeningSocket, audit: Audit | None) -> None:
    loop = asyncio.get_running_loop()
    agents = AsyncAgents(settings.max_sessions, settings.idle_ttl)
    server = Server(agents, audit)
    for number in _ENDINGS:  # not by the loop, which restores the default at its end: the next one would kill us there
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(server.stop))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the end of a terminal is nothing to a daemon
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)
    guard = the_guard()
    seat = guard.watch_over("bash", settings.socket, listening.file)
    acceptor = Acceptor(listening.socket, server)
    LOG.info("listening at %s (incarnation %s)", settings.socket, server.incarnation)
    while not await _asked_to_end(server):
        if not listening.in_place:
            acceptor = await _reopened(listening, acceptor, server)
    LOG.info("ending: commands that run get %g s", settings.patience)
    await server.finish(settings.patience)
    await acceptor.close()  # not before: who found nobody here would start another daemon beside what still runs
    await server.part()
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_IGN)
    guard.give_back(seat)
    LOG.info("ended")


async def _asked_to_end(server: Server) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(server.stopping.wait(), _LOOK_AROUND)
    return server.stopping.is_set()


async def _reopened(listening: ListeningSocket, acceptor: Acceptor, server: Server) -> Acceptor:
    """The file of our socket is gone; who is connected stays so."""
    try:
        if not listening.set_up_again():
            return acceptor
    except Taken as error:
        LOG.warning("our socket was removed, and another stands there: %s; ending", error)
        server.stop()
        return acceptor
    except (DaemonUnavailable, OSError) as error:  # a full disk, say: what runs here is no worse for that
        if listening.fault != (fault := str(error)):  # once: it is tried again and again
            LOG.warning("our socket was removed, and cannot be made again just now: %s", fault)
            listening.fault = fault
        return acceptor
    LOG.warning("our socket was removed; listening at %s again", listening.path)
    the_guard().watch_anew(listening.file)
    await acceptor.close()
    return Acceptor(listening.socket, server)
