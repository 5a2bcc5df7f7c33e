"""The daemon's one listening socket in the file system, private from its first moment.

Law: only this daemon's own socket is removed, and nothing that stands in its place.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ...agents import AsyncAgents
from ...engine.bash.runtime import the_guard
from ...engine.bash.spawn import raise_descriptors
from ...engine.io.directories import homes
from ...engine.kernel.proc import FULL, SPARE
from ...errors import DaemonUnavailable, LimitReached
from ..protocol.directory_lock import locked
from ..protocol.endpoint import reach
from ..protocol.messages import from_error
from ..protocol.wire import encode
from .audit import Audit
from .connection import LOG, Connection
from .server import Server

# Clients that connect while the loop is busy wait here.
_BACKLOG: Final = 4096
# The last host of this user to leave removes the directory, perhaps each time when we have just locked it.
_ATTEMPTS: Final = 100


class Taken(DaemonUnavailable):
    """A daemon listens there."""


class ListeningSocket:
    """``socket`` listens at ``path``. ``lock``: see ``endpoint.locked``. Raises Taken if a daemon does."""

    def __init__(self, path: str, lock: int | None = None) -> None:
        self.path = path
        self.fault = ""  # why it could not be made again the last time
        self.file = -1  # the socket's file, held: its inode's number is given to no other file meanwhile
        self._set_up(lock)

    @property
    def in_place(self) -> bool:
        """Does the path still lead to our file? (Whatever its mode, owner, times and other names.)"""
        with suppress(OSError):
            return os.path.samestat(os.stat(self.path), os.fstat(self.file))
        return False

    def own(self) -> None:
        """This process is it that listens: so say the kernel, and we, to whom no answer comes (see ``peer``)."""
        self.socket.listen(_BACKLOG)

    def set_up_again(self) -> bool:
        """Somebody removed the file (who tidies up /tmp, for one): without it no client finds us any more.

        False where it is back by itself. Raises Taken, when another daemon has taken the place, and DaemonUnavailable
        where it cannot be made just now.
        """
        return self._set_up(None)

    def close(self) -> None:
        """Nobody comes in any more, and the file is gone. So is the directory of this user's hosts, if it is empty."""
        self.socket.close()
        directory = os.path.dirname(self.path)
        with suppress(OSError, DaemonUnavailable):
            if self.in_place:  # else to lock its directory could make that anew
                with locked(self.path):  # whoever starts a daemon there makes its socket first
                    if self.in_place:
                        os.unlink(self.path)
                    if directory in homes():  # another one is the user's own
                        os.rmdir(directory)
        os.close(self.file)

    def _set_up(self, lock: int | None) -> bool:
        for _ in range(_ATTEMPTS):
            with locked(self.path, lock):
                if self.in_place:
                    return False
                with suppress(FileNotFoundError):
                    self._listen()
                    return True
            lock = None
        raise DaemonUnavailable(f"no socket could be made at {self.path}: its directory is removed again and again")

    def _listen(self) -> None:
        """Raises FileNotFoundError where the directory was removed meanwhile."""
        path = self.path
        if (other := reach(path)) is not None:
            other.close()
            raise Taken(f"a daemon listens at {path} already: use that one, or end it with `shellsession stop`")
        if os.path.exists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise DaemonUnavailable(f"{path} is no socket, and is left as it is: name another place")
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            with suppress(FileNotFoundError):
                os.unlink(path)  # left by one that was killed
            ours.bind(path)
            ours.listen(_BACKLOG)
            file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            ours.close()
            raise
        except OSError as error:
            ours.close()
            raise DaemonUnavailable(f"no socket could be made at {path}: {error.strerror}") from error
        finally:
            os.umask(before)
        if self.file >= 0:
            os.close(self.file)
        self.socket, self.file = ours, file


# Clients that are let in before all others get their turn.
_AT_ONCE: Final = 64
# How soon it is tried again where not even the spare descriptor can be had, in seconds.
_PAUSE: Final = 0.1
_FULL: Final = FULL | {errno.ENOBUFS, errno.ENOMEM}
_NO_ROOM: Final = (
    "the daemon has no file descriptors left for another client: close sessions or connections, or start it with a"
    " higher limit (ulimit -Hn)"
)


class Acceptor:
    """Lets in who comes to ``listener``, on the running loop, until ``close``."""

    def __init__(self, listener: socket.socket, server: Server) -> None:
        listener.setblocking(False)
        self._listener, self._server = listener, server
        self._loop = asyncio.get_running_loop()
        self._entering: set[asyncio.Task[object]] = set()
        self._full = False
        self._open()

    def _open(self) -> None:
        if self._listener.fileno() >= 0:  # it was closed meanwhile
            SPARE.want(self)
            self._loop.add_reader(self._listener, self._receive)

    def _receive(self) -> None:
        try:
            for _ in range(_AT_ONCE):
                client, _ = self._listener.accept()
                self._full = False
                client.setblocking(False)
                entering = self._loop.connect_accepted_socket(lambda: Connection(self._server), client)
                task: asyncio.Task[object] = self._loop.create_task(entering)
                self._entering.add(task)
                task.add_done_callback(self._entering.discard)
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._turn_away()

    def _turn_away(self) -> None:
        if not self._full:  # once: there may be many
            LOG.warning("no file descriptors are left: clients are turned away")
        self._full = True
        try:
            SPARE.look(self._refuse)
        except OSError as error:
            if error.errno in _FULL:  # to look again at once would be in vain
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_PAUSE, self._open)

    def _refuse(self) -> None:
        with self._listener.accept()[0] as client:
            client.setblocking(False)
            header, _ = from_error(LimitReached(_NO_ROOM))
            client.send(encode({"id": None, "error": header}))

    async def close(self) -> None:
        """Nobody comes in any more; whoever was on the way is in."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        SPARE.leave(self)
        if self._entering:
            await asyncio.wait(self._entering)


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
