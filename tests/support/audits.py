"""Shared by the tests of the audit log: a log, ways to write and read it, and another process that uses it."""

from __future__ import annotations

import stat
import time
from pathlib import Path
from typing import Any

import pytest

from shellsession import Result
from shellsession.daemon.server.audit import Audit, Entry, read
from shellsession.policy.secrets import Secrets

NOTHING = Secrets({})
DONE = Result(b"", b"", 0, None, "/", 0.5, "exited")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def say(audit: Audit, *commands: str, agent: str = "a", secrets: Secrets = NOTHING) -> None:
    for command in commands:
        audit.record([Entry(agent, command.encode(), secrets, DONE, time.time())])


def commands(log: Path, **options: Any) -> list[str]:
    return [entry["command"] for entry in read(str(log), **options)]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
