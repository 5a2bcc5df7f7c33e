"""The directory of the daemon's socket comes and goes with the user's hosts, and none fails because of that."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sandboxes
from daemons import answers
from system import PATIENCE, wait_until

from shellsession import DaemonUnavailable, Session, connect
from shellsession.cli.main import main
from shellsession.daemon.client import transport
from shellsession.daemon.protocol import directory_lock
from shellsession.daemon.protocol.directory_lock import locked
from shellsession.daemon.protocol.endpoint import socket_path
from shellsession.daemon.server import service
from shellsession.daemon.server.service import ListeningSocket

ours = sandboxes.ours


@pytest.fixture
def runtime(ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user's hosts have their directory; with a path that is short enough for a socket."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(ours))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("SHELLSESSION_SOCKET", raising=False)
    return ours


def once(monkeypatch: pytest.MonkeyPatch, where: object, name: str, meanwhile: Callable[[], object]) -> None:
    """Has something happen just before that function is called for the first time."""
    real, left = getattr(where, name), [meanwhile]

    def late(*given: Any, **named: Any) -> Any:
        if left:
            left.pop()()
        return real(*given, **named)

    monkeypatch.setattr(where, name, late)


@pytest.mark.parametrize("where", [(os, "open"), (fcntl, "flock")], ids=["opened", "locked"])
def test_a_directory_that_is_removed_before_it_is_locked_is_made_again(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, where: tuple[object, str]
) -> None:
    path = socket_path()
    directory = os.path.dirname(path)
    with monkeypatch.context() as patched:
        once(patched, *where, lambda: os.rmdir(directory))
        with locked(path) as lock:
            assert os.path.samestat(os.stat(directory), os.fstat(lock))


def test_a_directory_that_is_removed_before_its_socket_is_made_is_made_again(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last session of another host ends, which knows no lock."""
    path = socket_path()
    once(monkeypatch, service, "reach", lambda: os.rmdir(os.path.dirname(path)))
    door = ListeningSocket(path)
    assert door.in_place
    door.close()
    assert list(runtime.iterdir()) == []


def test_a_daemon_that_listens_by_now_is_used_where_the_lock_is_refused(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = socket_path()
    with socket.socket(socket.AF_UNIX) as listening:

        @contextmanager
        def refused(path: str) -> Iterator[int]:
            os.mkdir(os.path.dirname(path), 0o700)
            listening.bind(path)
            listening.listen()
            raise DaemonUnavailable("another client was quicker")
            yield -1

        monkeypatch.setattr(directory_lock, "locked", refused)
        with closing(transport.UnixTransport(path).connect(start=True)) as found:
            assert str(found) == f"{path} (pid {os.getpid()})"


@pytest.mark.parametrize("end", ["SIGTERM", "stop"])
def test_the_end_of_a_daemon_leaves_no_directory(runtime: Path, end: str) -> None:
    path = socket_path()
    with subprocess.Popen([sys.executable, "-m", "shellsession", "serve"], stderr=subprocess.DEVNULL, cwd="/") as serve:
        wait_until(lambda: answers(path), "the daemon")
        if end == "stop":
            assert main(["stop"]) == 0
        else:
            serve.terminate()
        assert serve.wait(PATIENCE) == 0
    assert list(runtime.iterdir()) == []


def test_the_end_of_a_daemon_leaves_the_directory_to_others(runtime: Path) -> None:
    with Session(cwd="/") as sh:
        door = ListeningSocket(socket_path())
        assert sh.run("echo hi").stdout == "hi\n"
        door.close()
        assert len(list(runtime.glob("*/*"))) == 1
    assert list(runtime.iterdir()) == []


def test_who_looks_for_a_daemon_makes_no_directory(runtime: Path) -> None:
    for verb in ("ls", "status", "stop"):
        main([verb])
    with pytest.raises(DaemonUnavailable, match="no daemon listens"):
        connect("a", start=False)
    assert list(runtime.iterdir()) == []
