"""Reading the audit log: filters, damaged or very long files, and rotation meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import audits
import pytest
from audits import commands, say

from shellsession.daemon.server.audit import Audit, read

log = audits.log


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "abcdefgh"),
        ({"agent": "even"}, "aceg"),
        ({"agent": "nobody"}, ""),
        ({"last": 0}, ""),
        ({"last": 3}, "fgh"),
        ({"last": 99}, "abcdefgh"),
        ({"agent": "odd", "last": 3}, "dfh"),
    ],
    ids=repr,
)
def test_what_is_read(log: Path, options: dict[str, Any], expected: str) -> None:
    audit = Audit(str(log), max_bytes=400, files=9)
    for number, letter in enumerate("abcdefgh"):
        say(audit, letter, agent="odd" if number % 2 else "even")
    assert len(os.listdir(log.parent)) > 2
    assert "".join(commands(log, **options)) == expected


@pytest.mark.parametrize(
    "damage", [b"", b'{"agent"', b"[]", b"7", b"\xff\xfe", b"\0" * 99, b'"\xff"', b"[" * 99999], ids=range(8)
)
def test_a_damaged_line_is_skipped(log: Path, damage: bytes) -> None:
    log.write_bytes(b'{"command": "one"}\n' + damage + b'\n{"command": "two"}\n' + damage)
    assert commands(log) == ["one", "two"]


def test_there_may_be_no_log(log: Path) -> None:
    assert list(read(str(log))) == []
    assert list(read(str(log.parent / "missing" / "log"))) == []


def test_a_rotation_while_it_is_read_takes_nothing_away(log: Path) -> None:
    audit = Audit(str(log), max_bytes=1, files=3)
    say(audit, *"abc")
    entries = read(str(log))
    assert next(entries)["command"] == "a"
    say(audit, *"defg")
    assert [entry["command"] for entry in entries] == ["b", "c"]


def test_a_rotation_that_is_half_done_hides_nothing_and_shows_nothing_twice(log: Path) -> None:
    say(Audit(str(log), max_bytes=1), *"abc")
    second = log.with_name(log.name + ".2")
    second.rename(log.with_name(log.name + ".3"))
    assert commands(log) == ["a", "b", "c"]
    second.hardlink_to(log.with_name(log.name + ".1"))
    assert commands(log) == ["a", "b", "c"]


def test_the_last_ones_are_all_that_is_held(log: Path) -> None:
    say(Audit(str(log)), *["x" * 1000] * 2000)
    tracemalloc.start()
    try:
        assert len(list(read(str(log), last=3))) == 3
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("library", ["asyncio", "pydantic", "logging"])
def test_it_is_cheap_to_read(library: str) -> None:
    program = f"import sys; from shellsession.daemon.server.audit import read; sys.exit({library!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
