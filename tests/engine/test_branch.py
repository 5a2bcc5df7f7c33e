"""A session on a branch: what it writes below a directory is seen by it alone, and the directory stays as it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sandboxes
from branched import Place
from sandboxes import needs_bwrap, run_as
from system import is_alive, wait_until

from shellsession import ApplyFailed, BranchUnavailable, InvalidRequest, Sandbox, SandboxUnavailable, Session
from shellsession.branch import branch, mounts
from shellsession.branch.branch import base_of
from shellsession.branch.layers import remove
from shellsession.branch.mounts import fault
from shellsession.engine.io.threads import Steps
from shellsession.engine.verbs.engine import Engine
from shellsession.models import Request, Result

if reason := fault():
    pytest.skip(reason, allow_module_level=True)
user, mine = sandboxes.user, sandboxes.mine


@pytest.fixture
def place(mine: Path) -> Place:
    return Place(mine, "sub")


@pytest.fixture
def ours(tmp_path: Path) -> Place:
    return Place(tmp_path, "sub")


def test_branch_takes_what_is_written_and_the_directory_stays_as_it_is(user: str, place: Place) -> None:
    def scenario() -> None:
        with place.session() as sh:
            assert sh.run("cat file; echo branch >file; echo >new; rm -r sub; mkdir -p a/b; cd a/b").stdout == "base\n"
            assert (sh.cwd, sh.run("cat ../../file").stdout) == (f"{place.base}/a/b", "branch\n")
            # A later bash enters the same mounts. Two of them with one upper directory would fail at random.
            assert sh.run("exit 3").exit_code == 3
            assert sh.run("ls -1; cat file; for i in {1..50}; do echo $i >f$i || break; done; ls | wc -l").stdout == (
                "a\nfile\nnew\nbranch\n53\n"
            )
            sh.restart()
            assert sh.run("echo $(<file) $(<f50)").stdout == "branch 50\n"
        place.check_untouched()
        with place.session() as sh:  # the next session goes on with the layers
            assert sh.run("cat file f50").stdout == "branch\n50\n"

    run_as(user, scenario)
    place.check_untouched()


# Each tries to change the file of the directory itself, and says "done" if it could.
ATTACKS = {
    "umount": "umount BASE || umount -l BASE",
    "umount the cover": "umount STATE && cd LAYERS/layers/base",
    "mount": "mount --bind / /mnt && cd /mntBASE",
    "umount in a further namespace": "unshare -Urm sh -c 'umount -l BASE && echo evil >BASE/file'",
    "uncover the layers there": "unshare -Urm sh -c 'umount -l STATE && echo evil >LAYERS/layers/base/file'",
    "bind there": "unshare -Urm sh -c 'mount --bind MINE /mnt && echo evil >/mnt/home/project/file'",
    "move there": "unshare -Urm sh -c 'mount --move BASE /mnt && echo evil >BASE/file'",
    "an overlay there": (
        "mkdir /tmp/$$ && unshare -Urm sh -c 'cd /tmp/$$ && mount -t tmpfs t . && mkdir u w && mount -t overlay o -o"
        " userxattr,lowerdir=MINE/home,upperdir=u,workdir=w /mnt && grep base /mnt/project/file'"
    ),
    "the roots of other processes": "for p in /proc/[0-9]*; do echo evil >$p/root/BASE/file; done; false",
    "the directories of other processes": (
        "for p in /proc/[0-9]*; do cd $p/cwd && [[ -e layers/base/file ]] && exit; done; false"
    ),
    "its own descriptors": "readlink /proc/self/fd/* | grep -e layers -e project",
    "the descriptors of other processes": (
        "find /proc/[0-9]*/fd -lname '*/layers*' -o -lname 'mnt:*' 2>/dev/null | grep -q ."
    ),
    "the descriptors of the host": (
        "PYTHON -c 'import ctypes, os; call = ctypes.CDLL(None).syscall; host = os.pidfd_open(HOST);"
        " [os.fchdir(one) for one in (call(438, host, number, 0) for number in range(40)) if one >= 0] or 1 / 0'"
    ),
    "the memory of the host": "exec 7<>/proc/HOST/mem",
    "the namespaces of the host": "nsenter -m -t HOST true",
    "a capability": "grep -h ^Cap[IPEA] /proc/self/status /proc/$$/status | grep -v 0000000000000000",
    "a capability in a program with all": "su -c true || sudo -n true",
    "the layers": "ls -A STATE | grep . || echo evil >STATE/evil",
}


@pytest.mark.parametrize("command", ATTACKS.values(), ids=ATTACKS)
def test_attack_from_inside_does_not_reach_the_directory(user: str, place: Place, mine: Path, command: str) -> None:
    if "PYTHON" in command and not os.path.exists("/usr/bin/python3"):
        pytest.skip("no Python of the system")
    text = command.replace("STATE", str(place.layers)).replace("LAYERS", str(place.layers))
    text = text.replace("BASE", str(place.base)).replace("MINE", str(mine)).replace("PYTHON", "/usr/bin/python3")

    def scenario() -> None:
        with place.session() as sh:
            sh.run("cat file", check=True)
            result = sh.run(f"({text.replace('HOST', str(os.getpid()))}) && echo done; echo evil >{place.base}/file")
            assert "done" not in result.stdout, result
            assert (place.layers / "layers" / "0" / "upper" / "file").read_text() == "evil\n"
            place.check_untouched()

    run_as(user, scenario)
    place.check_untouched()


@needs_bwrap
def test_sandbox_on_a_branch_writes_to_the_branch(user: str, place: Place) -> None:
    def scenario() -> None:
        with place.session(sandbox=Sandbox(write=[place.base])) as sh:
            assert sh.run("echo branch >file; echo $(<file) $(ls)").stdout == "branch file sub\n"
            assert sh.run(f"umount {place.base}; unshare -Urm umount -l {place.base}; cat file").stdout == "branch\n"
            assert not sh.run(f"ls {place.layers}/layers/base/file").ok
            with pytest.raises(BranchUnavailable, match="a sandbox has it"):
                _ = sh.branch.path
            sh.restart()
            assert sh.run("cd sub; cat ../file").stdout == "branch\n"
            one = sh.checkpoint()  # the next layer reaches the mounts of the sandbox
            sh.run("echo later >../file; X=1")
            sh.rollback(one, files_only=True)
            assert sh.run("cat ../file; echo again >../file; echo $X").stdout == "branch\n1\n"
            assert sh.rollback(one).complete
            assert sh.run("cat ../file; echo $X; pwd").stdout == f"branch\n\n{place.base}/sub\n"
        hidden = Sandbox(write=[place.base], hide=[place.base / "file"])
        with place.session(sandbox=hidden) as sh, pytest.raises(SandboxUnavailable, match="has a branch"):
            sh.run("true")

    run_as(user, scenario)
    place.check_untouched()


def test_files_of_a_branch_are_read_and_written_where_its_bash_sees_them(ours: Place) -> None:
    with ours.session() as sh:
        sh.run(f"echo branch >file; ln -s {ours.base}/file absolute; ln -s ../../../../etc out; mkdir d; cd d")
        assert sh.read_file("../absolute") == b"branch\n"
        sh.write_file("new/er/file", b"x", parents=True)
        sh.write_file("../absolute", b"written\n")
        assert sh.run("cat new/er/file ../file").stdout == "xwritten\n"
        with pytest.raises(InvalidRequest, match="would be this process's"):
            sh.read_file("/proc/self/environ")
        with pytest.raises(OSError, match="No such file"):
            sh.read_file("none")
    with ours.session() as sh:  # also before there is a bash
        assert sh.read_file("file") == b"written\n"
    ours.check_untouched()


def test_session_starts_on_its_branch_unless_told_otherwise(ours: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for here, start in (("/", ours.base), (ours.base / "sub", ours.base / "sub"), (ours.base, ours.base)):
        monkeypatch.chdir(here)
        with Session(branch=ours.base, branch_dir=ours.layers) as sh:
            assert sh.run("pwd").stdout == f"{start}\n"
    with Session(cwd="/", branch=ours.base, branch_dir=ours.layers) as sh:
        assert sh.run("pwd").stdout == "/\n"


def test_mode_of_the_directory_itself_is_kept_shown_taken_back_and_applied(ours: Place) -> None:
    def seen(sh: Session) -> list[str]:
        return [sh.run("stat -c %a .").stdout.strip(), *(change.path for change in sh.branch.diff())]

    ours.base.chmod(0o755)
    with ours.session() as sh:
        sh.run("chmod 750 .")
    with ours.session() as sh:
        assert seen(sh) == ["750", "."]
        sh.checkpoint("one")
        sh.run("chmod 700 .")
        sh.rollback("one")
        assert seen(sh) == ["750", "."]
        assert ours.base.stat().st_mode & 0o777 == 0o755
        assert [change.path for change in sh.branch.apply()] == ["."]
        assert (seen(sh), ours.base.stat().st_mode & 0o777) == (["750"], 0o750)
    ours.check_untouched()


def test_session_that_has_closed_its_directory_to_itself_ends_and_goes_on(user: str, place: Place) -> None:
    def scenario() -> None:
        with place.session() as sh:
            sh.run("echo x >new; chmod 000 .")
        with place.session(cwd=place.base.parent) as sh:
            assert sh.run("chmod 700 project; cat project/new").stdout == "x\n"

    run_as(user, scenario)
    place.check_untouched()


def test_branch_works_in_a_host_with_threads_and_leaves_nothing(ours: Place, tmp_path: Path) -> None:
    done = threading.Event()
    threading.Thread(target=done.wait).start()
    try:
        before = set(os.listdir("/proc/self/fd"))
        with ours.session(branch_dir=None) as sh:
            assert sh.run("cat file").stdout == "base\n"
            layers = sh.engine.branch.directory if sh.engine.branch else ""
            assert os.path.isdir(layers)
            mounts = Path(f"/proc/{sh.pid}/mountinfo").read_text()
            assert str(ours.base) in mounts
        assert not os.path.exists(layers)  # nothing was written
        assert str(ours.base) not in Path("/proc/self/mountinfo").read_text()
        assert set(os.listdir("/proc/self/fd")) <= before
    finally:
        done.set()


def test_layers_get_the_group_that_the_branch_knows(ours: Place) -> None:
    """A new directory has the group of the one above if that has the setgid bit. Writing would fail with EOVERFLOW."""
    if os.getuid() != 0:
        pytest.skip("only root can give a directory a foreign group")
    os.chown(ours.layers.parent, -1, 54321)
    ours.layers.parent.chmod(0o2755)
    with ours.session() as sh:
        assert sh.run("echo x >>file; echo y >sub/new; cat file sub/new").stdout == "base\nx\ny\n"


def _elsewhere(ours: Place) -> dict[str, Any]:
    other = ours.base.parent / "other"
    other.mkdir()
    return {"branch": other, "cwd": other}


REFUSED: dict[str, tuple[Callable[[Place], dict[str, Any]], str]] = {
    "no directory": (lambda ours: {"branch": ours.base / "none"}, "is not a directory: make it"),
    "layers in it": (lambda ours: {"branch_dir": ours.base / "l"}, "cannot be in it"),
    "another file system in it": (lambda ours: {"branch": "/", "branch_dir": "/proc/l"}, "cannot be in it"),
    "layers in memory of the kernel": (lambda ours: {"branch_dir": "/sys/kernel/l"}, "name another directory"),
    "a directory with other files": (lambda ours: {"branch_dir": ours.base.parent}, "is not empty"),
}


@pytest.mark.parametrize(("options", "reason"), REFUSED.values(), ids=REFUSED)
def test_branch_that_cannot_be_is_refused_with_the_reason(
    ours: Place, options: Callable[[Place], dict[str, Any]], reason: str
) -> None:
    with ours.session(**options(ours)) as sh, pytest.raises(BranchUnavailable, match=reason):
        sh.run("true")
    ours.check_untouched()


def test_machine_without_user_namespaces_is_told_what_to_do(ours: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(ours.layers.parent))
    program = f"""
from shellsession import ApplyFailed, BranchUnavailable, Session
from shellsession.cli.doctor import _branch
with Session(cwd={str(ours.base)!r}) as sh:
    assert sh.run("cat file").ok
with Session(cwd={str(ours.base)!r}, branch={str(ours.base)!r}) as sh:
    try:
        sh.run("echo evil >file")
    except BranchUnavailable as error:
        assert "max_user_namespaces" in str(error), error
        print("refused")
assert (_branch().state, "max_user_namespaces" in _branch().found) == ("limited", True)
"""
    script = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    words = ["unshare", "--map-root-user", "sh", "-c", script, "sh", sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=40, check=False)
    if "Read-only file system" in done.stderr:
        pytest.skip("/proc/sys is read-only, as in containers")
    assert (done.stdout, done.stderr) == ("refused\n", "")
    assert os.listdir(ours.layers.parent / "shellsession" / "branches") == []
    ours.check_untouched()


def test_session_whose_layers_were_removed_is_closed_all_the_same(ours: Place) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with ours.session() as sh:
        sh.run("cat file", check=True)
        remove(str(ours.layers))
    assert set(os.listdir("/proc/self/fd")) <= before
    ours.check_untouched()


def test_layers_of_an_open_branch_and_of_another_directory_are_refused(ours: Place) -> None:
    with ours.session() as sh:
        sh.run("echo x >new")
        with ours.session() as other, pytest.raises(BranchUnavailable, match="open in another session"):
            other.run("true")
    with ours.session(**_elsewhere(ours)) as sh, pytest.raises(BranchUnavailable, match="has a branch of"):
        sh.run("true")


def test_command_whose_session_begins_to_close_before_its_files_are_listed_has_its_result(
    ours: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Engine.run

    def run_and_begin_to_close(engine: Engine, request: Request) -> Steps[Result]:
        result = yield from run(engine, request)
        engine.refuse_calls()  # as the close of another thread does
        return result

    monkeypatch.setattr(Engine, "run", run_and_begin_to_close)
    with ours.session() as sh:
        changes = sh.run("echo x >new", changes=True).changes
    assert changes is not None
    assert changes.files == (("added", "new"),)


@pytest.mark.parametrize("damaged", ["", "{}", "null"])
def test_branch_whose_record_is_damaged_says_where_its_files_are_and_how_to_go_on(ours: Place, damaged: str) -> None:
    with ours.session() as sh:
        sh.run("echo x >new", check=True)
    (ours.layers / "branch.json").write_text(damaged)
    for verb in (Session.run, Session.checkpoint):
        with ours.session() as sh, pytest.raises(BranchUnavailable, match=f"move {ours.layers} away"):
            verb(sh, "true")
    assert base_of(str(ours.layers)) == ""
    assert [path.read_text() for path in ours.layers.glob("layers/*/upper/new")] == ["x\n"]
    ours.layers.rename(ours.layers.with_name("damaged"))
    with ours.session() as sh:
        assert sh.run("ls new").exit_code == 2


def test_files_of_another_owner_are_refused_to_root(ours: Place) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root")
    os.chown(ours.base, 54321, 54321)
    with ours.session() as sh, pytest.raises(BranchUnavailable, match="belongs to user 54321"):
        sh.run("true")


def test_layers_that_no_checkpoint_keeps_apart_are_merged(ours: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch, "_MANY", 4)
    with ours.session() as sh:
        for number in range(12):
            sh.run(f"echo {number} >>file; echo >new{number}; rm -rf new{number - 2} sub; mkdir sub", check=True)
            made = sh.checkpoint("kept" if number == 5 else "")
            if number != 5:
                sh.drop_checkpoint(made)
        assert len(os.listdir(ours.layers / "layers")) < 9
        assert sh.run("wc -l <file; ls -1").stdout.split() == ["13", "file", "new10", "new11", "sub"]
        sh.rollback("kept")
        assert sh.run("tail -1 file; ls -1").stdout.split() == ["5", "file", "new4", "new5", "sub"]
    ours.check_untouched()


def test_more_layers_than_the_kernel_mounts_are_refused_and_nothing_changes(
    ours: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "_PAGE", 100)
    with ours.session() as sh:
        sh.run("echo 0 >file")
        one = sh.checkpoint()
        said = ""
        for number in range(1, 9):
            sh.run(f"echo {number} >file", check=True)
            try:
                sh.checkpoint()
            except BranchUnavailable as refused:
                said = str(refused)
                break
        assert "too many for one mount" in said
        assert sh.run(f"[[ $(<file) == {number} ]] && echo more >>file").ok
        sh.rollback(one)
        assert sh.run("cat file").stdout == "0\n"


def test_killed_host_leaves_no_mount_and_the_layers_with_their_checkpoints(ours: Place) -> None:
    program = f"""
import os, signal
from shellsession import Session
sh = Session(cwd={str(ours.base)!r}, branch={str(ours.base)!r}, branch_dir={str(ours.layers)!r})
sh.run("echo one >file; X=1; (setsid sleep 1000 &)")
print(sh.pid, flush=True)
sh.checkpoint("one", end_jobs=True)
sh.run("echo two >file; sleep 1000 &")
os.kill(os.getpid(), signal.SIGKILL)
"""
    host = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=40, check=False)
    assert host.returncode == -signal.SIGKILL
    wait_until(lambda: not is_alive(int(host.stdout)), "the end of the session's bash")
    wait_until(lambda: not mounted(ours.base), "the end of all mounts")
    ours.check_untouched()
    with ours.session() as sh:
        assert sh.run("cat file").stdout == "two\n"
        assert sh.rollback("one").complete
        assert sh.run("cat file; echo $X").stdout == "one\n1\n"


def mounted(base: Path) -> bool:
    """Is there a process that sees an overlay there?"""
    for process in Path("/proc").glob("[0-9]*/mountinfo"):
        with suppress(OSError):
            if f" {base} " in process.read_text():
                return True
    return False


def test_branch_whose_apply_was_interrupted_keeps_its_layers_until_that_is_finished(ours: Place) -> None:
    with ours.session() as sh:
        sh.run("X=kept; echo branch >file")
        sh.checkpoint("one")
        sh.run("echo more >>file")
        layers = sorted(os.listdir(ours.layers / "layers"))
        (ours.layers / "apply.json").write_text("{}")
        remove = partial(branch.remove_left, str(ours.layers))
        assert not remove()  # this session has it
        for verb in (sh.checkpoint, lambda: sh.rollback("one")):
            with pytest.raises(ApplyFailed, match="apply again first"):
                verb()
        assert sorted(os.listdir(ours.layers / "layers")) == layers
        assert sh.run("cat file; echo $X").stdout == "branch\nmore\nkept\n"
        (ours.layers / "apply.json").unlink()
        sh.branch.discard()
        assert sh.run("cat file").stdout == "base\n"
