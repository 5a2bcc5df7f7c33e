"""A daemon for one benchmark. Its socket and its log are in a temporary directory."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

# Far longer than a daemon takes to start or to end on any machine.
PATIENCE = 60.0
# Not the usual start: that hides the memory and descriptors of the daemon from every measuring user but root.
_PROGRAM = "import sys; from shellsession.cli.main import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True)
class Served:
    """A running daemon: its process, its socket, and the directory with all its files."""

    process: "subprocess.Popen[bytes]"
    socket: str
    directory: str

    @property
    def pid(self) -> int:
        return self.process.pid


@contextlib.contextmanager
def served(runtime: bool = False) -> Iterator[Served]:
    """A daemon as a user would start it, with an audit log and the default limits.

    ``runtime``: also put the files that it makes while it runs into its directory, under ``runtime``.
    """
    with tempfile.TemporaryDirectory(prefix="shellsession-bench-") as home:
        env = dict(os.environ)
        if runtime:
            env["XDG_RUNTIME_DIR"] = os.path.join(home, "runtime")
            os.mkdir(env["XDG_RUNTIME_DIR"], 0o700)
        path, audit = os.path.join(home, "socket"), os.path.join(home, "audit.jsonl")
        argv = [sys.executable, "-c", _PROGRAM, "serve", "--socket", path]
        argv += ["--audit", audit, "--log-level", "warning", "--log-file", os.path.join(home, "log")]
        with subprocess.Popen(argv, env=env) as process:
            try:
                _wait_for(path, process)
                yield Served(process, path, home)
            finally:
                process.terminate()
                try:
                    process.wait(PATIENCE)
                finally:
                    process.kill()


def _wait_for(path: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the daemon can be reached. The file of its socket appears a moment earlier."""
    until = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError), socket.socket(socket.AF_UNIX) as ours:
            ours.connect(path)
            return
        if process.poll() is not None or time.monotonic() > until:
            raise AssertionError(f"the daemon did not start (status {process.returncode})")
        time.sleep(0.005)
