"""A client whose daemon has died gets one error; nothing runs twice, or in a fresh session without request."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from daemons import Proxy, Raw, running
from gates import Gate, again, blocking, with_asyncio
from system import PATIENCE, wait_until

from shellsession import DaemonUnavailable, OutcomeUnknown, SessionClosed, aconnect, connect
from shellsession.daemon.protocol.wire import encode


def test_a_new_daemon_runs_nothing_that_an_old_one_was_asked(tmp_path: Path, gate: Gate) -> None:
    with running(tmp_path / "daemon") as daemon, Raw(daemon.socket) as raw:
        raw.open("a", gate.place)
        request = raw.header("run", agent="a")
        raw.socket.sendall(encode(request, gate.text.encode()))
        gate.until_begun()
        daemon.stop(signal.SIGKILL)
        with running(tmp_path / "daemon") as daemon, Raw(daemon.socket) as raw:
            raw.open("a", gate.place)
            reply = again(daemon.socket, request, gate.text.encode())
            assert reply.header["error"]["code"] == "outcome_unknown"
            assert raw.agents()[0]["state"] == "new"
    assert gate.count == 1


@pytest.mark.parametrize("successor", [True, False], ids=["another daemon", "no daemon"])
def test_a_client_whose_daemon_died_is_notified(tmp_path: Path, place: Path, successor: bool) -> None:
    clients, gates = (blocking, with_asyncio), []
    with ExitStack() as running_too, running(tmp_path / "one") as one, ThreadPoolExecutor(2) as threads:
        path, results = one.socket, []
        if successor:
            two = running_too.enter_context(running(tmp_path / "two"))
            proxy = running_too.enter_context(Proxy(str(tmp_path / "proxy"), one.socket))
            path = proxy.path
        for client in clients:
            (place / client.__name__).mkdir()
            gates.append(Gate(place / client.__name__))
            results.append(threads.submit(client, client.__name__, path, gates[-1].text))
            gates[-1].until_begun()
        if successor:
            proxy.target = two.socket
        one.stop(signal.SIGKILL)
        for result in results:
            with pytest.raises(OutcomeUnknown):
                result.result(PATIENCE)
        if successor:
            with Raw(two.socket) as raw:
                assert raw.agents() == []
    assert [gate.count for gate in gates] == [1, 1]


def test_a_session_that_is_gone_is_reported_before_a_command_runs_in_a_fresh_one(tmp_path: Path, place: Path) -> None:
    with running(tmp_path / "daemon") as daemon, connect("lost", daemon.socket, False, cwd=place) as session:
        session.run("X=1")
        daemon.stop(signal.SIGKILL)
        with running(tmp_path / "daemon"):
            with pytest.raises(DaemonUnavailable, match="session"):
                session.run("touch never")
            assert not (place / "never").exists()
            assert session.run("echo [$X]; pwd").stdout == f"[]\n{place}\n"


def test_with_asyncio_too_a_session_that_is_gone_is_reported_once(tmp_path: Path) -> None:
    async def main(socket: str) -> None:
        async with await aconnect("lost", socket, False, cwd="/") as session:
            await session.run("X=1")
            daemon.stop(signal.SIGKILL)
            with running(tmp_path / "daemon"):
                with pytest.raises(DaemonUnavailable, match="session"):
                    _ = session.state
                assert (await session.run("echo [$X]")).stdout == "[]\n"
                with connect("lost", socket, False) as other:
                    other.close()
                with pytest.raises(SessionClosed):
                    _ = session.cwd
                assert session.closed

    with running(tmp_path / "daemon") as daemon:
        asyncio.run(main(daemon.socket))


def test_property_of_an_asyncio_session_that_is_gone_starts_no_daemon(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aconnect("lost", daemon.socket, cwd="/") as session:  # to connect may start one
            assert session.pid is None
            daemon.stop(signal.SIGKILL)
            with pytest.raises(DaemonUnavailable):
                _ = session.pid

    with running(tmp_path / "daemon") as daemon:
        asyncio.run(main())


def test_a_session_that_is_gone_is_reported_when_a_proxy_hides_it(tmp_path: Path, place: Path) -> None:
    """The connection ends a moment after the request was written: whether it arrived, nobody knows."""
    with (
        running(tmp_path / "one") as one,
        running(tmp_path / "two") as two,
        Proxy(str(tmp_path / "proxy"), one.socket) as proxy,
        connect("lost", proxy.path, False, cwd=place) as session,
        ThreadPoolExecutor(1) as threads,
    ):
        session.run("X=1")
        proxy.deaf = True
        result = threads.submit(session.run, "touch never")
        wait_until(lambda: proxy.swallowed, "the request")
        proxy.target, proxy.deaf = two.socket, False
        proxy.cut()
        with pytest.raises(OutcomeUnknown):
            result.result(PATIENCE)
        assert not (place / "never").exists()
        assert session.run("echo [$X]").stdout == "[]\n"


@pytest.mark.parametrize("told", [False, True])
def test_to_close_what_ended_with_its_daemon_starts_no_other(tmp_path: Path, told: bool) -> None:
    async def with_asyncio(socket: str) -> None:
        session = await aconnect("b", socket, cwd="/")
        assert daemon.stop() == 0
        await session.close()
        assert session.closed

    with running(tmp_path / "daemon") as daemon:
        session = connect("a", daemon.socket, cwd="/")
        asyncio.run(with_asyncio(daemon.socket))
    if told:
        with running(tmp_path / "daemon") as other, pytest.raises(DaemonUnavailable):
            session.run("true")
        assert other.process.poll() is not None
    session.close()
    assert session.closed
    assert not os.path.exists(daemon.socket)


def test_no_daemon_and_none_wanted(tmp_path: Path) -> None:
    with running(tmp_path / "daemon") as daemon, connect("a", daemon.socket, False, cwd="/") as session:
        session.run("true")
        assert daemon.stop() == 0
        for _ in range(2):
            with pytest.raises(DaemonUnavailable):
                session.run("true")
    with pytest.raises(DaemonUnavailable, match=str(tmp_path)):
        connect("a", tmp_path / "no such socket", False)
