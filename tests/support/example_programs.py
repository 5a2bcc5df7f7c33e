"""The programs of examples/, and what their heads say: what each needs, how to run it, and a line that it prints."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from documents import TOP

from shellsession.branch.mounts import fault

_DIRECTORY: Final = TOP / "examples"
_COMMANDS: Final = {"bubblewrap": "bwrap"}
_READY: Final = {"docker": "docker image inspect shellsession"}  # a program that needs more than to be installed
_TYPED: Final = {"approve_commands.py": "n\ny\n"}
_TIME_LIMIT: Final = 50


class Example(NamedTuple):
    """``extra``, ``package`` and ``program`` are what it needs; "" for nothing."""

    path: Path
    extra: str
    package: str
    program: str
    command: str
    has_model: bool
    prints: str

    def __str__(self) -> str:
        return self.path.name

    @property
    def needs_cluster(self) -> bool:
        return self.extra == "ray"

    def skip_if_it_cannot_run(self) -> None:
        if self.program and shutil.which(_COMMANDS.get(self.program, self.program)) is None:
            pytest.skip(f"{self.program} is not installed")
        if (look := _READY.get(self.program)) and subprocess.run(
            look.split(), capture_output=True, check=False
        ).returncode:
            pytest.skip(f"`{look}` fails")
        if "branch=" in self.path.read_text() and (reason := fault()):
            pytest.skip(reason)

    def run(self, typed: str | None = None, limit: float = _TIME_LIMIT) -> subprocess.CompletedProcess[str]:
        """Run it from the checkout, with the command that its head shows."""
        return subprocess.run(
            ["bash", "-c", self.command],
            cwd=TOP,
            input=_TYPED.get(self.path.name, "") if typed is None else typed,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit,
        )


def _read(path: Path) -> Example:
    text = path.read_text(encoding="utf-8")

    def field(name: str) -> str:
        found = re.search(rf"^(?:# )?{name}:\s+(.+)$", text, re.MULTILINE)
        return found[1] if found else ""

    needs = dict(re.findall(r"the (extra|package|program) (\S+)", field("Needs")))
    command, _, option = field("Run").partition(" [")
    return Example(
        path=path,
        extra=needs.get("extra", ""),
        package=needs.get("package", ""),
        program=needs.get("program", ""),
        command=command,
        has_model=option.startswith("--model "),
        prints=field("Prints"),
    )


EXAMPLES: Final = [_read(path) for path in sorted(_DIRECTORY.iterdir()) if path.suffix in (".py", ".sh")]


def check(example: Example) -> None:
    """Run the example, and check that it prints what its head says, and no error."""
    example.skip_if_it_cannot_run()
    done = example.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert example.prints
    assert example.prints in done.stdout.splitlines(), done.stdout
