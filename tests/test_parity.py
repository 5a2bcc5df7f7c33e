"""Every requirement of the five documents has an id, and a test that exists or a reason why it cannot apply."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Final

import shellsession

_TABLES: Final = Path(shellsession.__file__).parent / "contracts" / "parity"
_ROW: Final = re.compile(r"^\| (\d{3}-[a-z0-9-]+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_ROWS: Final = [row for table in sorted(_TABLES.glob("0*.md")) for row in _ROW.findall(table.read_text())]


def test_ids_are_unique() -> None:
    ids = [row[0] for row in _ROWS]
    assert len(ids) == len(set(ids)) > 0


def test_every_line_of_the_tables_is_read() -> None:
    lines = [line for table in _TABLES.glob("0*.md") for line in table.read_text().splitlines()]
    assert sum(line.startswith("| 0") for line in lines) == len(_ROWS)


def test_the_proof_of_each_row_exists() -> None:
    for number, _, proof in _ROWS:
        if proof.startswith("not applicable: "):
            continue
        proofs = re.findall(r"`((?:integrations/)?test_\w+\.py)::(\w+)`", proof)
        assert proofs, f"{number}: name a test as `test_file.py::test_name`, or say `not applicable: ` and why"
        missing = [f"{file}::{name}" for file, name in proofs if name not in functions(file)]
        assert missing == [], number


@functools.cache
def functions(file: str) -> set[str]:
    """The functions of a file of tests, by name."""
    tree = ast.parse(next(Path(__file__).parent.rglob(file)).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
