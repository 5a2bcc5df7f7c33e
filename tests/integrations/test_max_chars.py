"""No adapter hands a model more than ``max_chars`` characters, whatever the document of its tool allows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from scripted_strands import Scripted
from strands import Agent
from system import LIMITS, PATIENCE

from shellsession import Agents, InvalidRequest
from shellsession.contracts import bashtool, langchain, phoenix, spec, strands
from shellsession.integrations.capped import capped
from shellsession.integrations.langchain import bash_tool, structured_tool
from shellsession.integrations.strands import make_bash
from shellsession.text import MAX_CHARS


@pytest.fixture
def agents() -> Iterator[Agents]:
    with Agents() as agents:
        yield agents


def shown(tool: Any, command: str, **arguments: Any) -> str:
    content = tool.invoke({"type": "tool_call", "id": "1", "name": "bash", "args": {"command": command, **arguments}})
    return str(content.content)


@pytest.mark.parametrize("end", ["", "; false", "; exit 3"])
@pytest.mark.parametrize("contract", [spec, langchain, bashtool, phoenix, strands], ids=lambda one: one.__name__)
def test_langchain_gets_no_more_from_any_contract(agents: Agents, contract: Any, end: str) -> None:
    arguments: dict[str, Any] = {"mode": "execute"} if contract is strands else {}
    command = f"seq 100000; seq 20000 >&2{end}"
    for most in (MAX_CHARS, 500):
        text = shown(structured_tool(contract.tool(agents, agent="a"), most), command, **arguments)
        assert most / 4 < len(text) <= most
        assert " omitted ...]" in text or "[snip]" in text  # a document's own mark


def test_the_default_tool_takes_the_option() -> None:
    assert len(shown(bash_tool(max_chars=700), "seq 10000")) <= 700
    with pytest.raises(InvalidRequest, match="max_chars"):
        bash_tool(max_chars=0)


@pytest.mark.parametrize("end", ["", "; exit 3", "; sleep 1000"])
def test_strands_gets_no_more(end: str) -> None:
    for limit in LIMITS if "sleep" in end else [PATIENCE]:
        call = {"mode": "execute", "command": f"seq 100000; seq 20000 >&2{end}", "timeout": limit}
        agent = Agent(model=Scripted(call, "done"), tools=[make_bash(max_chars=900)], callback_handler=None)
        agent("go")
        ((text, _),) = agent.model.heard
        if " omitted ...]" in text:
            break
    assert 300 < len(text) <= 1000  # the SDK adds the name of an error
    assert " omitted ...]" in text


def test_what_is_no_text_stays() -> None:
    payload = {"stdout": "a\n" * 5000, "stderr": "", "exitCode": 3}
    cut = capped(payload, 1000)
    assert len(json.dumps(cut)) <= 1000
    assert (cut["exitCode"], cut["stderr"]) == (3, "")
    assert capped(payload, 100_000) == payload
    assert capped(None, 10) is None
