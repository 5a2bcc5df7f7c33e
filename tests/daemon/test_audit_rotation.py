"""The audit log is rotated in time: also with two writers no line is lost, and none waits."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import audits
import pytest
from audits import commands, mode, say

from shellsession.daemon.server.audit import Audit

log = audits.log


@pytest.mark.parametrize(("files", "kept"), [(1, "9"), (2, "6789"), (3, "3456789"), (9, "0123456789")])
def test_the_log_is_rotated_before_it_grows_too_long(log: Path, files: int, kept: str) -> None:
    audit = Audit(str(log))
    say(audit, "0")
    size = log.stat().st_size
    audit.close()
    audit = Audit(str(log), max_bytes=3 * size, files=files)
    say(audit, *"123456789")
    assert "".join(commands(log)) == kept
    names = [log.name, *(f"{log.name}.{number}" for number in range(1, 4))][: min(files, 4)]
    assert sorted(os.listdir(log.parent)) == names
    assert [log.with_name(name).stat().st_size for name in names] == [size, 3 * size, 3 * size, 3 * size][: len(names)]
    assert {mode(path) for path in log.parent.iterdir()} == {0o600}


def test_a_line_longer_than_a_file_has_one_of_its_own(log: Path) -> None:
    say(Audit(str(log), max_bytes=10), "one", "two")
    assert [commands(log), sorted(os.listdir(log.parent))] == [["one", "two"], [log.name, log.name + ".1"]]


def test_a_file_that_cannot_be_rotated_grows_and_no_line_is_lost(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    (log.parent / (log.name + ".1") / "in the way").mkdir(parents=True)
    audit = Audit(str(log), max_bytes=10, files=2)
    say(audit, "one", "two", "three")
    assert log.read_text().count("\n") == 3
    assert "cannot be rotated" in audit.fault
    assert len(caplog.records) == 1
    (log.parent / (log.name + ".1") / "in the way").rmdir()
    log.with_name(log.name + ".1").rmdir()
    say(Audit(str(log), max_bytes=10), "four")  # nobody holds the lock
    assert commands(log) == ["one", "two", "three", "four"]
    assert log.read_text().count("\n") == 1


def test_a_lock_that_somebody_holds_makes_nobody_wait(log: Path) -> None:
    audit = Audit(str(log), max_bytes=10)
    say(audit, "one")
    with log.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        say(audit, "two")
    assert (os.listdir(log.parent), audit.fault) == ([log.name], "")
    say(audit, "three")
    assert commands(log) == ["one", "two", "three"]
    assert len(os.listdir(log.parent)) == 2


def test_what_another_daemon_has_just_rotated_is_not_rotated_again(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (Audit(str(log), max_bytes=400) for _ in range(2))
    say(first, "one")
    say(second, "two")
    lock = fcntl.flock

    def too_late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        say(second, "three")
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", too_late)
    say(first, "four")
    assert commands(log) == ["one", "two", "three", "four"]
    assert (len(os.listdir(log.parent)), first.fault) == (2, "")


WRITER = """
import sys, time
from shellsession import Result
from shellsession.daemon.server.log import PrivateFile
from shellsession.daemon.server.audit import Audit, Entry
from shellsession.policy.secrets import Secrets
path, name, count, limit = sys.argv[1:]
audit = Audit(path, max_bytes=int(limit), files=1000)
result = Result(b"", b"", 0, None, "/", 0.0, "exited")
for number in range(int(count)):
    command = b"%d " % number + b"x" * (number % 50 * 80)
    audit.record([Entry(name, command, Secrets({}), result, time.time())])
sys.exit(audit.fault or 0)
"""


@pytest.mark.parametrize("limit", [1 << 30, 100_000], ids=["one file", "rotated meanwhile"])
def test_two_daemons_write_whole_lines_and_lose_none(log: Path, limit: int) -> None:
    count = 2000
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, log, name, str(count), str(limit)], stderr=subprocess.PIPE)
        for name in ("left", "right")
    ]
    assert [writer.communicate()[1] for writer in writers] == [b"", b""]
    for name in ("left", "right"):
        assert sorted(int(text.split()[0]) for text in commands(log, agent=name)) == list(range(count))
    files = list(log.parent.iterdir())
    lines = [line for path in files for line in path.read_bytes().splitlines() if line]
    assert len(lines) == 2 * count  # no half one, either
    assert all(path.stat().st_size > limit // 2 for path in files if path != log)  # none was rotated half empty
