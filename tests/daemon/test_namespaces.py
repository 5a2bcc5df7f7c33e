"""Containers that share directories: each has its own daemon, and no client uses one of another container."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import sandboxes
from daemons import Daemon, answers, running
from system import PATIENCE, PYTHON, mentioning, wait_until

from shellsession import DaemonUnavailable, VersionMismatch, connect
from shellsession.daemon.client.admin import shutdown
from shellsession.daemon.protocol.endpoint import socket_path
from shellsession.engine.kernel import proc

ours = sandboxes.ours
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root may make and enter namespaces")
PROGRAM = str(Path(sys.executable).with_name("shellsession"))
_KINDS = ("--mount", "--pid", "--net", "--uts")
Inside = Callable[[str], list[str]]


@pytest.fixture
def runtime(ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of sockets that the host and all containers share."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(ours))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("SHELLSESSION_SOCKET", raising=False)
    return ours


@pytest.fixture
def inside(runtime: Path) -> Iterator[Inside]:
    """The words that enter the container of that name, which is made if missing. It shares /tmp and /dev/shm."""
    made: dict[str, list[str]] = {}
    with ExitStack() as containers:

        def enter(name: str) -> list[str]:
            if name not in made:
                made[name] = containers.enter_context(container(name, runtime / f"{name}.ready"))
            return made[name]

        yield enter
        for words in made.values():
            subprocess.run([*words, PROGRAM, "stop"], capture_output=True, timeout=PATIENCE, check=False)


@contextmanager
def container(name: str, ready: Path) -> Iterator[list[str]]:
    script = f"mount -t tmpfs none /run && hostname {name} && touch {ready} && exec sleep 1000"
    words = ["unshare", *_KINDS, "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as outside:
        try:
            wait_until(lambda: outside.poll() is not None or ready.exists(), "the container")
            if outside.poll() is not None:
                pytest.skip("no namespaces here")
            (first,) = proc.children(outside.pid)
            yield ["nsenter", "--target", str(first), *_KINDS, "--"]
        finally:
            outside.kill()


@pytest.fixture
def on_host(runtime: Path) -> Iterator[None]:
    """Ends the host's daemon, if a test has started one."""
    yield
    shutdown()


def host_of(agent: str, via: list[str] | None = None) -> str:
    with connect(agent, via=via, remote=None if via is None else PROGRAM) as session:
        return session.run("uname -n").stdout.strip()


def test_containers_that_share_directories_have_a_daemon_each(inside: Inside, on_host: None) -> None:
    assert [host_of(name, inside(name)) for name in ("c1", "c2")] == ["c1", "c2"]
    assert host_of("host") == os.uname().nodename
    assert [host_of(name, inside(name)) for name in ("c1", "c2")] == ["c1", "c2"]


def test_a_container_starts_its_own_daemon_beside_that_of_the_host(inside: Inside, on_host: None) -> None:
    assert host_of("host") == os.uname().nodename
    assert host_of("c1", inside("c1")) == "c1"


@pytest.fixture
def daemon(ours: Path) -> Iterator[Daemon]:
    with running(ours / "daemon") as daemon:
        yield daemon


def test_a_daemon_of_the_host_is_refused_in_a_container(inside: Inside, daemon: Daemon) -> None:
    with pytest.raises(DaemonUnavailable, match="outside this container: nothing was sent"):
        connect("a", daemon.socket, via=inside("c1"), remote=PROGRAM)
    assert daemon.logged("a") == []


def test_a_daemon_of_a_container_is_refused_elsewhere(inside: Inside, runtime: Path) -> None:
    path = str(runtime / "socket")
    with connect("a", path, via=inside("c1"), remote=PROGRAM) as session:
        assert session.run("uname -n").stdout == "c1\n"
        with pytest.raises(DaemonUnavailable, match="in a sandbox or container: nothing was sent"):
            connect("a", path)
        with pytest.raises(DaemonUnavailable, match="outside this container: nothing was sent"):
            connect("a", path, via=inside("c2"), remote=PROGRAM)
        assert shutdown(path) is not None


@pytest.mark.parametrize("through", ["a bridge", "the command line"])
def test_a_daemon_that_sees_other_mounts_is_refused(daemon: Daemon, through: str) -> None:
    """As in a container that shares the host's PID namespace."""
    apart, expected = ["unshare", "--mount"], "runs in the mount and PID namespaces .*nothing was sent"
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces here")
    if through == "a bridge":
        with pytest.raises(DaemonUnavailable, match=expected):
            connect("a", daemon.socket, via=apart, remote=PROGRAM)
        return
    words = [*apart, PROGRAM, "run", "--socket", daemon.socket, "--", "echo ran"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (125, "")
    assert "nothing was sent" in done.stderr


def test_a_daemon_serves_no_client_of_a_container(inside: Inside, daemon: Daemon) -> None:
    """Whatever that client is: it would run commands outside of its container."""
    client = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(1))"
    words = [*inside("c1"), sys.executable, "-c", client, daemon.socket]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "b''" in done.stdout or "ConnectionResetError" in done.stderr
    assert "from a sandbox or container" in daemon.said


def test_where_proc_shows_no_namespaces_the_root_directory_stands_for_them(runtime: Path) -> None:
    told = "from shellsession.engine.kernel import proc; print(proc.namespaces())"
    with running(runtime / "daemon") as daemon:
        program = shlex.quote(PROGRAM)
        shown = f"{PYTHON} -c '{told}'; {program} run --socket {daemon.socket} -- echo wrong"
        there = f"{program} run -- 'echo ran'"
        words = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none /proc && {{ {shown}; {there}; }}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    for pid in mentioning(f"{runtime}/shellsession-"):  # without /proc a daemon cannot know who asks it to end
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not mentioning(f"{runtime}/shellsession-"), "the end of the daemon there")
    if done.stderr.startswith(("unshare:", "mount:")):
        pytest.skip("no namespaces here")
    root = "{}.{}".format(*proc.identity("/"))
    assert done.stdout.splitlines() == [f"{root}-{root}", "ran"], done.stderr


def test_the_namespaces_are_those_of_proc() -> None:
    assert proc.namespaces() == "-".join(str(os.stat(f"/proc/self/ns/{kind}").st_ino) for kind in ("mnt", "pid"))


def test_a_daemon_of_an_older_version_is_named_before_another_is_started(runtime: Path) -> None:
    """Those listened at a path without the namespaces."""
    older = os.path.join(os.path.dirname(socket_path()), "socket")
    words = [sys.executable, "-m", "shellsession", "serve", "--socket", older]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, cwd="/") as serve:
        try:
            wait_until(lambda: answers(older), "the daemon")
            for start in (True, False):
                with pytest.raises(VersionMismatch, match=rf"{older} \(pid {serve.pid}\).*stop --socket {older}"):
                    connect("a", start=start)
        finally:
            serve.terminate()
