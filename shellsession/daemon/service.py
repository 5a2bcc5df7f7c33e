"""The life of a daemon: its socket is born private, its signals are heard, and at its end nothing is left.

Law: it listens on one socket of the file system and on nothing else.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ..agents import AsyncAgents
from ..engine.guard import the_guard
from ..engine.spawn import raise_descriptors
from ..errors import DaemonUnavailable
from .audit import Audit
from .connection import LOG, Connection
from .place import locked, reach
from .server import MAX_CONNECTIONS, Server

# Clients that connect while the loop is busy wait here.
_BACKLOG: Final = 4096
_ENDINGS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a daemon is run. ``patience``: seconds that running commands get at its end. ``audit``: a path, or None."""

    socket: str
    max_sessions: int = 1000
    idle_ttl: float | None = 3600.0
    patience: float = 5.0
    audit: str | None = None
    max_connections: int = MAX_CONNECTIONS


def listen(path: str, lock: int | None = None) -> socket.socket:
    """The listening socket, private from its first moment. Raises DaemonUnavailable when a daemon listens already.

    ``lock``: see ``place.locked``. A signal that asks for the end waits from now on until somebody can hear it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
    with locked(path, lock):
        if (other := reach(path)) is not None:
            other.close()
            raise DaemonUnavailable(
                f"a daemon listens at {path} already: use that one, or end it with `shellsession stop`"
            )
        if os.path.exists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise DaemonUnavailable(f"{path} is no socket, and is left as it is: name another place")
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            with suppress(FileNotFoundError):
                os.unlink(path)  # left by one that was killed
            ours.bind(path)
            ours.listen(_BACKLOG)
        except OSError as error:
            ours.close()
            raise DaemonUnavailable(f"no socket could be made at {path}: {error.strerror}") from error
        finally:
            os.umask(before)
        return ours


def detach() -> bool:
    """Leave the terminal, process group and directory of who started us; True in the daemon, False in its starter."""
    if os.fork():
        return False
    os.setsid()
    if os.fork():  # no leader of a session: it can never get a terminal again
        os._exit(0)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    return True


def run(settings: Settings, ours: socket.socket) -> None:
    """Serve on that socket until a signal or a client asks for the end."""
    # Thousands of objects live as long as the daemon: walking over them (10 ms for 1000 sessions) finds nothing.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    raise_descriptors()
    born = os.lstat(settings.socket)
    audit = Audit(settings.audit) if settings.audit else None
    try:
        asyncio.run(_serve(settings, ours, audit))
    finally:
        ours.close()
        with suppress(OSError):
            now = os.lstat(settings.socket)
            if (now.st_ino, now.st_ctime_ns) == (born.st_ino, born.st_ctime_ns):  # else another daemon is in its place
                os.unlink(settings.socket)
        if audit is not None:
            audit.close()


async def _serve(settings: Settings, ours: socket.socket, audit: Audit | None) -> None:
    loop = asyncio.get_running_loop()
    agents = AsyncAgents(settings.max_sessions, settings.idle_ttl)
    server = Server(agents, audit, settings.max_connections)
    for number in _ENDINGS:
        loop.add_signal_handler(number, server.stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the end of a terminal is nothing to a daemon
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)
    guard = the_guard()
    seat = guard.watch_over("bash", settings.socket)
    listener = await loop.create_unix_server(lambda: Connection(server), sock=ours)
    LOG.info("listening at %s (incarnation %s)", settings.socket, server.incarnation)
    await server.stopping.wait()
    LOG.info("ending: commands that run get %g s", settings.patience)
    listener.close()
    await asyncio.sleep(0)
    gc.collect()  # a client that asyncio was just letting in would hear nothing: its half-made transport is a cycle
    await server.finish(settings.patience)
    guard.give_back(seat)
    LOG.info("ended")
