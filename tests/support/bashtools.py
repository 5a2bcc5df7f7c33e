"""Shared by the tests of document 003: its tool, and what it returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shellsession import Agents
from shellsession.contracts import bashtool
from shellsession.contracts.tool import Tool

Bash = Tool[bashtool.BashToolPayload]


@pytest.fixture(scope="module")
def agents() -> Iterator[Agents]:
    with Agents() as agents:
        yield agents


@pytest.fixture(scope="module")
def bash(agents: Agents) -> Bash:
    return bashtool.tool(agents, agent="a1")


def told(text: str, exit_code: int = 0) -> dict[str, Any]:
    details = {"exit_code": exit_code, "success": exit_code == 0}
    return {"content": [{"type": "text", "text": text}], "details": details}


def text_of(payload: bashtool.BashToolPayload) -> str:
    return payload["content"][0]["text"]
