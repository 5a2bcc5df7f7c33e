"""Forks of a session on a branch: each has files of its own above the same layers."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import sandboxes
from branched import Place
from daemons import running
from sandboxes import needs_bwrap, run_as
from system import wait_until

from shellsession import (
    AlreadyOpen,
    AsyncSession,
    BranchUnavailable,
    Conflict,
    Daemon,
    InvalidRequest,
    JobsRunning,
    Sandbox,
    Session,
    connect,
)
from shellsession.branch import branch, layers
from shellsession.branch.layers import record_of, remove
from shellsession.branch.mounts import fault
from shellsession.daemon.client import admin
from shellsession.models import Changes

if reason := fault():
    pytest.skip(reason, allow_module_level=True)
user, mine = sandboxes.user, sandboxes.mine


def changed(session: Session, since: str = "") -> list[str]:
    found = session.branch.diff(since)
    assert isinstance(found, tuple)
    return [f"{one.path} {one.kind}" for one in found]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_fork_begins_with_the_files_of_its_parent_and_neither_sees_what_the_other_writes(user: str, mine: Path) -> None:
    place = Place(mine)

    def scenario() -> None:
        with place.session() as parent:
            parent.run("echo one >file; mkdir d; cd d; X=1", check=True)
            with parent.fork() as child, parent.fork() as other:
                assert child.run("cat ../file; echo $X; pwd").stdout == f"one\n1\n{place.base}/d\n"
                attack = f"ls -A {place.layers}; ls /proc/{parent.pid}/root/; umount {place.base} {place.layers}"
                assert child.run(attack).stdout == ""
                child.run("echo child >../file; echo >new; X=2", check=True)
                parent.run("echo parent >../file; rmdir ../d", check=True)
                assert parent.run("cat ../file; ls -1 ..; echo $X").stdout == "parent\nfile\n1\n"
                assert child.run("cat ../file; ls -1; echo $X").stdout == "child\nnew\n2\n"
                assert other.run("cat ../file; ls -1 ..").stdout == "one\nd\nfile\n"
                assert changed(child, "fork") == ["d/new added", "file changed"]
                assert changed(child) == ["d added", "d/new added", "file changed"]
                for session, content in ((parent, "parent\n"), (child, "child\n")):  # for other programs of the user
                    words = ["cat", f"{session.branch.path}/file"]
                    assert subprocess.run(words, capture_output=True, text=True, check=False).stdout == content
                    words = ["sh", "-c", 'echo edited >"$0"', f"{session.branch.path}/edited"]
                    assert subprocess.run(words, check=False).returncode == 0
                    assert session.run(f"cat {place.base}/edited; rm {place.base}/edited").stdout == "edited\n"
                with child.fork() as grandchild:
                    assert grandchild.run("cat ../file; ls -1").stdout == "child\nnew\n"
                assert child.rollback("fork").complete
                assert child.run("cat ../file; ls -1; echo $X").stdout == "one\n1\n"
            assert parent.run("cat ../file").stdout == "parent\n"
        with place.session() as later:
            assert later.run("cat file; ls -1").stdout == "parent\nfile\n"

    run_as(user, scenario)
    place.check_untouched()


def test_layers_stay_as_long_as_the_parent_or_a_fork_has_them(place: Place) -> None:
    with place.session() as parent:
        parent.run("echo one >file", check=True)
        first = parent.checkpoint()
        parent.run("echo two >file", check=True)
        child = parent.fork()
        parent.drop_checkpoint(first)
        parent.branch.discard()
        assert parent.run("cat file").stdout == "base\n"
        grandchild = child.fork()
        child.close()
        assert grandchild.run("cat file; echo more >>file").stdout == "two\n"
    assert grandchild.run("cat file").stdout == "two\nmore\n"  # the parent had written nothing, and is gone
    with place.session() as again:
        assert again.run("cat file; echo again >file").stdout == "base\n"
        grandchild.close()
        assert len(place.names) == 1
        again.fork().close()
        assert again.run("cat file").stdout == "again\n"
        assert len(place.names) == 2
        again.branch.discard()
    assert os.listdir(place.layers) == []


def test_last_fork_removes_what_its_parent_has_left(place: Place) -> None:
    with place.session() as parent:
        child = parent.fork()
    child.run("echo child >file")
    child.branch.discard()
    child.close()
    assert os.listdir(place.layers) == []


def test_forks_in_new_directories_leave_nothing(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    before = set(os.listdir("/proc/self/fd"))
    with place.session(branch_dir=None) as parent:
        children = [child for child in parent.fork_many(3) if isinstance(child, Session)]
        for child in children:
            child.run("echo child >file; echo >/dev/null")
    for child in children:
        child.close()
    assert os.listdir(tmp_path / "shellsession" / "branches") == []
    assert set(os.listdir("/proc/self/fd")) <= before


def test_fork_is_refused_while_something_may_write(place: Place) -> None:
    with place.session() as parent:
        parent.run("echo x >file; sleep 100 &")
        with pytest.raises(
            JobsRunning, match="job j1 runs, and may write to the files: wait for its end, or kill it; nothing"
        ):
            parent.fork()
        parent.run("kill %1; wait %1")
        parent.fork().close()


def test_what_the_parent_has_applied_is_a_conflict_for_its_fork(place: Place) -> None:
    with place.session() as parent:
        parent.run("echo one >file; echo >kept", check=True)
        parent.branch.apply(["kept"])  # it is no conflict later: we have written it
        with parent.fork() as child:
            child.run("echo more >>file; echo more >kept", check=True)
            parent.branch.apply()
            with pytest.raises(Conflict) as error:
                child.branch.apply()
            assert error.value.paths == ("file",)
            child.branch.apply(overwrite=True)
    assert (place.base / "file").read_text() == "one\nmore\n"


def test_layers_that_forks_have_are_not_merged(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch, "_MANY", 2)
    with place.session() as session:
        line = [session]
        for number in range(8):
            line[-1].run(f"echo {number} >>file; echo >new{number}", check=True)
            line.append(line[-1].fork())
        for number, fork in enumerate(line):
            written = str(min(number, 7) + 2)
            assert fork.run("wc -l <file; ls | wc -l").stdout.split() == [written, written]
        last = line.pop()
        for fork in line[1:]:
            fork.close()
        for number in range(4):
            last.run(f"echo >>file; echo >more{number}", check=True)
            last.drop_checkpoint(last.checkpoint())
        assert last.run("wc -l <file; ls | wc -l").stdout.split() == ["13", "13"]
        last.close()
        assert session.run("cat file; ls -1").stdout == "base\n0\nfile\nnew0\n"


def test_forks_that_the_session_continues_with_are_merged(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch, "_MANY", 4)
    with place.session() as session:
        session.run("true", check=True)
        for number in range(12):
            with session.attempt(f"echo {number} >>file; echo >new{number}") as attempt:
                attempt.apply()
        assert session.run("wc -l <file; ls | wc -l").stdout.split() == ["13", "13"]
        named = record_of(str(place.layers))
        assert named is not None
        assert len(named["layers"]) < 8


def test_dropped_fork_that_is_collected_while_its_parent_changes_layers_is_removed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    freeze = branch.Branch._freeze

    def collect_and_freeze(self: branch.Branch) -> bool:
        gc.collect()
        return freeze(self)

    with place.session() as session:
        session.run("echo one >file", check=True)
        cycle: list[Any] = [session.fork()]  # as the traceback of an exception keeps it
        cycle.append(cycle)
        cycle[0].run("echo two >file", check=True)
        del cycle
        monkeypatch.setattr(branch.Branch, "_freeze", collect_and_freeze)
        session.checkpoint()
        assert os.listdir(place.layers / "forks") == []
        assert session.run("cat file").stdout == "one\n"


def test_killed_host_leaves_its_forks_until_the_branch_is_opened_again(place: Place) -> None:
    program = f"""
import os, signal
from shellsession import Session
sh = Session(cwd={str(place.base)!r}, branch={str(place.base)!r}, branch_dir={str(place.layers)!r})
sh.run("echo one >file")
child = sh.fork()
child.run("echo child >file")
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], timeout=40, check=False)
    assert len(place.names) == 4
    with place.session() as sh:
        assert sh.run("cat file").stdout == "one\n"
        assert len(place.names) == 2  # what was written, and a new one


def test_fork_of_an_agent_finds_its_branch_in_a_later_daemon(place: Place, tmp_path: Path) -> None:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    options: dict[str, Any] = {"cwd": str(place.base), "branch": str(place.base)}
    with running(tmp_path / "daemon", env=env) as daemon:
        with connect("parent", daemon.socket, False, **options) as parent:
            parent.run("echo one >file", check=True)
            with parent.fork("child") as child:
                assert child.run("cat file; echo child >>file").stdout == "one\n"
            with pytest.raises(AlreadyOpen):
                parent.fork("child")
        daemon.stop(signal.SIGKILL)
    with running(tmp_path / "daemon", env=env) as daemon:
        with connect("child", daemon.socket, False, **options) as child:
            assert child.run("cat file").stdout == "one\nchild\n"
            child.close()  # it is forgotten, and so are its files
        with connect("parent", daemon.socket, False, **options) as parent:
            assert parent.run("cat file").stdout == "one\n"
            parent.fork("child").run("echo child >file")
        daemon.stop(signal.SIGKILL)
    with running(tmp_path / "daemon", env=env) as daemon:
        assert admin.forget("child", daemon.socket) == 1  # without a session
        with connect("other", daemon.socket, False, **options) as other:
            other.run("echo other >file")
            other.close()
        with connect("parent", daemon.socket, False, **options) as parent:
            with pytest.raises(BranchUnavailable, match="has an earlier branch"):
                parent.fork("other")
            parent.fork("child").run("true")
            connect("child", daemon.socket, False, **options).close()
            assert parent.run("cat file").stdout == "one\n"
            parent.branch.discard()
            parent.close()
        with connect("other", daemon.socket, False, **options) as other:
            other.branch.discard()
            other.close()
    assert os.listdir(tmp_path / "state" / "shellsession" / "branches") == []
    place.check_untouched()


def test_attempts_leave_nothing(place: Place, tmp_path: Path) -> None:
    def check(sh: Any) -> None:
        sh.run("echo one >file")
        with sh.attempt("echo two >file") as attempt:
            pass
        with pytest.raises(InvalidRequest, match="already"):
            attempt.apply()
        with sh.attempt("echo three >file; X=3") as attempt:
            attempt.apply()
        assert sh.run("cat file; echo $X").stdout == "three\n3\n"
        assert len(place.names) == 3

    with place.session() as sh:
        check(sh)
        sh.branch.discard()
    with running(tmp_path / "daemon") as daemon:
        given: dict[str, Any] = {"cwd": place.base, "branch": place.base, "branch_dir": place.layers}
        with connect("a1", daemon.socket, False, **given) as remote:
            check(remote)
            assert [one.agent for one in Daemon(daemon.socket).list()] == ["a1"]


def test_attempt_of_a_closed_program_is_gone(place: Place) -> None:
    with place.session() as sh:
        attempt = sh.attempt("echo two >file")
        sh.run("true")
        assert len(place.names) == 3
        del attempt
        assert len(place.names) == 1


def test_attempt_that_is_cancelled_leaves_nothing(place: Place) -> None:
    async def main() -> None:
        given: dict[str, Any] = {"cwd": place.base, "branch": place.base, "branch_dir": place.layers}
        async with AsyncSession(**given) as sh:
            await sh.run("echo one >file")
            trying = asyncio.create_task(sh.attempt("echo two >file; touch begun; sleep 100"))
            begun = place.layers / "layers"
            await asyncio.to_thread(wait_until, lambda: list(begun.glob("*/upper/begun")), "the command")
            trying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await trying
            assert len(place.names) == 2
            assert (await sh.run("cat file")).stdout == "one\n"

    asyncio.run(main())


def test_session_that_recovers_takes_a_command_back(place: Place) -> None:
    with place.session(recover=True, auto_checkpoints=5) as sh:
        sh.run("X=1; echo one >file")
        assert sh.run("X=2; echo two >file; exit 3").recovered
        assert sh.run("cat file; echo $X").stdout == "two\n2\n"
        assert sh.rollback().undone == "X=2; echo two >file; exit 3"
        assert sh.run("cat file; echo $X").stdout == "one\n1\n"
        with sh.attempt("X=3; exit 4") as attempt:
            assert attempt.result.recovered
            attempt.apply()
        assert sh.run("cat file; echo $X").stdout == "one\n3\n"
        sh.rollback()
        assert sh.run("cat file; echo $X").stdout == "one\n1\n"


@needs_bwrap
def test_fork_and_attempt_in_a_sandbox_are_confined_to_the_branch(user: str, mine: Path) -> None:
    place = Place(mine)

    def scenario() -> None:
        with place.session(sandbox=Sandbox(write=[place.base]), auto_checkpoints=5) as sh:
            sh.run("echo one >file; X=1", check=True)
            with sh.fork() as child:
                assert child.run("cat file; echo child >file; touch /usr/evil").stdout == "one\n"
                assert not Path("/usr/evil").exists()
            with sh.attempt("echo two >>file; X=2") as attempt:
                assert attempt.apply().complete
            assert sh.run("cat file; echo $X").stdout == "one\ntwo\n2\n"
            assert sh.run("echo >more", changes=True).changes == Changes(files=(("added", "more"),))
            sh.rollback()
            sh.rollback()
            assert sh.run("ls; cat file; echo $X").stdout == "file\none\n1\n"
            with pytest.raises(BranchUnavailable, match="a sandbox has it"):
                _ = sh.branch.path

    run_as(user, scenario)
    place.check_untouched()


def test_discard_of_many_files_does_not_stop_the_other_tasks_of_the_loop(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_removing, others_run = threading.Event(), threading.Event()

    def remove_slowly(directory: str) -> None:
        is_removing.set()
        assert others_run.wait(10)
        remove(directory)

    async def other() -> None:
        assert await asyncio.to_thread(is_removing.wait, 10)
        others_run.set()

    async def scenario() -> None:
        async with AsyncSession(cwd=place.base, branch=place.base, branch_dir=place.layers) as session:
            await session.run("echo one >file", check=True)
            monkeypatch.setattr(layers, "remove", remove_slowly)
            await asyncio.gather(session.branch.discard(), other())
            monkeypatch.undo()
            assert (await session.run("cat file")).stdout == "base\n"

    asyncio.run(scenario())
