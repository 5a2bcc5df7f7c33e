"""A real daemon process for tests, with its own socket and log, and nothing left of it afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import PATIENCE, wait_until


@dataclass(frozen=True)
class Daemon:
    """One that runs: its process, and where it listens and logs."""

    process: subprocess.Popen[bytes]
    socket: str
    audit: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it, and wait for its end; its status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def command(socket: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "shellsession", "serve", "--socket", socket, *options]


@contextmanager
def running(directory: Path, *options: str) -> Iterator[Daemon]:
    """A daemon in the foreground, of which ``directory`` (0700) holds everything."""
    directory.mkdir(mode=0o700, exist_ok=True)
    socket, audit = str(directory / "socket"), directory / "audit.jsonl"
    arguments = command(socket, "--audit", str(audit), *options)
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, cwd="/") as process:
        try:
            wait_until(lambda: os.path.exists(socket) or process.poll() is not None, "the daemon's socket")
            assert process.poll() is None, process.stderr and process.stderr.read().decode()
            yield Daemon(process, socket, audit)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(PATIENCE)
                finally:
                    process.kill()
