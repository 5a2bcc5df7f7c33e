"""A chat model of LangChain that returns scripted answers and records its input."""

from __future__ import annotations

import json
import os
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field


class Scripted(BaseChatModel):  # type: ignore[misc]
    """Answers with the messages of ``script``, one after the other."""

    script: list[Any]
    asked: list[Any] = Field(default_factory=list)
    tools: list[Any] = Field(default_factory=list)

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        self.tools.append(list(tools))
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> Any:
        self.asked.append(list(messages))
        return ChatResult(generations=[ChatGeneration(message=self.script[len(self.asked) - 1])])

    @property
    def _llm_type(self) -> str:
        return "scripted"


def says(text: str) -> Any:
    return AIMessage(content=text)


def runs(*commands: object) -> Any:
    """Calls the tool, once for each command, or with each of these arguments."""
    calls = [one if isinstance(one, dict) else {"command": one} for one in commands]
    return AIMessage(
        content="",
        tool_calls=[{"name": "bash", "args": call, "id": f"call-{number}"} for number, call in enumerate(calls)],
    )


class Reporting(Scripted):
    """Its last word is what tools it has, and what came of the first one."""

    def _generate(self, messages: Any, *_: Any, **__: Any) -> Any:
        tools = [tool.name for bound in self.tools[-1:] for tool in bound]
        if tools and len(self.asked) < len(self.script):
            return super()._generate(messages)
        report = {"tools": tools, "heard": [str(message.text) for message in messages]}
        return ChatResult(generations=[ChatGeneration(message=says(json.dumps(report)))])


def reporting() -> Scripted:
    """For the command line: its commands stand in the environment, one on each line."""
    return Reporting(script=[runs(line) for line in os.environ["SCRIPT"].splitlines()])


def failing() -> Scripted:
    raise RuntimeError("no key")
