"""A client of a broken or foreign daemon gets a ProtocolError, whatever is missing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from system import PATIENCE

from shellsession import ProtocolError, RemoteSession, aconnect, connect
from shellsession.daemon.client.admin import stats
from shellsession.daemon.protocol.wire import PROTOCOL, Decoder, encode
from shellsession.engine.kernel.proc import namespaces

HELLO: dict[str, Any] = {
    **{"protocol": PROTOCOL, "version": "0", "incarnation": "x"},
    **{"connection": 1, "key": "k", "pid": 1, "namespaces": namespaces()},
}
OUTPUT: dict[str, Any] = {"event": "output", "stream": "stdout", "at": 0}
Reply = tuple[dict[str, Any], tuple[bytes, ...]]


def answering(listener: socket.socket, hello: dict[str, Any], replies: dict[str, Reply]) -> None:
    """Serve one connection after the other until the listener is closed."""
    with suppress(OSError):
        while True:
            ours, _ = listener.accept()
            with ours:
                ours.settimeout(PATIENCE)
                ours.sendall(encode(hello))
                decoder = Decoder()
                while data := ours.recv(1 << 16):
                    for message in decoder.feed(data):
                        header, parts = replies.get(
                            message.header["verb"], ({"value": True, "session": 1, "timeout": None}, ())
                        )
                        ours.sendall(encode({"id": message.header["id"], **header}, *parts))


@contextmanager
def faulty(place: Path, hello: dict[str, Any], replies: dict[str, Reply]) -> Iterator[str]:
    path = str(place / "socket")
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as threads:
        listener.bind(path)
        listener.listen()
        serving = threads.submit(answering, listener, hello, replies)
        try:
            yield path
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.result(PATIENCE)


@pytest.mark.parametrize("name", ["incarnation", "connection", "pid"])
@pytest.mark.parametrize("value", [None, [], 1.5])
def test_a_greeting_without_a_proper_field(tmp_path: Path, name: str, value: object) -> None:
    with (
        faulty(tmp_path, {**HELLO, name: value}, {}) as path,
        pytest.raises(ProtocolError, match=f"is not a shellsession daemon.* without a valid '{name}'"),
    ):
        connect("a", path, False)


def listening(session: RemoteSession) -> object:
    return session.run("true", on_output=lambda *_: None)


Verb = Callable[[RemoteSession], object]
ANSWERS: dict[str, tuple[str, Reply, Verb]] = {
    "no result": ("run", ({"value": 1}, ()), lambda sh: sh.run("true")),
    "a result that is none": ("run", ({"result": 7}, (b"", b"")), lambda sh: sh.run("true")),
    "an error that is none": ("run", ({"error": 7}, ()), lambda sh: sh.run("true")),
    "output from nowhere": ("run", ({**OUTPUT, "at": None}, (b"x",)), listening),
    "output of no stream": ("run", ({**OUTPUT, "stream": 1}, (b"x",)), listening),
    "output without any": ("run", (OUTPUT, ()), listening),
    "an answer to something else": ("poll", ({"id": "x.1.1", "value": 1}, ()), lambda sh: sh.poll()),
    "no pid": ("info", ({"value": {}}, (b"",)), lambda sh: sh.pid),
    "no state": ("info", ({"value": {}}, (b"",)), lambda sh: sh.state),
    "no idle": ("info", ({"value": {"idle": "x"}}, (b"",)), lambda sh: sh.idle),
    "no information": ("info", ({"value": 1}, (b"",)), lambda sh: sh.cwd),
    "no command": ("info", ({"value": {}}, ()), lambda sh: sh.command),
    "jobs that are none": ("jobs", ({"value": None}, (b"[7]",)), lambda sh: sh.jobs()),
    "a job without a number": ("jobs", ({"value": None}, (b"[{}]",)), lambda sh: sh.jobs()),
}


@pytest.mark.parametrize(("verb", "reply", "ask"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_without_a_proper_field(tmp_path: Path, verb: str, reply: Reply, ask: Verb) -> None:
    with (
        faulty(tmp_path, HELLO, {verb: reply}) as path,
        connect("a", path, False) as session,
        pytest.raises(ProtocolError, match=r"the peer sent|the daemon replied"),
    ):
        ask(session)


def test_the_same_for_asyncio(tmp_path: Path) -> None:
    async def main(path: str) -> None:
        async with aconnect("a", path, False) as session:
            with pytest.raises(ProtocolError, match="the peer sent"):
                await session.run("true", on_output=lambda *_: None)

    with faulty(tmp_path, HELLO, {"run": ({**OUTPUT, "at": None}, (b"x",))}) as path:
        asyncio.run(main(path))


def test_statistics_that_are_none(tmp_path: Path) -> None:
    with faulty(tmp_path, HELLO, {"stats": ({"value": 7}, ())}) as path, pytest.raises(ProtocolError):
        stats(path)
