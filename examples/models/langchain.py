"""A model for LangChain and LangGraph."""

from typing import Any

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall

from . import model_name


class ScriptedModel(GenericFakeChatModel):
    """Replies with its messages, one after the other, whatever tools it has."""

    def bind_tools(self, tools: Any, **_: Any) -> BaseChatModel:
        return self


def choose_model(commands: list[str], answer: str) -> BaseChatModel:
    """A model that runs the commands and then answers, or the one that ``--model`` names."""
    if (name := model_name()) is not None:
        return init_chat_model(name)
    calls = [
        AIMessage("", tool_calls=[ToolCall(name="bash", args={"command": command}, id=f"call-{number}")])
        for number, command in enumerate(commands)
    ]
    return ScriptedModel(messages=iter([*calls, AIMessage(answer)]))
