"""What commands wait for: a corpus of hangs, each run for real. `make soak` runs all of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hangs import HANGS, peers
from samples import sample
from system import PATIENCE

from shellsession import TTY, Session
from shellsession.text import reason_of


@pytest.fixture
def fields(tmp_path: Path) -> Iterator[dict[str, object]]:
    with peers(tmp_path) as found:
        yield found


@pytest.mark.parametrize("name", sample(HANGS, 8))
def test_hang_is_named_by_why_and_by_its_result(name: str, fields: dict[str, Any]) -> None:
    hang = HANGS[name]
    command = hang.command.format(**fields)
    if (program := command.split()[0]) in ("node", "psql", "ssh", "sqlite3", "curl") and not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    with Session(stdin=TTY if hang.asks else None) as sh:
        sh.run("true")
        result, until = (
            sh.run(command, timeout=0.3, on_timeout="yield", env={"TERM": "xterm"}),
            time.monotonic() + PATIENCE,
        )
        while True:  # a program takes a while to get where it hangs
            why = sh.why()
            right = why.kind in hang.kinds.split() and hang.words.format(**fields) in str(why)
            if right or time.monotonic() > until:
                break
        result = sh.poll()
        assert (right, str(why)) == (True, str(why))
        assert reason_of(result)[1] == str(why)
        sh.interrupt()
