"""Shared by the tests of one-shot calls: the four contracts, what each reports of a command, and plain bash -c."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from shellsession import Agents
from shellsession.contracts import bashtool, langchain, phoenix, spec
from shellsession.contracts.langchain import BashToolError

Outcome = tuple[str, str, int]


def _spec(bash: Any, command: str) -> Outcome:
    found = bash({"command": command})
    return found["stdout"], found["stderr"], found["exitCode"]


def _langchain(bash: Any, command: str) -> Outcome:
    try:
        return bash({"command": command}), "", 0
    except BashToolError as error:
        return error.stdout, error.stderr, error.exit_status or 0


def _bashtool(bash: Any, command: str) -> Outcome:
    found = bash({"command": command})
    text, code = found["content"][0]["text"].partition("\n")[2], found["details"]["exit_code"]
    stdout, _, stderr = text.removeprefix("STDOUT:\n").partition("\nSTDERR:\n")
    return stdout, stderr, code


def _phoenix(bash: Any, command: str) -> Outcome:
    found = bash({"command": command})
    head, _, rest = found.output.partition("]\n")
    failed = head.startswith("[command failed: exit code ")
    return (rest, "", int(head.rpartition(" ")[2])) if failed else (found.output, "", 0)


CONTRACTS: Final[dict[str, tuple[Any, Callable[[Any, str], Outcome]]]] = {
    "spec": (spec, _spec),
    "langchain": (langchain, _langchain),
    "bashtool": (bashtool, _bashtool),
    "phoenix": (phoenix, _phoenix),
}


def plain(command: str, name: str = "bash", stderr: int = subprocess.PIPE) -> Outcome:
    # env= explicitly: Python's readline sets COLUMNS without os.environ
    # cwd= explicitly: without it Python 3.13 uses posix_spawn, where glibc makes the child ignore signals 32 and 33.
    done = subprocess.run(
        [name, "-c", command],
        executable=shutil.which("bash"),
        cwd=".",
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        check=False,
    )
    return done.stdout.decode(errors="replace"), (done.stderr or b"").decode(errors="replace"), done.returncode


@pytest.fixture(scope="module")
def agents() -> Iterator[Agents]:
    with Agents() as agents, pytest.MonkeyPatch.context() as patch:
        for name, value in (("EDITOR", "/bin/false"), ("VISUAL", "/bin/false")):
            patch.setenv(name, value)  # as document 004 requires
        spec.tool(agents, agent="a1")({"command": ":"})  # starts its bash
        yield agents
