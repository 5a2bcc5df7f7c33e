"""The README's programs run as they stand, and its table is the one that was measured."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import shellsession
from shellsession.engine.spawn import _DROPPED, AGENT_ENV

_TEXT: Final = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
_PROGRAMS: Final = re.findall(r"```python\n(.*?)```", _TEXT, re.DOTALL)


def test_there_are_programs() -> None:
    assert len(_PROGRAMS) == 3


@functools.cache
def ran(program: str) -> subprocess.CompletedProcess[str]:
    """It once, whoever asks."""
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)


@pytest.mark.parametrize("program", _PROGRAMS, ids=lambda text: text.split("\n")[0])
def test_a_program_of_the_readme_runs(program: str) -> None:
    done = ran(program)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_first_program_prints_what_its_comments_say() -> None:
    done = ran(_PROGRAMS[0])
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "x in /tmp"
    assert any(line.startswith("timed_out begun") for line in lines)
    assert lines[-1] == "shell_exited 3 False"


def test_the_readme_names_every_variable_that_is_added_or_taken() -> None:
    for name, value in AGENT_ENV.items():
        assert f"`{name}={value}`" in _TEXT
    for name in _DROPPED:
        assert f"`{name}`" in _TEXT


def test_the_readme_names_every_verb() -> None:
    verbs = [name for name, value in vars(shellsession.Session).items() if callable(value) and name[0] != "_"]
    for verb in verbs:
        assert f"`{verb}(" in _TEXT, verb
