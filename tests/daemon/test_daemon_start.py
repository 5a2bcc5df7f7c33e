"""The start of a daemon: one for all clients that connect at once, independent of the client that started it."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import homes
import pytest
from daemons import Raw, answers, command, looks_into_it, running
from homes import CLIENT, Home, finish
from system import PATIENCE, PYTHON, SOAK, in_thread, is_alive, stat_fields, wait_until

from shellsession import DaemonUnavailable, connect
from shellsession.daemon.client.transport import UnixTransport
from shellsession.daemon.protocol.directory_lock import locked

home = homes.home


def test_of_many_clients_that_come_at_once_one_starts_the_daemon(home: Home) -> None:
    clients = [home.client() for _ in range(20 if SOAK else 8)]
    for client in clients:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
    for client in clients:  # as near to each other as it gets
        assert client.stdin is not None
        client.stdin.write("go\n")
        client.stdin.flush()
    told = [finish(client) for client in clients]
    assert {errors for _, errors in told} == {""}
    pids, counts = zip(*(said.split() for said, _ in told), strict=True)
    assert home.daemons == [int(pids[0])]
    assert set(pids) == {pids[0]}
    assert sorted(map(int, counts)) == list(range(1, len(clients) + 1))  # one daemon, one session


BY_HAND = """
import os, subprocess, sys
socket = os.environ["SHELLSESSION_SOCKET"]
serve = [sys.executable, "-m", "shellsession", "serve", "--detach", "--socket", socket]
subprocess.run(serve, check=True, close_fds=False)
"""


@looks_into_it
@pytest.mark.parametrize("first", ["", BY_HAND], ids=["on demand", "by hand"])
def test_it_is_free_of_its_starter(home: Home, place: Path, first: str) -> None:
    """Its terminal, process group, session, directory, environment, and what it has open."""
    ours, theirs = pty.openpty()
    takes_terminal = "import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    home.env["SECRET_OF_STARTER"] = "opensesame"
    reading, writing = os.pipe()
    with home.client(
        takes_terminal + first + CLIENT,
        stdin=theirs,
        stderr=theirs,
        cwd=place,
        start_new_session=True,
        pass_fds=[writing],
    ) as client:
        os.close(theirs)
        os.close(writing)
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        os.write(ours, b"go\n")
        assert client.stdout.readline().split()[1] == "1"
        (daemon,) = home.daemons
        _, parent, group, session, terminal = stat_fields(daemon)[:5]
        _, _, starters_group, starters_session, starters_terminal = stat_fields(client.pid)[:5]
        assert starters_terminal != "0"
        assert terminal == "0"
        assert str(client.pid) not in (parent, group, session)
        assert (group, session) != (starters_group, starters_session)
        assert session != str(daemon)  # no leader: it can never get a terminal
        assert os.readlink(f"/proc/{daemon}/cwd") == "/"
        assert {os.readlink(f"/proc/{daemon}/fd/{number}") for number in (0, 1, 2)} == {"/dev/null"}
        if not first:
            assert b"opensesame" not in Path(f"/proc/{daemon}/environ").read_bytes()
        os.killpg(client.pid, signal.SIGKILL)
        assert client.stdout.read() == ""  # nobody else holds it, nor what it passed on to its children
        with open(reading, "rb") as inherited:
            assert inherited.read() == b""
    os.close(ours)  # the terminal hangs up
    with Raw(home.socket) as raw:
        assert raw.hello["pid"] == daemon
        assert raw.run("shared", "echo $((++n))")["exit_code"] == 0


NEEDY = """#!/bin/sh
for name in {names}; do
    [ "$(printenv $name)" = needed ] || {{ echo "python: no $name" >&2; exit 127; }}
done
unset {names}
exec {python} "$@"
"""


@looks_into_it
def test_a_python_that_needs_something_of_its_environment_starts_a_daemon(home: Home, tmp_path: Path) -> None:
    """As one does whose libpython is nowhere where the linker looks by itself."""
    names = "LD_LIBRARY_PATH PYTHONHOME PYTHONUSERBASE"
    python = tmp_path / "python"
    python.write_text(NEEDY.format(names=names, python=PYTHON), encoding="ascii")
    python.chmod(0o755)
    script = f"""
import os, sys
from shellsession import connect
sys.executable = {str(python)!r}
os.environ.update(dict.fromkeys({names.split()!r}, "needed"), LD_PRELOAD="/not/for/it")
with connect("a1", env={{"PATH": os.environ["PATH"]}}) as session:
    print(session.run("env | grep needed; echo $LD_PRELOAD; echo ran").stdout)
"""
    said, complaint = finish(home.client(script))
    assert (said.split(), complaint) == (["ran"], "")
    (daemon,) = home.daemons
    assert b"LD_PRELOAD" not in Path(f"/proc/{daemon}/environ").read_bytes()


def test_a_daemon_that_is_killed_at_its_start_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = tmp_path / "python"
    killed.write_text("#!/bin/sh\nkill -9 $$\n", encoding="ascii")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    with pytest.raises(DaemonUnavailable, match="no daemon could be started: it was killed at its start, by SIGKILL"):
        connect("a", tmp_path / "run" / "socket")


def test_a_socket_that_a_killed_daemon_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "daemon" / "run").mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "daemon" / "run" / "socket"))
    with running(tmp_path / "daemon") as daemon:
        assert answers(daemon.socket)
        assert daemon.stop() == 0
    assert not os.path.exists(daemon.socket)


def test_a_daemon_that_ends_makes_room_for_the_next(home: Home) -> None:
    """Clients that come while one ends are served by it, or by the next, or are told that it has ended."""
    finish(home.client(), "go\n")
    for _ in range(3 if SOAK else 1):
        (daemon,) = home.daemons
        clients = [home.client() for _ in range(3)]
        for client in clients:
            assert client.stdout is not None
            client.stdout.readline()
        os.kill(daemon, signal.SIGTERM)
        for client in clients:
            _, errors = finish(client, "go\n")
            assert errors == "" or errors.splitlines()[-1].split(":")[0].rpartition(".")[2] in TOLD
        wait_until(lambda gone=daemon: not is_alive(gone), "its end")  # type: ignore[misc]
        finish(home.client(), "go\n")
        assert answers(home.socket)


TOLD = ("DaemonUnavailable", "OutcomeUnknown", "SessionClosed")


def test_stopped_at_its_very_start_it_leaves_nothing(home: Home) -> None:
    for _ in range(5 if SOAK else 2):
        with subprocess.Popen(command(home.socket), env=home.env, stderr=subprocess.DEVNULL, cwd="/") as daemon:
            wait_until(lambda: os.path.exists(home.socket), "the socket")
            daemon.terminate()
            assert daemon.wait(PATIENCE) == 0
        assert not os.path.exists(home.socket)
        assert os.listdir(home.env["XDG_RUNTIME_DIR"]) == []


def test_who_comes_just_before_a_daemon_listens_waits_for_that(tmp_path: Path) -> None:
    """It has made its socket already, or made it again: a refusal there means no more than that."""
    place = tmp_path / "run"
    place.mkdir(mode=0o700)
    path, inode = str(place / "socket"), place.stat().st_ino
    with socket.socket(socket.AF_UNIX) as listening:
        with locked(path):
            listening.bind(path)
            thread, found = in_thread(lambda: UnixTransport(path).connect(start=False))
            locks = Path("/proc/locks")
            wait_until(lambda: re.search(rf"-> FLOCK .*:{inode} ", locks.read_text()), "the client at the lock")
            listening.listen()
        thread.join()
        assert str(found[0]) == f"{path} (pid {os.getpid()})"
        found[0].close()
