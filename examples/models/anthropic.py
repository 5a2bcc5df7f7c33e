"""A client for the Anthropic SDK, with the name of its model."""

from typing import Any

from anthropic import Anthropic, DefaultHttpxClient
from httpx import MockTransport, Response

from . import model_name


def choose_client(commands: list[str], answer: str) -> tuple[Anthropic, str]:
    """A client that runs the commands and then answers without a network; or a real one, with ``--model``."""
    if (name := model_name()) is not None:
        return Anthropic(), name.removeprefix("anthropic:")
    script = iter([*map(_tool_use, commands), _text(answer)])
    transport = MockTransport(lambda request: next(script))
    return Anthropic(api_key="none", http_client=DefaultHttpxClient(transport=transport)), "scripted"


def _tool_use(command: str) -> Response:
    return _message("tool_use", {"type": "tool_use", "id": command, "name": "bash", "input": {"command": command}})


def _text(answer: str) -> Response:
    return _message("end_turn", {"type": "text", "text": answer})


def _message(stop_reason: str, block: dict[str, Any]) -> Response:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "1", "type": "message", "role": "assistant", "model": "scripted", "stop_sequence": None}
    return Response(200, json={**message, "content": [block], "stop_reason": stop_reason, "usage": usage})
