"""What the tests of document 001 share: an agent, its tool, and what is run with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shellsession import Agents
from shellsession.contracts import strands
from shellsession.contracts.tool import Tool

Bash = Tool[strands.Payload]
NOTHING = {"output": "", "error": ""}


class Agent:
    """What holds a session: any object will do."""


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
def bash(agents: Agents, agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bash:
    monkeypatch.chdir(tmp_path)
    return strands.tool(agents, agent=agent)


def execute(bash: Bash, command: str, **fields: object) -> Any:
    return bash({"mode": "execute", "command": command, **fields})


def output(bash: Bash, command: str) -> str:
    """What a command prints that has nothing to complain of."""
    found = execute(bash, command)
    assert found["error"] == ""
    return str(found["output"])
