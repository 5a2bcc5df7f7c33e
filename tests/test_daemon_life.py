"""How a daemon ends, asked or killed: nothing is left of it, and its clients are told."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from daemons import Daemon, Raw, answers, running, serving, stopped
from support import (
    PATIENCE,
    command_line,
    descendants,
    is_alive,
    mentioning,
    stat_fields,
    unique_seconds,
    wait_until,
    with_argument,
)

from shellsession import (
    AsyncSession,
    DaemonUnavailable,
    LimitReached,
    Limits,
    OutcomeUnknown,
    RemoteSession,
    Result,
    ShellSessionError,
    connect,
)
from shellsession.cli.main import main
from shellsession.cli.spectator import Line
from shellsession.daemon import link
from shellsession.daemon.control import shutdown, stats
from shellsession.daemon.listening_socket import ListeningSocket
from shellsession.daemon.wire import encode


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory for what is there as long as its user is: of these tests alone."""
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / name))
    yield tmp_path / "XDG_RUNTIME_DIR"
    for pid in mentioning(str(tmp_path / "daemon")):  # only a test that has failed leaves one
        os.kill(pid, signal.SIGTERM)


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path / "daemon", "--patience", "30") as daemon:
        yield daemon


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path / "daemon", "--patience", "0.1") as daemon:
        yield daemon


def shut_down(daemon: Daemon) -> None:
    with Raw(daemon.socket) as raw:
        raw.ask("shutdown")


Ending = Callable[[Daemon], None]
ENDINGS: dict[str, Ending] = {
    "SIGTERM": lambda daemon: daemon.process.send_signal(signal.SIGTERM),
    "SIGINT": lambda daemon: daemon.process.send_signal(signal.SIGINT),
    "shutdown": shut_down,
}
asked = pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)


def nothing_is_left(daemon: Daemon, runtime: Path, seconds: str = "") -> bool:
    there = os.path.exists(daemon.socket), with_argument(daemon.socket), os.listdir(runtime)
    return not any(there) and not (seconds and with_argument(seconds))


def session(daemon: Daemon, agent: str = "a", start: bool = False) -> RemoteSession:
    return connect(agent, daemon.socket, start, cwd="/", timeout=None)


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


def test_where_no_descriptor_is_left_clients_are_told_at_once(hasty: Daemon, runtime: Path) -> None:
    """And are served again as soon as there are some."""
    with ExitStack() as clients, session(hasty) as sh:
        sh.run("X=1")
        used = max(map(int, os.listdir(f"/proc/{hasty.pid}/fd")))
        soft, hard = resource.prlimit(hasty.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(hasty.pid, resource.RLIMIT_NOFILE, (used + 20, hard))

        def is_let_in() -> bool:
            return "incarnation" in clients.enter_context(Raw(hasty.socket)).hello

        let_in = [is_let_in() for _ in range(40)]
        assert let_in == sorted(let_in, reverse=True)
        assert 0 < sum(let_in) < 30
        with pytest.raises(LimitReached, match="descriptors"):
            session(hasty, "b")
        assert sh.run("echo $X").stdout == "1\n"
        clients.pop_all().close()
        wait_until(is_let_in, "room")
        resource.prlimit(hasty.pid, resource.RLIMIT_NOFILE, (soft, hard))
        with session(hasty, "b") as other:
            assert other.run("echo served").stdout == "served\n"
    assert hasty.stop() == 0
    assert nothing_is_left(hasty, runtime)


def test_without_even_a_spare_descriptor_it_rests_between_two_looks(hasty: Daemon) -> None:
    soft, hard = resource.prlimit(hasty.pid, resource.RLIMIT_NOFILE)
    with Raw(hasty.socket) as raw, socket.socket(socket.AF_UNIX) as waiting:
        resource.prlimit(hasty.pid, resource.RLIMIT_NOFILE, (3, hard))
        waiting.connect(hasty.socket)
        wait_until(lambda: "turned away" in hasty.said, "its trouble")
        for _ in range(10):
            wait_until(lambda: stat_fields(hasty.pid)[0] == "S", "its rest")
            assert raw.ask("stats").header["value"]["connections"] == 1
        resource.prlimit(hasty.pid, resource.RLIMIT_NOFILE, (soft, hard))
        waiting.settimeout(PATIENCE)
        assert b"incarnation" in waiting.recv(1 << 16)


def test_what_waits_for_its_turn_at_the_end_is_told_that_it_was_not_run(hasty: Daemon, place: Path) -> None:
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


def test_killed_it_leaves_nothing(hasty: Daemon, runtime: Path) -> None:
    seconds = unique_seconds()
    command = f"trap '' HUP TERM; setsid sleep {seconds} & sleep {seconds}"
    with session(hasty) as sh, session(hasty, "b") as other, ThreadPoolExecutor(2) as threads:
        results = [threads.submit(one.run, command) for one in (sh, other)]
        wait_until(lambda: len(with_argument(seconds)) == 4, "the commands")
        bashes = descendants(hasty.pid)
        hasty.process.kill()
        for result in results:
            with pytest.raises(OutcomeUnknown):
                result.result(PATIENCE)
        wait_until(lambda: nothing_is_left(hasty, runtime, seconds), "the end of all that was left")
        wait_until(lambda: not any(map(is_alive, bashes)), "the end of its shells")
        assert os.listdir(os.path.dirname(hasty.socket)) == []  # it may be its user's own


def test_killed_it_makes_room_at_once(hasty: Daemon, runtime: Path) -> None:
    seconds = unique_seconds()
    with session(hasty) as sh:
        sh.run(f"sleep {seconds} &")
    hasty.process.kill()
    hasty.process.wait(PATIENCE)
    with session(hasty, start=True) as sh:
        assert sh.run("echo at once").stdout == "at once\n"
        wait_until(lambda: not with_argument(seconds), "the end of what was left")
        shut_down(hasty)
    wait_until(lambda: nothing_is_left(hasty, runtime), "the end of the second")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_what_cleans_up_spares_the_next_daemon(tmp_path: Path, runtime: Path, end: signal.Signals) -> None:
    """However late it comes. File systems give a new file the number of one that has just been removed."""
    with running(tmp_path / "daemon", "--patience", "30") as old, session(old) as sh:
        with ThreadPoolExecutor(1) as threads, stopped(watcher(old) if end == signal.SIGKILL else 0):
            result = threads.submit(
                sh.run, f"touch {tmp_path}/begun; until [ -e {tmp_path}/open ]; do sleep 0.05; done"
            )
            wait_until((tmp_path / "begun").exists, "the command")
            old.process.send_signal(end)
            if end == signal.SIGTERM:
                wait_until(lambda: "ending" in old.said, "the end of its hospitality")
                os.unlink(old.socket)
            wait_until(lambda: not answers(old.socket), "room for another")
            fresh = session(old, "fresh", start=True)
            fresh.run("X=1")
            (tmp_path / "open").touch()
            with suppress(OutcomeUnknown):
                result.result(PATIENCE)
        old.process.wait(PATIENCE)
        wait_until(lambda: len(watchers(old.socket)) == 1, "the end of the old watcher")
        assert os.path.exists(old.socket)
        assert fresh.run("echo $X").stdout == "1\n"
        fresh.disconnect()
        shut_down(old)
        wait_until(lambda: nothing_is_left(old, runtime), "the end of the second")


def watchers(socket: str) -> list[int]:
    return [pid for pid in with_argument(socket) if b"watcher.bash" in command_line(pid)]


def watcher(daemon: Daemon) -> int:
    (pid,) = wait_until(lambda: watchers(daemon.socket), "its watcher")
    return pid


def _moved_and_back(path: str) -> None:
    os.rename(path, f"{path}.away")
    os.rename(f"{path}.away", path)


TOUCHES: dict[str, Callable[[str], None]] = {
    "touch": os.utime,
    "chmod": lambda path: os.chmod(path, 0o600),
    "chown": lambda path: os.chown(path, os.getuid(), os.getgid()),
    "another name": lambda path: os.link(path, f"{path}.too"),
    "moved and back": _moved_and_back,
}


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES)
def test_its_socket_is_its_own_whatever_is_noted_of_the_file(tmp_path: Path, touch: Callable[[str], None]) -> None:
    path = str(tmp_path / "socket")
    door = ListeningSocket(path)
    try:
        before = door.socket
        touch(path)
        assert door.in_place
        assert not door.set_up_again()
        assert door.socket is before
    finally:
        door.close()
    assert not os.path.exists(path)


def test_its_watcher_knows_its_socket_whatever_is_noted_of_the_file(hasty: Daemon, runtime: Path) -> None:
    for touch in TOUCHES.values():
        touch(hasty.socket)
    os.unlink(f"{hasty.socket}.too")
    hasty.stop(signal.SIGKILL)
    wait_until(lambda: nothing_is_left(hasty, runtime), "the end of what was left")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_asks_again_and_again_for_its_end_gets_the_same(tmp_path: Path, number: signal.Signals) -> None:
    for _ in range(3):
        with running(tmp_path / "daemon") as daemon:
            while daemon.process.poll() is None:
                daemon.process.send_signal(number)
                time.sleep(0.0003)  # at each step of its end, and leave it some time for that
            assert daemon.process.returncode == 0
            assert not os.path.exists(daemon.socket)


def test_a_directory_that_was_removed_is_not_made_anew_at_the_end(tmp_path: Path) -> None:
    door = ListeningSocket(str(tmp_path / "run" / "socket"))
    shutil.rmtree(tmp_path / "run")
    door.close()
    assert not (tmp_path / "run").exists()


def test_a_daemon_that_stands_still_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Started by a client, so that it is not the process that listened first; it is named all the same."""
    path = str(tmp_path / "run" / "socket")
    connect("a1", path).disconnect()
    pid = stats(path)["pid"]
    try:
        monkeypatch.setattr(link, "PATIENCE", 0.3)
        with stopped(pid):
            for ask in (lambda: connect("a1", path), lambda: stats(path), lambda: Line("a1", path)):
                with pytest.raises(DaemonUnavailable, match=rf"\(pid {pid}\) .* stopped \(SIGSTOP\)"):
                    ask()
            assert main(["status", "--socket", path]) == 125
            assert "kill -CONT" in capsys.readouterr().err
    finally:
        shutdown(path)
    assert main(["status", "--socket", path]) == 3


def test_its_own_log_tells_of_each_request_and_not_what_it_was_about(tmp_path: Path) -> None:
    with running(tmp_path / "daemon", "--log-level", "debug") as daemon, Raw(daemon.socket) as raw:
        raw.open("a\n1", tmp_path)
        raw.ask("run", b"echo private >&2; exit 3", agent="a\n1")
        last = raw.ask("poll", agent="nobody").header["id"]
        told = [json.loads(line)["message"] for line in daemon.said.splitlines() if "connection" in line]
    assert "private" not in daemon.said
    number = last.split(".")[1]
    assert [line.partition(f"connection {number}: ")[2].replace(last.rpartition(".")[0], "ID") for line in told] == [
        "open of agent 'a\\n1' (ID.1): done",
        "run of agent 'a\\n1' (ID.2): shell_exited",
        "poll of agent 'nobody' (ID.3): no_such_agent",
    ]


def test_a_client_that_died_is_not_said_to_be_in_a_sandbox(hasty: Daemon) -> None:
    with stopped(hasty.pid):
        script = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        subprocess.run([sys.executable, "-c", script, hasty.socket], check=True)
    with Raw(hasty.socket) as raw:
        raw.ask("list")
    assert "refused" not in hasty.said


def test_it_is_found_again_where_somebody_removed_its_socket(patient: Daemon, place: Path) -> None:
    with connect("a1", patient.socket, False, cwd=place) as before:
        before.run("kept=1")
        os.unlink(patient.socket)
        wait_until(lambda: os.path.exists(patient.socket), "the socket")
        assert stat.S_IMODE(os.lstat(patient.socket).st_mode) == 0o600
        with connect("a1", patient.socket, False) as after:
            assert after.run("echo $kept").stdout == "1\n"
        assert before.run("echo $kept").stdout == "1\n"


def test_it_goes_on_where_its_socket_cannot_be_made_again_just_now(patient: Daemon, place: Path) -> None:
    directory = Path(patient.socket).parent
    with connect("a1", patient.socket, False, cwd=place) as sh:
        sh.run("kept=1")
        directory.chmod(0o770)  # nothing is trusted there
        os.unlink(patient.socket)
        wait_until(lambda: "our socket was removed" in patient.said, "its trouble")
        assert sh.run("echo $kept").stdout == "1\n"
        directory.chmod(0o700)
        wait_until(lambda: os.path.exists(patient.socket), "the socket")
        with connect("a1", patient.socket, False) as after:
            assert after.run("echo $kept").stdout == "1\n"


def test_killed_after_its_socket_was_made_again_it_leaves_nothing(
    hasty: Daemon, runtime: Path, place: Path, tmp_path: Path
) -> None:
    with session(hasty) as sh:
        sh.run("true")
        (before,) = watchers(hasty.socket)
        os.unlink(hasty.socket)
        wait_until(lambda: watchers(hasty.socket) not in ([before], []), "the watcher of the new one")
        wait_until(lambda: not is_alive(before), "the end of the old watcher")
    hasty.stop(signal.SIGKILL)
    wait_until(lambda: nothing_is_left(hasty, runtime), "the end of what was left")


def test_it_ends_where_another_daemon_took_its_place(patient: Daemon, tmp_path: Path, place: Path) -> None:
    with connect("a1", patient.socket, False, cwd=place) as session:
        pid = session.run("echo $$").stdout.strip()
    with ExitStack() as after:
        with stopped(patient.pid):  # else it may make its socket again before the other one listens
            os.unlink(patient.socket)
            other = after.enter_context(running(Path(patient.socket).parent.parent))
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the first daemon's sessions")
        wait_until(lambda: patient.process.poll() is not None, "its own end")
        assert answers(other.socket)
