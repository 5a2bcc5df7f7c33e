"""``shellsession agent``: a small agent that works on one task, by a model of your choice (extra ``langchain``).

Law: without ``--bash`` there is no tool, and so nothing that the model could run; with it each command is told on
stderr.
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
    ("shellsession agent --model openai:gpt-5 'What is a FIFO?'", "nothing can be run"),
    ("shellsession agent --bash --model anthropic:claude-sonnet-4-5 'Which file here is the largest?'", "bash can"),
    ("shellsession agent --bash --model python:my_models:local 'Fix the tests'", "a model that my_models.py makes"),
)
_DESCRIPTION: Final = """\
Give a task to an agent, and print its answer. With --bash it may run any command it likes, as you, in no sandbox: 30
seconds and 1 MB of output each. The model is what LangChain's init_chat_model takes (PROVIDER:NAME, with the provider's
package installed and its key in the environment), or python:MODULE:NAME, a chat model of LangChain or a function that
makes one, in a module of yours."""
_MODEL: Final = "SHELLSESSION_MODEL"


class AgentFailed(ShellSessionError):
    """The model could not be made, or gave up: what its own SDK says, in a line."""

    code = "agent_failed"


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("agent", "[OPTIONS] TASK", _DESCRIPTION, EXAMPLES)
    own.add_argument("--bash", action="store_true", help="let it run bash commands: you answer for what they do")
    own.add_argument("--model", metavar="NAME", help=f"which model works (default: ${_MODEL})")
    own.add_argument("task", metavar="TASK", help="what it is to do, in your words")
    return own


def main(words: Sequence[str]) -> int:
    own = own_parser()
    given = own.parse_args(words)
    if not given.task.strip():
        own.error("the task is empty: say what is to be done")
    name = given.model or os.environ.get(_MODEL)
    if not name:
        own.error(f"name a model: --model NAME, or ${_MODEL}")
    import asyncio

    from ..integrations import langchain  # raises MissingExtra

    try:
        answer = asyncio.run(_work(langchain, name, given.task, given.bash))
    except (ShellSessionError, BrokenPipeError):
        raise
    except Exception as error:
        raise AgentFailed(f"the agent gave up: {type(error).__name__}: {error}") from error
    terminal = sys.stdout.isatty()
    show(*(escaped(line.expandtabs()) if terminal else line for line in answer.split("\n")))
    return 0


async def _work(langchain: Any, name: str, task: str, with_bash: bool) -> str:
    """The agent's last words."""
    from langchain.agents import create_agent

    from ..agents import AsyncAgents

    async with AsyncAgents(idle_ttl=None) as agents:
        agent = create_agent(_model(name), [langchain.bash_tool(agents)] if with_bash else [])
        messages: list[Any] = []
        state: Any
        async for state in agent.astream({"messages": [{"role": "user", "content": task}]}, stream_mode="values"):
            for message in state["messages"][len(messages) :]:
                _follow(message, with_bash)
            messages = state["messages"]
        return str(messages[-1].text)


def _follow(message: Any, with_bash: bool) -> None:
    """Say what it runs, and what went wrong there."""
    for call in getattr(message, "tool_calls", ()):
        if not with_bash:
            talk(f"the model asked for the tool {call['name']!r}, which it was not given (see --bash): nothing was run")
            continue
        talk(f"{call['name']}: {call['args'].get('command', call['args'])}")
    if getattr(message, "status", "") == "error":
        talk(f"{message.name}: {str(message.text).partition(chr(10))[0]}")


def _model(name: str) -> Any:
    """The chat model of that name. Raises InvalidRequest for one that does not exist."""
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
