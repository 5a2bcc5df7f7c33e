"""The README's line of code for each SDK makes an agent whose tools are the seven of the toolbox."""

from __future__ import annotations

from typing import Any, Final

import pytest
from documents import cells, read
from pydantic_ai.models.test import TestModel
from scripted_langchain import Scripted as LangChainModel, says
from scripted_strands import Scripted as StrandsModel

from shellsession import Session
from shellsession.integrations.toolbox import Toolbox

_ROWS: Final = [cells(line) for line in read("README.md").splitlines() if line.startswith("| [`")]
_CODE: Final = {row[0].split("`")[1]: row[2].strip("`") for row in _ROWS}
_IMPORTS: Final = {
    "langchain": "from langchain.agents import create_agent; from shellsession.integrations import langchain",
    "openai": "from agents import Agent; from shellsession.integrations import openai",
    "pydantic-ai": "from pydantic_ai import Agent; from shellsession.integrations import pydantic_ai",
    "strands": "from strands import Agent; from shellsession.integrations import strands",
    "anthropic": "from shellsession.integrations import anthropic",
    "inspect": "from inspect_ai import Task",
}
_ELSEWHERE: Final = {"mcp", "swe-rex", "ray"}  # a command line, and what the tests of those pages make


class _Client:
    """Stands for ``Anthropic()``, which would ask for a key."""

    def __init__(self) -> None:
        self.beta = self.messages = self
        self.tools: list[Any] = []

    def tool_runner(self, *, tools: list[Any], **_: Any) -> list[Any]:
        self.tools = tools
        return tools


def _model(extra: str) -> Any:
    if extra == "langchain":
        return LangChainModel(script=[says("done")])
    return StrandsModel("done") if extra == "strands" else TestModel()


@pytest.mark.parametrize("extra", _IMPORTS)
def test_a_line_of_the_table_makes_an_agent(extra: str) -> None:
    client = _Client()
    with Session() as session:
        names: dict[str, Any] = {"sh": session, "model": _model(extra), "client": client}
        exec(_IMPORTS[extra], names)
        assert eval(_CODE[extra].replace(", ...", ""), names) is not None
    if extra == "anthropic":
        assert [tool.name for tool in client.tools] == list(Toolbox.VERBS)


def test_the_table_names_each_extra_that_is_tested() -> None:
    assert set(_CODE) == {*_IMPORTS, *_ELSEWHERE}
