"""`make demo`: builds and tests a small project in one session, with a hang, a server and an `exit` on the way.

Then two processes share one agent's session.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.screen import Screen
from benchmarks.shared import LINES, play
from benchmarks.story import PATIENCE, STEPS
from shellsession import Session

PROJECT = Path(__file__).parent / "demo_project"


def environment() -> dict[str, str]:
    """The inherited environment, with this Python for the project, and without the variables of the outer make."""
    ours = {"MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"}
    return {name: value for name, value in os.environ.items() if name not in ours} | {"PYTHON": sys.executable}


def main() -> int:
    screen, failed, total = Screen(), 0, len(STEPS) + len(LINES)
    with tempfile.TemporaryDirectory(prefix="shellsession-demo-") as directory:
        copy = Path(directory, "tally")
        shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns("__pycache__", "dist"))
        with Session(cwd=directory, env=environment(), recover=True) as session:
            for number, step in enumerate(STEPS, 1):
                screen.title(number, total, step.title)
                if step.restart:
                    session.restart()
                    screen.note("after session.restart()")
                screen.command(step.command)
                if step.timeout < PATIENCE:
                    screen.note(f"timeout={step.timeout:g}")
                result = session.run(step.command, timeout=step.timeout)
                broken = step.broken_promises(result)
                screen.result(result, broken)
                failed += bool(broken)
        failed += play(screen, directory, len(STEPS) + 1, total)
    screen.verdict(total, failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
