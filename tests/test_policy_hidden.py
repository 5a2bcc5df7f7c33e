"""What runs where the grammar alone does not see it is found: bash itself says that it runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
from bashes import VERSION
from policies import verdict
from policy_hidden import DOUBTED, HIDDEN, RUNS_IN_BASH, SEEN, SINCE, UNKNOWN

from shellsession.policy.rules import Policy

_MARKER: Final = '#!/bin/sh\necho ran >> "$MARKED"\n'


@pytest.mark.parametrize("text", [*RUNS_IN_BASH, *HIDDEN])
def test_it_is_found(text: str) -> None:
    assert verdict(Policy(deny_commands=["rm"]), text) == "'rm' is denied"


@pytest.mark.parametrize("text", [*RUNS_IN_BASH, *DOUBTED])
def test_bash_runs_it(text: str, tmp_path: Path) -> None:
    assert _runs(text, tmp_path) is (SINCE.get(text, VERSION) <= VERSION)


@pytest.mark.parametrize("text", DOUBTED)
def test_it_is_doubted(text: str) -> None:
    assert verdict(Policy(strict=True), text).startswith("it cannot be read as bash")


@pytest.mark.parametrize("text", UNKNOWN)
def test_it_is_unknown(text: str) -> None:
    assert verdict(Policy(strict=True), text).startswith("it does not say ")


@pytest.mark.parametrize("text", ["git pus?", "git p* origin", "git -C x [p]ush", "git @(push|pull)"])
def test_a_subcommand_that_is_a_pattern_may_be_any(text: str) -> None:
    assert verdict(Policy(deny_commands=["git push"], strict=True), text) == "'git push' is denied"
    assert verdict(Policy(allow=["git status", "git p*"]), text)


@pytest.mark.parametrize("text", SEEN)
def test_what_runs_nothing_more_is_allowed(text: str, tmp_path: Path) -> None:
    assert not _runs(text, tmp_path)
    assert verdict(Policy(deny_commands=["rm"], strict=True), text) == ""


def _runs(text: str, directory: Path) -> bool:
    """Does bash run rm in this text?"""
    programs, marked = directory / "programs", directory / "marked"
    programs.mkdir()
    (programs / "rm").write_text(_MARKER)
    (programs / "rm").chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "MARKED": str(marked), "LC_ALL": "C.UTF-8"}
    # all that it runs has its standard error: this ends when the last one does
    subprocess.run(
        ["bash", "-c", text + "\nwait"],
        cwd=programs,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=20,
    )
    return marked.exists()
