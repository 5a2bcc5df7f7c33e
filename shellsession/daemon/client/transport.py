"""How a client connects to its daemon: here over a Unix socket. It starts the daemon if there is none.

The rest of the client knows only the protocols ``Transport`` and ``Channel``; ``via`` has another transport.
``UnixTransport.connect`` connects, takes the lock, connects again, and only then starts a daemon. So of many clients
that come at once, one starts it.
"""

from __future__ import annotations

import errno
import os
import sys
from _socket import MSG_NOSIGNAL  # see endpoint

from ...engine.kernel import proc
from ...errors import NO_PROCESS, DaemonUnavailable, VersionMismatch
from ..protocol.endpoint import PATIENCE, confined_marker, is_usual, peer, reach

TYPE_CHECKING = False

if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Sequence
    from typing import Any, Final, Protocol
else:
    Protocol = object


# What to do about a daemon in another container.
ELSEWHERE: Final = "name a socket that only clients here use, with SHELLSESSION_SOCKET, --socket or socket="
# With a larger buffer each recv maps and unmaps memory, which takes 15 us.
_CHUNK: Final = 1 << 16
# The variables that a daemon gets from the client that starts it. Sessions get their environment from their own client.
_PASSED_ON: Final = (
    *("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "USER", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
    "SHELLSESSION_AUDIT",
)
# Without these the client's Python may not start, or not find its packages.
_OF_PYTHON: Final = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONUSERBASE")


class ConnectionLost(Exception):
    """The daemon has ended, or closed this connection. ``untouched``: it got no byte of the request."""

    def __init__(self, untouched: bool = False) -> None:
        super().__init__("the connection to the daemon was lost")
        self.untouched = untouched


class Channel(Protocol):
    """One connection: an ordered stream of bytes in each direction. No call blocks. ``str`` names the peer."""

    spin: float  # for this many seconds it pays to poll for an answer before sleeping
    patience: float  # seconds that the peer has to greet

    @property
    def namespaces(self) -> str:
        """The ids of the namespaces in which the daemon must be: those of the process beside it that connects to it."""

    def fileno(self) -> int:
        """The descriptor to wait for."""

    def check(self) -> None:
        """Raise ConnectionLost if the peer has ended, and DaemonUnavailable if it must not get our requests."""

    def send(self, data: memoryview) -> int:
        """Send the first bytes of the data, and return how many. Raises BlockingIOError and OSError."""

    def receive(self) -> bytes:
        """The next bytes; b"" if the peer has closed the connection. Raises BlockingIOError and OSError."""

    def close(self) -> None: ...


class Transport(Protocol):
    """A way to connect to one daemon. ``str`` names the daemon's address."""

    # On this machine: ``reach`` takes microseconds, and a session inherits this process's directory and environment.
    is_local: bool

    def inherited(self) -> dict[str, Any]:
        """What a session inherits where the daemon is, as ``process_state`` describes it; {} on this machine.

        The request to open a session has that of this machine already. Raises DaemonUnavailable.
        """

    def reach(self) -> Channel | None:
        """A new connection; None if there is no daemon. Raises DaemonUnavailable."""

    def connect(self, start: bool) -> Channel:
        """A new connection. If there is no daemon, ``start`` starts one, which may take a while.

        Raises DaemonUnavailable.
        """


class SocketChannel:
    """A connection over a socket of ours. A subclass names its peer, and checks it."""

    patience = PATIENCE

    def __init__(self, ours: socket) -> None:
        ours.setblocking(False)
        self._socket = ours

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: memoryview) -> int:
        return self._socket.send(data, MSG_NOSIGNAL)

    def receive(self) -> bytes:
        return self._socket.recv(_CHUNK)

    def close(self) -> None:
        self._socket.close()


def not_reached(peer: object, why: str) -> DaemonUnavailable:
    """The error of a client that finds no daemon, or may not ask that. In a session on a branch it never may."""
    if proc.is_on_branch():
        why = f"a command of a session on a branch cannot reach the daemon at {peer}: ask from outside the session"
    return DaemonUnavailable(why)


class UnixChannel(SocketChannel):
    """A connection over a Unix socket."""

    # `true` takes the daemon 0.3 ms. Spinning saves a wake-up: 0.28 ms instead of 0.42 on two cores (on one core it
    # costs 0.03 ms).
    spin = 1e-3

    def __init__(self, ours: socket, path: str) -> None:
        super().__init__(ours)
        self._path = path
        self.pid = peer(ours)[0]  # of the process that listens; 0 if it is not visible in our PID namespace

    def __str__(self) -> str:
        return f"{self._path} (pid {self.pid})"

    @property
    def namespaces(self) -> str:
        return proc.namespaces()

    def detach(self) -> socket:
        """The socket itself, for a caller that goes on with it."""
        return self._socket

    def check(self) -> None:
        """Refuse a peer in another PID namespace, by what the kernel says of it.

        A command in a sandbox may be able to replace our socket, and would get our environment. Raises ConnectionLost
        and DaemonUnavailable.
        """
        if not self.pid:
            raise DaemonUnavailable(
                f"the process that listens at {self._path} runs outside this container: nothing was sent, as commands"
                f" would run there; {ELSEWHERE}"
            )
        if proc.is_below(self.pid):
            if not proc.alive(self.pid):
                raise ConnectionLost
            raise DaemonUnavailable(
                f"the process that listens at {self} runs in a sandbox or container: nothing was sent; {ELSEWHERE}"
            )


class UnixTransport:
    """Connects to a daemon on this machine, whose socket is at ``path``.

    ``serve``: options of `shellsession serve` for a daemon that it starts.
    """

    is_local = True

    def __init__(self, path: str, serve: Sequence[str] = ()) -> None:
        self._path, self._serve = path, serve

    def __str__(self) -> str:
        return self._path

    def inherited(self) -> dict[str, Any]:
        return {}

    def reach(self) -> UnixChannel | None:
        return None if (found := reach(self._path)) is None else UnixChannel(found, self._path)

    def connect(self, start: bool) -> UnixChannel:
        channel = self.reach()
        if channel is None:
            _refuse_older(self._path)
        if channel is None and (start or os.path.lexists(self._path)):  # a daemon may be about to listen there
            channel = self._connect_locked(start)
        if channel is not None:
            return channel
        if not start:
            raise not_reached(
                self._path,
                f"no daemon listens at {self._path}, so no agent has a session there: `shellsession run` starts one",
            )
        raise DaemonUnavailable(
            f"the daemon that was started at {self._path} ended at once: `shellsession serve` shows why"
        )

    def _connect_locked(self, start: bool) -> UnixChannel | None:
        """Connect when no other client is starting a daemon. If there is still none, ``start`` starts one."""
        from ..protocol.directory_lock import locked

        try:
            with locked(self._path) as lock:
                channel = self.reach()
                if channel is None and start:
                    if os.path.lexists(confined_marker(self._path)):
                        raise DaemonUnavailable(
                            f"the daemon at {self._path} was killed. It had a sandbox or rules for all sessions: start"
                            " it again with the same options of `shellsession serve`, or allow a plain one with"
                            f" `shellsession stop --socket {self._path}`"
                        )
                    _start(self._path, lock, self._serve)
                    channel = self.reach()
        except DaemonUnavailable:
            channel = self.reach()  # another client may have started a daemon all the same
            if channel is None and start:
                raise
        return channel


def _refuse_older(path: str) -> None:
    """Raise VersionMismatch if a daemon of an older version listens at the usual path of that, and ``path`` is ours."""
    older = os.path.join(os.path.dirname(path), "socket")
    if not is_usual(path) or (found := reach(older)) is None:
        return
    channel = UnixChannel(found, older)
    channel.close()
    if channel.pid and not proc.is_below(channel.pid):
        raise VersionMismatch(
            f"a daemon of an older version listens at {channel}: end it with `shellsession stop --socket {older}`"
        )


def _start(path: str, lock: int, options: Sequence[str]) -> None:
    """Start a daemon, and return when it listens. ``lock``: the descriptor from ``directory_lock.locked``."""
    import subprocess  # slow to import, and rarely needed

    command = [sys.executable, "-m", "shellsession", "serve", "--detach", "--socket", path, "--lock", str(lock)]
    command += options
    try:
        # This process ends when the daemon, its child, listens.
        done = subprocess.run(
            command,
            env=_environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(lock,),
            start_new_session=True,  # Ctrl-C at our terminal must not reach it
            check=False,
        )
    except OSError as error:
        why = NO_PROCESS if error.errno == errno.EAGAIN else error
        raise DaemonUnavailable(f"no daemon could be started: {why}") from error
    if done.returncode != 0:
        last_line = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        if done.returncode < 0:
            from ...text import signal_name

            last_line = f"it was killed at its start, by {signal_name(-done.returncode)}: try again"
        raise DaemonUnavailable(f"no daemon could be started: {last_line or f'status {done.returncode}'}")


def _environment() -> dict[str, str]:
    """The environment of a daemon that this client starts."""
    env = {name: value for name, value in os.environ.items() if name in (*_PASSED_ON, *_OF_PYTHON)}
    # The daemon runs from the same source tree as this client.
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    env["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    env["PYTHONUTF8"] = "1"  # the wire is UTF-8, whatever the locale of the client is
    return env
