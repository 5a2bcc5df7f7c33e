"""The README's programs run as they are, its lists are complete, and its tables are the measured ones."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

import pytest
from documents import Block, blocks, cells, own_daemon, read, run_bash, run_python

import shellsession
from shellsession.cli.arguments import VERBS
from shellsession.engine.bash.spawn import _DROPPED, AGENT_ENV

_TEXT: Final = read("README.md")
_PROGRAMS: Final = blocks("README.md", "python")


def test_there_are_programs() -> None:
    assert len(_PROGRAMS) == 8


@pytest.fixture(scope="module", autouse=True)
def daemon_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_daemon(tmp_path_factory.mktemp("readme")):
        yield


@pytest.mark.parametrize("program", _PROGRAMS, ids=str)
def test_a_program_of_the_readme_runs(program: Block) -> None:
    done = run_python(program.text)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_first_program_prints_what_its_comments_say() -> None:
    done = run_python(_PROGRAMS[0].text)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "x in /tmp"
    assert any(line.startswith("timed_out begun") for line in lines)
    assert "[exit status 1]" in lines
    assert lines[-1] == "shell_exited 3 False"


def test_the_command_line_does_what_its_comments_say() -> None:
    (block,) = (block.text for block in blocks("README.md", "sh") if "shellsession" in block.text)
    script = "".join(line.partition(" #")[0] + "; echo status $?\n" for line in block.splitlines())
    lines = run_bash(script).stdout.splitlines()
    assert lines[:4] == ["status 0", "x in /tmp", "status 0", "status 124"]
    assert lines[4:7] == ["status 124", "hello Ann", "status 0"]
    assert [line for line in lines[7:] if line.startswith("status")] == ["status 0"] * 3


def test_the_readme_names_every_error() -> None:
    for name in shellsession.__all__:
        kind = getattr(shellsession, name)
        if isinstance(kind, type) and issubclass(kind, Exception) and name != "CommandError":
            assert f"`{name}`" in _TEXT, name


def test_the_readme_names_every_verb_of_the_command_line() -> None:
    for verb in VERBS:
        assert f"`{verb}`" in _TEXT or f"shellsession {verb}" in _TEXT or verb == "completion", verb


def test_the_readme_names_every_variable_that_is_added_or_taken() -> None:
    for name, value in AGENT_ENV.items():
        assert f"`{name}={value}`" in _TEXT
    for name in _DROPPED:
        assert f"`{name}`" in _TEXT


def test_the_readme_names_every_verb() -> None:
    verbs = [name for name, _ in inspect.getmembers(shellsession.Session, inspect.isfunction) if name[0] != "_"]
    for verb in verbs:
        assert f"`{verb}(" in _TEXT, verb


def test_what_the_readme_says_was_measured_is_what_the_last_run_says() -> None:
    report = read("benchmarks/results.md").splitlines()
    measured = re.search(r"<!-- measured -->\n(.*?)<!-- /measured -->", _TEXT, re.DOTALL)
    assert measured is not None
    machine, *quoted = measured[1].splitlines()
    assert machine in report
    known = [cells(line) for line in report]
    lines = [line for line in quoted if line.startswith("| ")]
    assert len(lines) > 20
    assert [line for line in lines if cells(line) not in known] == []
