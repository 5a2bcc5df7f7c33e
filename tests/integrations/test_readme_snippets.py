"""The README's snippets for each SDK make an agent whose tools are the seven of the toolbox."""

from __future__ import annotations

from typing import Any

import pytest
from documents import blocks
from pydantic_ai.models.test import TestModel
from scripted_langchain import Scripted as LangChainModel, says
from scripted_strands import Scripted as StrandsModel

from shellsession import Session
from shellsession.integrations.toolbox import Toolbox

_SNIPPETS = blocks("README.md", "python")[1:]


def _models(snippet: str) -> Any:
    if "langchain" in snippet:
        return LangChainModel(script=[says("done")])
    return TestModel() if "pydantic_ai" in snippet else StrandsModel("done")


class _Client:
    """Stands for ``Anthropic()``, which would ask for a key."""

    def __init__(self) -> None:
        self.beta = self.messages = self
        self.tools: list[Any] = []

    def tool_runner(self, *, tools: list[Any], **_: Any) -> None:
        self.tools = tools


@pytest.mark.parametrize("snippet", _SNIPPETS, ids=str)
def test_a_snippet_works(snippet: Any) -> None:
    with Session() as session:
        names: dict[str, Any] = {"sh": session, "model": _models(snippet.text), "client": _Client()}
        exec(snippet.text, names)
        if "anthropic" in snippet.text:
            assert [tool.name for tool in names["client"].tools] == list(Toolbox.VERBS)
        else:
            assert names["agent"] is not None


def test_there_is_one_for_each_sdk() -> None:
    found = {
        sdk
        for sdk in ("langchain", "openai", "pydantic_ai", "strands", "anthropic")
        for one in _SNIPPETS
        if f"{sdk}." in one.text
    }
    assert len(found) == len(_SNIPPETS) == 5
