"""Other processes of the user have no access to ours, so no command can write its own result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ordinary
import pytest
from daemons import Daemon
from system import PATIENCE

_HIDING = ("unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh")


@contextmanager
def serving(place: Path, *wrapper: str) -> Iterator[tuple[str, int]]:
    """A daemon of an ordinary user; its socket and its pid."""
    socket = str(place / "run" / "socket")
    words = [*wrapper, *ordinary.shellsession("serve", "--socket", socket, "--patience", "0")]
    with subprocess.Popen(words, env=ordinary.environment(place), cwd="/", stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            assert b"listening at" in process.stderr.readline()
            yield socket, process.pid
        finally:
            process.terminate()


def running(place: Path, socket: str, command: str, *wrapper: str) -> str:
    """What `shellsession run` of that user prints."""
    words = [*wrapper, *ordinary.shellsession("run", "--no-start", "--socket", socket, "--", command)]
    done = subprocess.run(
        words, env=ordinary.environment(place), cwd="/", capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.stdout + done.stderr


def test_no_command_can_write_to_the_reader_of_its_result() -> None:
    with ordinary.home() as place, serving(place) as (socket, _):
        reading, writing = ordinary.pipe()
        words = ordinary.shellsession(
            "run", "--socket", socket, "--", ordinary.forging(reading, "passed") + "; echo failed"
        )
        with open(reading, encoding="utf-8") as told:
            with open(writing, "wb") as stdout:
                subprocess.run(
                    words, env=ordinary.environment(place), cwd="/", stdout=stdout, timeout=PATIENCE, check=True
                )
            assert told.read() == "failed\n"


@pytest.mark.parametrize("name", ["run", "serve"])
def test_no_process_of_the_same_user_looks_into_ours(name: str) -> None:
    with ordinary.home() as place, serving(place) as (socket, _):
        is_ours = f"grep -zqxF {name} $p/cmdline && grep -zqxF {socket} $p/cmdline"
        text = f"for p in /proc/[0-9]*; do {is_ours} && ls $p/fd; done 2>/dev/null; echo seen"
        assert running(place, socket, text) == "seen\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount /proc, and become somebody else")
def test_a_proc_that_hides_processes_keeps_no_client_from_its_daemon() -> None:
    """The daemon looks whether its client is in a container, and the client looks so at the daemon (hidepid)."""
    if subprocess.run([*_HIDING, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no such /proc can be had here")
    with ordinary.home() as place, serving(place, *_HIDING) as (socket, daemon):
        beside = ("nsenter", "--target", str(daemon), "--mount", "--")
        assert running(place, socket, "echo served", *beside) == "served\n"


_HOST = """
import ctypes, sys
from shellsession import Session, connect
from shellsession.cli.main import main

with Session() as sh, connect("host", sys.argv[1], False) as remote:
    sh.run("true")
    remote.run("true")
assert main(["run", "--socket", sys.argv[1], "--", "echo ran"]) == 0
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))  # PR_GET_DUMPABLE
"""


def test_a_program_that_imports_the_library_stays_as_it_is(daemon: Daemon) -> None:
    done = subprocess.run([sys.executable, "-c", _HOST, daemon.socket], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("ran\n1\n", "")
