"""Shared by the tests of document 001: an agent, its tool, and calls of that tool."""

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
    """The owner of a session: any object will do."""


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
    """The output of a command, whose stderr must be empty."""
    found = execute(bash, command)
    assert found["error"] == ""
    return str(found["output"])
