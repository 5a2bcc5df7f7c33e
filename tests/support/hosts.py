"""Host programs with a session."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from system import wait_until, with_argument

HOST = """
import sys
from shellsession import Session
session = Session(cwd="/")
session.run(sys.argv[1])
print(session.pid, flush=True)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a directory of our own. Else another host, at its start, could remove what a watcher here has left."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """The hosts that a test starts. They always end with the test."""
    hosts: list[subprocess.Popen[str]] = []
    yield hosts
    for host in hosts:
        with host:
            host.kill()


def start(hosts: list[subprocess.Popen[str]], program: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *arguments]
    pipe = subprocess.PIPE
    hosts.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True))
    return hosts[-1]


def watcher_of(host: subprocess.Popen[str]) -> int:
    (pid,) = wait_until(lambda: [pid for pid in with_argument(str(host.pid)) if pid != host.pid], "the watcher")
    return pid
