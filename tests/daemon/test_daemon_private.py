"""Only its user can use a daemon: private directory and socket, a check of the peer's user, and no network."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemons import Daemon, Raw, looks_into_it, running
from system import PATIENCE, wait_until

from shellsession import DaemonUnavailable, ShellSessionError, connect
from shellsession.cli.main import main
from shellsession.daemon.protocol.wire import PROTOCOL, encode

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """One to whose directory everybody may come, but for the mode of that one itself."""
    outside = Path(tempfile.mkdtemp(prefix="shellsession-test-"))
    outside.chmod(0o755)
    try:
        with running(outside / "ours") as daemon:
            (outside / "ours").chmod(0o755)
            yield daemon
    finally:
        shutil.rmtree(outside)


@pytest.fixture(autouse=True)
def as_it_was_born(daemon: Daemon) -> Iterator[None]:
    yield
    os.chmod(os.path.dirname(daemon.socket), 0o700)
    os.chmod(daemon.socket, 0o600)


def mode(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_the_socket_and_its_directory_are_private(tmp_path: Path) -> None:
    """Whatever the umask is, and though the daemon makes both itself."""
    before = os.umask(0)
    try:
        with running(tmp_path / "daemon") as daemon:
            assert (mode(daemon.socket), mode(os.path.dirname(daemon.socket))) == (0o600, 0o700)
    finally:
        os.umask(before)


@as_root
def test_a_socket_where_none_can_be_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o600)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    theirs = tmp_path / "theirs"
    theirs.mkdir(0o700)
    os.chown(theirs, 65534, 65534)
    (tmp_path / "link").symlink_to("nowhere")
    refused = {
        "file": "is not a directory",
        "open": "by others",
        "theirs": "belongs to user 65534",
        "link": "cannot be made",
        "link/below": "cannot be made",
    }
    for place, reason in refused.items():
        with pytest.raises(DaemonUnavailable, match=reason):
            connect("a", tmp_path / place / "socket")


def as_nobody(question: Callable[[], str]) -> str:
    """What a child that is another user says."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            said = question()
        except BaseException as error:
            said = repr(error)
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


def open_to_all(daemon: Daemon, directory: bool, socket: bool) -> None:
    if directory:
        os.chmod(os.path.dirname(daemon.socket), 0o755)
    if socket:
        os.chmod(daemon.socket, 0o666)


def heard(path: str) -> str:
    """What the daemon says to a client that asks for its agents."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE)
        client.connect(path)
        try:
            client.sendall(encode({"protocol": PROTOCOL, "id": "a.1.1", "verb": "list"}))
            return repr(client.recv(1000))
        except ConnectionError:
            return "b''"


@as_root
@pytest.mark.parametrize(
    ("directory", "socket"), [(False, False), (False, True), (True, False)], ids=["both", "directory", "socket"]
)
def test_the_file_modes_keep_another_user_out(daemon: Daemon, directory: bool, socket: bool) -> None:
    open_to_all(daemon, directory, socket)
    assert "PermissionError" in as_nobody(lambda: heard(daemon.socket))


@as_root
def test_nothing_is_said_to_another_users_daemon() -> None:
    """Who asks for a session sends the whole environment along."""
    with socket.socket(socket.AF_UNIX) as trap:
        os.seteuid(NOBODY)  # whose the listener is, by the kernel's book
        try:
            place = tempfile.mkdtemp(dir="/tmp", prefix="nobody-")
            trap.bind(path := f"{place}/socket")
            trap.listen()
        finally:
            os.seteuid(0)
        try:
            with pytest.raises(DaemonUnavailable, match=f"user {NOBODY}, not you"):
                connect("a1", socket=path, start=False)
            assert main(["status", "--socket", path]) == 125
            trap.accept()[0].close()
            trap.accept()[0].close()
            victim, _ = trap.accept()
            with victim:
                assert victim.recv(1) == b""
        finally:
            shutil.rmtree(place)


@as_root
def test_another_user_who_gets_as_far_as_the_socket_gets_nothing(daemon: Daemon) -> None:
    open_to_all(daemon, True, True)
    assert as_nobody(lambda: heard(daemon.socket)) == "b''"
    wait_until(lambda: f"refused a connection of user {NOBODY}" in daemon.said, "the warning")
    with Raw(daemon.socket) as raw:
        assert raw.ask("stats").header["value"]["connections"] == 1


@as_root
def test_the_client_of_another_user_is_notified(daemon: Daemon) -> None:
    open_to_all(daemon, True, True)

    def ask() -> str:
        try:
            connect("a", daemon.socket, False, cwd="/")
        except ShellSessionError as error:
            return error.code
        return "let in"

    assert ask() == "let in"  # also, it imports now what nobody may not read
    assert as_nobody(ask) == "daemon_unavailable"


@looks_into_it
def test_it_listens_on_its_socket_and_on_nothing_else(daemon: Daemon) -> None:
    with connect("a", daemon.socket, False, cwd="/") as session:
        session.run("true")
        links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{daemon.pid}/fd") if entry.is_symlink()]
        ours = {link[8:-1] for link in links if link.startswith("socket:[")}
        assert ours
        net = Path(f"/proc/{daemon.pid}/net")
        for kind in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6", "packet", "netlink"):
            if (net / kind).exists():
                rows = (net / kind).read_text(encoding="ascii").splitlines()[1:]
                assert not ours & {word for row in rows for word in row.split()}
        listening = [row.split() for row in (net / "unix").read_text(encoding="utf-8").splitlines()[1:]]
        accepting = [row[7] for row in listening if row[6] in ours and row[3] == "00010000"]
        assert accepting == [daemon.socket]
