"""A client of an agent that only this test uses, and the commands that it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from system import PATIENCE

from shellsession import RemoteSession


@pytest.fixture
def sh(remote: RemoteSession) -> RemoteSession:
    return remote


def begin(place: Path) -> str:
    return "echo one; echo >begun; until [ -e open ]; do sleep 0.05; done; echo two; echo >done"


def hand_back(session: RemoteSession, command: str | bytes, printed: str = "", **options: Any) -> str:
    """Have a command handed back that runs on, and wait until it has printed this. Returns all that it has printed."""
    result = session.run(command, timeout=0.05, on_timeout="yield", **options)
    assert result.still_running
    return result.stdout + session.wait(PATIENCE, until=printed).stdout if printed else result.stdout
