"""Directories where clients and a daemon find each other, and the clients that start there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from daemons import command
from system import PATIENCE, command_line, wait_until, with_argument

# A client that prints when it is ready, connects when it reads a line, and then prints what it found.
CLIENT = """
import sys
from shellsession import connect, errors
from shellsession.daemon.protocol.wire import Message
print("ready", flush=True)
sys.stdin.readline()
with connect("shared") as session:
    count = session.run("echo $((++n))").stdout.strip()
    print(session.ask(Message({"verb": "stats"}, ())).header["value"]["pid"], count, flush=True)
    sys.stdin.readline()
"""


@dataclass(frozen=True)
class Home:
    """A place where only these clients and this daemon find each other."""

    socket: str
    env: dict[str, str]
    clients: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def daemons(self) -> list[int]:
        return [pid for pid in with_argument(self.socket) if b"serve" in command_line(pid).split(b"\0")]

    def client(self, script: str = CLIENT, **options: Any) -> subprocess.Popen[str]:
        given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": "/", **options}
        self.clients.append(subprocess.Popen([sys.executable, "-c", script], env=self.env, text=True, **given))
        return self.clients[-1]

    def serve(self) -> subprocess.CompletedProcess[str]:
        """Run a daemon that must refuse to start."""
        arguments = command(self.socket)
        return subprocess.run(arguments, env=self.env, capture_output=True, text=True, timeout=PATIENCE, cwd="/")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    places = {name: str(tmp_path / name) for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME")}
    for place in places.values():
        os.mkdir(place, 0o700)
    path = str(tmp_path / "run" / "socket")
    found = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    home = Home(path, {**found, "SHELLSESSION_SOCKET": path, **places})
    yield home
    for client in home.clients:  # no client may start another daemon when its stdin is closed
        client.kill()
        with client:
            pass
    for pid in home.daemons:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not home.daemons, "the end of the daemon")


def finish(client: subprocess.Popen[str], line: str = "\n") -> tuple[str, str]:
    """The client's stdout until its end, and its stderr."""
    with client:
        try:
            return client.communicate(line, timeout=PATIENCE)
        finally:
            client.kill()
