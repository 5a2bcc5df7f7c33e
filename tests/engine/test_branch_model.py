"""A branch beside a plain copy of its directory: after any sequence of operations both hold the same files."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings, strategies as st
from system import SOAK

from shellsession import InvalidRequest, Session
from shellsession.branch.mounts import fault

if reason := fault():
    pytest.skip(reason, allow_module_level=True)

_NAMES: Final = st.sampled_from(["a", "b", "d/a", "d/e/a", "d", "d/e", "x", "x/a"])
_COMMANDS: Final = st.builds(
    lambda form, one, other: form.format(one, other),
    st.sampled_from(
        [
            "echo {0} >>{0}",
            "echo {0} >{0}",
            "rm -rf {0}",
            "mkdir -p {0}",
            "mv -T {0} {1}",
            "ln -sfn {1} {0}",
            "chmod 700 {0}",  # not less: as root, the model could still enter a directory
            "[[ {1}/ == {0}/* ]] || cp -rT {0} {1}",  # into itself: what is copied depends on the order on the disk
            "rmdir {0}",
            "mkdir {0} && echo new >{0}/a",
            "rm -rf {0} && mkdir {0}",
            "truncate -s 5000 {0}",
            "chmod 750 .",
            "chmod 700 .",
        ]
    ),
    _NAMES,
    _NAMES,
)
_STEPS: Final = st.lists(
    st.one_of(
        _COMMANDS,
        _COMMANDS,
        _COMMANDS,
        st.sampled_from(["=checkpoint", "=rollback", "=files", "=drop", "=restart", "=apply", "=discard", "=undo"]),
        st.builds("{} {}".format, st.sampled_from(["=fork", "=attempt", "=discarded"]), _COMMANDS),
    ),
    min_size=4,
    max_size=25,
)


def tree(top: Path) -> dict[str, tuple[int, str]]:
    """Each path with its mode, and what it contains or leads to."""
    found = dict[str, tuple[int, str]]()
    for path in (top, *top.rglob("*")):
        mode = path.lstat().st_mode
        content = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else ""
        found[str(path.relative_to(top))] = mode, content
    return found


def copied(top: Path, to: Path) -> Path:
    subprocess.run(["cp", "-aT", top, to], check=True)
    return to


def seen_by(sh: Session, base: Path) -> Path:
    return Path(f"/proc/{sh.pid}/root{base}")


def last_of(sh: Session) -> str:
    assert sh.engine.branch is not None
    return sh.engine.branch.last_automatic()


class Walk:
    """One branch and its model. ``kept``: a copy of the model for each checkpoint."""

    def __init__(self, top: Path) -> None:
        self.base, self.model, self.top = top / "base", top / "model", top
        (self.base / "d" / "e").mkdir(parents=True)
        for name in ("a", "d/a", "d/e/a"):
            (self.base / name).write_text(f"{name}\n")
        copied(self.base, self.model)
        self.expected = tree(self.base)
        self.kept: list[tuple[str, Path]] = []
        self.undoing = dict[str, Path]()  # a copy of the model for each automatic checkpoint
        self.made = 0

    def step(self, sh: Session, step: str) -> None:
        word, _, command = step.partition(" ")
        if step == "=checkpoint":
            self.kept.append((sh.checkpoint().name, self.copy()))
        elif step in ("=rollback", "=files") and self.kept:
            name, kept = self.kept[self.made % len(self.kept)]
            sh.rollback(name, files_only=step == "=files")
            self.restore(kept)
        elif step == "=drop" and self.kept:
            sh.drop_checkpoint(self.kept.pop(self.made % len(self.kept))[0])
        elif step == "=restart":
            sh.restart()
        elif step == "=apply":
            sh.branch.apply()
            self.expected, self.kept = tree(self.model), []
            assert sh.branch.diff() == ()
        elif step == "=discard":
            sh.branch.discard()
            self.restore(self.base)
            self.kept = []
        elif step == "=undo":
            try:
                before = self.undoing[last_of(sh)]
            except InvalidRequest:
                return
            sh.rollback()
            self.restore(before)
        elif word == "=fork":
            with sh.fork() as fork:
                self.run(fork, command, model := self.copy())
                assert tree(seen_by(fork, self.base)) == tree(model), step
                fork.rollback("fork")
                assert tree(seen_by(fork, self.base)) == tree(self.model), step
        elif word in ("=attempt", "=discarded"):
            with sh.attempt(f"cd {self.base}; {command}", tty=False) as attempt:
                if word == "=attempt":
                    before = self.copy()
                    attempt.apply()
                    self.undoing[last_of(sh)] = before
                    subprocess.run(["bash", "-c", command], cwd=self.model, capture_output=True, check=False)
        elif not step.startswith("="):
            before, last = self.copy(), {one.name for one in sh.checkpoints()}
            self.run(sh, step, self.model)
            for name in {one.name for one in sh.checkpoints()} - last:
                self.undoing[name] = before

    def run(self, sh: Session, command: str, model: Path) -> None:
        there = sh.run(command, tty=False, cwd=self.base)
        done = subprocess.run(["bash", "-c", command], cwd=model, capture_output=True, check=False)
        assert there.ok == (done.returncode == 0), (command, there, there.reason)

    def copy(self) -> Path:
        self.made += 1
        return copied(self.model, self.top / f"copy{self.made}")

    def restore(self, kept: Path) -> None:
        shutil.rmtree(self.model)
        copied(kept, self.model)

    def check(self, sh: Session, step: str) -> None:
        assert tree(seen_by(sh, self.base)) == tree(self.model), step
        assert tree(self.base) == self.expected, step


@pytest.mark.timeout(3000 if SOAK else 300)
@settings(max_examples=2000 if SOAK else 200)
@given(_STEPS)
def test_branch_holds_what_a_plain_directory_holds(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        walk = Walk(Path(directory))
        layers = Path(directory) / "layers"
        with Session(cwd=walk.base, branch=walk.base, branch_dir=layers, timeout=20, auto_checkpoints=4) as sh:
            sh.open()
            for step in steps:
                walk.step(sh, step)
                if sh.pid:
                    walk.check(sh, step)
