"""Real daemon processes for tests, each with its own socket and log, and clients for them. Nothing is left of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from system import PATIENCE, stat_fields, wait_until
from warm import PROGRAM, Popen

from shellsession import AsyncAgents, RemoteSession, SessionBusy
from shellsession.daemon.protocol.messages import from_part
from shellsession.daemon.protocol.wire import PROTOCOL, Decoder, Message, encode
from shellsession.daemon.server.audit import BEGAN
from shellsession.daemon.server.connection import Connection
from shellsession.daemon.server.server import Server

# A daemon hides its descriptors, environment and directory from the other processes of its user.
looks_into_it = pytest.mark.skipif(os.getuid() != 0, reason="only root may look into a daemon's process")


@dataclass(frozen=True)
class Daemon:
    """A running daemon: its process, its socket and its log."""

    process: subprocess.Popen[bytes]
    socket: str
    audit: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> str:
        """What the daemon wrote on stderr."""
        return self.audit.with_name("stderr").read_text(encoding="utf-8")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end. Returns the status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def logged(self, agent: str) -> list[dict[str, Any]]:
        """The lines of the audit log about how that agent's commands ended."""
        return [line for line in self.lines(agent) if line["outcome"] != BEGAN]

    def lines(self, agent: str) -> list[dict[str, Any]]:
        """The lines of the audit log about that agent."""
        text = self.audit.read_text(encoding="ascii") if self.audit.exists() else ""
        lines = map(json.loads, text[: text.rfind("\n") + 1].splitlines())  # the last one may be incomplete
        return [line for line in lines if line["agent"] == agent]


class stopped:
    """Stop a process (0: none) for the duration of the block."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGSTOP)
            wait_until(lambda: stat_fields(self._pid)[0] == "T", "its standstill")

    def __exit__(self, *_: object) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGCONT)


def command(socket: str, *options: str) -> list[str]:
    return [*PROGRAM, "serve", "--socket", socket, *options]


@contextmanager
def running(directory: Path, *options: str, env: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    """A daemon in the foreground, with all its files in ``directory``. It makes the directory of its socket itself."""
    directory.mkdir(exist_ok=True)
    socket, audit = str(directory / "run" / "socket"), directory / "audit.jsonl"
    arguments = command(socket, "--audit", str(audit), *options)
    with (
        open(directory / "stderr", "wb") as stderr,
        Popen(arguments, stderr=stderr, cwd="/", env=None if env is None else dict(env)) as process,
    ):
        daemon = Daemon(process, socket, audit)
        try:
            wait_until(lambda: answers(socket, process.pid) or process.poll() is not None, "the daemon")
            assert process.poll() is None, daemon.said
            yield daemon
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(PATIENCE)
                finally:
                    process.kill()


@contextmanager
def serving(path: str) -> Iterator[Server]:
    """A daemon's server in a thread of this process, for tests that change it from inside."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)

    async def begin() -> tuple[Server, asyncio.Server]:
        server = Server(AsyncAgents())
        return server, await loop.create_unix_server(lambda: Connection(server), path)

    async def end(server: Server, listener: asyncio.Server) -> None:
        listener.close()
        await server.finish(0)
        await server.part()

    thread.start()
    try:
        served = asyncio.run_coroutine_threadsafe(begin(), loop).result(PATIENCE)
        yield served[0]
        asyncio.run_coroutine_threadsafe(end(*served), loop).result(PATIENCE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def answers(path: str, pid: int | None = None) -> bool:
    """True if a daemon greets at that socket: any, or the named one."""
    try:
        with Raw(path) as raw:
            return pid in (None, raw.hello["pid"])
    except (OSError, EOFError):
        return False


def settled(question: Callable[[], int], meanwhile: Callable[[], object]) -> int:
    """The value of a number once it does not change any more."""
    before = -1
    while (now := question()) != before:
        before = now
        for _ in range(100):
            meanwhile()
    return now


def refused(session: RemoteSession) -> bool:
    """True if a command is refused there, because another one runs or a client holds the session."""
    try:
        session.run("true")
    except SessionBusy:
        return True
    return False


class Raw:
    """A client that sends exactly what a test gives it: one connection, and the messages that come over it."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self._decoder, self._messages = Decoder(), deque[Message]()
        self._number = 0
        try:
            self.socket.connect(path)
            self.hello = self.receive().header
        except (OSError, EOFError):
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def header(self, verb: str, /, **fields: object) -> dict[str, Any]:
        """A valid request, changed by ``fields``; a field that is ``...`` is left out."""
        self._number += 1
        number = f"{self.hello['incarnation']}.{self.hello['connection']}.{self._number}"
        header = {"protocol": PROTOCOL, "id": number, "key": self.hello["key"], "verb": verb, **fields}
        return {name: value for name, value in header.items() if value is not ...}

    def say(self, verb: str, *parts: bytes, **fields: object) -> str:
        """Send a request. Returns its id."""
        header = self.header(verb, **fields)
        self.socket.sendall(encode(header, *parts))
        return str(header["id"])

    def ask(self, verb: str, *parts: bytes, **fields: object) -> Message:
        """Send a request. Returns its reply, which must be the next message."""
        request = self.say(verb, *parts, **fields)
        reply = self.receive()
        assert reply.header["id"] == request
        return reply

    def run(self, agent: str, text: str, **fields: object) -> dict[str, Any]:
        """Run a command. Returns the header of its result."""
        result: dict[str, Any] = self.ask("run", text.encode(), agent=agent, **fields).header["result"]
        return result

    def agents(self) -> list[dict[str, Any]]:
        """The daemon's list of agents."""
        return from_part(self.ask("list").parts)

    def open(self, agent: str, cwd: object = "/", **fields: object) -> Message:
        """Open the session of an agent with a fixed environment."""
        given = {"env": {"PATH": os.environ["PATH"]}, "inherited": True, "umask": 0o022, **fields}
        return self.ask("open", agent=agent, cwd=str(cwd), **given)

    def receive(self) -> Message:
        """The next message. Raises EOFError at the end of the connection."""
        while not self._messages:
            if not (data := self.socket.recv(1 << 16)):
                self._decoder.end()
                raise EOFError
            self._messages.extend(self._decoder.feed(data))
        return self._messages.popleft()


class Proxy:
    """A relay between clients and a daemon, where a test can cut the connections.

    ``deaf``: drop what clients send. ``mute``: drop what the daemon sends, and keep it in ``swallowed``. ``target`` may
    name another daemon for the next connections.
    """

    def __init__(self, path: str, target: str) -> None:
        self.path, self.target = path, target
        self.deaf = self.mute = False
        self.connections, self.swallowed = 0, bytearray()
        self._ends: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._listener:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._threads.pop(0).join()
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """Close every present connection. A client that comes back at once keeps its new one."""
        ends = self._ends[:]
        del self._ends[: len(ends)]
        for end in ends:
            _end(end)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(client,)))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as daemon:
            with suppress(OSError):
                daemon.connect(self.target)
            self._ends += client, daemon
            self.connections += 1
            back = threading.Thread(target=self._pass_on, args=(daemon, client, False))
            back.start()
            self._pass_on(client, daemon, True)
            back.join()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_client: bool) -> None:
        torn = False  # something was dropped, so what comes after it would be misread
        with suppress(OSError):
            while data := source.recv(1 << 16):
                torn = torn or (self.deaf if is_client else self.mute)
                if torn:
                    self.swallowed += data
                else:
                    sink.sendall(data)
        _end(source)
        _end(sink)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def seen(raw: Raw, last: str = "result", times: int = 1) -> list[Message]:
    """The events that come, up to the last of so many with that name."""
    events: list[Message] = []
    while times:
        events.append(raw.receive())
        times -= events[-1].header["event"] == last
    return events


def connections(raw: Raw) -> int:
    return int(raw.ask("stats").header["value"]["connections"])


def served(raw: Raw) -> int:
    """How many requests are being served, this one included."""
    return int(raw.ask("stats").header["value"]["serving"])
