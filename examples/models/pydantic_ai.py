"""A model for Pydantic AI."""

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel

from . import model_name


def choose_model(commands: list[str], answer: str) -> str | Model:
    """A model that runs the commands and then answers, or the one that ``--model`` names."""
    if (name := model_name()) is not None:
        return name
    script = iter([*(ToolCallPart("bash", {"command": command}) for command in commands), TextPart(answer)])

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[next(script)])

    return FunctionModel(reply)
