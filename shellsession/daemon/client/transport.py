"""How a client reaches its daemon: over a Unix socket, and it starts the daemon where there is none.

Law: no other module of the client knows what carries its bytes. Connect, lock, connect again, start: of many clients
that come at once, one starts the daemon.
"""

from __future__ import annotations

import errno
import os
import sys
from _socket import MSG_NOSIGNAL  # see endpoint

from ...engine.kernel import proc
from ...errors import NO_PROCESS, DaemonUnavailable
from ..protocol.endpoint import peer, reach

TYPE_CHECKING = False

if TYPE_CHECKING:
    from _socket import socket
    from typing import Final, Protocol
else:
    Protocol = object


# More, and memory is mapped and unmapped for each recv, which takes 15 us.
_CHUNK: Final = 1 << 16
# What a daemon may know of the client that happens to start it: sessions get theirs from their own clients.
_KEPT: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "USER", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
# Without these the client's own Python may not start, or not find what it has imported.
_OF_PYTHON: Final = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONUSERBASE")


class ConnectionLost(Exception):
    """The daemon has ended, or has closed this connection. ``untouched``: before it got a byte of the request."""

    def __init__(self, untouched: bool = False) -> None:
        super().__init__("the connection to the daemon was lost")
        self.untouched = untouched


class Channel(Protocol):
    """One connection: bytes in their order, both ways, and no call blocks. ``str`` names the peer, for messages."""

    def fileno(self) -> int:
        """The descriptor to wait for."""

    def check(self) -> None:
        """Raise ConnectionLost where the peer has ended, and DaemonUnavailable where it must not get our requests."""

    def send(self, data: memoryview) -> int:
        """Send the first bytes of it, and return how many. Raises BlockingIOError and OSError."""

    def receive(self) -> bytes:
        """The next bytes; b"" when the peer has closed it. Raises BlockingIOError and OSError."""

    def close(self) -> None: ...


class Transport(Protocol):
    """A way to one daemon. ``str`` names the daemon's place, for messages."""

    def reach(self) -> Channel | None:
        """A new connection; None where no daemon is. Raises DaemonUnavailable."""

    def connect(self, start: bool) -> Channel:
        """A new connection, to a daemon that is started if there is none and ``start`` is set. It may take a while.

        Raises DaemonUnavailable.
        """


class UnixChannel:
    """A connection over a Unix socket."""

    def __init__(self, ours: socket, path: str) -> None:
        ours.setblocking(False)
        self._socket, self._path = ours, path
        self.pid = peer(ours)[0]  # of the process that listens; 0 where it has no number in our PID namespace

    def __str__(self) -> str:
        return f"{self._path} (pid {self.pid})"

    def fileno(self) -> int:
        return self._socket.fileno()

    def check(self) -> None:
        """A command in a sandbox may be able to write where our socket is, and would get our environment."""
        if proc.is_confined(self.pid):
            if not proc.alive(self.pid):
                raise ConnectionLost
            raise DaemonUnavailable(
                f"what listens at {self} runs in a sandbox or container: nothing was sent; remove that socket, or name"
                " another"
            )

    def send(self, data: memoryview) -> int:
        return self._socket.send(data, MSG_NOSIGNAL)

    def receive(self) -> bytes:
        return self._socket.recv(_CHUNK)

    def close(self) -> None:
        self._socket.close()


class UnixTransport:
    """The way to a daemon of this machine, whose socket is at that path."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __str__(self) -> str:
        return self._path

    def reach(self) -> UnixChannel | None:
        return None if (found := reach(self._path)) is None else UnixChannel(found, self._path)

    def connect(self, start: bool) -> UnixChannel:
        path = self._path
        if (found := self.reach()) is not None:
            return found
        if start or os.path.lexists(path):  # it may be just about to listen there
            from ..protocol.directory_lock import locked

            try:
                with locked(path) as lock:
                    if (found := self.reach()) is None and start:
                        _start(path, lock)
                        found = self.reach()
            except DaemonUnavailable:
                # Another client may have started one meanwhile. Without ``start`` it does not matter why there is none.
                if (found := self.reach()) is None and start:
                    raise
        if found is None and not start:
            raise DaemonUnavailable(
                f"no daemon listens at {path}, so no agent has a session there: `shellsession run` starts one"
            )
        if found is None:
            raise DaemonUnavailable(
                f"the daemon that was started at {path} ended at once: `shellsession serve` shows why"
            )
        return found


def _start(path: str, lock: int) -> None:
    import subprocess  # dear, and seldom needed

    command = [sys.executable, "-m", "shellsession", "serve", "--detach", "--socket", path, "--lock", str(lock)]
    try:
        # It comes back when its child listens.
        done = subprocess.run(
            command,
            env=_environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(lock,),
            start_new_session=True,  # Ctrl-C at this terminal is not for it
            check=False,
        )
    except OSError as error:
        why = NO_PROCESS if error.errno == errno.EAGAIN else error
        raise DaemonUnavailable(f"no daemon could be started: {why}") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise DaemonUnavailable(f"no daemon could be started: {said or f'status {done.returncode}'}")


def _environment() -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name in (*_KEPT, *_OF_PYTHON)}
    # A client that runs from its own tree starts the daemon from there, too.
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    env["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    env["PYTHONUTF8"] = "1"  # what comes over the wire is UTF-8, whatever the locale of who starts it
    return env
