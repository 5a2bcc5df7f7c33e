"""A branch where it is hard: on a full disk, with many files, beside another session, below programs that rename."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandboxes import needs_bwrap
from system import PYTHON, SOAK

from shellsession import Conflict, Sandbox, Session
from shellsession.branch.mounts import fault

if reason := fault():
    pytest.skip(reason, allow_module_level=True)

_FULL = """
import subprocess, sys
from pathlib import Path
from typing import Any
from shellsession import BranchUnavailable, Session
base, disk = (Path(sys.argv[1], name) for name in ("base", "disk"))
for one in (base, disk):
    one.mkdir()
(base / "file").write_text("base\\n")
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "t", disk], check=True)
with Session(cwd=base, branch=base, branch_dir=disk / "layers", timeout=20) as sh:
    def fill(name):
        assert "No space left on device" in sh.run(f"head -c 2000000 /dev/zero >{name}").stderr
    sh.run("echo one >file; X=kept", check=True)
    sh.checkpoint("one")
    fill("big")
    for name in ("two", "three"):
        try:
            sh.checkpoint(name)
        except BranchUnavailable as error:
            assert "No space left on device" in str(error) and "as it was before" in str(error), error
        else:
            assert False, "checkpoint"
    assert [one.name for one in sh.checkpoints()] == ["one"]
    assert sh.run("ls -1; cat file; echo $X; rm big; echo more >>file; cat file").stdout == (
        "big\\nfile\\none\\nkept\\none\\nmore\\n")
    fill("big")
    assert [one.path for one in sh.branch.diff()] == ["big", "file"]
    sh.rollback("one")  # what frees space works
    assert sh.run("ls -1; cat file; echo $X").stdout == "file\\none\\nkept\\n"
    fill("big")
    sh.drop_checkpoint("one")
    assert [one.path for one in sh.branch.apply(["file"])] == ["file"]
    sh.run("rm big", check=True)
    sh.checkpoint("small")
    fill("big")
    sh.branch.discard()
    assert sh.run("ls -1; cat file").stdout == "file\\none\\n"
    fill("big")
    sh.branch.apply()
    for _ in range(3):  # also while the covered overlays are mounted
        fill("again")
        sh.run("chmod 400 again; mkdir d; mv again d", check=True)
        sh.branch.discard()
        sh.run("head -c 500000 /dev/zero >half && rm half", check=True)
assert (sorted(path.name for path in base.iterdir()), (base / "file").read_text()) == (["big", "file"], "one\\n")
"""


def test_full_disk_is_told_nothing_is_lost_and_what_frees_space_works(tmp_path: Path) -> None:
    command = ["unshare", "-Urm", sys.executable, "-c", _FULL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    (made := tmp_path / "base").mkdir()
    yield made
    shutil.rmtree(made)


def session(base: Path, name: str = "layers", **options: Any) -> Session:
    return Session(cwd=base, branch=base, branch_dir=base.parent / name, timeout=50, **options)


def test_many_files_of_one_directory_are_kept_compared_and_applied(base: Path) -> None:
    count = 10_000 if SOAK else 2_000
    for number in range(count):
        (base / f"f{number}").write_text(f"{number}\n")
    with session(base) as sh:
        sh.run(f"rm f*[0-4]; for one in f*5; do echo more >>$one; done; touch n{{1..{count // 2}}}", check=True)
        one = sh.checkpoint()
        assert one.size == sum(len(f"{number}\nmore\n") for number in range(5, count, 10))
        sh.run("rm -r ./*; mkdir f5; touch f5/{0..99}")
        assert len(sh.branch.diff()) == count + 100
        sh.rollback(one)
        found = sh.branch.diff()
        kinds = {kind: sum(one.kind == kind for one in found) for kind in ("added", "removed", "changed")}
        assert kinds == {"added": count // 2, "removed": count // 2, "changed": count // 10}
        assert sh.branch.apply() == found
        assert sh.run("ls | wc -l; cat f25").stdout == f"{count}\n25\nmore\n"
    assert sum(1 for _ in base.iterdir()) == count
    assert (base / "f25").read_text() == "25\nmore\n"


def test_of_two_sessions_on_one_directory_the_first_to_apply_wins(base: Path) -> None:
    (base / "file").write_text("base\n")
    with session(base, "one") as one, session(base, "two") as two:
        for sh, name in ((one, "one"), (two, "two")):
            sh.run(f"echo {name} >>file; echo {name} >{name}", check=True)
        assert (one.run("cat *").stdout, two.run("cat *").stdout) == ("base\none\none\n", "base\ntwo\ntwo\n")
        time.sleep(0.02)  # a tick of the file system's clock
        one.branch.apply()
        with pytest.raises(Conflict) as caught:
            two.branch.apply()
        assert caught.value.paths == ("file",)
        assert {path.name: path.read_text() for path in base.iterdir()} == {"file": "base\none\n", "one": "one\n"}
        assert [change.path for change in two.branch.apply(["two"])] == ["two"]
        two.branch.apply(overwrite=True)
    assert {path.name for path in base.iterdir()} == {"file", "one", "two"}
    assert (base / "file").read_text() == "base\ntwo\n"


_MOUNTED = """
import os, subprocess, sys
from pathlib import Path
from typing import Any
from shellsession import BranchUnavailable, Session
top = Path(sys.argv[1])
base, other, above, layers = top / "base", top / "other", top / "above", top / "layers"
for one in (base / "sub", other, above):
    one.mkdir(parents=True)
(base / "file").write_text("base\\n")
def mount(*words):
    subprocess.run(["mount", *words], check=True)
mount("-t", "tmpfs", "t", base / "sub")
with Session(cwd=base, branch=base, branch_dir=layers) as sh:
    try:
        sh.run("true")
    except BranchUnavailable as error:
        assert f"another file system is mounted at '{base}/sub'" in str(error), error
    else:
        sys.exit("it is not refused")
subprocess.run(["umount", base / "sub"], check=True)
mount("--bind", base, other)
mount("--bind", top, above)
with Session(cwd=base, branch=base, branch_dir=layers) as sh:
    sh.run("cat file", check=True)
    for path in (other, above / "base", above / "layers"):
        assert os.listdir(path)
        assert sh.run(f"ls -A {path}; echo evil >{path}/file; cat {path}/file").stdout == "", path
    assert sh.run("echo branch >file; cat file").stdout == "branch\\n"
assert (base / "file").read_text() == "base\\n"
"""


def test_mount_in_the_directory_is_refused_and_further_mounts_of_it_are_hidden(tmp_path: Path) -> None:
    command = ["unshare", "-Urm", sys.executable, "-c", _MOUNTED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


def test_checkpoint_of_an_earlier_session_has_no_secrets_and_nothing_inherited_and_says_so(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "inherited-value")
    (base / "file").write_text("base\n")
    options: dict[str, Any] = {"redact": ["declared-secret"]}
    with session(base, **options) as sh:
        sh.run("MY_TOKEN=s3cr3t-value; A=(declared-secret); KEPT=1; f() { login declared-secret; }; echo >new")
        one = sh.checkpoint("one")
        sh.run("unset MY_TOKEN A KEPT")
        sh.rollback(one)  # this session itself has them
        assert sh.run("[[ $MY_TOKEN$A$KEPT == s3cr3t-valuedeclared-secret1 ]]").ok
    for path in (base.parent / "layers").rglob("*"):
        text = path.read_bytes() if path.is_file() else b""
        for secret in (b"s3cr3t-value", b"declared-secret", b"inherited-value"):
            assert secret not in text, path
    monkeypatch.delenv("INHERITED")
    with session(base, **options) as sh:
        named = [(one.kind, one.name) for one in sh.rollback("one").not_restored]
        assert named == [("function", "f"), *(("variable", name) for name in ("A", "MY_TOKEN", "INHERITED"))]
        assert [(one.kind, one.name) for one in sh.restored.not_restored] == named
        assert sh.run("echo $KEPT$MY_TOKEN$A; ls").stdout == "1\nfile  new\n"
        sh.branch.discard()


@pytest.mark.parametrize("sandbox", [None, pytest.param(True, marks=needs_bwrap)], ids=["plain", "in a sandbox"])
def test_bash_on_a_branch_has_no_capability_and_can_get_none(base: Path, sandbox: bool | None) -> None:
    options: dict[str, Any] = {"sandbox": Sandbox(write=[base])} if sandbox else {}
    with session(base, **options) as sh:
        for end in ("true", "echo >new", "exit 3"):
            sh.run("true")
            status = Path(f"/proc/{sh.pid}/status").read_text()
            found = re.findall(r"^(Cap(?:Inh|Prm|Eff|Amb)|NoNewPrivs):\s+(\w+)$", status, re.M)
            none = {name: "0" * 16 for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}
            assert dict(found) == {**none, "NoNewPrivs": "1"}
            sh.run(end)
            if end == "echo >new":
                sh.rollback(sh.checkpoint())
        sh.branch.discard()


# Of each program: what makes its files, what changes them once they are frozen, and what says that all is right.
PROGRAMS: dict[str, tuple[str, str, str]] = {
    "git": (
        "export GIT_CONFIG_GLOBAL=/dev/null GIT_{AUTHOR,COMMITTER}_{NAME,EMAIL}=a@b; git init -qb main;"
        " mkdir -p d/e; for i in {1..50}; do echo $i >d/e/f$i; done; git add . && git commit -qm one",
        "git checkout -qb other && mv d/e d/g && sed -i s/1/2/ d/g/* && git add -A && git commit -qm two"
        " && git checkout -q main && echo x >>d/e/f50 && git commit -qam three"
        " && git rebase -q main other && git gc -q"
        " && git worktree add -q ../base/tree main 2>&1 && rm -rf tree && git worktree prune",
        "git fsck --strict && git status --porcelain && git log --format=%s && git ls-tree -r --name-only HEAD | wc -l",
    ),
    "make": (
        "printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\\n\\tcc -o all $^\\n' >Makefile;"
        ' for i in {1..8}; do echo "int f$i(void) { return $i; }" >f$i.c; done;'
        " echo 'int main(void) { return 0; }' >m.c; make -s 2>&1",
        "make -q; echo $?; echo 'int f1(void) { return 2; }' >f1.c; make",
        "make -q; ./all; echo $?; make -n; make -s clean; ls | wc -l",
    ),
    "sqlite3": (
        "sqlite3 db 'pragma journal_mode=wal; create table t (x); with recursive n (x) as (select 1 union all"
        " select x + 1 from n limit 5000) insert into t select x from n'",
        "sqlite3 db 'begin; delete from t where x % 2; commit; vacuum'"
        " && sqlite3 db 'pragma journal_mode=delete; update t set x = x + 1; begin; delete from t; rollback'",
        "sqlite3 db 'pragma integrity_check; select count(*), sum(x) from t'; ls",
    ),
    "npm": (
        'export npm_config_cache=$PWD/../npm; mkdir pkg && echo \'{"name": "p", "version": "1.0.0"}\' >pkg/package.json'
        " && echo 'module.exports = 1' >pkg/index.js && npm pack ./pkg --silent"
        ' && echo \'{"name": "own", "version": "1.0.0"}\' >package.json'
        " && npm install --offline --no-audit --no-fund --silent ./p-1.0.0.tgz",
        "sed -i s/1.0.0/2.0.0/ pkg/package.json && npm pack ./pkg --silent"
        " && npm install --offline --no-audit --no-fund --silent ./p-2.0.0.tgz",
        "npm ls --parseable --long | tail -1 | grep -o p@.*; node -p 'require(\"p\")'",
    ),
    "pip": (
        "PYTHON -m pip install -q --no-index --target site ./one-1.0-py3-none-any.whl 2>&1; ls site",
        "PYTHON -m pip install -q --no-index --upgrade --target site ./one-2.0-py3-none-any.whl 2>&1",
        "PYTHONPATH=site PYTHON -c 'import one; print(one.version)'; ls site",
    ),
}


def wheel(directory: Path, version: str) -> None:
    about = f"one-{version}.dist-info"
    with zipfile.ZipFile(directory / f"one-{version}-py3-none-any.whl", "w") as file:
        file.writestr("one/__init__.py", f"version = {version}\n")
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: one\nVersion: {version}\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        names = ("one/__init__.py", *(f"{about}/{name}" for name in ("METADATA", "WHEEL", "RECORD")))
        file.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in names))


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_does_on_a_branch_what_it_does_in_a_plain_directory(base: Path, name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"no {name}")
    if name in ("npm", "pip") and not SOAK:
        pytest.skip(f"{name} takes seconds for each step")
    begin, change, look = (text.replace("PYTHON", PYTHON) for text in PROGRAMS[name])
    plain = base.parent / "plain" / "base"
    plain.mkdir(parents=True)
    for version in ("1.0", "2.0") if name == "pip" else ():
        for directory in (base, plain):
            wheel(directory, version)
    with Session(cwd=plain, timeout=50) as sh:
        expected = [sh.run(text, tty=False) for text in (begin, change, look)]
    with session(base) as sh:
        found = [sh.run(begin, tty=False)]
        sh.checkpoint("begun")
        found.append(sh.run(change, tty=False))
        sh.checkpoint()
        found.append(sh.run(look, tty=False))
        for one, other in zip(found, expected, strict=True):
            assert (one.stdout, one.exit_code) == (other.stdout, other.exit_code), one
        sh.rollback("begun")
        assert sh.run(change, tty=False).exit_code == expected[1].exit_code
        sh.branch.apply()
    with Session(cwd=base, timeout=50) as sh:
        result = sh.run(f"{begin.partition(';')[0] if name == 'git' else ''}\n{look}", tty=False)
        assert (result.stdout, result.exit_code) == (expected[2].stdout, expected[2].exit_code), result


def test_directory_from_below_is_moved_by_mv_and_refused_to_rename(base: Path) -> None:
    """The page names it: the kernel moves no directory of a layer that is frozen."""
    (base / "d").mkdir()
    (base / "d" / "file").write_text("base\n")
    with session(base) as sh:
        assert "Invalid cross-device link" in sh.run(f'{PYTHON} -c \'import os; os.rename("d", "e")\'').stderr
        assert sh.run("mv d e && cat e/file && mkdir n && mv -T n m && ls -d ?").stdout == "base\ne  m\n"
        sh.branch.apply()
    assert sorted(path.name for path in base.iterdir()) == ["e", "m"]


def test_tree_deeper_than_the_stack_of_python_is_kept_discarded_and_removed(base: Path, tmp_path: Path) -> None:
    deep = f"{PYTHON} -c \"import os\nfor _ in range(1050): os.mkdir('d'); os.chdir('d')\nopen('f', 'w').write('x')\""
    with Session(cwd=base, branch=base, branch_dir=tmp_path / "layers") as sh:
        sh.run(deep, check=True)
        assert sh.checkpoint("deep").size == 1
        sh.branch.discard()
        assert (len(os.listdir(tmp_path / "layers" / "layers")), sh.branch.diff()) == (2, ())
    assert not any((tmp_path / "layers").iterdir())
