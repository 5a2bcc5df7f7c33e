"""The orderly end of a daemon: commands get time, nothing remains, and clients get errors."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import endings
import pytest
from commands import cli
from daemons import Daemon, Raw, answers, command, running, serving
from endings import nothing_is_left, session, shut_down
from system import PATIENCE, descendants, is_alive, unique_seconds, wait_until, with_argument

from shellsession import AsyncSession, DaemonUnavailable, Limits, Result, ShellSessionError
from shellsession.daemon.client import admin
from shellsession.daemon.client.admin import shutdown
from shellsession.daemon.protocol.wire import PROTOCOL, encode
from shellsession.engine.kernel import proc

runtime, patient, hasty = endings.runtime, endings.patient, endings.hasty
Ending = Callable[[Daemon], None]
ENDINGS: dict[str, Ending] = {
    "SIGTERM": lambda daemon: daemon.process.send_signal(signal.SIGTERM),
    "SIGINT": lambda daemon: daemon.process.send_signal(signal.SIGINT),
    "shutdown": shut_down,
}
asked = pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)


@asked
def test_what_runs_gets_its_time(patient: Daemon, runtime: Path, place: Path, end: Ending) -> None:
    command = f"cd {place}; touch begun; until [ -e open ]; do sleep 0.05; done; head -c 8000000 /dev/zero | tr '\\0' x"
    with session(patient) as sh, ThreadPoolExecutor(1) as threads:
        result = threads.submit(sh.run, command, limits=Limits(max_output=1 << 24))
        wait_until((place / "begun").exists, "the command")
        end(patient)
        wait_until(lambda: "ending" in patient.said, "the end of its hospitality")
        assert not result.done()
        (place / "open").touch()
        assert result.result(PATIENCE).stdout_bytes == b"x" * 8_000_000
        assert result.result().outcome == "exited"
    assert patient.process.wait(PATIENCE) == 0
    assert nothing_is_left(patient, runtime)


def test_what_was_handed_back_gets_its_time(patient: Daemon, place: Path) -> None:
    with session(patient) as sh:
        command = f"cd {place}; until [ -e open ]; do sleep 0.05; done; echo >done"
        assert sh.run(command, timeout=0.05, on_timeout="yield").outcome == "running"
        patient.process.terminate()
        wait_until(lambda: "ending" in patient.said, "the end of its hospitality")
        (place / "open").touch()
        assert patient.process.wait(PATIENCE) == 0
        assert (place / "done").exists()


def test_a_request_that_comes_again_at_the_end_gets_its_answer(patient: Daemon, place: Path) -> None:
    """It is nothing new: to be told that it was not taken up would have it run twice."""
    with Raw(patient.socket) as lost, Raw(patient.socket) as second:
        lost.open("a", place)
        header, text = lost.header("run", agent="a"), b"until [ -e open ]; do sleep 0.05; done; echo once"
        lost.socket.sendall(encode(header, text))
        wait_until(lambda: second.ask("stats").header["value"]["running"], "the command")
        shut_down(patient)
        second.socket.sendall(encode(header, text))
        (place / "open").touch()
        assert second.receive().parts[0] == b"once\n"
    assert patient.process.wait(PATIENCE) == 0


def test_it_takes_up_nothing_more(patient: Daemon, place: Path) -> None:
    """Who is connected already hears so, and may still end what runs."""
    with session(patient) as sh, Raw(patient.socket) as raw, ThreadPoolExecutor(1) as threads:
        result = threads.submit(sh.run, f"cd {place}; touch begun; sleep 100")
        wait_until((place / "begun").exists, "the command")
        patient.process.terminate()
        wait_until(lambda: "ending" in patient.said, "the end of its hospitality")
        assert raw.open("b", place).header["error"]["code"] == "daemon_unavailable"
        assert raw.ask("run", b"touch never", agent="a").header["error"]["code"] == "daemon_unavailable"
        assert raw.ask("interrupt", agent="a").header["result"]["outcome"] == "interrupted"
        assert result.result(PATIENCE).outcome == "interrupted"
    assert patient.process.wait(PATIENCE) == 0
    assert not (place / "never").exists()


def test_no_other_takes_its_place_while_something_runs(patient: Daemon, place: Path) -> None:
    """Who stops it once more waits for its end, too."""
    with session(patient) as sh, ThreadPoolExecutor(2) as threads:
        result = threads.submit(sh.run, f"cd {place}; touch begun; until [ -e open ]; do sleep 0.01; done")
        wait_until((place / "begun").exists, "the command")
        patient.process.terminate()
        wait_until(lambda: "ending" in patient.said, "the end of its hospitality")
        stopping = threads.submit(shutdown, patient.socket)
        with pytest.raises(DaemonUnavailable, match="is ending"):
            session(patient, start=True)
        assert not stopping.done()
        (place / "open").touch()
        assert stopping.result(PATIENCE) == patient.pid
        assert result.result(PATIENCE).outcome == "exited"
    assert patient.process.wait(PATIENCE) == 0


@contextmanager
def claiming(path: Path, pid: int) -> Iterator[str]:
    """What stands between a client and a daemon, and lives on: the greeting names another process than the kernel."""
    hello = {"protocol": PROTOCOL, "version": "", "incarnation": "inc", "connection": 1, "pid": pid}

    def serve() -> None:
        with suppress(OSError), listener.accept()[0] as client:
            client.sendall(encode(hello))
            client.recv(1 << 16)

    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as threads:
        listener.bind(str(path))
        listener.listen()
        threads.submit(serve)
        try:
            yield str(path)
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def test_a_stranger_that_has_its_number_here_is_not_waited_for(tmp_path: Path) -> None:
    """That of its own PID namespace, as its greeting tells: its socket's end has to do."""
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        try:
            with claiming(tmp_path / "socket", stranger.pid) as path, ThreadPoolExecutor(1) as threads:
                stopping = threads.submit(shutdown, path)
                try:
                    assert stopping.result(PATIENCE) == stranger.pid
                finally:
                    stranger.kill()
            assert stranger.wait() == -signal.SIGKILL
        finally:
            stranger.kill()


def test_who_lives_on_behind_its_sockets_end_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "PATIENCE", 0.05)
    with (
        claiming(tmp_path / "socket", os.getpid()) as path,
        pytest.raises(DaemonUnavailable, match=rf"pid {os.getpid()}\) .* has not ended .*kill -9"),
    ):
        shutdown(path)


APART = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]


def test_one_in_a_pid_namespace_of_its_own_is_gone_when_it_was_stopped(tmp_path: Path) -> None:
    """A container's, whose socket is shared: there it is process 1."""
    if shutil.which("unshare") is None or subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no PID namespace can be made here")
    path = str(tmp_path / "run" / "socket")
    with subprocess.Popen([*APART, *command(path, "--audit", "")]) as outside:
        try:
            wait_until(lambda: answers(path, 1), "the daemon")
            (pid,) = proc.children(outside.pid)
            stopped = cli(path, "stop")
            assert stopped.stderr.decode() == f"shellsession: the daemon (pid {pid}) has ended\n"
            assert not is_alive(pid)
        finally:
            outside.kill()


def test_what_waits_for_its_turn_at_the_end_is_reported_that_it_was_not_run(hasty: Daemon, place: Path) -> None:
    with Raw(hasty.socket) as holder, Raw(hasty.socket) as waiting:
        holder.open("a", place)
        holder.ask("hold", agent="a", holder="me")
        waiting.say("run", b"touch never", agent="a")
        wait_until(lambda: holder.ask("stats").header["value"]["serving"] == 2, "the command that waits")
        assert hasty.stop() == 0
        assert waiting.receive().header["error"]["code"] == "daemon_unavailable"
    assert not (place / "never").exists()


def test_what_waits_for_its_turn_is_not_begun_at_the_end(patient: Daemon, place: Path) -> None:
    with Raw(patient.socket) as first, Raw(patient.socket) as waiting:
        first.open("a", place)
        first.say("run", b"touch begun; until [ -e go ]; do sleep 0.05; done", agent="a")
        wait_until((place / "begun").exists, "the command that runs")
        waiting.say("run", b"touch never", agent="a")
        with Raw(patient.socket) as third:
            wait_until(lambda: third.ask("stats").header["value"]["serving"] == 3, "the command that waits")
        shut_down(patient)
        (place / "go").touch()
        assert waiting.receive().header["error"]["code"] == "daemon_unavailable"
        assert first.receive().header["result"]["outcome"] == "exited"
    assert patient.process.wait(PATIENCE) == 0
    assert not (place / "never").exists()


STUBBORN = {
    "a child": "sleep {0}",
    "deaf children": "trap '' INT TERM HUP; setsid sleep {0} & sleep {0}",
    "a busy shell": "setsid -f sleep {0}; while :; do :; done",
}


@asked
def test_what_does_not_end_is_ended(hasty: Daemon, runtime: Path, end: Ending) -> None:
    """Each of them beside the others: none may keep it from the next."""
    seconds = {agent: unique_seconds() for agent in (*STUBBORN, "idle")}
    with ExitStack() as sessions, ThreadPoolExecutor(len(STUBBORN)) as threads:
        sh = {agent: sessions.enter_context(session(hasty, agent)) for agent in seconds}
        sh["idle"].run(f"sleep {seconds['idle']} &")
        results = [threads.submit(sh[agent].run, text.format(seconds[agent])) for agent, text in STUBBORN.items()]
        for agent in seconds:
            wait_until(lambda agent=agent: with_argument(seconds[agent]), f"the command of {agent}")  # type: ignore[misc]
        wait_until(lambda: len(with_argument(seconds["deaf children"])) == 2, "both of them")
        bashes = descendants(hasty.pid)
        end(hasty)
        for result in results:
            assert told(result.result) in ("shell_exited", "interrupted")
        assert hasty.process.wait(PATIENCE) == 0
        assert not any(map(is_alive, bashes))
        for number in seconds.values():
            assert nothing_is_left(hasty, runtime, number)
        with pytest.raises(DaemonUnavailable):
            sh["idle"].run("echo never")


def told(run: Callable[[], Result]) -> str:
    """What the client of a command hears in the end."""
    try:
        return run().outcome
    except ShellSessionError as error:
        return error.code


@pytest.mark.parametrize("faulty", ["a", "b"])
def test_a_session_that_fails_to_end_keeps_nothing_else_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, faulty: str
) -> None:
    path = str(tmp_path / "socket")
    bashes = {}
    with ExitStack() as after:
        with serving(path) as server:
            raw = after.enter_context(Raw(path))
            for agent in "ab":
                raw.open(agent)
                raw.run(agent, "true")
                bashes[agent] = raw.ask("info", agent=agent).header["pid"]
            session = server.agents.session(faulty)

            async def close() -> None:
                raise ZeroDivisionError("a defect")

            monkeypatch.setattr(session, "close", close)
        with pytest.raises(EOFError):  # connections have ended, too
            raw.receive()
    assert {agent: is_alive(pid) for agent, pid in bashes.items()} == {agent: agent == faulty for agent in "ab"}
    assert "ZeroDivisionError" in caplog.text
    asyncio.run(AsyncSession.close(session))


def test_a_client_that_does_not_read_cannot_keep_it(hasty: Daemon, runtime: Path) -> None:
    with Raw(hasty.socket) as raw:
        raw.open("a")
        raw.say("run", b"yes", agent="a", live=True)
        with Raw(hasty.socket) as other:
            wait_until(lambda: other.ask("info", agent="a").header["value"]["state"] == "running", "the command")
        assert hasty.stop() == 0
    assert nothing_is_left(hasty, runtime)


def test_the_end_of_a_terminal_is_nothing_to_it(patient: Daemon) -> None:
    with session(patient) as sh:
        sh.run("X=1")
        patient.process.send_signal(signal.SIGHUP)
        assert sh.run("trap 'echo hung up' HUP; kill -HUP $$; echo $X").stdout == "hung up\n1\n"  # no legacy of ours
    assert patient.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_asks_again_and_again_for_its_end_gets_the_same(tmp_path: Path, number: signal.Signals) -> None:
    for _ in range(3):
        with running(tmp_path / "daemon") as daemon:
            while daemon.process.poll() is None:
                daemon.process.send_signal(number)
                time.sleep(0.0003)  # at each step of its end, and leave it some time for that
            assert daemon.process.returncode == 0
            assert not os.path.exists(daemon.socket)
