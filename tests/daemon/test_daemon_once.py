"""A request runs once and gets its answer, whatever happens to its connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemons import Daemon, Proxy, Raw, serving
from gates import Gate, again, blocking, with_asyncio
from system import wait_until

from shellsession import OutcomeUnknown, Result, connect
from shellsession.daemon.client import exchange
from shellsession.daemon.protocol.wire import encode
from shellsession.daemon.server.ledger import Ledger
from shellsession.daemon.server.server import Server

Client = Callable[[str, str, str], Result]


either = pytest.mark.parametrize("client", [blocking, with_asyncio], ids=["sync", "async"])


def test_a_request_that_comes_again_gets_the_one_answer(daemon: Daemon, gate: Gate) -> None:
    with Raw(daemon.socket) as first:
        first.open("again", gate.place)
        request, part = first.header("run", agent="again"), gate.text.encode()
        first.socket.sendall(encode(request, part))
        gate.until_begun()
    with ThreadPoolExecutor(2) as threads:  # while it runs, to whoever asked last
        with Raw(daemon.socket) as second:
            second.socket.sendall(encode(request, part))
            second.ask("list")
        answer = threads.submit(again, daemon.socket, request, part)
        with Raw(daemon.socket) as other:
            wait_until(lambda: other.ask("stats").header["value"]["connections"] == 2, "the third connection")
        gate.open()
        running = answer.result()
    assert (running.header["result"]["outcome"], running.parts[0]) == ("exited", b"begun\nended\n")
    assert again(daemon.socket, request, part) == running  # and after its end
    assert again(daemon.socket, request) == running  # what it was is not looked at any more
    assert gate.count == 1


def test_a_request_is_of_the_client_that_has_counted_it(daemon: Daemon, gate: Gate) -> None:
    """Another one neither uses its numbers up, nor takes its answer away, nor is given it."""
    with Raw(daemon.socket) as ours, Raw(daemon.socket) as other:
        ours.open("owned", gate.place)
        request, part = ours.header("run", agent="owned"), gate.text.encode()
        ours.socket.sendall(encode(request, part))
        gate.until_begun()
        far = {**request, "id": request["id"].rpartition(".")[0] + ".1000000"}
        for claimed in (request, far):
            for key in ("", other.hello["key"]):
                other.socket.sendall(encode({**claimed, "key": key}, part))
                assert other.receive().header["error"]["code"] == "protocol"
        gate.open()
        assert ours.receive().parts[0] == b"begun\nended\n"
        assert ours.run("owned", "true")["exit_code"] == 0
    assert gate.count == 1


@either
def test_a_client_that_lost_its_connection_asks_again(proxy: Proxy, gate: Gate, client: Client) -> None:
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(client, "lost", proxy.path, gate.text)
        for cuts in range(1, 4):
            gate.until_begun()
            proxy.cut()
            wait_until(lambda cuts=cuts: proxy.connections > cuts, "another connection")  # type: ignore[misc]
        gate.open()
        assert (result.result().stdout, result.result().exit_code) == ("begun\nended\n", 0)
    assert gate.count == 1


@either
def test_a_client_that_cannot_keep_a_connection_does_not_say_that_nothing_ran(
    proxy: Proxy, gate: Gate, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_RETRY_SECONDS", 0.2)
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(client, "flaky", proxy.path, gate.text)
        gate.until_begun()
        proxy.mute = True

        def lost() -> bool:
            proxy.cut()
            return result.done()

        wait_until(lost, "the client to give up")
        gate.open()
        with pytest.raises(OutcomeUnknown):
            result.result()
    assert gate.count == 1


@either
def test_a_client_bears_any_number_of_cuts_while_the_daemon_lives(proxy: Proxy, gate: Gate, client: Client) -> None:
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(client, f"many cuts {client.__name__}", proxy.path, gate.text)
        gate.until_begun()
        for _ in range(8):
            before = proxy.connections
            proxy.cut()
            wait_until(lambda before=before: proxy.connections > before or result.done(), "another")  # type: ignore[misc]
        gate.open()
        assert result.result().stdout == "begun\nended\n"
    assert gate.count == 1


@either
def test_a_request_that_never_arrived_is_sent_again(proxy: Proxy, gate: Gate, client: Client) -> None:
    with connect("arrived", proxy.path, False, cwd="/") as session:
        session.run("true")
    gate.open()
    with ThreadPoolExecutor(1) as threads:
        proxy.deaf = True
        result = threads.submit(client, "arrived", proxy.path, gate.text)
        wait_until(lambda: proxy.swallowed, "the request")
        proxy.deaf = False
        proxy.cut()
        assert result.result().stdout == "begun\nended\n"
    assert gate.count == 1


def test_an_interrupt_reaches_the_command_of_a_lost_connection(proxy: Proxy, gate: Gate) -> None:
    with connect("interrupt", proxy.path, False, cwd="/") as session, ThreadPoolExecutor(1) as threads:
        result = threads.submit(session.run, gate.text)
        gate.until_begun()
        proxy.cut()
        session.interrupt()
        assert result.result().outcome == "interrupted"


@contextmanager
def forgetful(path: str, **memory: float) -> Iterator[Server]:
    """A server in this process that keeps few answers."""
    with serving(path) as server:
        server._ledger = Ledger(server.incarnation, **memory)  # type: ignore[arg-type]
        yield server


@pytest.mark.parametrize("memory", [{"keep_bytes": 4000}, {"keep_seconds": 0.0}], ids=repr)
def test_an_answer_that_is_no_longer_kept_is_reported_as_such(
    tmp_path: Path, place: Path, memory: dict[str, float]
) -> None:
    path = str(tmp_path / "socket")
    with forgetful(path, **memory), Raw(path) as raw:
        raw.open("a", place)
        request = raw.header("run", agent="a")
        raw.socket.sendall(encode(request, b"echo run >>count"))
        assert raw.receive().header["result"]["exit_code"] == 0
        for _ in range(5):
            raw.ask("stats")
        reply = again(path, request, b"echo run >>count")
        assert reply.header["error"]["code"] == "result_expired"
    assert (place / "count").read_text(encoding="ascii") == "run\n"
