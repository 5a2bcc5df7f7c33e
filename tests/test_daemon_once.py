"""What was asked once is run once, whatever becomes of connections, clients and daemons."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import finish, running as command_line
from daemons import Daemon, Proxy, Raw, running, serving, settled
from support import PATIENCE, wait_until

from shellsession import DaemonUnavailable, OutcomeUnknown, Result, ResultExpired, SessionClosed, aconnect, connect
from shellsession.daemon import exchange, server
from shellsession.daemon.ledger import Ledger
from shellsession.daemon.listener import Listener
from shellsession.daemon.server import Server
from shellsession.daemon.wire import Message, encode


class Gate:
    """A command that counts how often it is run, and ends when it is told to."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.text = f"cd {place}; echo run >>count; echo begun; until [ -e open ]; do sleep 0.05; done; echo ended"

    @property
    def count(self) -> int:
        path = self.place / "count"
        return len(path.read_text(encoding="ascii").splitlines()) if path.exists() else 0

    def open(self) -> None:
        (self.place / "open").touch()

    def until_begun(self) -> None:
        wait_until(lambda: self.count, "the command")


@pytest.fixture
def gate(place: Path) -> Gate:
    return Gate(place)


@pytest.fixture
def proxy(daemon: Daemon, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(str(tmp_path / "proxy"), daemon.socket) as proxy:
        yield proxy


Client = Callable[[str, str, str], Result]


def blocking(agent: str, socket: str, text: str) -> Result:
    with connect(agent, socket, False, cwd="/") as session:
        return session.run(text)


def with_asyncio(agent: str, socket: str, text: str) -> Result:
    async def main() -> Result:
        async with await aconnect(agent, socket, False, cwd="/") as session:
            return await session.run(text)

    return asyncio.run(main())


either = pytest.mark.parametrize("client", [blocking, with_asyncio], ids=["sync", "async"])


def again(path: str, request: dict[str, Any], *parts: bytes) -> Message:
    """The same request, with the same id, over another connection."""
    with Raw(path) as raw:
        raw.socket.sendall(encode(request, *parts))
        return raw.receive()


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
    monkeypatch.setattr(exchange, "_TRIED", 0.2)
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


def test_live_output_goes_on_over_another_connection(proxy: Proxy, gate: Gate) -> None:
    heard: list[bytes] = []
    text = gate.text.replace("sleep", "echo tick; sleep")
    with connect("live", proxy.path, False, cwd="/") as session, ThreadPoolExecutor(1) as threads:
        result = threads.submit(session.run, text, on_output=lambda _, data: heard.append(data))
        wait_until(lambda: heard, "the first output")
        proxy.cut()
        wait_until(lambda: proxy.connections > 1, "another connection")
        before = len(heard)
        wait_until(lambda: len(heard) > before, "output over it")
        gate.open()
        assert result.result().stdout.endswith("tick\nended\n")
    assert b"".join(heard).endswith(b"ended\n")


Hear = Callable[[str, bytes], None]


def live(agent: str, socket: str, text: str, listener: Hear) -> Result:
    with connect(agent, socket, False, cwd="/") as session:
        return session.run(text, on_output=listener)


def live_with_asyncio(agent: str, socket: str, text: str, listener: Hear) -> Result:
    async def take(stream: str, data: bytes) -> None:
        listener(stream, data)

    async def main() -> Result:
        async with await aconnect(agent, socket, False, cwd="/") as session:
            return await session.run(text, on_output=take)

    return asyncio.run(main())


@pytest.mark.parametrize("client", [live, live_with_asyncio], ids=["sync", "async"])
@pytest.mark.parametrize("late", [False, True], ids=["while it runs", "with its end"])
def test_live_output_that_a_lost_connection_swallowed_is_heard_once_and_in_order(
    proxy: Proxy, daemon: Daemon, place: Path, late: bool, client: Callable[[str, str, str, Hear], Result]
) -> None:
    heard = {"stdout": b"", "stderr": b""}
    os.mkfifo(place / "gate")
    agent = f"{client.__name__} {late}"
    text = f"exec 9<>{place}/gate; for n in 1 2 3 4; do read x <&9; echo $n; echo -$n >&2; done"

    def listener(stream: str, data: bytes) -> None:
        heard[stream] += data

    def step(number: int) -> None:
        (place / "gate").write_text("go\n")
        lines = b"%d\n" % number, b"-%d\n" % number

        def printed() -> bytes:
            return bytes(proxy.swallowed) if proxy.mute else b"".join(heard.values())

        wait_until(lambda: all(line in printed() for line in lines), "what it prints")

    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(client, agent, proxy.path, text, listener)
        step(1)
        proxy.mute = True
        step(2)
        step(3)
        if late:
            step(4)
            wait_until(lambda: b'"outcome":"exited"' in proxy.swallowed, "its end")
        proxy.mute = False
        proxy.cut()
        if not late:
            step(4)
        assert result.result(PATIENCE).exit_code == 0
    assert heard == {"stdout": b"1\n2\n3\n4\n", "stderr": b"-1\n-2\n-3\n-4\n"}


def test_a_flood_is_heard_whole_over_many_cuts(proxy: Proxy, place: Path) -> None:
    heard = bytearray()
    cuts = 0
    with connect("flood", proxy.path, False, cwd=place) as session, ThreadPoolExecutor(1) as threads:
        text = "head -c 30000000 /dev/urandom | tee all"
        result = threads.submit(session.run, text, tty=False, on_output=lambda _, data: heard.extend(data))
        while not result.done():
            size = len(heard)
            wait_until(lambda size=size: len(heard) > size + 3_000_000 or result.done(), "output")  # type: ignore[misc]
            cuts += not result.done()
            proxy.cut()
        assert result.result().exit_code == 0
    assert cuts >= 3
    assert heard == (place / "all").read_bytes()


_FLOOD = b"head -c 20000000 /dev/zero; touch ended"


def to_the_end(connection: Raw) -> list[int]:
    """Hear output and the result; from where to where each piece of output goes."""
    edges = []
    while "event" in (message := connection.receive()).header:
        edges += [message.header["at"], message.header["at"] + len(message.parts[0])]
    assert message.header["result"]["exit_code"] == 0
    return edges


@pytest.mark.parametrize("left_open", [False, True])
def test_what_is_told_again_is_taken_before_more_is_printed(daemon: Daemon, place: Path, left_open: bool) -> None:
    """A client comes back again and again, and each time it reads nothing before that connection is lost, too."""
    agent = f"again and again {left_open}"
    with Raw(daemon.socket) as other, ExitStack() as lost:
        other.open(agent, place)
        request = other.header("run", agent=agent, tty=False, live=True)
        for _ in range(10):
            one = lost.enter_context(Raw(daemon.socket))
            one.socket.sendall(encode(request, _FLOOD))
            assert one.receive().header["at"] == 0
            if not left_open:
                one.close()
            other.agents()
        with Raw(daemon.socket) as last:
            last.socket.sendall(encode(request, _FLOOD))
            edges = to_the_end(last)
    assert (edges[0], edges[1:-1:2], edges[-1]) == (0, edges[2::2], 20_000_000)


def test_who_was_long_away_once_is_waited_for_when_he_is_cut_again(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, text = str(tmp_path / "socket"), b"echo begun; until [ -e go ]; do sleep 0.05; done; " + _FLOOD
    with serving(path) as heart, Raw(path) as other:
        other.open("a", place)
        request = other.header("run", agent="a", tty=False, live=True)

        def cut() -> Listener:
            """He comes, hears the first word, and is cut."""
            with Raw(path) as one:
                one.socket.sendall(encode(request, text))
                assert one.receive().header["at"] == 0
            listener = heart._served[request["id"]]
            wait_until(lambda: listener.connection.is_gone, "the cut")
            return listener

        monkeypatch.setattr(server, "_GRACE", 0.01)
        wait_until(cut().abandoned.done, "the end of his time")
        monkeypatch.setattr(server, "_GRACE", PATIENCE)
        listener = cut()
        (place / "go").touch()
        wait_until(lambda: listener._at > len("begun\n"), "output that he does not hear")
        settled(lambda: listener._at, lambda: other.ask("stats"))
        with Raw(path) as last:
            last.socket.sendall(encode(request, text))
            edges = to_the_end(last)
    assert (edges[0], edges[1:-1:2], edges[-1]) == (0, edges[2::2], 20_000_006)


@pytest.mark.parametrize("client", [live, live_with_asyncio], ids=["sync", "async"])
def test_output_that_is_no_longer_kept_for_a_client_that_was_long_away_is_told_as_such(
    proxy: Proxy, daemon: Daemon, tmp_path: Path, place: Path, client: Callable[[str, str, str, Hear], Result]
) -> None:
    agent, text = f"long away {client.__name__}", f"cd {place}; {_FLOOD.decode()}"
    heard = bytearray()
    with socket.socket(socket.AF_UNIX) as silent, ThreadPoolExecutor(1) as threads:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()

        def listener(_: str, data: bytes) -> None:
            if not heard:
                proxy.target = str(tmp_path / "silent")
                proxy.cut()
            heard.extend(data)

        result = threads.submit(client, agent, proxy.path, text, listener)
        wait_until((place / "ended").exists, "what nobody hears")
        proxy.target = daemon.socket
        proxy.cut()
        with pytest.raises(ResultExpired, match="bytes of output"):
            result.result(PATIENCE)
    assert 0 < len(heard) < 17_000_000


def test_the_command_line_prints_every_byte_once_over_a_cut(proxy: Proxy, place: Path) -> None:
    os.mkfifo(place / "gate")
    text = f"head -c 700000 /dev/urandom | tee {place}/all; read x <{place}/gate; seq 100000 | tee -a {place}/all >&2"
    with (
        open(place / "printed", "wb") as printed,
        command_line(proxy.path, "run", "-s", "cut", "--merge-stderr", "--", text, stdout=printed) as process,
    ):
        wait_until(lambda: (place / "printed").stat().st_size > 100_000, "output")
        proxy.mute = True
        (place / "gate").write_text("go\n")
        wait_until(lambda: b"100000\n" in proxy.swallowed, "the rest of it")
        proxy.mute = False
        proxy.cut()
        assert finish(process) == (0, b"")
    assert (place / "printed").read_bytes() == (place / "all").read_bytes()


def test_an_interrupt_reaches_the_command_of_a_lost_connection(proxy: Proxy, gate: Gate) -> None:
    with connect("interrupt", proxy.path, False, cwd="/") as session, ThreadPoolExecutor(1) as threads:
        result = threads.submit(session.run, gate.text)
        gate.until_begun()
        proxy.cut()
        session.interrupt()
        assert result.result().outcome == "interrupted"


@contextmanager
def killed(daemon: Daemon) -> Iterator[None]:
    daemon.process.send_signal(signal.SIGKILL)
    daemon.process.wait(PATIENCE)
    yield


def test_a_new_daemon_runs_nothing_that_an_old_one_was_asked(tmp_path: Path, gate: Gate) -> None:
    with running(tmp_path / "daemon") as daemon, Raw(daemon.socket) as raw:
        raw.open("a", gate.place)
        request = raw.header("run", agent="a")
        raw.socket.sendall(encode(request, gate.text.encode()))
        gate.until_begun()
        with killed(daemon), running(tmp_path / "daemon") as daemon, Raw(daemon.socket) as raw:
            raw.open("a", gate.place)
            reply = again(daemon.socket, request, gate.text.encode())
            assert reply.header["error"]["code"] == "outcome_unknown"
            assert raw.agents()[0]["state"] == "new"
    assert gate.count == 1


@pytest.mark.parametrize("successor", [True, False], ids=["another daemon", "no daemon"])
def test_a_client_whose_daemon_died_is_told(tmp_path: Path, place: Path, successor: bool) -> None:
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
        with killed(one):
            for result in results:
                with pytest.raises(OutcomeUnknown):
                    result.result(PATIENCE)
        if successor:
            with Raw(two.socket) as raw:
                assert raw.agents() == []
    assert [gate.count for gate in gates] == [1, 1]


def test_a_session_that_is_gone_is_told_before_a_command_runs_in_a_fresh_one(tmp_path: Path, place: Path) -> None:
    with running(tmp_path / "daemon") as daemon, connect("lost", daemon.socket, False, cwd=place) as session:
        session.run("X=1")
        with killed(daemon), running(tmp_path / "daemon"):
            with pytest.raises(DaemonUnavailable, match="session"):
                session.run("touch never")
            assert not (place / "never").exists()
            assert session.run("echo [$X]; pwd").stdout == f"[]\n{place}\n"


def test_with_asyncio_too_a_session_that_is_gone_is_told_once(tmp_path: Path) -> None:
    async def main(socket: str) -> None:
        async with await aconnect("lost", socket, False, cwd="/") as session:
            await session.run("X=1")
            with killed(daemon), running(tmp_path / "daemon"):
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


def test_a_session_that_is_gone_is_told_when_a_proxy_hides_it(tmp_path: Path, place: Path) -> None:
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


@contextmanager
def forgetful(path: str, **memory: float) -> Iterator[Server]:
    """A server in this process that keeps few answers."""
    with serving(path) as server:
        server._ledger = Ledger(server.incarnation, **memory)  # type: ignore[arg-type]
        yield server


@pytest.mark.parametrize("memory", [{"keep_bytes": 4000}, {"keep_seconds": 0.0}], ids=repr)
def test_an_answer_that_is_no_longer_kept_is_told_as_such(
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


def test_output_that_was_told_is_kept_once_when_its_command_has_ended(tmp_path: Path, place: Path) -> None:
    """Not by what is still to be done for its client, too: a second of floods is much."""
    path = str(tmp_path / "socket")
    with serving(path), Raw(path) as raw:
        raw.open("a", place)
        request = raw.header("run", agent="a", tty=False, live=True, tell=True)
        raw.socket.sendall(encode(request, b"seq 100000"))
        assert to_the_end(raw)[-1] == len("".join(f"{number}\n" for number in range(1, 100_001)))
        listeners = [one for one in gc.get_objects() if isinstance(one, Listener)]
        assert listeners
        assert not any(listener._told for listener in listeners)
