"""``shellsession agent``: a small agent that works on one task with a model of your choice (extra ``langchain``).

Without ``--bash`` the agent has no tool, so the model can run nothing. With it, each command is printed on stderr.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from ..errors import InvalidRequest, ShellSessionError
from . import arguments
from .arguments import escaped, show, talk

EXAMPLES: Final = (
    ("shellsession agent --model openai:gpt-6-sol 'What is a FIFO?'", "without bash: it can run nothing"),
    ("shellsession agent --bash --model anthropic:claude-sonnet-5-5 'Which file here is the largest?'", "with bash"),
    ("shellsession agent --bash --model python:my_models:local 'Fix the tests'", "with a model from my_models.py"),
)
_DESCRIPTION: Final = """\
Give a task to an agent, and print its answer. With --bash it can run any command with your permissions, without a
sandbox; each command has 30 seconds and 1 MB of output. Name the model as LangChain's init_chat_model does
(PROVIDER:NAME, with the provider's package installed and its key in the environment), or as python:MODULE:NAME, a chat
model of LangChain, or a function that makes one, in a module of yours."""
_MODEL: Final = "SHELLSESSION_MODEL"


class AgentFailed(ShellSessionError):
    """The model could not be created, or its SDK raised an error, which is in the message."""

    code = "agent_failed"


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("agent", "[OPTIONS] TASK", _DESCRIPTION, EXAMPLES)
    parser.add_argument("--bash", action="store_true", help="let it run bash commands, at your own risk")
    parser.add_argument("--model", metavar="NAME", help=f"the model (default: ${_MODEL})")
    parser.add_argument("task", metavar="TASK", help="the task, in your words")
    return parser


def main(words: Sequence[str]) -> int:
    parser = own_parser()
    args = parser.parse_args(words)
    if not args.task.strip():
        parser.error("the task is empty: describe what the agent should do")
    name = args.model or os.environ.get(_MODEL)
    if not name:
        parser.error(f"name a model: --model NAME, or ${_MODEL}")
    import asyncio

    from ..integrations import langchain  # raises MissingExtra

    try:
        answer = asyncio.run(_work(langchain, name, args.task, args.bash))
    except (ShellSessionError, BrokenPipeError):
        raise
    except Exception as error:
        raise AgentFailed(f"the agent failed: {type(error).__name__}: {error}") from error
    terminal = sys.stdout.isatty()
    show(*(escaped(line.expandtabs()) if terminal else line for line in answer.split("\n")))
    return 0


async def _work(langchain: Any, name: str, task: str, with_bash: bool) -> str:
    """Run the agent and return its final answer."""
    from langchain.agents import create_agent

    from ..agents import AsyncAgents

    async with AsyncAgents(idle_ttl=None) as agents:
        agent = create_agent(_model(name), [langchain.bash_tool(agents)] if with_bash else [])
        messages: list[Any] = []
        state: Any
        async for state in agent.astream({"messages": [{"role": "user", "content": task}]}, stream_mode="values"):
            for message in state["messages"][len(messages) :]:
                _report(message, with_bash)
            messages = state["messages"]
        return str(messages[-1].text)


def _report(message: Any, with_bash: bool) -> None:
    """Print the commands that the agent runs, and their errors, on stderr."""
    for call in getattr(message, "tool_calls", ()):
        if not with_bash:
            talk(f"the model called the tool {call['name']!r}, which it does not have (see --bash): nothing was run")
            continue
        talk(f"{call['name']}: {call['args'].get('command', call['args'])}")
    if getattr(message, "status", "") == "error":
        talk(f"{message.name}: {str(message.text).partition(chr(10))[0]}")


def _model(name: str) -> Any:
    """The chat model with this name. Raises InvalidRequest if there is none."""
    provider, _, place = name.partition(":")
    if provider != "python":
        from langchain.chat_models import init_chat_model

        try:
            return init_chat_model(name)
        except (ImportError, ValueError) as error:
            raise InvalidRequest(f"no model {name!r}: {error}") from error
    module, _, attribute = place.partition(":")
    sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidRequest(f"no model {name!r}, which is python:MODULE:NAME: {error}") from error
    from langchain_core.language_models import BaseChatModel

    return found if isinstance(found, BaseChatModel) else found()
