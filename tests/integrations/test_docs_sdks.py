"""The programs and commands in the pages of docs/integrations run as they are, but for the name of the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import TOP, Block, blocks, dialogue, looks_like, own_daemon, prints_as_shown, run_bash, run_python
from quoting_models import SCRIPTED

_PAGES = [str(path.relative_to(TOP)) for path in sorted((TOP / "docs" / "integrations").glob("*.md"))]
_BLOCKS = [block for page in _PAGES for block in blocks(page, "python", "bash", "console") if not block.unrun]


@pytest.fixture(scope="module", autouse=True)
def daemon_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_daemon(tmp_path_factory.mktemp("docs")):
        yield


@pytest.mark.parametrize("block", _BLOCKS, ids=str)
def test_a_block_runs(block: Block, tmp_path: Path) -> None:
    if block.language == "console":
        for command, shown in dialogue(block.text):
            said = run_bash(f"exec 2>&1; {command}", tmp_path).stdout
            assert looks_like(said, shown), said
        return
    done = run_python(_scripted(block), tmp_path) if block.language == "python" else run_bash(block.text, tmp_path)
    assert done.returncode == 0, done.stderr  # an SDK may warn
    assert prints_as_shown(block.text, done.stdout), done.stdout


def _scripted(block: Block) -> str:
    """The program of a page, with a model that runs what the question quotes in place of a real one."""
    program, replaced = re.subn(*SCRIPTED.get(Path(block.page).stem, ("$^", "")), block.text)
    place = str(Path(__file__).parent)
    return f"import sys; sys.path.append({place!r}); import quoting_models\n{program}" if replaced else program
