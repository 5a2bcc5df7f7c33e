"""Ends daemons, with and without time for running commands, and checks that nothing is left of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import Daemon, Raw, running
from system import mentioning, with_argument

from shellsession import RemoteSession, connect


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory (XDG_RUNTIME_DIR) that only these tests use."""
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / name))
    yield tmp_path / "XDG_RUNTIME_DIR"
    for pid in mentioning(str(tmp_path / "daemon")):  # only a failed test leaves one
        os.kill(pid, signal.SIGTERM)


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path / "daemon", "--patience", "30") as daemon:
        yield daemon


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path / "daemon", "--patience", "0.1") as daemon:
        yield daemon


def shut_down(daemon: Daemon) -> None:
    with Raw(daemon.socket) as raw:
        raw.ask("shutdown")


def nothing_is_left(daemon: Daemon, runtime: Path, seconds: str = "") -> bool:
    there = os.path.exists(daemon.socket), with_argument(daemon.socket), os.listdir(runtime)
    return not any(there) and not (seconds and with_argument(seconds))


def session(daemon: Daemon, agent: str = "a", start: bool = False) -> RemoteSession:
    return connect(agent, daemon.socket, start, cwd="/", timeout=None)
