"""Models for the programs in docs/integrations, one for each SDK: they run what the question quotes.

A question such as "Run `cd /tmp`, then `pwd`." makes the model call the tool ``bash`` with one command after the other.
Its answer is what the tool said last.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

# What stands in a page for a real model, as a regular expression, and what replaces it there.
SCRIPTED: Final = {
    "langchain": (r'"openai:gpt-6-sol"', "quoting_models.langchain()"),
    "openai": (r'model="gpt-6-sol"', "model=quoting_models.openai()"),
    "pydantic-ai": (r'"openai:gpt-6-sol"', "quoting_models.pydantic_ai()"),
    "strands": (r"\bAgent\(", "Agent(model=quoting_models.strands(), "),
    "inspect": (r'"openai/gpt-6-sol"', "quoting_models.inspect()"),
    "anthropic": (r"((?:Async)?Anthropic)\(\)", r"\1(**quoting_models.anthropic('\1'))"),
}


def next_step(question: str, outputs: Sequence[str]) -> tuple[dict[str, str] | None, str]:
    """The arguments of the next call, or None and the answer."""
    commands = re.findall(r"`([^`]+)`", question)
    if len(outputs) < len(commands):
        return {"command": commands[len(outputs)]}, ""
    return None, outputs[-1] if outputs else "done"


def langchain() -> Any:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Quoting(BaseChatModel):  # type: ignore[misc]
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

        def _generate(self, messages: Any, *_: Any, **__: Any) -> Any:
            outputs = [one.text for one in messages if one.type == "tool"]
            question = next(one.text for one in messages if one.type == "human")
            call, answer = next_step(question, outputs)
            calls = [] if call is None else [{"name": "bash", "args": call, "id": f"call-{len(outputs)}"}]
            return ChatResult(generations=[ChatGeneration(message=AIMessage(answer, tool_calls=calls))])

        @property
        def _llm_type(self) -> str:
            return "quoting"

    return Quoting()


def openai() -> Any:
    from agents import Model, ModelResponse, Usage
    from agents.testing import assistant_message, function_call

    class Quoting(Model):  # type: ignore[misc]
        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
            items = [{"role": "user", "content": input}] if isinstance(input, str) else input
            outputs = [one["output"] for one in items if one.get("type") == "function_call_output"]
            question = next(one["content"] for one in items if one.get("role") == "user")
            call, answer = next_step(question, outputs)
            name = f"call-{len(outputs)}"
            said = assistant_message(answer) if call is None else function_call("bash", json.dumps(call), call_id=name)
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    return Quoting()


def pydantic_ai() -> Any:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def reply(messages: Any, _: Any) -> Any:
        parts = [part for message in messages for part in message.parts]
        outputs = [str(part.content) for part in parts if part.part_kind == "tool-return"]
        question = next(part.content for part in parts if part.part_kind == "user-prompt")
        call, answer = next_step(question, outputs)
        return ModelResponse(parts=[TextPart(answer) if call is None else ToolCallPart("bash", call)])

    return FunctionModel(reply)


def inspect() -> Any:
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    warnings.filterwarnings("ignore", category=DeprecationWarning)  # Inspect's own

    def reply(messages: Any, *_: Any) -> Any:
        outputs = [one.text.removesuffix("\n") for one in messages if one.role == "tool"]
        call, answer = next_step(next(one.text for one in messages if one.role == "user"), outputs)
        name = "mockllm/model"
        made = ModelOutput.from_content(name, answer) if call is None else ModelOutput.for_tool_call(name, "bash", call)
        made.usage = ModelUsage()  # otherwise Inspect loads a tokenizer from the network
        return made

    return get_model("mockllm/model", custom_outputs=reply)


def strands() -> Any:
    from strands.models import Model

    class Quoting(Model):  # type: ignore[misc]
        def update_config(self, **_: Any) -> None:
            """There is nothing to configure."""

        def get_config(self) -> dict[str, Any]:
            return {}

        def structured_output(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
            results = [block["toolResult"] for one in messages for block in one["content"] if "toolResult" in block]
            outputs = [one["content"][0]["text"] for one in results]
            call, answer = next_step(messages[0]["content"][0]["text"], outputs)
            start = {} if call is None else {"toolUse": {"name": "bash", "toolUseId": f"call-{len(outputs)}"}}
            delta = {"text": answer} if call is None else {"toolUse": {"input": json.dumps(call)}}
            yield {"messageStart": {"role": "assistant"}}
            yield {"contentBlockStart": {"start": start}}
            yield {"contentBlockDelta": {"delta": delta}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn" if call is None else "tool_use"}}

    return Quoting()


def anthropic(kind: str) -> dict[str, Any]:
    """The arguments of a client, "Anthropic" or "AsyncAnthropic", that has a model and no network."""
    import anthropic as sdk
    import httpx2 as httpx  # the one that the SDK uses

    # Of this conversation: a request may have only what is new in it.
    questions, outputs = list[str](), dict[str, str]()

    def reply(request: httpx.Request) -> httpx.Response:
        for one in json.loads(request.content)["messages"]:
            results = [] if isinstance(one["content"], str) else one["content"]
            outputs.update({block["tool_use_id"]: block["content"] for block in results if "tool_use_id" in block})
            questions.extend([one["content"]] if isinstance(one["content"], str) else [])
        call, answer = next_step(questions[0], list(outputs.values()))
        block: dict[str, Any] = {"type": "text", "text": answer}
        if call is not None:
            block = {"type": "tool_use", "id": f"call-{len(outputs)}", "name": "bash", "input": call}
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "1", "type": "message", "role": "assistant", "model": "quoting", "stop_sequence": None}
        reason = "end_turn" if call is None else "tool_use"
        return httpx.Response(200, json={**message, "content": [block], "stop_reason": reason, "usage": usage})

    http = sdk.DefaultAsyncHttpxClient if kind == "AsyncAnthropic" else sdk.DefaultHttpxClient
    return {"api_key": "none", "http_client": http(transport=httpx.MockTransport(reply))}
