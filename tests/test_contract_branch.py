"""What every session on a branch promises: ``Session``, ``AsyncSession``, both over the daemon, and through a pipe."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import kinds
import pytest

from shellsession import BranchUnavailable, Conflict, InvalidRequest, JobsRunning, Session
from shellsession.branch.files import BranchFiles
from shellsession.branch.mounts import fault

if reason := fault():
    pytest.skip(reason, allow_module_level=True)

sh = kinds.sh
pytestmark = pytest.mark.usefixtures("company")

BASE: Final = Path(tempfile.mkdtemp(prefix="branch-", dir="/tmp"))
atexit.register(shutil.rmtree, BASE)
OPTIONS: Final = {"branch": str(BASE), "cwd": str(BASE)}


@pytest.fixture(autouse=True)
def _base() -> Iterator[None]:
    for path in BASE.iterdir():
        path.unlink()
    (BASE / "file").write_text("base\n")
    yield
    (BASE / "file").write_text("base\n")


def of_base() -> dict[str, str]:
    return {path.name: path.read_text() for path in BASE.rglob("*")}


def test_rollback_brings_back_files_and_shell(sh: Session) -> None:
    sh.run("echo one >file; X=kept; f() { echo f; }; mkdir d; cd d", check=True)
    one = sh.checkpoint("one")
    assert (one.name, one.size, one.parent) == ("one", 4, "")
    assert sh.run("pwd; cat ../file; dirs; f").stdout.split() == [f"{BASE}/d", "one", f"{BASE}/d", "f"]
    sh.run("echo two >../file; X=gone; unset -f f; cd ..; rm -r d; echo >junk", check=True)
    two = sh.checkpoint()
    assert two.parent == "one"
    assert sh.rollback(one).complete
    result = sh.run("cat ../file; echo $X; f; ls -1 ..")
    assert (result.stdout.split(), result.cwd) == (["one", "kept", "f", "d", "file"], f"{BASE}/d")
    assert sh.rollback(two.name).complete  # they are a tree: it goes forward, too
    assert sh.run("cat file; echo $X; ls -1").stdout.split() == ["two", "gone", "file", "junk"]
    assert [one.name for one in sh.checkpoints()] == ["one", two.name]
    sh.drop_checkpoint(two)
    assert sh.rollback("one").complete
    assert sh.run("cat ../file").stdout == "one\n"
    with pytest.raises(InvalidRequest, match="there is no checkpoint"):
        sh.rollback(two)


def test_rollback_of_files_alone_keeps_the_shell_also_where_its_directory_is_gone(sh: Session) -> None:
    sh.run("cd /usr; cd ~-; echo one >file; set -e; X=1", check=True)
    sh.checkpoint("one")
    sh.run("echo two >file; X=2; mkdir -p a/b; cd a/b", check=True)
    pid, report = sh.pid, sh.rollback("one", files_only=True)
    assert [one.name for one in report.not_restored] == [f"{BASE}/a/b"]
    result = sh.run("cat file; echo $X; ls -1; echo more >>file")
    assert (result.stdout, result.cwd, sh.pid) == ("one\n2\nfile\n", str(BASE), pid)
    sh.rollback("one", files_only=True)
    assert sh.run("cat file; exit 3").stdout == "one\n"
    assert sh.run("cat file").stdout == "one\n"


def test_checkpoint_is_refused_while_something_may_write(sh: Session) -> None:
    sh.run("sleep 100 & exec 7>open")
    with pytest.raises(JobsRunning, match="end_jobs=True"):
        sh.checkpoint()
    with pytest.raises(JobsRunning, match="bash itself has"):
        sh.checkpoint(end_jobs=True)
    sh.run("exec 7>&-")
    assert sh.checkpoint("now").size == 0
    assert [one.name for one in sh.checkpoints()] == ["now"]
    with pytest.raises(InvalidRequest, match="already"):
        sh.checkpoint("now")


def branch_of(sh: Session) -> Any:
    """The branch, with the interface of ``BranchFiles``."""
    branch = sh.branch
    return branch if isinstance(branch, BranchFiles) else kinds.Blocking(cast(Any, branch), cast(Any, sh)._loop)


def test_branch_is_shown_and_applied_to_its_directory(sh: Session) -> None:
    branch = branch_of(sh)
    sh.run("X=1; echo one >file", check=True)
    sh.checkpoint("one")
    sh.run("echo new >new; mkdir d; cd d", check=True)
    assert [(one.path, one.kind) for one in branch.diff()] == [("d", "added"), ("file", "changed"), ("new", "added")]
    assert [one.path for one in branch.diff("one")] == ["d", "new"]
    assert b"+++ b/new" in branch.diff("one", patch=True)
    assert of_base() == {"file": "base\n"}
    assert [one.path for one in branch.apply(["new"])] == ["new"]
    assert of_base() == {"file": "base\n", "new": "new\n"}
    assert [one.name for one in sh.checkpoints()] == ["one"]
    sh.run("rmdir ../d; mkdir ../d; cd ../d")
    assert [one.path for one in branch.apply()] == ["d", "file"]
    assert (BASE / "file").read_text() == "one\n"
    assert (sh.checkpoints(), branch.diff()) == ([], ())
    result = sh.run("pwd; cat ../file ../new; echo $X; echo later >../file")
    assert result.stdout == f"{BASE}/d\none\nnew\n1\n"
    assert (BASE / "file").read_text() == "one\n"
    (BASE / "d").rmdir()


def test_discard_gives_up_what_was_written_and_conflict_writes_nothing(sh: Session) -> None:
    branch = branch_of(sh)
    sh.run("echo one >file; X=1", check=True)
    time.sleep(0.02)  # a tick of the file system's clock
    (BASE / "file").write_text("changed meanwhile\n")
    with pytest.raises(Conflict, match="file"):
        branch.apply()
    assert of_base() == {"file": "changed meanwhile\n"}
    sh.run("sleep 100 &")
    with pytest.raises(JobsRunning):
        branch.discard()
    sh.run("kill %1; wait %1")
    branch.discard()
    assert sh.run("cat file; echo $X").stdout == "changed meanwhile\n1\n"
    with pytest.raises(InvalidRequest, match="paths must be"):
        branch.apply("file")


def test_session_without_a_branch_says_so() -> None:
    with Session() as sh, pytest.raises(BranchUnavailable, match="open it with branch="):
        sh.branch.diff()
