"""A model for the OpenAI Agents SDK."""

import json

from agents import Model
from agents.testing import ScriptedModel, assistant_message, function_call

from . import model_name


def choose_model(commands: list[str], answer: str) -> str | Model:
    """A model that runs the commands and then answers, or the one that ``--model`` names.

    The SDK has the models of OpenAI itself, and those of other providers through its extra ``litellm``.
    """
    if (name := model_name()) is not None:
        provider, _, model = name.partition(":")
        return model if provider == "openai" else f"litellm/{provider}/{model}"
    calls = [
        [function_call("bash", json.dumps({"command": command}), call_id=f"call-{number}")]
        for number, command in enumerate(commands)
    ]
    return ScriptedModel([*calls, [assistant_message(answer)]])
