"""A branch whose host is killed at any step of a change: it is found as it was before the change, or as after it."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from system import SOAK

from shellsession.branch import branch
from shellsession.branch.branch import Branch
from shellsession.branch.mounts import fault

if reason := fault():
    pytest.skip(reason, allow_module_level=True)

# What Python reports before it changes a file. Between two of these the kernel mounts.
_STEPS: Final = {"open", "os.mkdir", "os.rmdir", "os.rename", "os.remove", "os.link", "os.setxattr", "os.chmod"} | {
    "os.chown",
    "os.utime",
    "shutil.rmtree",
}

State = tuple[dict[str, str], dict[str, tuple[bytes, dict[str, str]]]]


def written(opened: Branch, text: str) -> None:
    """Change a file on the branch, as a command does, and add one."""
    assert opened.spaces is not None
    top = f"/proc/self/fd/{opened.spaces.root}{opened.base}"
    pid = os.fork()
    if pid == 0:
        Path(top, "file").write_text(text)
        Path(top, "d", text).write_text(text)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def contents(top: Path) -> dict[str, str]:
    return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}


def files(opened: Branch) -> dict[str, str]:
    """The files on the branch."""
    assert opened.spaces is not None
    return contents(Path(f"/proc/self/fd/{opened.spaces.root}{opened.base}"))


def state(opened: Branch) -> State:
    """The files, and each checkpoint with the state of its shell and its files."""
    found, kept = files(opened), {}
    for one in [one.name for one in opened.checkpoints()]:
        said = opened.state(one)
        opened.roll_back(one)
        kept[one] = said, files(opened)
    return found, kept


def prepared(place: Path) -> Branch:
    (place / "base" / "d").mkdir(parents=True)
    (place / "base" / "file").write_text("base")
    opened = Branch(str(place / "base"), str(place / "layers"))
    opened.open()
    for number in range(4):
        written(opened, f"w{number}")
        opened.freeze(f"c{number}", b"s%d" % number)
    for number in (1, 2):
        opened.drop(f"c{number}")
    written(opened, "last")
    return opened


def new(place: Path) -> Branch:
    (place / "base").mkdir()
    return Branch(str(place / "base"), str(place / "layers"))


def closed_and_opened(one: Branch) -> None:
    one.close()
    one.open()


def opened_and_closed(one: Branch) -> None:
    one.open()
    one.close()


def forked(opened: Branch) -> Branch:
    opened.freeze_last()
    fork = opened.fork(b"begun")
    fork.open()
    written(fork, "fork")
    return fork


def taken_over(opened: Branch) -> None:
    fork = forked(opened)
    fork.freeze_last()
    opened.take_over(fork, b"before", 2)
    fork.close()


CHANGES: Final[dict[str, Callable[[Branch], Any]]] = {
    "checkpoint": lambda opened: opened.freeze("new", b"state"),
    "rollback": lambda opened: opened.roll_back("c0"),
    "drop": lambda opened: opened.drop("c0"),
    "discard": lambda opened: opened.discard(),
    "apply": lambda opened: opened.apply(None, False),
    "close and open": closed_and_opened,
    "automatic checkpoint": lambda opened: opened.keep_before(b"before", 1.0, 2),
    "fork": lambda opened: forked(opened).close(),
    "take over": taken_over,
}


def killed(place: Path, prepare: Callable[[Path], Branch], do: Callable[[Branch], Any], at: int) -> bool:
    """Do it in a child, and kill that before step ``at``. Return whether it came so far."""
    pid = os.fork()
    if pid == 0:
        opened, steps = prepare(place), itertools.count()

        def audit(event: str, _: Any) -> None:
            if event in _STEPS and next(steps) == at:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(audit)
        do(opened)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def found(place: Path, name: str) -> tuple[State, dict[str, str]]:
    """What the next opening finds, and what is in the directory itself."""
    opened = Branch(str(place / "base"), str(place / "layers"))
    opened.open()
    try:
        if name == "apply":
            opened.apply(None, False)
        return state(opened), contents(place / "base")
    finally:
        opened.close()
        assert not list(place.glob("layers/forks/*"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CHANGES)
def test_change_that_is_killed_at_any_step_is_done_or_not_begun(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch, "_MANY", 3)  # a checkpoint merges layers, too
    with TemporaryDirectory(dir="/var/tmp") as directory:
        prepared(Path(directory)).close()
        before = found(Path(directory), name)
    with TemporaryDirectory(dir="/var/tmp") as directory:
        assert not killed(Path(directory), prepared, CHANGES[name], -1)
        after = found(Path(directory), name)
    assert (before == after) == (name in ("apply", "close and open", "fork"))
    for at in itertools.count(0, 1 if SOAK else 17):
        with TemporaryDirectory(dir="/var/tmp") as directory:
            more = killed(Path(directory), prepared, CHANGES[name], at)
            assert found(Path(directory), name) in (before, after), at
        if not more:
            assert at > 3
            break


@pytest.mark.parametrize("do", [Branch.open, opened_and_closed], ids=["open", "close"])
def test_branch_whose_first_opening_or_last_closing_is_killed_can_be_opened(do: Callable[[Branch], Any]) -> None:
    for at in itertools.count(0, 1 if SOAK else 3):
        with TemporaryDirectory(dir="/var/tmp") as directory:
            more = killed(Path(directory), new, do, at)
            assert found(Path(directory), "") == (({}, {}), {})
            assert os.listdir(Path(directory, "layers")) == []
        if not more:
            assert at > 5
            break
