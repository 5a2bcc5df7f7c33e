"""Files of a host that was killed together with its watcher: the next host removes them, but nothing in use."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sandboxes
from sandboxes import run_as
from system import PATIENCE, unique_seconds

from shellsession.engine.bash.watcher import sweep
from shellsession.engine.io.directories import private_home
from shellsession.engine.kernel import family, proc

user, mine = sandboxes.user, sandboxes.mine


@pytest.fixture
def ended() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def left_by(pid: int, start: int, home: Path) -> Path:
    """A host's directory, of many sessions."""
    directory = home / f"5e00000001-{proc.namespace()}-{pid}-{start}"
    for number in range(60):
        (directory / str(number)).mkdir(parents=True)
    return directory


def test_many_hosts_may_sweep_at_once(ended: int, tmp_path: Path) -> None:
    """What one of them lists, another removes: none fails to start for that."""
    with ThreadPoolExecutor(4) as threads:
        for _ in range(10):
            directory = left_by(ended, 1, tmp_path)
            list(threads.map(sweep, [str(tmp_path)] * 4))
            assert not directory.exists()


COME_AND_GO = """
import contextlib, os, sys
from shellsession.engine.io.directories import make_private
for _ in range(200):
    make_private(sys.argv[1], made=2)
    os.rmdir(sys.argv[1])
    with contextlib.suppress(OSError):  # another one is in it
        os.rmdir(os.path.dirname(sys.argv[1]))
"""


def test_hosts_that_leave_do_not_keep_others_from_coming(tmp_path: Path) -> None:
    """The last one removes what they all are in, perhaps just when another has made it."""
    programs = [[sys.executable, "-c", COME_AND_GO, str(tmp_path / "home" / str(number))] for number in range(4)]
    hosts = [subprocess.Popen(program) for program in programs]
    assert [host.wait(PATIENCE) for host in hosts] == [0] * 4
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_the_last_host_removes_just_now_is_the_home_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who went elsewhere for that would start a daemon of its own there, beside the one of all others."""
    home = tmp_path / f"shellsession-{os.getuid()}"
    home.mkdir(0o700)
    enter, entries = os.open, list[object]()

    def enter_late(path: str, *arguments: Any, **options: Any) -> int:
        if path == home.name:
            entries.append(path)
            if len(entries) == 1:
                home.rmdir()
        return enter(path, *arguments, **options)

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", enter_late)
        assert private_home() == str(home)
    assert len(entries) == 2


def test_what_a_command_has_shut_is_swept_too(ended: int, mine: Path, user: str) -> None:
    def scenario() -> None:
        directory = left_by(ended, 1, mine)
        (directory / "1" / "file").touch()
        (directory / "1").chmod(0)
        (directory / "2").chmod(0o500)
        sweep(str(mine))
        assert not directory.exists()

    run_as(user, scenario)


def test_what_is_nobodys_directory_stays(ended: int, tmp_path: Path) -> None:
    for name in ("socket", "a-b-c-d", f"5e-{proc.namespace()}-x-1", f"5e-1-{ended}-1"):
        (tmp_path / name).mkdir()
    sweep(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 4


def test_a_host_that_cannot_be_looked_at_is_not_taken_for_dead(tmp_path: Path) -> None:
    """Without a free descriptor nobody can read in /proc."""
    pid = os.getpid()
    start = proc.start_time(pid)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        gone = proc.is_gone(pid, start)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not gone
    assert proc.is_gone(pid, start + 1)


def test_who_forks_and_ends_while_it_is_looked_for_is_not_lost_with_its_child(
    ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A double fork: at the first look there is the parent, gone when it is looked at, and not yet the child."""
    with subprocess.Popen(["sleep", unique_seconds()]) as child:
        resource.prlimit(child.pid, family.LIMIT, (4711, resource.RLIM_INFINITY))
        listings = iter([[ended], [ended, child.pid], [ended, child.pid]])
        monkeypatch.setattr(proc, "everyone", lambda: next(listings))
        found = proc.tagged(4711, 4711)
        child.kill()
    assert found == [child.pid]
