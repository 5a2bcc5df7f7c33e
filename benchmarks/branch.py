"""`python -m benchmarks.branch [ROUNDS]`: a session on a branch beside one without, and beside a shadow git.

In turns, as medians; ratios of one run. Each tree has files of 1 to 5 KB.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from shellsession import Session
from shellsession.branch.attempt import Attempt

SIZES: Final = (100, 10_000, 50_000)
# What the ratios must not exceed.
OPEN: Final = 2.5
SAME: Final = 1.5
BOTH: Final = 3.5
GIT: Final = {10_000: 0.15, 50_000: 0.03}
WORK: Final = {"make": 1.15, "pip install": 1.15, "git status": 1.3, "grep -r": 1.7}
_GIT_ROUNDS: Final = 3


def main() -> int:
    """Print the figures. Return 1 if a bar does not hold."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:  # on a disk: /tmp may be memory
        top, missed = Path(directory), list[str]()

        def tell(what: str, ratio: float, bar: float) -> None:
            print(f"{what}: {ratio:.2f} x (bar {bar})")
            missed.extend([what] * (ratio > bar))

        (base := top / "base").mkdir()
        plain, branched = opened(base, rounds)
        print(f"open {plain * 1e3:.1f} ms, with a branch {branched * 1e3:.1f} ms")
        tell("open with a branch / open", branched / plain, OPEN)
        for size in SIZES:
            fill(top / str(size), size)
        found = checkpoints([top / str(size) for size in SIZES], rounds)
        for size, (kept, back, both) in zip(SIZES, found, strict=True):
            print(f"{size} files, ms: checkpoint {kept * 1e3:.1f}, rollback {back * 1e3:.1f}, of both {both * 1e3:.1f}")
            if size in GIT:
                commit, checkout = shadow_git(top / str(size))
                print(f"{size} files, ms: shadow git commit {commit * 1e3:.0f}, checkout {checkout * 1e3:.0f}")
                tell(f"checkpoint and rollback of {size} / git", (kept + back) / (commit + checkout), GIT[size])
        for name, column in (("checkpoint", 0), ("rollback of files", 1)):
            tell(f"{name}, {SIZES[-1]} / {SIZES[0]} files", found[-1][column] / found[0][column], SAME)
        kept, _, both = found[0]
        tell("checkpoint and rollback of both halves / open", (kept + both) / plain, BOTH)
        fork, branch_fork, attempt, *commands = forks(base, rounds)
        print(f"fork {fork * 1e3:.1f} ms, with a branch {branch_fork * 1e3:.1f} ms, an attempt {attempt * 1e3:.1f} ms")
        print(
            "ms, without and with automatic checkpoints: true {:.2f}, {:.2f}; a write {:.2f}, {:.2f}".format(
                *(one * 1e3 for one in commands)
            )
        )
        for name, ratios in work(top, max(3, rounds // 3)).items():
            print(f"{name}, turn by turn: {min(ratios):.2f} to {max(ratios):.2f}")
            tell(f"{name} on a branch / outside", median(ratios), WORK[name])
    return int(bool(missed))


def work(top: Path, rounds: int) -> dict[str, list[float]]:
    """Return for each of WORK how many times as long it takes on a branch, in each turn but the first."""
    bases = [top / "work" / name for name in ("outside", "branch")]
    for base in bases:
        fill(base, 10_000)
        _wheel(base, 300)
        _c_project(base / "c", 50)
    names = ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL")
    commands = {
        "make": "rm -f c/*.o c/all; make -s -C c",
        "pip install": f"rm -rf site; {shlex.quote(sys.executable)} -m pip install -q --no-index -t site big-1.0-*.whl",
        "git status": "git status --porcelain",
        "grep -r": "grep -r -c nowhere d* | wc -l",
    }
    found: dict[str, list[float]] = {name: [] for name in commands}
    with ExitStack() as stack:
        env = {f"GIT_{name}": "a@b" for name in names}
        for base in bases:
            subprocess.run(
                "git init -q; git add d*; git commit -qm c", shell=True, cwd=base, check=True, env=os.environ | env
            )
        sessions = [
            stack.enter_context(Session(cwd=base, branch=branch))
            for base, branch in zip(bases, (None, bases[1]), strict=True)
        ]
        for name, command in commands.items():
            for turn in range(rounds + 1):
                order = sessions if turn % 2 else sessions[::-1]
                took = {sh: seconds(partial(sh.run, command, check=True, tty=False)) for sh in order}
                found[name] += [took[sessions[1]] / took[sessions[0]]] if turn else []
        sessions[1].branch.discard()
    return found


def _c_project(top: Path, files: int) -> None:
    top.mkdir()
    for number in range(files):
        lines = [f"int f{number}_{at}(int x) {{ return x * {at} + {number}; }}" for at in range(100)]
        (top / f"f{number}.c").write_text("\n".join(["#include <stdio.h>", *lines, ""]))
    (top / "main.c").write_text("int main(void) { return 0; }\n")
    (top / "Makefile").write_text("all: $(patsubst %.c,%.o,$(wildcard *.c))\n\t$(CC) -o $@ $^\n")


def _wheel(top: Path, files: int) -> None:
    """Make a wheel with this many modules."""
    about = "big-1.0.dist-info"
    parts = {f"big/m{number}.py": f"x = {number}\n" * 200 for number in range(files)}
    parts[f"{about}/METADATA"] = "Metadata-Version: 2.1\nName: big\nVersion: 1.0\n"
    parts[f"{about}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    parts[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in parts) + f"{about}/RECORD,,\n"
    with zipfile.ZipFile(top / "big-1.0-py3-none-any.whl", "w") as file:
        for name, text in parts.items():
            file.writestr(name, text)


def opened(base: Path, rounds: int) -> tuple[float, float]:
    """Return the seconds that a session takes to open, without a branch and with one."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for branch, column in zip((None, base), times, strict=True):
            session = Session(cwd=base, branch=branch)
            column.append(seconds(session.open))
            session.close()
    return median(times[0][1:]), median(times[1][1:])


def checkpoints(trees: Sequence[Path], rounds: int) -> list[tuple[float, float, float]]:
    """Return for each tree the seconds of a checkpoint, of a rollback of the files, and of one of files and shell."""
    times = [(list[float](), list[float](), list[float]()) for _ in trees]
    with ExitStack() as stack:
        sessions = [stack.enter_context(Session(cwd=tree, branch=tree)) for tree in trees]
        for sh in sessions:
            sh.run("X=kept; f() { echo f; }")
        for number in range(rounds):
            for sh, columns in zip(sessions, times, strict=True):
                for column, one in zip(columns, _turn(sh, number), strict=True):
                    column.append(one)
        for sh in sessions:
            sh.branch.discard()
    return [(median(kept), median(back), median(both)) for kept, back, both in times]


def _turn(sh: Session, number: int) -> Iterator[float]:
    sh.run(f"echo {number} >>d0/f0; rm -f d0/f1")
    yield seconds(lambda: sh.checkpoint("one"))
    sh.run("rm -rf d0; for i in {1..50}; do echo $i >junk$i; done")
    yield seconds(lambda: sh.rollback("one", files_only=True))
    sh.run("rm -rf d0; X=gone")
    yield seconds(lambda: sh.rollback("one"))
    assert sh.run("tail -1 d0/f0; echo $X; ls junk1").stdout == f"{number}\nkept\n"
    sh.drop_checkpoint("one")


def forks(base: Path, rounds: int) -> list[float]:
    """Return the seconds of a fork, of one on a branch, of an attempt, and of commands on a branch.

    The commands: `true`, and one that writes, each without and with automatic checkpoints.
    """
    times = [list[float]() for _ in range(7)]
    with ExitStack() as stack:
        plain, branched, automatic = (
            stack.enter_context(Session(cwd=base, branch=branch, auto_checkpoints=most))
            for branch, most in ((None, 0), (base, 0), (base, 20))
        )
        for sh in (plain, branched, automatic):
            sh.run("true")
        for _ in range(rounds):
            branched.run("echo >>written")
            found = [_made(plain.fork), _made(branched.fork), _made(lambda: branched.attempt("echo >>written"))]
            for command in ("true", "echo >>written"):
                found += [seconds(partial(sh.run, command)) for sh in (branched, automatic)]
            for column, one in zip(times, found, strict=True):
                column.append(one)
        for sh in (branched, automatic):
            sh.branch.discard()
    return list(map(median, times))


def _made(make: Callable[[], Session | Attempt]) -> float:
    """Return the seconds in which that is made, and leave it."""
    begin = time.perf_counter()
    made = make()
    took = time.perf_counter() - begin
    with made:
        return took


def shadow_git(tree: Path) -> tuple[float, float]:
    """Return the seconds of a commit of all changes, and of a checkout of it, after the first commit."""
    place = tree.parent / f"{tree.name}.git"
    names = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**os.environ, **names, "GIT_DIR": str(place), "GIT_WORK_TREE": str(tree)}

    def git(*words: str) -> None:
        subprocess.run(["git", *words], env=env, check=True, capture_output=True)

    def commit() -> None:
        git("add", "-A")
        git("commit", "-qm", "c", "--allow-empty")

    def checkout() -> None:
        git("checkout", "-f", "HEAD", "--", ".")
        git("clean", "-fdq")

    git("init", "-q")
    commit()
    commits, checkouts = list[float](), list[float]()
    for _ in range(_GIT_ROUNDS):
        with (tree / "d0" / "f0").open("a") as file:
            file.write("x\n")
        commits.append(seconds(commit))
        shutil.rmtree(tree / "d0")
        checkouts.append(seconds(checkout))
    return median(commits), median(checkouts)


def fill(tree: Path, size: int) -> None:
    for number in range(size):
        directory = tree / f"d{number // 200}"
        if number % 200 == 0:
            directory.mkdir(parents=True)
        (directory / f"f{number}").write_text(f"{number}\n" * (200 + number % 7 * 100))


def seconds(do: Callable[[], object]) -> float:
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
