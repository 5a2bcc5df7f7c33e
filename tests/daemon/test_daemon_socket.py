"""The daemon makes its socket again if the file is removed, and ends if another daemon has replaced it."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import endings
import pytest
from daemons import Daemon, answers, running, stopped
from endings import nothing_is_left
from system import PATIENCE, wait_until

from shellsession import connect
from shellsession.daemon.protocol.endpoint import confined_marker
from shellsession.daemon.server.service import ListeningSocket

runtime, patient, hasty = endings.runtime, endings.patient, endings.hasty


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


def test_a_directory_that_was_removed_is_not_made_anew_at_the_end(tmp_path: Path) -> None:
    door = ListeningSocket(str(tmp_path / "run" / "socket"))
    shutil.rmtree(tmp_path / "run")
    door.close()
    assert not (tmp_path / "run").exists()


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


@pytest.mark.parametrize("was_ended", [True, False])
def test_after_a_fault_no_plain_daemon_may_follow(tmp_path: Path, was_ended: bool) -> None:
    path = str(tmp_path / "socket")
    ListeningSocket(path, confines=True).close(was_ended)
    assert os.path.exists(confined_marker(path)) is not was_ended


_BENCHMARKED = """
import os, time
from benchmarks.served import served
with served() as daemon:
    os.unlink(daemon.socket)
    while not os.path.exists(daemon.socket):
        time.sleep(0.05)
"""


def test_a_daemon_of_a_benchmark_logs_into_its_own_directory() -> None:
    """`make bench` prints its figures alone: not that the socket was removed."""
    root = Path(__file__).parents[2]
    words = [sys.executable, "-c", _BENCHMARKED]
    done = subprocess.run(words, capture_output=True, text=True, cwd=root, timeout=PATIENCE, check=True)
    assert (done.stdout, done.stderr) == ("", "")
