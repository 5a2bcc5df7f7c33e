"""The audit log: what its lines say and never say, its private files, and a full disk."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import resource
import stat
import time
from collections.abc import Callable
from pathlib import Path

import audits
import pytest
from audits import DONE, NOTHING, commands, mode, say
from hypothesis import given, strategies as st

from shellsession import Result
from shellsession.daemon.protocol.endpoint import socket_path
from shellsession.daemon.server.audit import KEPT, Audit, Entry, path_for, read
from shellsession.daemon.server.log import PrivateFile
from shellsession.policy.secrets import Secrets
from shellsession.redact import MASK

log = audits.log
FULL = "/dev/full"


def test_a_line_says_how_much_and_never_what(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = Result(b"OUT", b"ERRORS", 3, None, "/", 1.23456789, "timed_out", killed=(7, 8), stdout_omitted=100)
    with monkeypatch.context() as far_away:
        far_away.setenv("TZ", "XYZ-5:30")
        time.tzset()
        secrets = Secrets({"PASSWORD": "pa55word"})
        Audit(str(log)).record([Entry("bob", b"echo pa55word", secrets, result, 1700000000.0666)])
    time.tzset()
    line = log.read_text(encoding="ascii")
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.067Z",
        "agent": "bob",
        "command": "echo ***",
        "exit_code": 3,
        "outcome": "timed_out",
        "duration": 1.234568,
        "stdout": 103,
        "stderr": 6,
        "killed": 2,
    }
    assert list(json.loads(line))[:3] == ["time", "agent", "command"]
    assert not [secret for secret in ("OUT", "ERRORS", "pa55word") if secret in line]


def test_what_there_is_nothing_to_say_of_is_left_out(log: Path) -> None:
    before = time.time()
    result = Result(b"", b"", None, 9, "/", 0.0, "shell_exited")
    Audit(str(log)).record([Entry("bob", b"exit", NOTHING, result, time.time())])
    (entry,) = read(str(log))
    assert entry["exit_code"] is None
    assert entry.keys() == {"time", "agent", "command", "exit_code", "outcome", "duration", "stdout", "stderr"}
    # gmtime() without an argument reads the kernel's coarse clock, which is milliseconds behind the one that we read.
    first, last = time.gmtime(before), time.gmtime(time.time())
    assert time.strftime("%FT%T.000Z", first) <= entry["time"] <= time.strftime("%FT%T.999Z", last)


@pytest.mark.parametrize(
    ("command", "kept", "size"),
    [
        ("x" * KEPT, "x" * KEPT, None),
        ("é" * (KEPT + 1), "é" * KEPT, 2 * KEPT + 2),
        ("x" * (KEPT - 2) + "pa55word", "x" * (KEPT - 2) + "**", KEPT + 6),
        ("x" * (KEPT - 3) + "pa55word", "x" * (KEPT - 3) + MASK, None),
        ("pa55word" * 3 + "x" * (KEPT - 9), MASK * 3 + "x" * (KEPT - 9), None),
        ("pa55word" + "x" * (KEPT - 4) + "pa55word", MASK + "x" * (KEPT - 4) + "*", KEPT + 12),
    ],
    ids=["fits", "too long", "secret on the edge", "mask fits", "fits when masked", "second on the edge"],
)
def test_a_long_command_is_masked_first_and_cut_then(log: Path, command: str, kept: str, size: int | None) -> None:
    say(Audit(str(log)), command, secrets=Secrets({"PASSWORD": "pa55word"}))
    (entry,) = read(str(log))
    assert entry["command"] == kept
    assert entry.get("command_size") == size


@given(st.binary(max_size=50), st.text(max_size=5))
def test_any_command_is_one_line(tmp_path: Path, command: bytes, agent: str) -> None:
    log = tmp_path / "any.jsonl"
    log.unlink(missing_ok=True)
    audit = Audit(str(log))
    audit.record([Entry(agent, command, NOTHING, DONE, time.time())])
    audit.close()
    assert re.fullmatch(rb"[ -~]+\n", log.read_bytes())
    (entry,) = read(str(log), agent=agent)
    assert entry["command"].encode("utf-8", "surrogateescape") == command


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_the_file_is_its_owners_alone(log: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        say(Audit(str(log)), "one")
    finally:
        os.umask(before)
    assert mode(log) == 0o600
    log.chmod(0o644)
    say(Audit(str(log)), "two")
    assert mode(log) == 0o600


def test_a_file_that_cannot_be_made_private_is_not_written_to(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "fchmod", refuse)
    log.touch(0o644)
    descriptors = os.listdir("/proc/self/fd")
    audit = Audit(str(log))
    say(audit, "one", "two")
    assert (log.read_bytes(), os.listdir("/proc/self/fd")) == (b"", descriptors)
    assert "Operation not permitted" in audit.fault
    log.unlink()
    say(audit, "three")  # made private from the first moment
    assert commands(log) == ["three"]


def test_a_file_that_another_user_has_put_there_is_not_written_to(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log.touch(0o600)
    descriptors = os.listdir("/proc/self/fd")
    audit = Audit(str(log))
    with monkeypatch.context() as another:
        another.setattr(os, "geteuid", lambda: os.getuid() + 1)
        say(audit, "one")
        with pytest.raises(PermissionError, match="another user's"):
            PrivateFile(str(log))
    assert (log.read_bytes(), os.listdir("/proc/self/fd")) == (b"", descriptors)
    assert "it is another user's file: a line was lost" in audit.fault
    say(audit, "two")
    assert commands(log) == ["two"]


def test_missing_directories_are_made_private_and_others_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0)
    try:
        say(Audit(str(tmp_path / "state" / "ours" / "log")), "one")
    finally:
        os.umask(before)
    assert [mode(path) for path in (tmp_path, tmp_path / "state", tmp_path / "state" / "ours")] == [0o755, 0o700, 0o700]


def test_a_link_in_its_place_is_not_followed(log: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    log.symlink_to(victim)
    audit = Audit(str(log))
    say(audit, "one")
    assert victim.read_text() == "mine"
    assert "symbolic link" in audit.fault
    log.unlink()
    say(audit, "two")
    assert commands(log) == ["two"]


def test_a_fifo_in_its_place_makes_nobody_wait(log: Path) -> None:
    os.mkfifo(log)
    audit = Audit(str(log))
    say(audit, *["x" * KEPT] * 40)  # more than a pipe holds
    assert "a line was lost" in audit.fault
    audit.close()
    assert commands(log) == []


@pytest.mark.parametrize("remove", [Path.unlink, lambda log: log.rename(log.with_name("moved"))], ids=["rm", "mv"])
def test_a_file_that_was_taken_away_is_made_anew(log: Path, remove: Callable[[Path], object]) -> None:
    audit = Audit(str(log))
    say(audit, "one")
    descriptors = len(os.listdir("/proc/self/fd"))
    remove(log)
    say(audit, "two", "three")
    assert (commands(log), mode(log)) == (["two", "three"], 0o600)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_it_stays_where_it_is_when_the_daemon_goes_elsewhere(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log.parent)
    audit = Audit(log.name)
    monkeypatch.chdir("/")
    say(audit, "one")
    assert commands(log) == ["one"]


def test_a_log_can_be_closed_twice_and_goes_on(log: Path) -> None:
    audit = Audit(str(log))
    descriptors = len(os.listdir("/proc/self/fd"))
    say(audit, "one")
    audit.close()
    audit.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    say(audit, "two")
    audit.close()
    assert commands(log) == ["one", "two"]


def test_half_a_line_spoils_no_other(log: Path) -> None:
    say(Audit(str(log)), "one")
    with log.open("a") as file:
        file.write('{"time": "2023-1')
    say(Audit(str(log)), "two", "three")
    assert commands(log) == ["one", "two", "three"]
    assert log.read_text().count("\n") == 4


def test_a_full_disk_breaks_nothing_and_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(FULL, max_bytes=1)
    say(audit, "one", "two", "three")
    assert audit.fault == f"audit log {FULL}: No space left on device: a line was lost; the next one will be tried"
    assert caplog.record_tuples == [("shellsession.daemon", logging.WARNING, audit.fault)]
    assert stat.S_ISCHR(os.stat(FULL).st_mode)
    assert list(read(FULL)) == []


def test_a_trouble_that_is_over_is_reported_no_more(log: Path) -> None:
    log.mkdir()
    audit = Audit(str(log))
    say(audit, "one")
    assert "a line was lost" in audit.fault
    log.rmdir()
    say(audit, "two")
    assert (audit.fault, commands(log)) == ("", ["two"])


def test_a_disk_that_was_full_within_a_line_goes_on_with_whole_ones(log: Path) -> None:
    audit = Audit(str(log))
    say(audit, "one")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 50, limits[1]))
    try:
        say(audit, "two", "three")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert audit.fault
    say(audit, "four", "five")
    assert commands(log) == ["one", "four", "five"]


@pytest.mark.parametrize("path", ["file/audit.jsonl", "directory"])
def test_a_place_where_no_log_can_be_breaks_nothing(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    audit = Audit(str(tmp_path / path))
    say(audit, "one", "two")
    assert "directory" in audit.fault


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ("/state", "/state/shellsession/audit.jsonl"),
        ("", "/home/me/.local/state/shellsession/audit.jsonl"),
        (None, "/home/me/.local/state/shellsession/audit.jsonl"),
        ("a/relative/one", "/home/me/.local/state/shellsession/audit.jsonl"),
    ],
)
def test_where_it_is_by_default(monkeypatch: pytest.MonkeyPatch, state: str | None, place: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if state is not None:
        monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.delenv("SHELLSESSION_SOCKET", raising=False)
    assert path_for(socket_path()) == place
    assert path_for("/another/socket") == place.replace("audit.", "audit-399f80ea.")
