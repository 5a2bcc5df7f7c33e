"""The second part of the demo: independent processes share one agent's session through the daemon."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.screen import Screen
from benchmarks.story import PATIENCE


@dataclass(frozen=True)
class Line:
    """A command line, run as its own process, and what it must print and return."""

    title: str
    arguments: tuple[str, ...]
    output: tuple[str, ...] = ()
    status: int = 0

    @property
    def shown(self) -> str:
        words = (word if word.isalnum() or word.startswith("-") else f"'{word}'" for word in self.arguments)
        return " ".join(("shellsession", *words))

    def broken_promises(self, done: subprocess.CompletedProcess[str]) -> list[str]:
        said = done.stdout + done.stderr
        broken = [f"no {text!r} in the output" for text in self.output if text not in said]
        if done.returncode != self.status:
            broken.append(f"status {done.returncode}, not {self.status}")
        return broken


LINES = (
    Line(
        "one process starts the daemon, and leaves its state with agent a1",
        ("run", "-s", "a1", "cd tally; export MODE=release"),
    ),
    Line("another process finds that state", ("run", "-s", "a1", "echo $MODE in ${PWD##*/}"), ("release in tally",)),
    Line("agent a2 has its own bash", ("run", "-s", "a2", "echo ${MODE:-unset} in ${PWD##*/}"), ("unset in ",)),
    Line(
        "the exit status is the command's; 124 after a time limit, state kept",
        ("run", "-s", "a1", "--timeout", "1", "echo begun; sleep 1000"),
        ("begun",),
        124,
    ),
    Line("list the agents", ("ls",), ("a1", "a2", "idle")),
    Line("end the daemon and every session", ("stop",)),
)


def play(screen: Screen, directory: str, first: int, total: int) -> int:
    """Run the lines. Returns how many failed."""
    runtime = Path(directory, "runtime")
    runtime.mkdir(mode=0o700)
    env = os.environ | {"SHELLSESSION_SOCKET": str(runtime / "socket"), "XDG_STATE_HOME": str(runtime)}
    env.pop("MAKEFLAGS", None)
    failed = 0
    for number, line in enumerate(LINES, first):
        screen.title(number, total, line.title)
        screen.command(line.shown)
        done = subprocess.run(
            [sys.executable, "-m", "shellsession", *line.arguments],
            cwd=directory,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        broken = line.broken_promises(done)
        screen.process(done.stdout, done.stderr, done.returncode, broken)
        failed += bool(broken)
    return failed
