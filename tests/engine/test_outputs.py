"""The files of kept outputs: how many, where, for how long, and who can reach them."""

from __future__ import annotations

import gc
import os
import signal
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import hosts
import pytest
from hosts import HOST, start
from sandboxes import needs_bwrap
from system import wait_until

from shellsession import Limits, NoSuchOutput, Sandbox, Session
from shellsession.engine.bash import outputs

started = hosts.started
MEBIBYTE = 1 << 20


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of all that sessions of this test keep."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def files(directory: Path) -> list[Path]:
    """The files below the directory, also while some vanish."""
    found = list[Path]()
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(directory.stat().st_mode)
        directory.chmod(mode | stat.S_IRUSR)  # only root can list that of a session
        try:
            entries = list(directory.iterdir())
        finally:
            directory.chmod(mode)
        for entry in entries:
            found += files(entry) if entry.is_dir() and not entry.is_symlink() else [entry] if entry.is_file() else []
    return found


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def test_an_output_that_a_model_is_shown_whole_makes_no_file(home: Path) -> None:
    before_umask = os.umask(0o277)  # takes away our own rights
    try:
        _makes_no_file(home)
    finally:
        os.umask(before_umask)


def _makes_no_file(home: Path) -> None:
    with Session(tty=False) as sh:
        for command in ("true", "seq 5000", "seq 5000 >&2; seq 5000"):
            sh.run(command)
        assert files(home) == []
        before = descriptors()
        sh.run("seq 10000; seq 10001 20000 >&2")
        sh.read_output("c4", lines=(1, 2))
        assert len(files(home)) == 2
        assert {path.stat().st_mode & 0o777 for path in files(home)} == {0o600}
        assert descriptors() == before


def test_the_oldest_go_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MOST_BYTES", 3 * MEBIBYTE)
    with Session(tty=False) as sh:
        for _ in range(outputs.MOST + 2):
            sh.run("seq 10000")
        assert len(files(home)) == outputs.MOST
        sh.run(f"head -c {MEBIBYTE} /dev/zero; head -c {MEBIBYTE} /dev/zero >&2")
        with pytest.raises(NoSuchOutput, match=r"kept outputs: c4, "):
            sh.read_output("c3")
        sh.run(f"head -c {MEBIBYTE * 2} /dev/zero")
        with pytest.raises(NoSuchOutput, match=r"kept outputs: c24; "):
            sh.read_output("c22")
        assert [path.stat().st_size for path in files(home)] == [2 * MEBIBYTE]


def test_of_an_endless_printer_the_beginning_is_kept(home: Path) -> None:
    with Session(tty=False) as sh:
        size = outputs.FILE_MOST + 5 * MEBIBYTE
        result = sh.run(f"head -c {size} /dev/zero | tr '\\0' x")
        assert [path.stat().st_size for path in files(home)] == [outputs.FILE_MOST]
        shown = sh.read_output(result.id, bytes=(outputs.FILE_MOST - 3, None))
        assert shown == "xxx[... the kept part ends here: the first 33 554 432 of 38 797 312 bytes ...]"


@pytest.mark.parametrize("end", ["close", "collection", "after exit"])
def test_they_end_with_their_session(home: Path, end: str) -> None:
    sh = Session(tty=False)
    sh.run("seq 10000")
    sh.restart()
    if end == "after exit":
        sh.run("exit 3")
    assert len(files(home)) == 1
    assert sh.read_output("c1", lines=(9, 9)) == "9\n"
    if end == "collection":
        del sh
        gc.collect()
    else:
        sh.close()
    assert list(home.iterdir()) == []


def test_they_end_with_a_host_that_is_killed(home: Path, started: list[subprocess.Popen[str]]) -> None:
    host = start(started, HOST + "sys.stdin.read()\n", "seq 10000")
    assert host.stdout is not None
    host.stdout.readline()
    assert [path.stat().st_size for path in files(home)] == [48894]
    host.send_signal(signal.SIGKILL)
    wait_until(lambda: not files(home), "the removal of the files")


def test_a_full_directory_is_said_and_hurts_no_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark then promises nothing."""
    monkeypatch.setattr(outputs, "_RESERVE", 1 << 62)
    with Session(tty=False) as sh:
        result = sh.run("seq 100000", limits=Limits(max_output=1000))
        assert (result.exit_code, result.output_kept, files(home)) == (0, False, [])
        assert "lines) omitted ...]" in result.for_model()
        with pytest.raises(NoSuchOutput):
            sh.read_output(result.id)


def test_a_file_that_somebody_has_removed_is_not_named(home: Path) -> None:
    with Session(tty=False) as sh:
        sh.run("seq 10000")
        (removed,) = files(home)
        sh.run("seq 10000")
        removed.unlink()
        with pytest.raises(NoSuchOutput, match=r"output 'c1' is not kept .*; kept outputs: c2;"):
            sh.read_output("c1")


@needs_bwrap
def test_a_sandbox_does_not_see_them(home: Path) -> None:
    with Session(tty=False, cwd="/", sandbox=Sandbox(write=[str(home)])) as sh:
        sh.run("seq 10000")
        (file,) = (path for path in files(home) if path.stat().st_size)
        seen = sh.run(f"cat {file}; echo x >{file}; find {home} -size +20k")
        assert (seen.stdout, seen.stderr.count("No such file")) == ("", 2)
        assert sh.read_output("c1", lines=(10000, 10000)) == "10000\n"
