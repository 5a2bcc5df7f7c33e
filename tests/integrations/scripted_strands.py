"""A model provider for Strands Agents that returns scripted answers and records its input."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from typing import Any

from strands.models import Model

Said = str | dict[str, Any] | list[dict[str, Any]]


class Scripted(Model):  # type: ignore[misc]
    """Answers with ``script``: a text, or the arguments of a call of the tool ``bash``, or of several in one message;
    one after the other."""

    def __init__(self, *script: Said) -> None:
        self.script = list(script)
        self.asked: list[Any] = []
        self.tools: list[Any] = []

    def update_config(self, **_: Any) -> None:
        """It has none."""

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, tool_specs: Any = None, *_: Any, **__: Any) -> AsyncIterator[Any]:
        said = self.script[len(self.asked)]
        self.asked.append(copy.deepcopy(messages))
        self.tools.append(tool_specs)
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(said, str):
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": said}}}
            yield {"contentBlockStop": {}}
        for number, call in enumerate([said] if isinstance(said, dict) else [] if isinstance(said, str) else said):
            use = {"name": "bash", "toolUseId": f"call-{len(self.asked)}-{number}"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(call)}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(said, str) else "tool_use"}}

    @property
    def heard(self) -> list[tuple[str, str]]:
        """The tool results that it was told: their text, and their status."""
        blocks = [
            block["toolResult"] for message in self.asked[-1] for block in message["content"] if "toolResult" in block
        ]
        return [("".join(part["text"] for part in one["content"]), one["status"]) for one in blocks]
