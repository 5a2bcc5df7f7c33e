"""Shared by the tests of document 004: its tools, and the directory for their output files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shellsession import Agents
from shellsession.contracts import phoenix
from shellsession.contracts.phoenix import ToolResult
from shellsession.contracts.tool import Tool

Bash = Tool[ToolResult]


@pytest.fixture(scope="module", autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Put output files into a directory that pytest removes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("output")))
        yield


@pytest.fixture(scope="module")
def bash() -> Iterator[Bash]:
    with Agents() as agents:
        yield phoenix.tool(agents, agent="a1")


@pytest.fixture(scope="module")
def lasting() -> Iterator[Bash]:
    with Agents() as agents:
        yield phoenix.tool(agents, agent="a1", persistent=True)
