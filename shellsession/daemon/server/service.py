"""The daemon process: its listening socket, accepting clients, and its life from start to end.

``ListeningSocket`` is the socket in the file system. It is private from the first moment, and only our own socket is
ever removed, not a file that has replaced it. ``Acceptor`` accepts clients. ``listen``, ``detach`` and ``run`` are the
steps of the daemon.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ...agents import AsyncAgents
from ...engine.bash.spawn import raise_descriptors
from ...engine.bash.watcher import the_guard
from ...engine.io.directories import homes
from ...engine.kernel.proc import FULL, SPARE
from ...errors import DaemonUnavailable, LimitReached
from ...search import limit_searches
from ...store import Store, path_for
from ..protocol.directory_lock import locked
from ..protocol.endpoint import confined_marker, lasting_name, reach
from ..protocol.messages import from_error
from ..protocol.wire import encode
from .audit import Audit
from .connection import LOG, Connection
from .server import Server

# The queue for clients that connect while the loop is busy.
_BACKLOG: Final = 4096
# Another process of this user may remove the directory just after we have locked it: this many times at most.
_ATTEMPTS: Final = 100


class AddressInUse(DaemonUnavailable):
    """Another daemon listens at the path."""


class ListeningSocket:
    """The daemon's ``socket``, which listens at ``path``. Raises AddressInUse if another daemon does.

    ``lock``: see ``directory_lock.locked``. ``confines``: see ``endpoint.confined_marker``.
    """

    def __init__(self, path: str, lock: int | None = None, confines: bool = False) -> None:
        self.path, self._confines = path, confines
        self.fault = ""  # why it could not be made again the last time
        self.file = -1  # the socket's file: while this is open, no other file gets its inode number
        self._set_up(lock)

    @property
    def in_place(self) -> bool:
        """Does the path still lead to our file, whatever its mode, owner, times and other names are?"""
        with suppress(OSError):
            return os.path.samestat(os.stat(self.path), os.fstat(self.file))
        return False

    def own(self) -> None:
        """Make this process the listener: ``peer`` shows clients the process that called listen(2) last."""
        self.socket.listen(_BACKLOG)

    def set_up_again(self) -> bool:
        """Make the socket's file again after somebody removed it (a clean-up of /tmp, for example).

        Returns False if it is there again. Raises AddressInUse if another daemon listens there now, and
        DaemonUnavailable if the file cannot be made now.
        """
        return self._set_up(None)

    def close(self, was_ended: bool = True) -> None:
        """Stop listening, and remove the file, and the directory of this user's hosts if that is empty.

        ``was_ended``: the daemon ends as it was told to. After a fault, no plain daemon may replace it.
        """
        self.socket.close()
        directory = os.path.dirname(self.path)
        with suppress(OSError, DaemonUnavailable):
            if self.in_place:  # else locking the directory could make it again
                with locked(self.path):  # a new daemon makes its socket under this lock
                    if self.in_place:
                        os.unlink(self.path)
                        if was_ended:
                            self._note_confinement(False)
                    if directory in homes():  # any other directory belongs to the user
                        os.rmdir(directory)
        os.close(self.file)

    def _set_up(self, lock: int | None) -> bool:
        """Make the socket under the lock of its directory; False if it is there already."""
        for _ in range(_ATTEMPTS):
            with locked(self.path, lock):
                if self.in_place:
                    return False
                with suppress(FileNotFoundError):
                    self._listen()
                    return True
            lock = None
        raise DaemonUnavailable(
            f"no socket could be made at {self.path}: its directory is removed again and again; name another path"
        )

    def _listen(self) -> None:
        """Make the socket. Raises FileNotFoundError if the directory was removed meanwhile."""
        path = self.path
        if (other := reach(path)) is not None:
            other.close()
            raise AddressInUse(f"a daemon listens at {path} already: use that one, or end it with `shellsession stop`")
        if os.path.exists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise DaemonUnavailable(f"{path} is not a socket, and is left as it is: name another path")
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            with suppress(FileNotFoundError):
                os.unlink(path)  # left by a daemon that was killed
            self._note_confinement(self._confines)
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

    def keep_confinement(self) -> None:
        """Make the file of ``endpoint.confined_marker`` again after somebody removed it."""
        if self._confines and self.in_place:
            with suppress(OSError):
                self._note_confinement(True)

    def _note_confinement(self, confines: bool) -> None:
        path = confined_marker(self.path)
        if confines:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        else:
            with suppress(FileNotFoundError):
                os.unlink(path)


# Clients that are accepted in a row before the loop serves others.
_ACCEPTS_IN_A_ROW: Final = 64
# Seconds to wait before accepting again when not even the spare descriptor is free.
_RETRY_PAUSE: Final = 0.1
_OUT_OF_ROOM: Final = FULL | {errno.ENOBUFS, errno.ENOMEM}
_REFUSAL: Final = (
    "the daemon has no file descriptors left for another client: close sessions or connections, or start it with a"
    " higher limit (ulimit -Hn)"
)


class Acceptor:
    """Accepts clients from a ``listening`` socket, on the running loop, until ``close``.

    Without a free descriptor it refuses clients with an error, so that no client waits in vain.
    """

    def __init__(self, listening: socket.socket, server: Server) -> None:
        listening.setblocking(False)
        self._listening, self._server = listening, server
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[object]] = set()
        self._is_full = False  # the last client was refused
        self._resume()

    def _resume(self) -> None:
        """Accept clients from now on."""
        if self._listening.fileno() >= 0:  # it may have been closed during a pause
            SPARE.reserve(self)
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        """Accept the clients that are waiting."""
        try:
            for _ in range(_ACCEPTS_IN_A_ROW):
                client, _ = self._listening.accept()
                self._is_full = False
                client.setblocking(False)
                connecting = self._loop.connect_accepted_socket(lambda: Connection(self._server), client)
                task: asyncio.Task[object] = self._loop.create_task(connecting)
                self._connecting.add(task)
                task.add_done_callback(self._connecting.discard)
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass
        except OSError as error:
            if error.errno not in _OUT_OF_ROOM:
                raise
            self._refuse()

    def _refuse(self) -> None:
        """Refuse a client for want of descriptors, or pause if that is not possible either."""
        if not self._is_full:  # logged once, as there may be many clients
            LOG.warning("no file descriptors are left: clients are turned away")
        self._is_full = True
        try:
            SPARE.call(self._send_refusal)
        except OSError as error:
            if error.errno in _OUT_OF_ROOM:  # at once it would fail again
                self._loop.remove_reader(self._listening)
                self._loop.call_later(_RETRY_PAUSE, self._resume)

    def _send_refusal(self) -> None:
        with self._listening.accept()[0] as client:
            client.setblocking(False)
            header, _ = from_error(LimitReached(_REFUSAL))
            client.send(encode({"id": None, "error": header}))

    async def close(self) -> None:
        """Accept no more clients, and wait until those that were accepted are connected."""
        self._loop.remove_reader(self._listening)
        self._listening.close()
        SPARE.release(self)
        if self._connecting:
            await asyncio.wait(self._connecting)


_CHECK_EVERY: Final = 2.0  # seconds between two checks that our socket is still there
_END_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a daemon.

    ``patience``: how many seconds running commands get at its end. ``lease``: see ``Server.begin_lease``; None for
    none. ``audit``: the path of the audit log, or None. ``defaults``: options of new sessions, as fields of
    ``requests.Open``.
    """

    socket: str
    max_sessions: int = 1000
    idle_ttl: float | None = 3600.0
    patience: float = 5.0
    lease: float | None = None
    audit: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)


def listen(path: str, lock: int | None = None, confines: bool = False) -> ListeningSocket:
    """Make the listening socket. From now on SIGTERM and SIGINT are blocked, until ``run`` can handle them.

    Raises DaemonUnavailable if a daemon listens there already. The arguments are those of ``ListeningSocket``.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _END_SIGNALS)
    return ListeningSocket(path, lock, confines)


def detach(listening: ListeningSocket) -> bool:
    """Fork the daemon, away from our terminal, process group and directory. True in the daemon, False in its parent.

    The parent returns once the daemon itself is the listener: clients send nothing to a listener that has ended.
    """
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os.read(reader, 1)
        return False
    os.setsid()
    if os.fork():  # not a session leader: it can never get a terminal again
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
    """Serve clients until a signal or a client ends the daemon."""
    raise_descriptors()
    audit = Audit(settings.audit) if settings.audit else None
    store = Store(path_for(lasting_name(settings.socket)))
    was_ended = False
    try:
        asyncio.run(_serve(settings, listening, audit, store))
        was_ended = True
    finally:
        store.close()  # before a new daemon can read it
        listening.close(was_ended)
        if audit is not None:
            audit.close()


async def _serve(settings: Settings, listening: ListeningSocket, audit: Audit | None, store: Store) -> None:
    """The life of the daemon, from the first client to the end of all sessions."""
    loop = asyncio.get_running_loop()
    agents = AsyncAgents(settings.max_sessions, settings.idle_ttl)
    server = Server(agents, audit, settings.defaults, store)
    for number in _END_SIGNALS:  # not loop.add_signal_handler: asyncio resets it at the end, and a signal would kill us
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(server.stop))
    limit_searches()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a daemon outlives the terminal of its start
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _END_SIGNALS)
    guard = the_guard()
    slot = guard.open_daemon_slot("bash", settings.socket, listening.file)
    acceptor = Acceptor(listening.socket, server)
    LOG.info("listening at %s (incarnation %s)", settings.socket, server.incarnation)
    if settings.lease is not None:
        server.begin_lease(settings.lease)
    while not await _is_stopped(server):
        server.check_lease()  # its timer is late if the machine was suspended
        listening.keep_confinement()
        if not listening.in_place:
            acceptor = await _reopen(listening, acceptor, server)
    if not server.lease_is_over:
        LOG.info("ending: running commands get %g s", settings.patience)
    await server.finish(settings.patience)
    await acceptor.close()  # not before: a client that found no listener would start another daemon while commands run
    await server.part()
    for number in _END_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    guard.close_slot(slot)
    LOG.info("ended")


async def _is_stopped(server: Server) -> bool:
    """Wait until the daemon is to end, or for the next check; is it to end?"""
    with suppress(TimeoutError):
        await asyncio.wait_for(server.stopping.wait(), _CHECK_EVERY)
    return server.stopping.is_set()


async def _reopen(listening: ListeningSocket, acceptor: Acceptor, server: Server) -> Acceptor:
    """Make our socket again after its file was removed; return its acceptor. Connected clients stay connected."""
    try:
        if not listening.set_up_again():
            return acceptor
    except AddressInUse as error:
        LOG.warning("our socket was removed, and another daemon has replaced it: %s; ending", error)
        server.stop()
        return acceptor
    except (DaemonUnavailable, OSError) as error:  # a full disk, for example: running commands are not affected
        if listening.fault != (fault := str(error)):  # logged once, as it is tried again and again
            LOG.warning("our socket was removed, and cannot be made again now: %s", fault)
            listening.fault = fault
        return acceptor
    LOG.warning("our socket was removed; listening at %s again", listening.path)
    the_guard().replace_socket(listening.file)
    await acceptor.close()
    return Acceptor(listening.socket, server)
