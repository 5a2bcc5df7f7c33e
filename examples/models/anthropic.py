"""A client for the Anthropic SDK, with the name of its model."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

from anthropic import Anthropic, DefaultHttpxClient

from . import model_name


def choose_client(commands: list[str], answer: str) -> tuple[Anthropic, str]:
    """A client whose model runs the commands and then answers; or a real one, with ``--model``."""
    if (name := model_name()) is not None:
        return Anthropic(), name.removeprefix("anthropic:")
    url = _serve([*(_tool_use(command) for command in commands), _text(answer)])
    return Anthropic(api_key="none", base_url=url, http_client=DefaultHttpxClient(trust_env=False)), "scripted"


def _serve(messages: list[dict[str, Any]]) -> str:
    """Answer each request on a local port with the next message. Returns the URL."""
    script = iter(messages)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = json.dumps(next(script)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Stay quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def _tool_use(command: str) -> dict[str, Any]:
    return _message("tool_use", {"type": "tool_use", "id": command, "name": "bash", "input": {"command": command}})


def _text(answer: str) -> dict[str, Any]:
    return _message("end_turn", {"type": "text", "text": answer})


def _message(stop_reason: str, block: dict[str, Any]) -> dict[str, Any]:
    message = {"id": "1", "type": "message", "role": "assistant", "model": "scripted", "stop_sequence": None}
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {**message, "content": [block], "stop_reason": stop_reason, "usage": usage}
