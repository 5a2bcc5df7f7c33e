"""A client that was handed back a command asks for that one, as long as anything is known of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemons import Daemon, running
from support import PATIENCE

from shellsession import TTY, DaemonUnavailable, NotRunning, RemoteSession, aconnect, connect

SOON = 0.3


@pytest.fixture
def sh(remote: RemoteSession) -> RemoteSession:
    return remote


@contextmanager
def killed(daemon: Daemon) -> Iterator[None]:
    daemon.process.send_signal(signal.SIGKILL)
    daemon.process.wait(PATIENCE)
    yield


def asks_here(other: RemoteSession) -> None:
    """Another client has a command that waits for input."""
    assert other.run("read x; echo got $x; read y", stdin=TTY).outcome == "input"


def test_what_was_handed_back_by_a_daemon_that_has_ended_is_not_asked_for_in_the_next(tmp_path: Path) -> None:
    with running(tmp_path / "daemon") as daemon, connect("lost", daemon.socket, False, cwd="/") as client:
        assert client.run("sleep 1000", timeout=SOON, on_timeout="yield").outcome == "running"
        with killed(daemon), running(tmp_path / "daemon"), connect("lost", daemon.socket, False, cwd="/") as other:
            with pytest.raises(DaemonUnavailable):
                client.run("true")
            assert client.run("true").exit_code == 0
            asks_here(other)
            assert client.send("hi\n").stdout == "got hi\n"


def test_a_twin_that_finds_another_daemon_forgets_what_the_last_one_handed_back(tmp_path: Path) -> None:
    async def main(socket: str) -> None:
        async with await aconnect("lost", socket, False, cwd="/") as session:
            assert (await session.run("sleep 1000", timeout=SOON, on_timeout="yield")).outcome == "running"
            with killed(daemon), running(tmp_path / "daemon"), connect("lost", socket, False, cwd="/") as other:
                with pytest.raises(DaemonUnavailable):
                    _ = session.state
                assert session.state == "new"  # the session is opened by who only looks, without a coroutine
                await asyncio.to_thread(asks_here, other)
                assert (await session.send("hi\n")).stdout == "got hi\n"

    with running(tmp_path / "daemon") as daemon:
        asyncio.run(main(daemon.socket))


def test_what_is_no_longer_known_of_a_command_is_said_once(daemon: Daemon, sh: RemoteSession) -> None:
    sh.run("sleep 1000", timeout=SOON, on_timeout="yield")
    with connect(sh.agent, daemon.socket, False) as other:
        assert other.interrupt().outcome == "interrupted"
        assert sh.run("true").exit_code == 0
        for _ in range(17):  # more than the ends that are kept
            other.run("sleep 1000", timeout=0.02, on_timeout="yield")
            other.interrupt()
        asks_here(other)
        with pytest.raises(NotRunning, match=r"wait\(\) tells how"):
            sh.send("hi\n")
        with pytest.raises(NotRunning, match="how is no longer known"):
            sh.wait(1)
        assert sh.send("hi\n").stdout == "got hi\n"
