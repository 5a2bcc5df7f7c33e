"""Runs the command line as its users do, in real processes, and reads what they print."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import pytest
from daemons import Daemon
from system import PATIENCE
from warm import PROGRAM, Popen

from shellsession import RemoteSession, connect

Word = str | bytes


def environment(socket: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Our environment, without the variables that the command line reads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SHELLSESSION_", "NO_COLOR"))}
    return {**kept, "SHELLSESSION_SOCKET": socket, **extra}


def cli(
    socket: str,
    *words: Word,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: str = "/",
    patience: float = PATIENCE,
) -> subprocess.CompletedProcess[bytes]:
    """Run the command line to its end."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Popen([*PROGRAM, *words], env=environment(socket, env or {}), cwd=cwd, **pipes) as process:
        try:
            stdout, stderr = process.communicate(stdin, patience)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@contextmanager
def running(
    socket: str, *words: Word, env: Mapping[str, str] | None = None, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """The running command line; its streams are pipes, unless ``options`` say otherwise."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a child inherits an ignored SIGINT (nohup)
    process = Popen([*PROGRAM, *words], env=environment(socket, env or {}), cwd="/", bufsize=0, **options)
    signal.signal(signal.SIGINT, before)
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def seen_on_stderr(daemon: Daemon, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], BinaryIO]]:
    """The command line with a terminal as its stderr, and that terminal. Read lines: the kernel may split them."""
    master, slave = os.openpty()
    with (
        open(master, "rb") as screen,
        open(slave, "wb") as stderr,
        running(daemon.socket, *words, stderr=stderr) as process,
    ):
        yield process, screen


def all_shown(main: int) -> bytes:
    """All that was written to the terminal behind ``fd``, once no process has it open any more."""
    shown = b""
    with suppress(OSError):  # at the end reading fails with EIO
        while piece := os.read(main, 1 << 16):
            shown += piece
    os.close(main)
    return shown


def line(process: subprocess.Popen[bytes]) -> bytes:
    """The next line on the process's stdout."""
    assert process.stdout is not None
    return process.stdout.readline()


def finish(process: subprocess.Popen[bytes], number: signal.Signals | None = None) -> tuple[int, bytes]:
    """Send a signal, and wait for the end. Returns the status and stderr."""
    if number is not None:
        process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE)
    return process.returncode, stderr


def opened(agent: str, daemon: Daemon, **options: Any) -> RemoteSession:
    """Open the agent's session, with options that the command line does not have."""
    return connect(agent, daemon.socket, False, cwd="/", **options)


@pytest.fixture
def agent(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[str]:
    """The name of an agent that only this test uses, with an open session."""
    with connect(request.node.name[:200], daemon.socket, False, cwd="/") as session:
        yield session.agent
        session.close()


def session(agent: str, daemon: Daemon) -> RemoteSession:
    return connect(agent, daemon.socket, False)
