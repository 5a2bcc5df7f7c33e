"""The programs of the page about a cluster, and of its example, run as they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from clusters import LONG
from documents import Block, blocks, prints_as_shown, run_python
from example_programs import EXAMPLES, Example

pytestmark = pytest.mark.timeout(2 * LONG)


@pytest.mark.parametrize("block", blocks("docs/cluster.md", "python"), ids=str)
def test_a_program_runs(block: Block, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    done = run_python(block.text, tmp_path, LONG)
    assert done.returncode == 0, done.stderr  # Ray writes there, too
    assert prints_as_shown(block.text, done.stdout), done.stdout


@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.needs_cluster], ids=str)
def test_an_example_survives_the_loss_of_a_node(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    done = example.run(limit=LONG)  # it starts a cluster
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.endswith(", 2 tries left") for line in lines), done.stdout
    assert example.prints in lines, done.stdout
