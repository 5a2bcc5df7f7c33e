"""A daemon of the benchmark's own, with its socket and its log in a directory that goes with it."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

# Far longer than a daemon takes to start or to end, on any machine.
PATIENCE = 60.0
# Started by itself it would shut out who measures its memory and descriptors, and is not root.
_PROGRAM = "import sys; from shellsession.cli.main import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True)
class Served:
    """One that runs: its process, where it listens, and the directory that holds all its files."""

    process: "subprocess.Popen[bytes]"
    socket: str
    directory: str

    @property
    def pid(self) -> int:
        return self.process.pid


@contextlib.contextmanager
def served(runtime: bool = False) -> Iterator[Served]:
    """A daemon as a user would start it: with an audit log, and all its limits as they come.

    ``runtime``: what it makes while it runs is to be in its directory, too, in ``runtime``.
    """
    with tempfile.TemporaryDirectory(prefix="shellsession-bench-") as home:
        env = dict(os.environ)
        if runtime:
            env["XDG_RUNTIME_DIR"] = os.path.join(home, "runtime")
            os.mkdir(env["XDG_RUNTIME_DIR"], 0o700)
        path, audit = os.path.join(home, "socket"), os.path.join(home, "audit.jsonl")
        argv = [sys.executable, "-c", _PROGRAM, "serve", "--socket", path]
        argv += ["--audit", audit, "--log-level", "warning"]
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
    """Until it can be reached: the socket's file is there a moment earlier."""
    until = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError), socket.socket(socket.AF_UNIX) as ours:
            ours.connect(path)
            return
        if process.poll() is not None or time.monotonic() > until:
            raise AssertionError(f"the daemon did not start (status {process.returncode})")
        time.sleep(0.005)
