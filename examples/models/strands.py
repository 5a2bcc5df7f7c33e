"""A model for Strands Agents."""

import json
from collections.abc import AsyncIterator
from typing import Any

from strands.models import Model

from . import model_name


class ScriptedModel(Model):
    """Replies with one command after the other, and at last with the answer."""

    def __init__(self, commands: list[str], answer: str) -> None:
        self._commands, self._answer = iter(commands), answer

    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        command = next(self._commands, None)
        start: dict[str, Any] = {}
        delta: dict[str, Any] = {"text": self._answer}
        if command is not None:
            start = {"toolUse": {"name": "bash", "toolUseId": command}}
            delta = {"toolUse": {"input": json.dumps({"command": command})}}
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": start}}
        yield {"contentBlockDelta": {"delta": delta}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if command is not None else "end_turn"}}

    def update_config(self, **_: Any) -> None:
        """There is nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def choose_model(commands: list[str], answer: str) -> Model:
    """A model that runs the commands and then answers, or the one that ``--model`` names, through LiteLLM."""
    if (name := model_name()) is not None:
        from strands.models.litellm import LiteLLMModel

        return LiteLLMModel(model_id=name.replace(":", "/", 1))
    return ScriptedModel(commands, answer)
