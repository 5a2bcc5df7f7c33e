"""The programs and commands in the pages run as they are, but for the name of a model."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from documents import (
    PAGES,
    SITE,
    TOP,
    Block,
    blocks,
    dialogue,
    looks_like,
    own_daemon,
    prints_as_shown,
    read,
    run_bash,
    run_python,
)
from quoting_models import SCRIPTED

from shellsession.branch.mounts import fault

_TARGETS: Final = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
_HERE: Final = [page for page in PAGES if page != "docs/cluster.md"]  # tests/cluster has a cluster for that


def in_language(language: str) -> pytest.MarkDecorator:
    found = [block for page in _HERE for block in blocks(page, language) if not block.unrun]
    return pytest.mark.parametrize("block", found, ids=str)


@pytest.fixture(scope="module", autouse=True)
def daemon_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_daemon(tmp_path_factory.mktemp("docs")):
        yield


@in_language("python")
def test_a_program_runs(block: Block, tmp_path: Path) -> None:
    if "Sandbox(" in block.text and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed (apt install bubblewrap)")
    if "branch=" in block.text and (reason := fault()):
        pytest.skip(reason)
    done = run_python(_scripted(block), _directory(block, tmp_path))
    assert done.returncode == 0, done.stderr
    assert not done.stderr or block.page.startswith("docs/integrations/")  # an SDK may warn
    assert prints_as_shown(block.text, done.stdout), done.stdout


@in_language("console")
def test_a_command_prints_what_the_page_shows(block: Block, tmp_path: Path) -> None:
    for command, shown in dialogue(block.text):
        done = run_bash(f"exec 2>&1; {command}", _directory(block, tmp_path))
        assert looks_like(done.stdout, shown), done.stdout


@in_language("bash")
def test_a_command_works(block: Block, tmp_path: Path) -> None:
    """A target of make would run this test again: it has to exist. All other commands are run."""
    lines = [line.partition("  #")[0] for line in block.text.splitlines()]
    made = {word for line in lines if line.startswith("make ") for word in line.split()[1:] if "=" not in word}
    assert made <= _TARGETS
    others = "\n".join(line for line in lines if not line.startswith("make "))
    done = run_bash(f"set -e\n{others}", _directory(block, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


def _directory(block: Block, fresh: Path) -> Path:
    """Where a reader would run it: a page for contributors is about the checkout."""
    return fresh if block.page in SITE else TOP


def _scripted(block: Block) -> str:
    """The program of a page, with a model that runs what the question quotes in place of a real one."""
    program, replaced = re.subn(*SCRIPTED.get(Path(block.page).stem, ("$^", "")), block.text)
    place = str(Path(__file__).parent)
    return f"import sys; sys.path.append({place!r}); import quoting_models\n{program}" if replaced else program
