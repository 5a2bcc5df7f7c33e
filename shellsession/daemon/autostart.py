"""How a client finds its daemon, and starts one when there is none.

Law: connect, lock, connect again, start: of many clients that come at once, one starts it.
"""

from __future__ import annotations

import errno
import os
import sys

from ..errors import NO_PROCESS, DaemonUnavailable
from .directory_lock import locked
from .endpoint import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Final

# What a daemon may know of the client that happens to start it: sessions get theirs from their own clients.
_KEPT: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "USER", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
# Without these the client's own Python may not start, or not find what it has imported.
_OF_PYTHON: Final = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONUSERBASE")


def find(path: str, start: bool) -> socket:
    """A connection to the daemon at that path. Raises DaemonUnavailable."""
    if (found := reach(path)) is not None:
        return found
    if start or os.path.lexists(path):  # it may be just about to listen there
        try:
            with locked(path) as lock:
                if (found := reach(path)) is None and start:
                    _start(path, lock)
                    found = reach(path)
        except DaemonUnavailable:
            # Another client may have started one meanwhile. Without ``start`` it does not matter why there is none.
            if (found := reach(path)) is None and start:
                raise
    if found is None and not start:
        raise DaemonUnavailable(
            f"no daemon listens at {path}, so no agent has a session there: `shellsession run` starts one"
        )
    if found is None:
        raise DaemonUnavailable(f"the daemon that was started at {path} ended at once: `shellsession serve` shows why")
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
