"""What every session on a branch promises: ``Session``, ``AsyncSession``, both over the daemon, and through a pipe."""

from __future__ import annotations

import atexit
import io
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

import kinds
import pytest

from shellsession import BranchUnavailable, CommandFailed, Conflict, InvalidRequest, JobsRunning, Result, Session
from shellsession.branch.attempt import Attempt
from shellsession.branch.files import BranchFiles
from shellsession.branch.mounts import fault
from shellsession.files import PIECE
from shellsession.models import Changes

if reason := fault():
    pytest.skip(reason, allow_module_level=True)

sh = kinds.sh
pytestmark = pytest.mark.usefixtures("company")

BASE: Final = Path(tempfile.mkdtemp(prefix="branch-", dir="/tmp"))
atexit.register(shutil.rmtree, BASE)
OPTIONS: Final[dict[str, Any]] = {"branch": str(BASE), "cwd": str(BASE)}


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


@pytest.fixture
def undoing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session keeps automatic checkpoints."""
    monkeypatch.setitem(OPTIONS, "auto_checkpoints", 3)


def names_of(sh: Session) -> list[str]:
    return [one.name for one in sh.checkpoints()]


def test_rollback_without_a_checkpoint_takes_back_the_last_command_that_wrote(undoing: None, sh: Session) -> None:
    for command in ("X=1", "echo one >file", "mkdir d; cd d; X=2", "Y=1; ls", "rm -rf ../*; X=3; cd /", "Z=1"):
        assert sh.run(command).reason == ""
    assert [(one.name, one.size, one.parent) for one in sh.checkpoints()] == [
        *(("auto-1", 0, ""), ("auto-2", 4, "auto-1"), ("auto-3", 0, "auto-2"))
    ]
    assert sh.rollback().complete
    assert sh.run("cat ../file; echo $X $Y $Z; pwd").stdout == f"one\n2 1\n{BASE}/d\n"
    sh.rollback()
    assert sh.run("ls; echo $X $Y; pwd").stdout == f"file\n1\n{BASE}\n"
    sh.rollback()
    assert sh.run("cat file; echo $X").stdout == "base\n1\n"
    with pytest.raises(InvalidRequest, match="no command left to take back"):
        sh.rollback()
    for number in range(5):
        sh.run(f"echo {number} >>file")
    assert names_of(sh) == ["auto-3", "auto-4", "auto-5"]
    sh.checkpoint("mine")
    sh.write_file("file", b"written\n")
    sh.run("true")
    assert names_of(sh) == ["auto-4", "auto-5", "mine", "auto-6"]
    sh.rollback(files_only=True)
    assert sh.run("wc -l <file").stdout == "6\n"
    sh.rollback("auto-4")
    assert sh.run("tail -1 file").stdout == "2\n"
    assert of_base() == {"file": "base\n"}


def test_command_beside_a_job_says_that_there_is_no_checkpoint(undoing: None, sh: Session) -> None:
    sh.run("echo one >file")
    assert sh.run("echo two >file; X=2; sleep 100 &").reason == "no checkpoint: job j1 runs"
    assert sh.run("X=3").reason == "no checkpoint: job j1 runs"
    with pytest.raises(JobsRunning):
        sh.rollback()
    assert names_of(sh) == ["auto-1"]
    sh.rollback(end_jobs=True)
    assert sh.run("cat file; echo [$X]").stdout == "one\n[]\n"
    assert sh.run("echo three >file; exit 3").outcome == "shell_exited"
    assert sh.run("cat file").stdout == "three\n"
    sh.rollback()
    assert sh.run("cat file").stdout == "one\n"


def test_file_that_bash_has_open_loses_nothing_to_a_checkpoint(undoing: None, sh: Session) -> None:
    said = f"no checkpoint: the session's bash itself has {BASE}/log open"
    assert sh.run("exec 7>log").reason == said
    assert sh.run("echo one >&7").reason == said
    assert sh.run("echo two >&7; exec 7>&-; cat log").stdout == "one\ntwo\n"
    sh.rollback()
    assert not sh.run("cat log").ok


def test_command_that_was_streamed_or_handed_back_is_taken_back(undoing: None, sh: Session, place: Path) -> None:
    os.mkfifo(gate := place / "gate")
    for _ in sh.stream("X=1; echo one >file"):
        pass
    sh.rollback()
    assert sh.run("cat file; echo [$X]").stdout == "base\n[]\n"
    text = f"echo two >file; X=2; read x <{gate}; echo three >file"
    assert sh.run(text, timeout=0.01, on_timeout="yield").still_running
    gate.write_text("\n")
    assert sh.wait().ok
    sh.rollback()
    assert sh.run("cat file; echo [$X]").stdout == "base\n[]\n"


def test_attempt_that_was_applied_is_taken_back_as_one_command(undoing: None, sh: Session) -> None:
    sh.run("echo one >file; X=1")
    (attempt,) = attempts(sh, "echo two >file; X=2")
    attempt.apply()
    assert sh.run("cat file; echo $X").stdout == "two\n2\n"
    sh.rollback()
    assert sh.run("cat file; echo $X").stdout == "one\n1\n"


def test_rollback_without_a_checkpoint_needs_automatic_ones(sh: Session) -> None:
    sh.run("echo one >file")
    sh.checkpoint()
    with pytest.raises(InvalidRequest, match="auto_checkpoints=N"):
        sh.rollback()


def test_another_program_reads_and_writes_on_the_branch_by_its_path(sh: Session) -> None:
    with pytest.raises(BranchUnavailable, match=r"open\(\) it"):
        _ = sh.branch.path
    sh.run("echo branch >file; mkdir -p d")
    there = sh.branch.path
    assert subprocess.run(["cat", f"{there}/file"], capture_output=True, check=True).stdout == b"branch\n"
    subprocess.run(["sed", "-i", "s/branch/edited/", f"{there}/file"], check=True)
    subprocess.run(["sh", "-c", "echo new >$0/d/new", there], check=True)
    assert sh.run("cat file d/new").stdout == "edited\nnew\n"
    assert [one.path for one in branch_of(sh).diff()] == ["d", "d/new", "file"]
    sh.checkpoint("edited")
    Path(sh.branch.path, "file").write_text("later\n")
    assert sh.run("cat file").stdout == "later\n"
    sh.rollback("edited")
    assert not Path(there).exists()
    assert Path(sh.branch.path, "file").read_text() == "edited\n"
    assert of_base() == {"file": "base\n"}


def test_checkpoint_in_the_middle_of_a_transfer_ends_that_with_the_reason(sh: Session) -> None:
    class Checkpointing(io.BytesIO):
        def write(self, data: Any) -> int:
            sh.checkpoint()
            return super().write(data)

        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                sh.checkpoint()
            return super().read(size)

    two = Checkpointing(b"2" * 2 * PIECE)
    with pytest.raises(OSError, match=r"a checkpoint or a rollback was made .*: do it again: 'file'$"):
        sh.write_file("file", two)
    sh.write_file("file", two.getvalue())
    with pytest.raises(OSError, match=r"a checkpoint or a rollback was made .*: do it again: 'file'$"):
        sh.read_file("file", into=Checkpointing())
    assert sh.run("wc -c <file").stdout == f"{2 * PIECE}\n"


def test_files_that_a_command_has_written_are_among_its_changes(sh: Session) -> None:
    sh.run("echo one >kept; mkdir d")
    result = sh.run("echo two >file; echo >d/new; rm kept; X=1", changes=True)
    assert result.changes == Changes(
        added=(("variable", "X"),), files=(("added", "d/new"), ("changed", "file"), ("removed", "kept"))
    )
    assert Result.from_json(result.to_json()) == result
    assert sh.run("cat file; X=2", changes=True).changes == Changes(changed=(("variable", "X"),))
    found = sh.run("for i in {1000..1999}; do echo >n$i; done; unset i", changes=True).changes
    assert found is not None
    assert (len(found.files), found.files[0], found.files_omitted) == (500, ("added", "n1000"), 500)
    assert sh.run("sleep 100 & echo >e", changes=True).changes == Changes(files=(("added", "e"),))
    result = sh.run("echo >f", changes=True)
    assert (result.changes, result.reason) == (Changes(), "the files that it wrote are not told: job j1 runs")
    assert sh.run("ls -d [a-m]*").stdout == "d  e  f  file\n"


def attempts(sh: Session, *commands: str) -> list[Any]:
    """Attempts, with the interface of ``Attempt``."""
    made = [sh.attempt(command, timeout=20) for command in commands]
    return (
        made if isinstance(made[0], Attempt) else [kinds.Blocking(cast(Any, one), cast(Any, sh)._loop) for one in made]
    )


def test_session_goes_on_with_files_and_shell_of_the_first_attempt_that_is_applied(sh: Session) -> None:
    sh.run("echo one >file; X=1", check=True)
    first, second, third = attempts(sh, "echo two >>file; X=2; mkdir d; cd d", "X=3; echo three >file; false", "X=4")
    assert (first.result.ok, second.result.exit_code) == (True, 1)
    assert [(one.path, one.kind) for one in first.changes] == [("d", "added"), ("file", "changed")]
    assert ([one.path for one in second.changes], third.changes) == (["file"], ())
    assert sh.run("cat file; echo $X; pwd").stdout == f"one\n1\n{BASE}\n"
    assert first.apply().complete
    assert sh.run("cat ../file; echo $X; pwd").stdout == f"one\ntwo\n2\n{BASE}/d\n"
    for other in (second, third):
        with pytest.raises(Conflict, match="nothing was changed"):
            other.apply()
        other.discard()
        other.discard()
    for over in (first, third):
        with pytest.raises(InvalidRequest, match="applied or discarded already"):
            over.apply()
    assert sh.run("cat ../file; echo $X").stdout == "one\ntwo\n2\n"
    assert of_base() == {"file": "base\n"}
    assert [one.path for one in branch_of(sh).apply()] == ["d", "file"]
    (BASE / "d").rmdir()


def test_attempt_conflicts_with_what_its_session_has_written_or_set_since(sh: Session) -> None:
    sh.run("X=1")
    written, variable, job = attempts(sh, "X=2", "X=2", "X=2; sleep 100 &")
    sh.run("ls; cat file; Y=$(true)", check=True)
    with pytest.raises(Conflict, match="variable Y"):
        variable.apply()
    sh.run("unset Y; echo >>file")
    with pytest.raises(Conflict, match="the files of the session have changed"):
        written.apply()
    with pytest.raises(JobsRunning):
        job.apply()
    for attempt in (written, variable, job):
        attempt.discard()
    (last,) = attempts(sh, "X=2; exit 5")
    assert (last.result.exit_code, last.result.state_kept) == (5, False)
    last.discard()
    assert sh.run("echo $X").stdout == "1\n"


def test_attempts_may_run_at_the_same_time(sh: Session) -> None:
    sh.run("echo start >file")
    with ThreadPoolExecutor(3) as threads:
        found = list(
            threads.map(lambda number: attempts(sh, f"echo {number} >file; exit $(({number} != 1))")[0], range(3))
        )
    assert [one.result.exit_code for one in found] == [1, 0, 1]
    assert found[1].apply().complete
    for attempt in found:
        attempt.discard()
    assert sh.run("cat file").stdout == "1\n"


def test_attempt_whose_command_does_not_run_leaves_no_fork(sh: Session) -> None:
    sh.run("true")
    for given in ({"timeout": "soon"}, {"check": True}):
        with pytest.raises((InvalidRequest, CommandFailed)):
            sh.attempt("false", **given)
    with pytest.raises(TypeError, match="did you mean timeout"):
        sh.attempt("true", timout=1)  # type: ignore[call-arg]
    assert sh.checkpoint().size == 0


def test_session_without_a_branch_says_so() -> None:
    with Session() as sh:
        for verb in (sh.branch.diff, lambda: sh.attempt("true")):
            with pytest.raises(BranchUnavailable, match="open it with branch="):
                verb()
