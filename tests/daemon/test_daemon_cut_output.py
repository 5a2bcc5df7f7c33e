"""Live output over broken connections: each byte comes once and in order, or is reported as lost."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from commands import finish, running as command_line
from daemons import Daemon, Proxy, Raw, serving, settled
from gates import Gate
from system import PATIENCE, wait_until

from shellsession import Result, ResultExpired, aconnect, connect
from shellsession.daemon.protocol.wire import encode
from shellsession.daemon.server import server
from shellsession.daemon.server.connection import Listener


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
def test_live_output_that_a_lost_connection_swallowed_is_received_once_and_in_order(
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


def test_a_flood_is_received_whole_over_many_cuts(proxy: Proxy, place: Path) -> None:
    heard = bytearray()

    def hear(_: str, data: bytes) -> None:
        heard.extend(data)
        if len(heard) // 3_000_000 > (len(heard) - len(data)) // 3_000_000:
            proxy.cut()

    with connect("flood", proxy.path, False, cwd=place) as session:
        text = "head -c 30000000 /dev/urandom | tee all"
        assert session.run(text, tty=False, on_output=hear).exit_code == 0
    assert proxy.connections > 3
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
def test_what_is_reported_again_is_taken_before_more_is_printed(daemon: Daemon, place: Path, left_open: bool) -> None:
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
def test_output_that_is_no_longer_kept_for_a_client_that_was_long_away_is_reported_as_such(
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


def test_output_that_was_delivered_is_kept_once_when_its_command_has_ended(tmp_path: Path, place: Path) -> None:
    """Not by what is still to be done for its client, too: a second of floods is much."""
    path = str(tmp_path / "socket")
    with serving(path), Raw(path) as raw:
        raw.open("a", place)
        request = raw.header("run", agent="a", tty=False, live=True, tell=True)
        raw.socket.sendall(encode(request, b"seq 100000"))
        assert to_the_end(raw)[-1] == len("".join(f"{number}\n" for number in range(1, 100_001)))
        listeners = [one for one in gc.get_objects() if isinstance(one, Listener)]
        assert not any(listener._sent for listener in listeners)
