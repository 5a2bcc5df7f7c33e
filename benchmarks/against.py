"""Measure this tree against another commit or checkout, burst by burst in the same run.

A figure of yesterday, or of another machine, says little beside one of today. Here both trees take turns, and so does
what each case is held against. The ratios of neighbours stay true where the machine is shared; the times do not.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.machine import describe
from benchmarks.measure import Burst, duration, interleaved, ratios, spread, timed
from benchmarks.scale import first_answer

TREE: Final = Path(__file__).resolve().parent.parent
# The last commit before an ordinary command had its own path, and before the rooms of the engine.
BASE: Final = "bea4c3c"
_PATIENCE: Final = 30.0  # seconds for a process to end

# The process of one tree. It reads a JSON list on a line (kind of session, startup commands, command, count), and
# answers with the seconds that each command took.
_WORKER: Final = """
import json, os, sys, time
from functools import partial
from shellsession import Session, connect

daemon, cores = sys.argv[1], sorted(os.sched_getaffinity(0))
clock, sessions = time.perf_counter, {}
# First: the daemon is started here, and its bash may run on each of the cores.
remote = connect("bench", daemon)
remote.run("true")
os.sched_setaffinity(0, cores[:1])


def opened(startup):
    session = Session(startup=startup).open()
    os.sched_setaffinity(session.pid, cores[-1:])
    return session


def first(command):
    # Popen's first answer leaves out what ends its bash, too.
    session = Session()
    start = clock()
    session.run(command)
    took = clock() - start
    session.close()
    return took


def runner(kind, startup):
    key = kind, *startup
    if key not in sessions:
        sessions[key] = remote if kind == "daemon" else opened(startup)
    return sessions[key].run


for line in sys.stdin:
    kind, startup, command, count = json.loads(line)
    if kind == "first":
        print(json.dumps([first(command) for _ in range(count)]), flush=True)
        continue
    run, took = runner(kind, startup), []
    for _ in range(count):
        start = clock()
        run(command)
        took.append(clock() - start)
    print(json.dumps(took), flush=True)
remote.close()
"""
_COMMAND_LINE: Final = "import sys; from shellsession.__main__ import main; sys.exit(main())"


class Case(NamedTuple):
    """What is measured: a kind of session, what it runs at its start, and the command."""

    what: str
    kind: str
    command: str
    size: int  # commands of a burst
    startup: tuple[str, ...] = ()
    reference: str = ""  # what else it is held against


CASES: Final = (
    Case("`true`", "session", "true", 120),
    Case("`X=1`", "session", "X=1", 120),
    Case("`/bin/true`", "session", "/bin/true", 30),
    Case("`true`, PS1 is set", "session", "true", 120, ("PS1='(venv) '",)),
    Case("`true`, the word trap was seen", "session", "true", 120, (": trap",)),
    Case("`true` over the daemon", "daemon", "true", 60),
    Case("`shellsession run -- true`", "process", "", 3, reference="`python -I -c pass`"),
    Case("first answer of a new session", "first", "true", 4, reference="Popen's first answer"),
)


class Tree:
    """One checkout: a process that runs its sessions, and its own daemon."""

    def __init__(self, path: Path, home: str) -> None:
        self._env = {**os.environ, "PYTHONPATH": str(path), "HOME": home, "XDG_STATE_HOME": home}
        self._env["SHELLSESSION_SOCKET"] = socket = os.path.join(home, "socket")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, socket],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._env,
            cwd=home,
        )

    def burst(self, case: Case) -> Burst:
        return timed(self._command_line) if case.kind == "process" else self._asking(case)

    def _asking(self, case: Case) -> Burst:
        def burst(command: str, count: int) -> list[float]:
            stdin, stdout = self._process.stdin, self._process.stdout
            assert stdin is not None
            assert stdout is not None
            stdin.write(json.dumps([case.kind, case.startup, command, count]) + "\n")
            stdin.flush()
            if not (answer := stdout.readline()):
                raise AssertionError(f"the tree's process ended with status {self._process.wait()}")
            took: list[float] = json.loads(answer)
            return took

        return burst

    def _command_line(self, _: str) -> None:
        words = [sys.executable, "-c", _COMMAND_LINE, "run", "-s", "line", "--", "true"]
        subprocess.run(words, env=self._env, cwd="/", check=True)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        finally:
            stop = [sys.executable, "-c", _COMMAND_LINE, "stop"]
            subprocess.run(stop, env=self._env, cwd="/", check=True, capture_output=True)


@contextmanager
def checkout(base: str) -> Iterator[Path]:
    """A directory as it is; a commit as a worktree of git's that goes with the run."""
    if Path(base).is_dir():
        yield Path(base).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="shellsession-base-") as directory:
        place = Path(directory, "tree")
        git = ["git", "-C", str(TREE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(place), base], check=True)
        try:
            yield place
        finally:
            subprocess.run([*git, "remove", "--force", str(place)], check=True)


def start_python(_: str) -> None:
    subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)


REFERENCES: Final[Mapping[str, Burst]] = {
    "`python -I -c pass`": timed(start_python),
    "Popen's first answer": timed(lambda _: first_answer()),
}


def measure(base: Path, cores: Sequence[int], rounds: int, quick: bool) -> Iterator[str]:
    """The lines of a table: both trees on these cores, and the ratio of neighbours with its quartiles."""
    with ExitStack() as stack:
        stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores)  # what is started from here inherits it
        trees = dict[str, Tree]()
        for name, path in (("base", base), ("this", TREE)):
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="shellsession-bench-"))
            trees[name] = tree = Tree(path, home)
            stack.callback(tree.close)
        for case in CASES:
            contenders = {name: tree.burst(case) for name, tree in trees.items()}
            if case.reference:
                contenders["reference"] = REFERENCES[case.reference]
            size = max(2, case.size // 6) if quick else case.size
            yield _line(case, interleaved(contenders, case.command, rounds, dict.fromkeys(contenders, size)))


def _line(case: Case, medians: Mapping[str, list[float]]) -> str:
    base, mine = (duration(spread(medians[name]).mid) for name in ("base", "this"))
    beside = ""
    if case.reference:
        beside = f"{ratios(medians['this'], medians['reference'])} x {case.reference}"
    return f"| {case.what} | {base} | {mine} | {ratios(medians['this'], medians['base'])} x | {beside} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="against", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "base", nargs="?", default=BASE, help="a commit, or a checkout's directory (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=25, help="bursts of each (default: %(default)s)")
    parser.add_argument("--cores", choices=["one", "two", "both"], default="both", help="(default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a smoke: short bursts, five rounds")
    options = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    places = {"one": ("one core", allowed[:1]), "two": ("two cores", allowed[:2])}
    wanted = ["one", "two"] if options.cores == "both" else [options.cores]
    rounds = 5 if options.quick else options.rounds
    print(f"{describe()}. Load before the run: {os.getloadavg()[0]:.2f}.\n")
    with checkout(options.base) as base:
        for where, cores in (places[name] for name in wanted):
            print(f"| on {where} | {options.base} | this tree | ratio (quartiles) | this tree beside |")
            print("|---|---|---|---|---|")
            for line in measure(base, cores, rounds, options.quick):
                print(line, flush=True)
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
