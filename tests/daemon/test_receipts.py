"""A command with an idempotency key runs once, whatever dies, and its key gives what is known of it."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from clients import hand_back
from commands import cli, running as client_of
from daemons import Daemon, Raw, running
from gates import Gate
from system import PATIENCE, wait_until
from warm import PROGRAM

from shellsession import (
    TTY,
    CommandFailed,
    InvalidRequest,
    KeyConflict,
    OutcomeUnknown,
    Policy,
    PolicyRefused,
    ReceiptUnavailable,
    RemoteSession,
    SessionBusy,
    StartupFailed,
    StateLost,
    connect,
)
from shellsession.daemon.client import checkpoint
from shellsession.daemon.client.remote import UNLESS_LOST
from shellsession.store import Store, path_for


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for the databases of daemons that only one test uses."""
    (tmp_path / "state").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "shellsession"


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path / "daemon", "--patience", "0") as daemon:
        yield daemon


def session(daemon: Daemon, agent: str = "a") -> RemoteSession:
    return connect(agent, daemon.socket, False, cwd="/", timeout=30)


def test_same_key_gives_the_first_result_and_runs_nothing(ours: Daemon, gate: Gate) -> None:
    gate.open()
    with session(ours) as sh:
        first = sh.run(gate.text, idempotency_key="k")
        again = sh.run(gate.text, idempotency_key="k")
        assert not first.replayed
        assert again == first.__replace__(replayed=True, output_kept=False)
        assert sh.run(gate.text).replayed is False, "without a key it runs"
        with pytest.raises(CommandFailed):
            sh.run("echo bad >&2; (exit 3)", idempotency_key="bad", check=True)
        assert sh.run("echo bad >&2; (exit 3)", idempotency_key="bad").stderr == "bad\n"
    with session(ours, "b") as other:
        assert not other.run(gate.text, idempotency_key="k").replayed, "a key is its agent's own"
    assert gate.count == 3


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_receipt_outlives_its_daemon(tmp_path: Path, gate: Gate, end: signal.Signals) -> None:
    gate.open()
    with running(tmp_path / "daemon") as daemon:
        first = session(daemon).run(gate.text, idempotency_key="k")
        daemon.stop(end)
    with running(tmp_path / "daemon") as daemon, session(daemon) as sh:
        token = UNLESS_LOST.set(True)
        try:
            assert sh.run(gate.text, idempotency_key="k").stdout == first.stdout, "no state is needed for that"
            with pytest.raises(StateLost):
                sh.run("true", idempotency_key="other")
        finally:
            UNLESS_LOST.reset(token)
        assert sh.state == "new"
        assert not sh.run("true", idempotency_key="other").replayed, "what was refused has no receipt"
    assert gate.count == 1


def test_command_whose_daemon_was_killed_is_not_run_again(tmp_path: Path, gate: Gate) -> None:
    with running(tmp_path / "daemon") as daemon, ThreadPoolExecutor(1) as threads:
        sh = session(daemon)
        result = threads.submit(sh.run, gate.text, idempotency_key="k")
        gate.until_begun()
        pid = sh.pid
        daemon.stop(signal.SIGKILL)
        with pytest.raises(OutcomeUnknown, match="call again with the same idempotency key"):
            result.result(PATIENCE)
    gate.open()
    with running(tmp_path / "daemon") as daemon, session(daemon) as sh:
        for _ in range(2):
            with pytest.raises(OutcomeUnknown, match=rf"'k' was begun \d+ seconds? ago in bash {pid}, and how it"):
                sh.run(gate.text, idempotency_key="k")
        assert sh.run("echo on", idempotency_key="k2").stdout == "on\n"
    assert gate.count == 1


def test_what_a_lost_command_had_printed_when_it_was_handed_back_is_told(tmp_path: Path) -> None:
    text = "echo so far; read x"
    with running(tmp_path / "daemon") as daemon:
        assert session(daemon).run(text, stdin=TTY, idempotency_key="k").outcome == "input"
        daemon.stop(signal.SIGKILL)
    told = pytest.raises(OutcomeUnknown, match=r"printed last, as far as that is known: 'so far\\n'")
    with running(tmp_path / "daemon") as daemon, session(daemon) as sh, told:
        sh.run(text, stdin=TTY, idempotency_key="k")


def test_last_output_of_a_lost_command_is_told_without_secrets(tmp_path: Path, state: Path) -> None:
    text = "echo begins; echo sesame-4711-open; sleep 60"
    with running(tmp_path / "daemon") as daemon, ThreadPoolExecutor(1) as threads:
        sh = connect("a", daemon.socket, False, cwd="/", extra_env={"API_TOKEN": "sesame-4711-open"}, timeout=None)
        result = threads.submit(sh.run, text, idempotency_key="k")
        wait_until(
            lambda: any(b"begins\n***\n" in path.read_bytes() for path in state.glob("*-wal")), "the last output"
        )
        daemon.stop(signal.SIGKILL)
        with pytest.raises(OutcomeUnknown):
            result.result(PATIENCE)
    told = pytest.raises(OutcomeUnknown, match=r"printed last, as far as that is known: 'begins\\n\*\*\*\\n'")
    with running(tmp_path / "daemon") as daemon, session(daemon) as sh, told:
        sh.run(text, idempotency_key="k")


def test_key_of_another_command_is_a_conflict(ours: Daemon, place: Path) -> None:
    with session(ours) as sh:
        sh.run("cat", idempotency_key="k", stdin="in", env={"A": "1"}, cwd="/tmp")
        for changed in ({"stdin": "other"}, {"stdin": None}, {"env": {"A": "2"}}, {"env": None}, {"cwd": "/"}):
            given: dict[str, Any] = {"stdin": "in", "env": {"A": "1"}, "cwd": "/tmp", **changed}
            with pytest.raises(KeyConflict, match="'k'"):
                sh.run("cat", idempotency_key="k", **given)
        with pytest.raises(KeyConflict):
            sh.run(f"touch {place}/never", idempotency_key="k")
        again = sh.run("cat", idempotency_key="k", stdin="in", env={"A": "1"}, cwd="/tmp", timeout=5)
        assert (again.stdout, again.replayed) == ("in", True), "a time limit does not matter"
    assert os.listdir(place) == []


def test_command_that_runs_is_joined(ours: Daemon, gate: Gate) -> None:
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(session(ours).run, gate.text, idempotency_key="k")
        gate.until_begun()
        joined = [threads.submit(session(ours).run, gate.text, idempotency_key="k") for _ in range(2)]
        early = session(ours).run(gate.text, idempotency_key="k", timeout=0.1)
        assert (early.still_running, early.replayed) == (True, True)
        with pytest.raises(KeyConflict):
            session(ours).run("true", idempotency_key="k")
        with pytest.raises(SessionBusy):
            session(ours).run("true", idempotency_key="other", patience=0.1)
        gate.open()
        results = [one.result(PATIENCE) for one in (first, *joined)]
    assert [one.stdout for one in results] == ["begun\nended\n"] * 3
    assert [one.replayed for one in results] == [False, True, True]
    assert not session(ours).run("true", idempotency_key="other").replayed, "what was dropped from the queue"
    assert gate.count == 1


def test_command_whose_client_is_gone_is_joined(ours: Daemon, gate: Gate) -> None:
    with Raw(ours.socket) as raw:
        raw.open("a")
        raw.say("run", gate.text.encode(), agent="a", idempotency_key="k")
        gate.until_begun()
    with ThreadPoolExecutor(1) as threads:
        joined = threads.submit(session(ours).run, gate.text, idempotency_key="k")
        gate.open()
        assert joined.result(PATIENCE).stdout == "begun\nended\n"
    assert gate.count == 1


def test_command_that_was_handed_back_is_joined(ours: Daemon, gate: Gate) -> None:
    with session(ours) as sh:
        assert hand_back(sh, gate.text, "begun", idempotency_key="k") == "begun\n"
        again = session(ours).run(gate.text, idempotency_key="k", timeout=0.1)
        assert (again.still_running, again.replayed, again.stdout) == (True, True, "begun\n")
        gate.open()
        for _ in range(2):  # joined, and then from the receipt
            ended = session(ours).run(gate.text, idempotency_key="k")
            assert (ended.stdout, ended.exit_code, ended.replayed) == ("begun\nended\n", 0, True)
            assert ended.stdout_omitted == 0
    assert gate.count == 1


def test_command_beside_one_that_was_handed_back_is_refused_and_has_no_receipt(ours: Daemon, gate: Gate) -> None:
    with session(ours) as sh:
        sh.run(gate.text, timeout=0.3, on_timeout="yield")
        for _ in range(2):
            with pytest.raises(SessionBusy, match="a command still runs"):
                sh.run("echo next", idempotency_key="k")
        gate.open()
        sh.wait()
        assert [sh.run("echo next", idempotency_key="k").replayed for _ in range(2)] == [False, True]


def test_command_that_was_refused_has_no_receipt(ours: Daemon, place: Path) -> None:
    with connect("a", ours.socket, False, cwd="/", policy=Policy(deny_commands=["rm"])) as sh:
        for _ in range(2):
            with pytest.raises(PolicyRefused):
                sh.run("rm x", idempotency_key="k")
            with pytest.raises(InvalidRequest):
                sh.run("true", idempotency_key="k", cwd="")
            assert not sh.run("true", idempotency_key="k", cwd=place / "none").ran
        assert sh.run("echo ran", idempotency_key="k").stdout == "ran\n"
    with connect("b", ours.socket, False, cwd="/", startup=[f"test -e {place}/ready"]) as sh:
        with pytest.raises(StartupFailed):
            sh.run("echo ran", idempotency_key="k")
        (place / "ready").touch()
        assert not sh.run("echo ran", idempotency_key="k").replayed


@pytest.mark.parametrize("key", ["", "x" * 256, "\ud800", 7], ids=["empty", "long", "a surrogate", "no text"])
def test_key_that_is_none_is_refused(ours: Daemon, key: str) -> None:
    with session(ours) as sh, pytest.raises(InvalidRequest, match="idempotency_key must be text"):
        sh.run("true", idempotency_key=key)


def test_key_may_be_any_text(ours: Daemon) -> None:
    key = "é'\n" + "x" * 252
    with session(ours) as sh:
        assert [sh.run("true", idempotency_key=key).replayed for _ in range(2)] == [False, True]


def test_close_forgets_keys_and_restart_keeps_them(ours: Daemon) -> None:
    with session(ours) as sh:
        sh.run("true", idempotency_key="k")
        sh.restart()
        assert sh.run("true", idempotency_key="k").replayed
        sh.close()
    with session(ours) as sh:
        assert not sh.run("true", idempotency_key="k").replayed


@pytest.mark.parametrize("running_too", [True, False], ids=["with a daemon", "without one"])
@pytest.mark.parametrize("verb", ["forget", "kill"])
def test_forget_and_kill_drop_keys(tmp_path: Path, verb: str, running_too: bool) -> None:
    place = tmp_path / "daemon"
    with running(place) as daemon:
        session(daemon).run("true", idempotency_key="k")
        daemon.stop(signal.SIGKILL)
    with running(place) if running_too else nullcontext():
        ended = cli(daemon.socket, verb, "a")
    assert ended.returncode == 0 or verb == "kill"
    with running(place) as daemon, session(daemon) as sh:
        assert not sh.run("true", idempotency_key="k").replayed


@pytest.mark.parametrize("running_too", [True, False], ids=["with a daemon", "without one"])
def test_forget_all_drops_what_is_only_a_checkpoint(tmp_path: Path, running_too: bool) -> None:
    place = tmp_path / "daemon"
    with running(place) as daemon:
        checkpoint.put(session(daemon), b"kept", with_state=False)
    with running(place) if running_too else nullcontext():
        assert cli(daemon.socket, "forget", "--all").stderr == b"shellsession: agents forgotten: 1\n"
    with running(place) as daemon, session(daemon) as sh:
        assert checkpoint.read(checkpoint.get(sh)) == (b"", None)


def test_receipt_has_no_secret_and_a_part_of_long_output(ours: Daemon, state: Path) -> None:
    secret = "sesame-4711-open"
    text = f"echo {secret}; head -c 300000 /dev/zero | tr '\\0' x; echo {secret}"
    with connect("a", ours.socket, False, cwd="/", extra_env={"API_TOKEN": secret}) as sh:
        assert secret in sh.run(text, idempotency_key="k").stdout
        again = sh.run(text, idempotency_key="k")
    assert again.stdout_bytes.startswith(b"***\nxxx")
    assert again.stdout_bytes.endswith(b"xxx***\n")
    assert len(again.stdout_bytes) == 1 << 16
    assert again.stdout_omitted == 300_000 + 2 * len("***\n") - (1 << 16)
    assert not any(secret.encode() in path.read_bytes() for path in state.iterdir())


def test_keyed_command_is_refused_where_no_receipt_can_be_written(tmp_path: Path, place: Path, state: Path) -> None:
    state.mkdir(mode=0o700)
    taken = Store(path_for(str(tmp_path / "daemon" / "run" / "socket")))  # as if another daemon had it open
    try:
        with running(tmp_path / "daemon") as daemon, session(daemon) as sh:
            for _ in range(2):
                with pytest.raises(ReceiptUnavailable, match="another daemon with the same name has it open"):
                    sh.run(f"touch {place}/never", idempotency_key="k")
            assert sh.run("echo on").stdout == "on\n"
    finally:
        taken.close()
    assert os.listdir(place) == []


@pytest.fixture
def small_disk(state: Path) -> Iterator[Path]:
    """A disk of 512 KiB for the database."""
    state.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k,mode=0700", "none", str(state)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield state
    finally:
        subprocess.run(["umount", str(state)], check=True)


def test_keyed_command_is_refused_on_a_full_disk_and_runs_when_there_is_room(
    tmp_path: Path, small_disk: Path, place: Path
) -> None:
    text = f"echo ran >> {place}/log"
    with running(tmp_path / "daemon") as daemon, session(daemon) as sh:
        sh.run(text, idempotency_key="before")
        (small_disk / "filler").write_bytes(b"")
        with open(small_disk / "filler", "wb", buffering=0) as filler, suppress(OSError):
            while filler.write(bytes(4096)):
                pass
        for _ in range(2):
            with pytest.raises(ReceiptUnavailable, match=r"full|disk I/O error"):
                sh.run(text, idempotency_key="k")
        assert sh.run("echo on").stdout == "on\n", "others go on"
        assert sh.run(text, idempotency_key="before").replayed
        (small_disk / "filler").unlink()
        assert [sh.run(text, idempotency_key="k").replayed for _ in range(2)] == [False, True]
        daemon.stop()
    assert (place / "log").read_text() == "ran\n" * 2


def test_end_that_no_receipt_can_note_is_still_the_answer(tmp_path: Path, small_disk: Path, gate: Gate) -> None:
    with running(tmp_path / "daemon") as daemon, session(daemon) as sh:
        assert sh.run(gate.text, idempotency_key="k", timeout=0.3, on_timeout="yield").still_running
        with open(small_disk / "filler", "wb", buffering=0) as filler, suppress(OSError):
            while filler.write(bytes(4096)):
                pass
        # Opened once this call waits: an earlier end would be noticed before, and be lost.
        again = session(daemon).run(gate.text, idempotency_key="k", on_output=lambda *_: gate.open())
        assert (again.exit_code, again.stdout.removeprefix("begun\n"), again.replayed) == (0, "ended\n", True)
        (small_disk / "filler").unlink()
        with pytest.raises(OutcomeUnknown):
            sh.run(gate.text, idempotency_key="k")
        daemon.stop()
    assert gate.count == 1


def test_keyed_command_is_refused_where_the_state_directory_is_read_only(
    tmp_path: Path, small_disk: Path, place: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with running(tmp_path / "daemon") as daemon, session(daemon) as sh:
        with pytest.raises(ReceiptUnavailable, match=r"[Rr]ead-only"):
            sh.run(f"touch {place}/never", idempotency_key="k")
        assert sh.run("echo on").stdout == "on\n"
        daemon.stop()
    assert os.listdir(place) == []


def test_keyed_command_is_refused_when_the_disk_does_not_sync(ours: Daemon, place: Path, state: Path) -> None:
    with session(ours) as sh:
        sh.run("true", idempotency_key="before")
        (log,) = state.glob("*-wal")
        log.unlink()  # what is written to it now is lost
        for _ in range(2):
            with pytest.raises(ReceiptUnavailable, match="the disk may lack the last records"):
                sh.run(f"touch {place}/never", idempotency_key="k")
        assert sh.run("echo on").stdout == "on\n"
    assert os.listdir(place) == []


def test_receipt_of_a_removed_database_is_not_taken_for_missing(ours: Daemon, gate: Gate, state: Path) -> None:
    gate.open()
    with session(ours) as sh:
        sh.run(gate.text, idempotency_key="k")
        for path in state.iterdir():
            path.unlink()
        sh.run("true", idempotency_key="another")
        with pytest.raises(OutcomeUnknown, match="was removed"):
            sh.run(gate.text, idempotency_key="k")
    assert gate.count == 1


def test_database_of_an_earlier_version_gets_receipts(tmp_path: Path, state: Path) -> None:
    state.mkdir(mode=0o700)
    path = path_for(str(tmp_path / "daemon" / "run" / "socket"))
    Store(path).close()
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE receipts")
        database.execute("ALTER TABLE agents DROP COLUMN is_current")
        database.execute("PRAGMA user_version = 2")
    database.close()
    with running(tmp_path / "daemon") as daemon, session(daemon) as sh:
        assert [sh.run("true", idempotency_key="k").replayed for _ in range(2)] == [False, True]


def test_command_line_replays_the_output(ours: Daemon, gate: Gate) -> None:
    gate.open()
    words = ["run", "-s", "a", "--idempotency-key", "k", "--", f"{gate.text}; (exit 3)"]
    runs = [cli(ours.socket, *words) for _ in range(2)]
    assert [(run.stdout, run.returncode) for run in runs] == [(b"begun\nended\n", 3)] * 2
    assert gate.count == 1


def test_history_shows_keys_and_their_state(ours: Daemon) -> None:
    with session(ours) as sh:
        sh.run("true")
        history = [*PROGRAM, "history", "--audit", str(ours.audit), "a"]

        def shown() -> list[list[str]]:
            return [line.split() for line in subprocess.check_output(history, text=True).splitlines()]

        wait_until(lambda: len(shown()) == 2, "the first line")
        assert "KEY" not in shown()[0]
        sh.run("false", idempotency_key="k1")
        sh.run("sleep 60", idempotency_key="k2", timeout=0.2, on_timeout="yield")
        wait_until(lambda: len(shown()) == 4, "the others")
        titles, *rows = shown()
    assert titles[-2:] == ["KEY", "COMMAND"]
    assert [row[4 + (row[0] == "began") :][:1] + row[-3 if row[-1] == "60" else -2 :] for row in rows] == [
        ["0", "-", "true"],
        ["1", "k1", "false"],
        ["began", "k2", "sleep", "60"],
    ]


def test_queued_command_with_the_key_of_one_that_ends_first_is_not_run(ours: Daemon, gate: Gate) -> None:
    with ThreadPoolExecutor(3) as threads:
        other = threads.submit(session(ours).run, gate.text)
        gate.until_begun()
        text = f"echo once >> {gate.place}/once"
        twice = [threads.submit(session(ours).run, text, idempotency_key="k") for _ in range(2)]
        with Raw(ours.socket) as raw:
            wait_until(lambda: raw.ask("stats").header["value"]["serving"] == 4, "both in the queue")
        gate.open()
        other.result(PATIENCE)
        assert sorted(one.result(PATIENCE).replayed for one in twice) == [False, True]
    assert (gate.place / "once").read_text() == "once\n"


def keeping(daemon: Daemon) -> RemoteSession:
    return connect("a", daemon.socket, False, cwd="/", recover=True)


def test_replayed_result_does_not_repeat_the_news_of_its_time(tmp_path: Path) -> None:
    with running(tmp_path / "daemon") as daemon:
        keeping(daemon).run("A=1")
        daemon.stop(signal.SIGTERM)
    with running(tmp_path / "daemon") as daemon, keeping(daemon) as sh:
        first = sh.run("echo $A", idempotency_key="k")
        assert "this is a new session" in first.reason
        ended = sh.run("exit 3", idempotency_key="end")
        for result in (first, ended):
            assert result.recovered
        again = sh.run("echo $A", idempotency_key="k")
        assert (again.replayed, again.stdout, again.reason, again.recovered) == (True, first.stdout, "", "")
        assert sh.run("exit 3", idempotency_key="end").recovered == ended.recovered, "what became of its own shell"


def test_result_that_was_read_by_its_key_is_no_news_to_the_next_command(tmp_path: Path) -> None:
    with running(tmp_path / "daemon") as daemon:
        text = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo out"
        words = ["run", "-s", "a", "--idempotency-key", "k", text]
        with client_of(daemon.socket, *words) as client:
            wait_until(lambda: daemon.lines("a"), "its beginning")
            client.kill()
        (tmp_path / "go").touch()
        wait_until(lambda: daemon.logged("a"), "its end")
        done = cli(daemon.socket, *words)
        assert (done.stdout, done.stderr.count(b"\n")) == (b"out\n", 1)
        assert b"nothing was run: an earlier call had this key" in done.stderr
        with connect("a", daemon.socket, False) as sh:
            assert sh.run("true").reason == ""


def test_history_shows_a_command_that_was_lost_beside_a_later_one_with_its_id(tmp_path: Path) -> None:
    long = "conversation-7/turn-3/call-of-a-tool"
    with running(tmp_path / "daemon") as daemon:
        session(daemon).run("sleep 60", timeout=0.1, on_timeout="yield", idempotency_key=long)
        wait_until(lambda: daemon.lines("a"), "its beginning")
        daemon.stop(signal.SIGKILL)
    with running(tmp_path / "daemon") as daemon, session(daemon) as sh:
        sh.run("true", idempotency_key="k")
        sh.run("sleep 0.2")
        wait_until(lambda: len(daemon.logged("a")) == 2, "the ends")
        rows = cli(daemon.socket, "history", "--audit", str(daemon.audit), "a").stdout.decode().splitlines()[1:]
    ids = [re.sub(r"^(began )?\S+ \S+Z +", r"\1", re.sub(r" \d+\.\ds ", " - ", row)).split() for row in rows]
    assert ids == [
        ["began", "a", "c1", "began", "-", "conversation-7/turn-3/ca…", "sleep", "60"],
        ["a", "c1", "0", "-", "k", "true"],
        ["a", "c2", "0", "-", "-", "sleep", "0.2"],
    ]


@pytest.mark.parametrize("files_only", [False, True])
def test_rollback_forgets_the_keys_of_what_it_takes_back(ours: Daemon, tmp_path: Path, files_only: bool) -> None:
    (base := tmp_path / "base").mkdir()
    with connect("a", ours.socket, False, cwd=base, branch=base, auto_checkpoints=5) as sh:

        def run(key: str) -> bool:
            return sh.run(f"echo {key} >>log", idempotency_key=key).replayed

        assert not run("before")
        first = sh.checkpoint()
        assert not run("after")
        assert not run("later")
        assert run("after")
        sh.rollback(first, files_only=files_only)
        assert run("before")
        assert not run("after")
        assert sh.read_file("log") == b"before\nafter\n"
        for _ in range(3):
            assert not run("undone")
            sh.rollback(files_only=files_only)  # only that command
        assert run("after")
        assert sh.read_file("log") == b"before\nafter\n"
        sh.close()
