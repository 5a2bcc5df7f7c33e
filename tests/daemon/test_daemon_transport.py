"""A session over another transport than the daemon's socket: the pipes of a process, as with ssh."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon
from gates import Gate
from system import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import RemoteSession, Result
from shellsession.daemon.client import exchange
from shellsession.daemon.client.async_session import AsyncRemoteSession
from shellsession.daemon.client.remote import opening
from shellsession.engine.kernel.proc import namespaces

RELAY = """
import os, select, socket, sys
daemon = socket.socket(socket.AF_UNIX)
daemon.connect(sys.argv[1])
ways = {0: daemon.fileno(), daemon.fileno(): 1}
while True:
    for end in select.select([*ways], [], [])[0]:
        if not (data := os.read(end, 1 << 16)):
            sys.exit()
        while data:
            data = data[os.write(ways[end], data):]
"""


class RelayChannel:
    """The stdin and stdout of a process that passes everything on."""

    spin, patience = 0.0, PATIENCE

    def __init__(self, path: str) -> None:
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        with theirs:
            end = theirs.fileno()
            self.process = subprocess.Popen([sys.executable, "-c", RELAY, path], stdin=end, stdout=end)

    @property
    def namespaces(self) -> str:
        return namespaces()

    def fileno(self) -> int:
        return self._ours.fileno()

    def check(self) -> None:
        pass

    def send(self, data: memoryview) -> int:
        return self._ours.send(data)

    def receive(self) -> bytes:
        return self._ours.recv(1 << 16)

    def close(self) -> None:
        self._ours.close()
        self.process.wait(PATIENCE)


class RelayTransport:
    is_local = True

    def __init__(self, path: str) -> None:
        self._path = path
        self.channels: list[RelayChannel] = []

    def inherited(self) -> dict[str, Any]:
        return {}

    def reach(self) -> RelayChannel:
        self.channels.append(RelayChannel(self._path))
        return self.channels[-1]

    def connect(self, start: bool) -> RelayChannel:
        return self.reach()


def blocking(transport: RelayTransport, options: dict[str, Any], text: str, **how: Any) -> Result:
    with RemoteSession("relayed", transport, False, options) as session:
        return session.run(text, **how)


def with_asyncio(transport: RelayTransport, options: dict[str, Any], text: str, **how: Any) -> Result:
    async def main() -> Result:
        async with AsyncRemoteSession("relayed", transport, False, options) as session:
            return await session.run(text, **how)

    return asyncio.run(main())


Client = Callable[..., Result]
either = pytest.mark.parametrize("client", [blocking, with_asyncio], ids=["sync", "async"])


@pytest.fixture
def transport(daemon: Daemon) -> Iterator[RelayTransport]:
    transport = RelayTransport(daemon.socket)
    yield transport
    with RemoteSession("relayed", transport, False, opening({})) as session:
        session.close()


@either
def test_a_command_whose_connection_is_cut_runs_once(
    transport: RelayTransport, gate: Gate, place: Path, client: Client
) -> None:
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(client, transport, opening({"cwd": place}), gate.text)
        gate.until_begun()
        transport.channels[0].process.kill()
        wait_until(lambda: len(transport.channels) == 2, "another connection")
        gate.open()
        assert result.result(PATIENCE).stdout == "begun\nended\n"
    assert gate.count == 1


@either
def test_a_command_that_is_left_is_ended(transport: RelayTransport, place: Path, client: Client) -> None:
    class Left(BaseException):
        pass

    def leave(*_: object) -> None:
        raise Left

    seconds = unique_seconds()
    with pytest.raises(Left):
        client(transport, opening({"cwd": place}), f"X=kept; echo begun; sleep {seconds}", on_output=leave)
    assert with_argument(seconds) == []
    assert client(transport, opening({}), "echo $X").stdout == "kept\n"


def test_a_request_that_no_daemon_takes_has_its_attempts() -> None:
    retries = exchange.Retries()
    for _ in range(2):
        moments = [retries.next_moment(is_sent=False) for _ in range(exchange._ATTEMPTS)]
        assert [moment is None for moment in moments] == [False] * (exchange._ATTEMPTS - 1) + [True]
        retries.reset()
