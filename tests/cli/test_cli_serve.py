"""``shellsession serve`` and ``stop``: the daemon's options, its log, and daemons of another version."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import daemons
import pytest
from commands import cli, finish, line, running
from daemons import Daemon
from system import mentioning, wait_until

from shellsession import connect
from shellsession.daemon.client.admin import stats
from shellsession.daemon.protocol.endpoint import confined_marker
from shellsession.daemon.protocol.wire import Decoder, encode
from shellsession.daemon.server.log import JsonLines, PrivateFile


@pytest.mark.parametrize(
    "words", [["--max-sessions", "0"], ["--max-sessions", "x"], ["--idle-ttl", "-1"], ["--log-level", "loud"]]
)
def test_serve_refuses_what_it_cannot_do(tmp_path: Path, words: list[str]) -> None:
    done = cli(str(tmp_path / "run" / "socket"), "serve", "--detach", *words)
    assert done.returncode == 125
    assert mentioning(str(tmp_path)) == []


def test_serve_where_one_serves_already(daemon: Daemon) -> None:
    done = cli(daemon.socket, "serve", "--log-level", "error")
    assert done.returncode == 125
    assert done.stderr.decode().endswith("use that one, or end it with `shellsession stop`\n")


@contextmanager
def detached(path: str, *words: str, **variables: str) -> Iterator[None]:
    done = cli(path, "serve", "--detach", *words, env=variables)
    try:
        assert (done.returncode, done.stdout) == (0, b"")
        assert done.stderr.decode() == f"shellsession: a daemon listens at {path}\n"
        yield
    finally:
        assert cli(path, "stop").returncode == 0


def entries(path: Path) -> list[dict[str, object]]:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return [json.loads(entry) for entry in path.read_text(encoding="ascii").splitlines()]


def test_a_detached_daemon_writes_its_warnings_to_the_state_directory(tmp_path: Path) -> None:
    path, log = str(tmp_path / "run" / "socket"), tmp_path / "state" / "shellsession" / "daemon.log"
    audit = tmp_path / "audit" / "log"
    with detached(path, "--audit", str(audit), XDG_STATE_HOME=str(tmp_path / "state")):
        audit.unlink()
        audit.mkdir()
        assert not log.exists()
        assert cli(path, "run", "--", "echo secret word").returncode == 0
        wait_until(log.exists, "the warning")
        assert json.loads(cli(path, "status", "--json").stdout)["audit_fault"].startswith(f"audit log {audit}: ")
        assert f"\naudit log  {audit}: " in cli(path, "status").stdout.decode()
        (warning,) = entries(log)
        assert (warning["level"], warning["logger"]) == ("warning", "shellsession.daemon")
        assert "a line was lost" in str(warning["message"])
        audit.rmdir()
        assert cli(path, "run", "--", "true").returncode == 0
        wait_until(lambda: f"\naudit log  {audit}\n" in cli(path, "status").stdout.decode(), "the next line of the log")


def test_each_daemon_has_an_audit_log_that_can_be_moved_and_switched_off(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    paths = [str(tmp_path / name / "socket") for name in ("one", "two")]
    for path in paths:
        with detached(path, **state):
            assert cli(path, "run", "--", f"echo {path}").returncode == 0
    for path in paths:  # each shows its own, also when it has ended
        assert cli(path, "log", env=state).stdout.count(path.encode()) == 1
    assert len(list((tmp_path / "state" / "shellsession").glob("audit-*.jsonl"))) == 2
    moved = {**state, "SHELLSESSION_AUDIT": str(tmp_path / "moved")}
    with detached(paths[0], **moved):
        assert cli(paths[0], "run", "--", "echo there").returncode == 0
    assert b"echo there" in cli(paths[0], "log", env=moved).stdout
    assert b"echo there" not in cli(paths[0], "log", env=state).stdout
    off = {**state, "SHELLSESSION_AUDIT": "off"}
    with detached(paths[0], **off):
        assert "\naudit log  none\n" in cli(paths[0], "status").stdout.decode()
    switched_off = cli(paths[0], "log", env=off)
    assert switched_off.returncode == 125
    assert b"the audit log is switched off (SHELLSESSION_AUDIT=off); " in switched_off.stderr


def test_a_log_file_that_was_asked_for(tmp_path: Path) -> None:
    path, log = str(tmp_path / "run" / "socket"), tmp_path / "daemon.log"
    log.write_text("")
    log.chmod(0o666)
    with detached(path, "--audit", "", "--log-file", str(log), "--log-level", "info"):
        assert cli(path, "run", "--", "true").returncode == 0
        assert "\naudit log  none\n" in cli(path, "status").stdout.decode()
    messages = [str(entry["message"]) for entry in entries(log)]
    assert messages[0].startswith(f"listening at {path} ")
    assert messages[-1] == "ended"


@pytest.mark.parametrize("name", ["/proc/no/daemon.log", "/"])
def test_a_log_file_that_cannot_be(tmp_path: Path, name: str) -> None:
    done = cli(str(tmp_path / "run" / "socket"), "serve", "--detach", "--log-file", name)
    assert done.returncode == 125
    assert done.stderr.decode().endswith("; name another one with --log-file\n")
    assert mentioning(str(tmp_path)) == []


@pytest.mark.parametrize("name", ["/proc/no/audit", "/"])
def test_an_audit_log_that_cannot_be(tmp_path: Path, name: str) -> None:
    done = cli(str(tmp_path / "run" / "socket"), "serve", "--detach", "--audit", name)
    assert done.returncode == 125
    assert "; use --audit or SHELLSESSION_AUDIT to name another" in done.stderr.decode()
    assert mentioning(str(tmp_path)) == []


def test_serve_in_the_foreground_says_what_it_does(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "socket")
    with running(path, "serve", "--audit", "", stderr=subprocess.STDOUT) as process:
        assert json.loads(line(process))["message"].startswith(f"listening at {path} ")
        assert cli(path, "stop").returncode == 0
        assert json.loads(line(process))["message"] == "ending: running commands get 5 s"
        assert finish(process)[0] == 0


def test_the_limits_of_serve_are_the_daemons(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "socket")
    with detached(path, "--audit", "", "--max-sessions", "1", "--log-file", str(tmp_path / "log")):
        assert cli(path, "run", "-s", "one", "--", "true").returncode == 0
        refused = cli(path, "run", "-s", "two", "--", "true")
        assert refused.returncode == 125
        assert b"close an idle one (one)" in refused.stderr


def test_running_commands_get_the_patience_to_end(tmp_path: Path) -> None:
    path, log = str(tmp_path / "run" / "socket"), tmp_path / "log"
    options = ["--audit", "", "--patience", "0", "--log-file", str(log), "--log-level", "info"]
    with detached(path, *options), running(path, "run", "--", "echo ready; sleep 99") as process:
        assert line(process) == b"ready\n"
        assert cli(path, "stop").returncode == 0
        status, said = finish(process)
    assert (status, b"the session's state is lost" in said) == (137, True)
    assert "ending: running commands get 0 s" in [entry["message"] for entry in entries(log)]


def test_a_daemon_that_is_killed_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    with daemons.running(tmp_path) as daemon, running(daemon.socket, "run", "--", "echo ready; sleep 99") as process:
        assert line(process) == b"ready\n"
        daemon.stop(signal.SIGKILL)
        status, said = finish(process)
    assert status == 125
    assert b": check whether the command has done its work, and run it again only if it has not; if that daemon" in said


def test_a_log_is_rotated_and_stays_private(tmp_path: Path) -> None:
    handler = PrivateFile(str(tmp_path / "deep" / "log"), maxBytes=200, backupCount=1)
    handler.setFormatter(JsonLines())
    for number in range(5):
        handler.handle(logging.makeLogRecord({"msg": "line %d", "args": (number,), "levelname": "INFO"}))
    handler.close()
    files = sorted((tmp_path / "deep").iterdir())
    assert [path.name for path in files] == ["log", "log.1"]
    assert [entry["message"] for path in reversed(files) for entry in entries(path)] == ["line 3", "line 4"]


# -- a daemon of another version


def test_stop_ends_a_daemon_of_any_version_and_others_say_so(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    heard: list[dict[str, object]] = []
    with subprocess.Popen(["sleep", "99"]) as process, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            for _ in range(2):
                client = listener.accept()[0]
                hello = {"protocol": 99, "version": "9.9", "incarnation": "inc", "connection": 1, "pid": process.pid}
                client.sendall(encode(hello))
                if data := client.recv(1 << 16):
                    heard.extend(message.header for message in Decoder().feed(data))
                    process.terminate()
                client.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            told = cli(path, "status")
            assert (told.returncode, told.stdout) == (125, b"")
            assert b"is shellsession 9.9 (protocol 99)" in told.stderr
            stopped = cli(path, "stop")
        finally:
            thread.join()
            process.kill()
    assert stopped.returncode == 0
    assert stopped.stderr.decode() == f"shellsession: the daemon (pid {process.pid}) has ended\n"
    assert heard == [{"protocol": 99, "id": "inc.1.1", "verb": "shutdown"}]


@pytest.mark.parametrize("audit", ["off", "moved"])
def test_a_daemon_that_starts_by_itself_obeys_the_variable_of_its_audit_log(tmp_path: Path, audit: str) -> None:
    path, moved = str(tmp_path / "run" / "socket"), tmp_path / "moved"
    env = {"XDG_STATE_HOME": str(tmp_path / "state"), "SHELLSESSION_AUDIT": "off" if audit == "off" else str(moved)}
    try:
        assert cli(path, "run", "--", "echo there", env=env).returncode == 0
    finally:
        cli(path, "stop")
    assert not list((tmp_path / "state").rglob("audit*"))
    assert moved.exists() is (audit == "moved")


def test_a_plain_daemon_does_not_replace_one_that_confines(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "socket")
    assert cli(path, "serve", "--detach", "--deny", "ls").returncode == 0
    try:
        assert cli(path, "run", "ls").returncode == 125
        Path(confined_marker(path)).unlink()
        wait_until(lambda: Path(confined_marker(path)).exists(), "the file again")
        os.kill(stats(path)["pid"], signal.SIGKILL)
        wait_until(lambda: cli(path, "status").returncode != 0, "the end of the daemon")
        done = cli(path, "run", "ls")
        assert (done.returncode, done.stdout) == (125, b"")
        assert b"start it again with the same options" in done.stderr
        assert cli(path, "serve", "--detach", "--deny", "ls").returncode == 0
        assert b"'ls' is denied" in cli(path, "run", "ls").stderr
        os.kill(stats(path)["pid"], signal.SIGKILL)
        wait_until(lambda: cli(path, "status").returncode != 0, "the end of the daemon")
        for lifts in (True, False):
            stopped = cli(path, "stop")
            assert stopped.returncode == 0
            assert (b"the last one was killed, and had a sandbox or rules" in stopped.stderr) is lifts
            assert cli(path, "run", "echo plain").stdout == b"plain\n"
    finally:
        cli(path, "stop")
    assert list((tmp_path / "run").iterdir()) == []


def test_serve_with_a_plugin_of_pydantic_installed_does_not_load_it(tmp_path: Path) -> None:
    """A plugin would see what clients send."""
    info, loaded = tmp_path / "packages" / "spy-1.dist-info", tmp_path / "loaded"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: spy\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[pydantic]\nspy = spy:plugin\n")
    (info.parent / "spy.py").write_text(f"open({str(loaded)!r}, 'w').close()\nplugin = None\n")
    env = {**os.environ, "PYTHONPATH": str(info.parent)}
    with (
        daemons.running(tmp_path / "daemon", env=env) as daemon,
        connect("a", daemon.socket, False, cwd="/") as session,
    ):
        assert session.run("echo on").stdout == "on\n"
        session.close()
    assert not loaded.exists()
