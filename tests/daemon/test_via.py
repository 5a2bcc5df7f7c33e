"""A session in a daemon elsewhere: through a pipe to `shellsession bridge`, as over ssh."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from daemons import Daemon, stopped
from forks import in_child
from gates import Gate
from system import PATIENCE, descendants, until, wait_until

from shellsession import (
    DaemonUnavailable,
    InvalidRequest,
    Limits,
    OutcomeUnknown,
    ProtocolError,
    RemoteSession,
    VersionMismatch,
    aconnect,
    connect,
)
from shellsession.contracts import phoenix, spec
from shellsession.daemon.client import pipe as client
from shellsession.daemon.client.async_session import Loop
from shellsession.daemon.client.bridge import Bridge
from shellsession.daemon.client.pipe import BridgePipe
from shellsession.daemon.client.transport import ConnectionLost, UnixChannel, UnixTransport
from shellsession.daemon.client.via import Program, ViaTransport
from shellsession.daemon.protocol import frames, mux
from shellsession.daemon.protocol.frames import FrameDecoder
from shellsession.daemon.protocol.mux import FilePipe
from shellsession.models import VERSION

PROGRAM = str(Path(sys.executable).with_name("shellsession"))
Connect = Callable[..., RemoteSession]


def bridges() -> list[int]:
    """The pids of the bridges of this process."""
    pipes = [one.pipe for one in client._running.bridges.values() if not one.ended]
    return [pipe.process.pid for pipe in pipes if isinstance(pipe, Program)]


def bridge_of_all() -> client._Bridge:
    (bridge,) = (one for one in client._running.bridges.values() if not one.ended)
    return bridge


@pytest.fixture(autouse=True)
def no_bridge_before() -> None:
    """That of another test lives on for a second."""
    wait_until(lambda: not bridges(), "the end of other tests' bridges")


@pytest.fixture
def there(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[Connect]:
    """``connect`` through a program of this machine. Every session is closed at the end."""
    sessions: list[RemoteSession] = []

    def connected(agent: str = "a", via: tuple[str, ...] = ("env",), **options: Any) -> RemoteSession:
        name = f"{request.node.name}-{agent}"
        sessions.append(connect(name, daemon.socket, via=via, remote=PROGRAM, **options))
        return sessions[-1]

    yield connected
    for session in sessions:
        session.close()
    wait_until(lambda: not bridges(), "the end of the bridge")


def test_state_and_status_as_here(there: Connect) -> None:
    session = there()
    assert session.run("X=1; cd /tmp; false").exit_code == 1
    assert session.run("echo $X $PWD; cat", stdin=b"in\0put").stdout_bytes == b"1 /tmp\nin\0put"
    session.run("sleep 60 &")
    (job,) = session.jobs()
    assert job.kill()


def test_files_alike(there: Connect, place: Path) -> None:
    session, data = there(cwd=str(place)), bytes(range(256)) * 10_000
    session.write_file("sub/file", data, parents=True)
    session.run("cd sub")
    assert session.read_file("file") == data
    with pytest.raises(FileNotFoundError, match=r"^\[Errno 2\] No such file or directory: 'missing'$"):
        session.read_file("missing")


def test_asyncio_alike(daemon: Daemon) -> None:
    async def main() -> str:
        async with aconnect("via-async", daemon.socket, via=["env"], remote=PROGRAM) as session:
            pieces = [piece async for piece in session.stream("X=5; echo one")]
            text = (await session.run("echo $X")).stdout
            await session.close()
            assert pieces[0] == ("stdout", b"one\r\n") or pieces[0] == ("stdout", b"one\n")
            return text

    assert asyncio.run(main()) == "5\n"


def test_a_session_there_gets_the_login_of_there(there: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    via = ("env", "-C", "/usr", "FROM=there", "sh", "-c", 'umask 077; exec "$@"', "-")
    monkeypatch.setenv("OF_CLIENT", "now")
    first = there(via=("env", "-u", "OF_CLIENT", *via[1:]))
    assert first.run("echo $PWD $FROM/$OF_CLIENT; umask").stdout == "/usr there/\n0077\n"
    named = there("b", via=via, cwd="/tmp", extra_env={"A": "b"})
    assert named.run("echo $PWD $A $FROM").stdout == "/tmp b there\n"
    with pytest.raises(InvalidRequest, match="absolute"):
        there("c", cwd="here")
    with pytest.raises(InvalidRequest, match="absolute"):
        named.run("true", limits=Limits(spill="here"))


def test_a_one_shot_call_gets_nothing_of_this_machine(there: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLY_HERE", "secret")
    session = there(via=("env", "-u", "ONLY_HERE"), cwd="/usr")
    call = {"command": "echo $PWD [$ONLY_HERE]; X=1"}
    assert spec.tool(session)(call)["stdout"] == "/usr []\n"
    assert session.run("echo [$X]").stdout == "[]\n"
    with pytest.raises(InvalidRequest, match="on another one"):
        phoenix.tool(session)


def test_one_bridge_serves_all_sessions_and_ends_with_the_last(there: Connect) -> None:
    sessions = [there(str(number)) for number in range(5)]
    with ThreadPoolExecutor(5) as threads:
        results = [*threads.map(lambda one: one.run("echo $$").stdout, sessions)]
    assert len(set(results)) == 5
    assert len(bridges()) == 1


def test_a_child_closes_only_what_is_the_bridges(there: Connect) -> None:
    """The descriptors of a bridge that has ended may have other owners now."""
    there("before").close()
    wait_until(lambda: not bridges(), "the end of the bridge")
    others = [os.dup(0) for _ in range(20)]
    try:
        in_child(lambda: [os.fstat(fd) for fd in others])
    finally:
        for fd in others:
            os.close(fd)
    session = there()
    (bridge,) = (one for one in client._running.bridges.values() if not one.ended)

    def look() -> None:
        assert not any(os.path.exists(f"/proc/self/fd/{fd}") for fd in (bridge.pipe.source, bridge.pipe.sink))

    in_child(look)
    assert session.run("echo on").stdout == "on\n"


def test_a_pipe_that_breaks_costs_nothing(there: Connect, gate: Gate, place: Path) -> None:
    session = there(cwd=str(place))
    session.run("X=kept")
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(session.run, gate.text)
        gate.until_begun()
        (pid,) = bridges()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: bridges() not in ([], [pid]), "another bridge")
        gate.open()
        assert result.result(PATIENCE).stdout == "begun\nended\n"
    assert gate.count == 1
    assert session.run("echo $X").stdout == "kept\n"


def test_a_hung_bridge_is_replaced(there: Connect, gate: Gate, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_QUIET", 0.1)
    session = there(cwd=str(place))
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(session.run, gate.text)
        gate.until_begun()
        (pid,), bridge = bridges(), bridge_of_all()
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr(bridge, "_patience", 0.5)

        def is_replaced() -> bool:
            if not bridge.ended:
                os.eventfd_write(bridge._wake, 1)  # as other sessions do, which go on asking for connections
            return bridges() not in ([], [pid])

        wait_until(is_replaced, "another bridge")
        gate.open()
        assert result.result(PATIENCE).stdout == "begun\nended\n"
    assert gate.count == 1


def test_a_machine_that_hangs_leaves_the_outcome_unknown(
    there: Connect, gate: Gate, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_QUIET", 0.1)
    hung = place / "hung"
    via = ("sh", "-c", f'test -e {hung} && exec sleep 60; exec "$@"', "-")
    session = there(via=via, cwd=str(place))
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(session.run, gate.text)
        gate.until_begun()
        hung.touch()
        os.kill(bridges()[0], signal.SIGSTOP)
        monkeypatch.setattr(client, "_REOPEN", 0.5)
        monkeypatch.setattr(bridge_of_all(), "_patience", 0.5)
        with pytest.raises(OutcomeUnknown):
            result.result(PATIENCE)
    hung.unlink()
    gate.open()


def test_a_living_daemon_keeps_a_quiet_pipe(there: Connect, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that prints nothing for longer than the daemon may be silent."""
    monkeypatch.setattr(client, "_QUIET", 0.05)
    session = there()
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(session.run, gate.text)
        gate.until_begun()
        before, bridge = bridges(), bridge_of_all()
        for _ in range(3):
            probes = bridge._number
            bridge._heard -= 1000
            wait_until(lambda probes=probes: bridge._number > probes and not bridge._probe, "the answer")  # type: ignore[misc]
        assert bridges() == before
        gate.open()
        assert result.result(PATIENCE).exit_code == 0


def test_a_stopped_daemon_is_noticed(there: Connect, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_QUIET", 0.05)
    session = there()
    session.run("true")
    (before,) = bridges()
    with ThreadPoolExecutor(1) as threads, stopped(daemon.pid):
        monkeypatch.setattr(bridge_of_all(), "_patience", 0.3)
        result = threads.submit(session.run, "echo done")
        wait_until(lambda: bridges() not in ([], [before]), "another bridge")
    assert result.result(PATIENCE).stdout == "done\n"


def test_a_daemon_that_stays_stopped_leaves_the_outcome_unknown(
    there: Connect, daemon: Daemon, gate: Gate, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_QUIET", 0.1)
    session = there(cwd=str(place))
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(session.run, gate.text)
        gate.until_begun()
        with stopped(daemon.pid):
            monkeypatch.setattr(client.PipeTransport, "patience", 0.5)
            monkeypatch.setattr(bridge_of_all(), "_patience", 0.5)
            with pytest.raises(OutcomeUnknown):
                result.result(PATIENCE)
    gate.open()


def test_a_cancelled_opening_returns_at_once(daemon: Daemon, place: Path) -> None:
    """The end of the loop does not wait for it, either. The connection that comes late is closed."""
    gate = place / "open"
    via = ["sh", "-c", f'until [ -e {gate} ]; do sleep 0.05; done; exec "$@"', "-"]

    async def main() -> None:
        transport = ViaTransport(via, PROGRAM, daemon.socket)
        of_session = asyncio.ensure_future(aconnect("late", daemon.socket, via=via, remote=PROGRAM))
        of_link = asyncio.ensure_future(Loop().connect(transport, True))
        await asyncio.to_thread(wait_until, bridges, "the bridge")
        for opening in (of_session, of_link):
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening

    asyncio.run(main())
    (bridge,) = (one for one in client._running.bridges.values() if not one.ended)
    assert not bridge.greeted.is_set()
    gate.touch()
    wait_until(lambda: bool(bridge._number), "the connection")
    wait_until(lambda: not bridges(), "the end of the bridge")


def test_opening_that_fails_after_its_cancellation_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    fails, threads = threading.Event(), list[threading.Thread]()

    class Late(UnixTransport):
        def connect(self, start: bool) -> UnixChannel:
            threads.append(threading.current_thread())
            fails.wait(PATIENCE)
            raise DaemonUnavailable("too late")

    async def main() -> None:
        opening = asyncio.ensure_future(Loop().connect(Late("nowhere"), True))
        await until(lambda: threads)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(main())
    fails.set()
    threads[0].join()
    assert caplog.records == []


def test_a_flood_does_not_delay_another_agent(there: Connect) -> None:
    """The bar itself is in benchmarks/cluster.py: a shared machine has no quantiles."""
    flood, other = there("flood"), there("other")
    received, pieces, over = [0], threading.Semaphore(), threading.Event()

    def slowly(_: str, data: bytes) -> None:
        received[0] += len(data)
        if not over.is_set():
            pieces.acquire(timeout=PATIENCE)

    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(flood.run, "head -c 20000000 /dev/zero", tty=False, on_output=slowly)
        wait_until(lambda: bool(received[0]), "output")
        before = received[0]
        for _ in range(20):
            pieces.release()
            assert other.run("echo here").stdout == "here\n"
        assert not result.done()
        assert received[0] < 20_000_000
        over.set()
        pieces.release()
        assert result.result(PATIENCE).exit_code == 0
    assert before < received[0] == 20_000_000


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("PATH=/; shellsession bridge", DaemonUnavailable, "shellsession:.*not found; install Python 3.11"),
        ("echo 'Permission denied (publickey)' >&2; exit 255", DaemonUnavailable, r"Permission denied \(publickey\)$"),
        ("exit 1", DaemonUnavailable, "without a greeting; install"),
        ("echo hello", DaemonUnavailable, "without a greeting.*install"),
        ("head -c 100000 /dev/zero; sleep 60", DaemonUnavailable, "no bridge.*install"),
        (
            """echo 'shellsession-bridge {"framing":1,"protocol":3,"version":"0.1","state":{}}'; cat""",
            VersionMismatch,
            "shellsession 0.1 .protocol 3.*install shellsession",
        ),
    ],
    ids=["missing", "refused", "silent", "no bridge", "noise", "version"],
)
def test_one_error_says_what_is_missing_there(script: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        connect("a", via=["sh", "-c", script])


def test_a_refusal_of_the_bridge_is_escaped() -> None:
    """Its text comes from another machine."""
    greeting = frames.greeting({"cwd": "/"}, "1-2", VERSION)
    refusal = frames.frame(frames.REFUSED, 1, b"\x1b[31mevil")
    program = f"import os; os.write(1, {greeting!r}); os.read(0, 100); os.write(1, {refusal!r}); os.read(0, 100)"
    with pytest.raises(DaemonUnavailable, match=r"^\\x1b\[31mevil \(reported by"):
        connect("a", via=[sys.executable, "-c", program])
    with pytest.raises(DaemonUnavailable, match=r"without a greeting: \\x1b\[31mevil"):
        connect("a", via=["sh", "-c", "printf '\\033[31mevil\\n' >&2"])


def test_way_that_worked_and_greets_no_more_is_given_up_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_REOPEN", 1.0)
    silent, greeting = tmp_path / "silent", frames.greeting({"cwd": "/"}, "1-2", VERSION)
    answer = f"os.write(1, {greeting!r}); os.read(0, 100); os.write(1, {frames.frame(frames.REFUSED, 1, b'no')!r})"
    program = f"import os, time; time.sleep(1000 * os.path.exists({str(silent)!r})); {answer}"
    with pytest.raises(DaemonUnavailable, match=r"^no "):
        connect("a", via=[sys.executable, "-c", program])
    silent.touch()
    with pytest.raises(DaemonUnavailable, match="sent no greeting for 1 s"):
        connect("a", via=[sys.executable, "-c", program])


def test_way_whose_bridges_end_after_their_greeting_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_REOPEN", 0.3)
    greeting = shlex.quote(frames.greeting({"cwd": "/"}, "1-2", VERSION).decode())
    with pytest.raises(DaemonUnavailable):
        connect("a", via=["sh", "-c", f"printf %s {greeting}"])


def test_pipe_that_is_reset_has_ended() -> None:
    near, far = socket.socketpair()
    with near:
        near.sendall(b"never read")
        far.close()
        with pytest.raises(mux.PipeEnded):
            mux.Mux(FilePipe(near.fileno(), near.fileno())).receive()


def test_a_program_that_is_missing_here() -> None:
    with pytest.raises(DaemonUnavailable, match="could not be started"):
        connect("a", via=["no-such-program"])
    with pytest.raises(InvalidRequest, match="sequence of words"):
        connect("a", via="ssh box")


def test_what_a_login_script_prints_first_is_skipped(there: Connect) -> None:
    session = there(via=("sh", "-c", 'echo welcome; exec "$@"', "-"))
    assert session.run("echo here").stdout == "here\n"


def test_frames_however_they_are_cut() -> None:
    sent = [(frames.DATA, 7, b"x" * 300), (frames.CREDIT, 1, b"\0\0\1\0"), (frames.CLOSE, 9, b"")]
    data = b"".join(frames.frame(*one) for one in sent)
    for size in (1, 2, 9, 10, 299, len(data)):
        decoder = FrameDecoder()
        got = [
            (kind, n, bytes(p)) for at in range(0, len(data), size) for kind, n, p in decoder.feed(data[at : at + size])
        ]
        # DATA comes in pieces.
        assert (frames.DATA, 7, b"".join(p for kind, _, p in got if kind == frames.DATA)) == sent[0]
        assert [one for one in got if one[0] != frames.DATA] == sent[1:]
    for bad in (b"\0" * 9, frames.frame(99, 1), b"\4\0\0\0\1\xff\xff\xff\xff"):
        with pytest.raises(ProtocolError):
            FrameDecoder().feed(bad)


@pytest.mark.parametrize(("long_way", "room"), [(0.0, 1 << 18), (float("inf"), frames.WINDOW)])
def test_more_may_be_under_way_on_a_long_way(monkeypatch: pytest.MonkeyPatch, long_way: float, room: int) -> None:
    monkeypatch.setattr(mux, "_LONG_WAY", long_way)
    (source, to_mux), (from_mux, sink) = os.pipe(), os.pipe()
    ours, theirs = socket.socketpair()
    size = frames.WINDOW // 2
    one, received = mux.Mux(mux.FilePipe(source, sink)), b""
    one.add(1, theirs)
    with ThreadPoolExecutor(1) as threads:
        try:
            # In pieces where an ordinary user has many pipes: then the kernel makes small ones.
            threads.submit(os.write, to_mux, frames.frame(frames.DATA, 1, b"x" * size))
            while len(received) < size:
                one.turn(PATIENCE)
                with suppress(BlockingIOError):
                    received += ours.recv(frames.WINDOW, socket.MSG_DONTWAIT)
            assert received == b"x" * size
            assert os.read(from_mux, 1000) == frames.credit(1, room - size)
        finally:
            one.close()
            ours.close()
            for fd in (source, to_mux, from_mux, sink):
                os.close(fd)


def test_a_bridge_is_told_nonsense(daemon: Daemon) -> None:
    """It ends with a message, and the daemon goes on."""
    command = [PROGRAM, "bridge", "--socket", daemon.socket]
    done = subprocess.run(command, input=b"\xff" * 100, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 125
    assert b"no frame" in done.stderr
    assert done.stdout.startswith(b"shellsession-bridge ")


@pytest.mark.parametrize(
    ("failure", "said"), [(DaemonUnavailable("why"), b"why"), (ConnectionLost(), b""), (None, b"")], ids=repr
)
def test_a_bridge_without_a_daemon_refuses_the_stream(failure: Exception | None, said: bytes) -> None:
    class Failing(UnixTransport):
        def reach(self) -> None:
            if failure is not None:
                raise failure

    (source, to_bridge), (from_bridge, sink) = os.pipe(), os.pipe()
    try:
        bridge = Bridge(FilePipe(source, sink), Failing("nowhere"), {})
        bridge.turn(0)
        assert os.read(from_bridge, 10_000).startswith(b"shellsession-bridge ")
        os.write(to_bridge, frames.frame(frames.OPEN, 1, frames.LOOK))
        bridge.turn(PATIENCE)
        assert os.read(from_bridge, 10_000) == frames.frame(frames.REFUSED, 1, said)
        bridge.close()
    finally:
        for fd in (source, to_bridge, from_bridge, sink):
            os.close(fd)


def test_a_stream_that_both_ends_close_at_once_costs_the_others_nothing() -> None:
    here, there = os.pipe(), os.pipe()
    taken, go_on = threading.Event(), threading.Event()

    class Held(FilePipe, BridgePipe):
        def receive(self) -> memoryview:
            data = super().receive()
            if data[:1] == bytes([frames.CREDIT]):
                taken.set()
                go_on.wait(PATIENCE)
            return data

    def opened(number: int) -> client.PipeChannel:
        with ThreadPoolExecutor(1) as threads:
            channel = threads.submit(transport.connect, True)
            assert os.read(there[0], 100) == frames.frame(frames.OPEN, number, frames.START)
            os.write(here[1], frames.frame(frames.OPENED, number))
            return channel.result(PATIENCE)

    transport = client.PipeTransport("there", object(), lambda: Held(here[0], there[1]))
    os.write(here[1], frames.greeting({"cwd": "/"}, "1-2", VERSION))
    first = opened(1)
    os.write(here[1], frames.credit(1, 1))
    assert taken.wait(PATIENCE)
    os.write(here[1], frames.frame(frames.CLOSE, 1))
    first.close()
    go_on.set()
    opened(2).close()
    assert os.read(there[0], 100) == frames.frame(frames.CLOSE, 2)
    os.close(here[1])
    os.close(there[0])


def test_the_command_line(daemon: Daemon) -> None:
    def said(*words: str, **env: str) -> str:
        done = subprocess.run(
            [PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE, check=False, env={**os.environ, **env}
        )
        return f"{done.stdout}{done.stderr}{done.returncode}"

    via = {"SHELLSESSION_VIA": "env FROM=there", "SHELLSESSION_REMOTE": PROGRAM, "SHELLSESSION_SOCKET": daemon.socket}
    assert said("run", "-s", "cli", "--", "echo $FROM", **via) == "there\n0"
    assert said("run", "--via", "env FROM=two", "-s", "cli2", "--", "echo $FROM", **via) == "two\n0"
    assert "cli2\n" in said("ls", "--names", **via)
    assert said("run", "-s", "cli", "--", "exit 3", **via).endswith("3")
    assert "run it there" in said("stop", **via)
    assert "name one with -s" in said("mcp", **via)
    assert "ended" not in said("kill", "cli", "cli2", **via)
    assert "or name the program in SHELLSESSION_REMOTE\n125" in said("ls", "--via", "false")
    assert "sequence" not in said("run", "--via", "", "-s", "cli", "--", "true", **via)


only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user, or enter namespaces")


@contextmanager
def daemon_there(via: list[str], remote: str, path: Path) -> Iterator[RemoteSession]:
    """A session where ``via`` leads, in a daemon that it starts at ``path``."""
    try:
        with connect("there", path, via=via, remote=remote, timeout=20) as session:
            yield session
    finally:
        subprocess.run(
            [*via, remote, "stop", "--socket", str(path)], capture_output=True, timeout=PATIENCE, check=False
        )


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user may enter; those above pytest's own are closed."""
    with TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@only_root
def test_another_user(open_place: Path) -> None:
    """That user has neither our interpreter nor our package, if they are in a home directory: so both are mounted."""
    place = open_place
    for name in ("python", "site", "package", "run"):
        (place / name).mkdir()
    shutil.chown(place / "run", "nobody")
    (place / "run").chmod(0o700)
    program = place / "shellsession"
    program.write_text(
        f"#!/bin/sh\nPYTHONPATH={place}/package:{place}/site exec"
        f' {place}/python/bin/{Path(sys.executable).resolve().name} -m shellsession "$@"\n'
    )
    program.chmod(0o755)
    site, package = Path(pytest.__file__).parents[1], Path(client.__file__).parents[3]
    mounts = ((sys.base_prefix, "python"), (site, "site"), (package, "package"))
    binds = (f"mount --bind {shlex.quote(str(source))} {place / target}; " for source, target in mounts)
    script = f"cd {place}; {''.join(binds)}"
    via = ["unshare", "--mount", "sh", "-c", f'{script} exec runuser -u nobody -- "$@"', "-"]
    if subprocess.run([*via, program, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces here, or no user nobody")
    with daemon_there(via, str(program), place / "run/socket") as session:
        assert session.run("X=1; id -un").stdout == "nobody\n"
        assert not session.run(f"touch {place}/mine").ok
        assert session.run("echo $X").stdout == "1\n"


@only_root
def test_the_namespaces_of_a_container(place: Path) -> None:
    words = ["unshare", "--mount", "--pid", "--net", "--uts", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
    script = f"mount -t tmpfs -o mode=0700 none {place} && hostname inside && touch {place}/ready && exec sleep 1000"
    with subprocess.Popen([*words, script], stderr=subprocess.DEVNULL) as container:
        try:

            def first_process() -> list[int]:
                return [pid for pid in descendants(container.pid) if os.path.exists(f"/proc/{pid}/root{place}/ready")]

            wait_until(lambda: container.poll() is not None or first_process(), "the container")
            if container.poll() is not None:
                pytest.skip("no namespaces here")
            via = ["nsenter", "--target", str(first_process()[0]), "--mount", "--pid", "--net", "--uts", "--"]
            with daemon_there(via, PROGRAM, place / "socket") as session:
                assert session.run("hostname; cat /proc/1/comm").stdout == "inside\nsleep\n"
                assert session.run(f"test -S {place}/socket").ok
                assert not (place / "socket").exists()  # here
        finally:
            container.kill()


SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[tuple[list[str], int]]:
    """The words that log in here through an sshd of our own, and its pid."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("needs OpenSSH: openssh-server")
    if os.getuid() != 0:
        pytest.skip("only root may run an sshd that logs its user in on every system")
    key, host, log = tmp_path / "key", tmp_path / "host", tmp_path / "log"
    for path in (key, host):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    (tmp_path / "sshd").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {host}\nAuthorizedKeysFile {tmp_path}/key.pub\n"
        f"StrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n",
        encoding="ascii",
    )
    words = ["ssh", "-F", "none", "-p", str(port), "-i", str(key), "-o", "UserKnownHostsFile=/dev/null"]
    words += ["-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "127.0.0.1"]
    with open(log, "wb") as errors:
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(tmp_path / "sshd")], stderr=errors)
    try:
        wait_until(lambda: b"listening" in log.read_bytes(), "sshd")
        yield words, server.pid
    finally:
        server.terminate()
        server.wait(PATIENCE)


def test_over_a_real_ssh(daemon: Daemon, ssh: tuple[list[str], int], gate: Gate) -> None:
    session = connect("over-ssh", daemon.socket, via=ssh[0], remote=shlex.quote(PROGRAM))
    with closing(session), ThreadPoolExecutor(1) as threads:
        assert session.run("X=kept; echo ${SSH_CONNECTION:+ssh}").stdout == "ssh\n"
        result = threads.submit(session.run, gate.text)
        gate.until_begun()
        (pid,) = bridges()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: bridges() not in ([], [pid]), "another ssh")
        gate.open()
        assert result.result(PATIENCE).stdout == "begun\nended\n"
        assert session.run("echo $X").stdout == "kept\n"
        assert gate.count == 1


def test_an_sshd_that_stops_leaves_the_outcome_unknown(
    daemon: Daemon, ssh: tuple[list[str], int], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.PipeTransport, "patience", 3.0)
    session = connect("stops", daemon.socket, via=ssh[0], remote=shlex.quote(PROGRAM))
    with closing(session), ThreadPoolExecutor(1) as threads:
        result = threads.submit(session.run, gate.text)
        gate.until_begun()
        with ExitStack() as all_stopped, monkeypatch.context() as patch:
            for pid in (ssh[1], *descendants(ssh[1])):
                all_stopped.enter_context(stopped(pid))
            for name, value in {"_QUIET": 0.1, "_REOPEN": 1.0}.items():
                patch.setattr(client, name, value)
            with pytest.raises(OutcomeUnknown):
                result.result(2 * PATIENCE)
        gate.open()
