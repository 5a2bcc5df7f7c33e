"""LangChain 1.x: a ``StructuredTool`` for ``create_agent(model, tools=[...])``, from any bound contract tool.

Law: a contract's error reaches the model, as a tool message with status "error", and the agent goes on.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from ..agents import Agents, AsyncAgents
from ..contracts import langchain
from ..contracts.phoenix import ToolResult
from ..contracts.tool import AsyncTool, Tool
from ..errors import ShellSessionError
from .extras import missing
from .threads import call_in_thread

try:
    from langchain_core.tools import StructuredTool, ToolException
except ImportError as error:
    raise missing("langchain", error) from error

_OWNER: Final = "langchain"


def bash_tool(where: Agents | AsyncAgents | None = None, agent: object = _OWNER, **settings: Any) -> StructuredTool:
    """The tool of document 002, ready for an agent.

    ``where``: the agents in whose sessions it runs (default: some of its own, for this one tool, which go with it), and
    ``agent``: which of them. ``settings`` are the contract's: ``persistent=True`` keeps one bash for all. The calls of
    one message are run in their order where the agent is awaited (``ainvoke``); with ``invoke`` LangChain begins all at
    once, each in a thread, and any of them may be first: await it, or have the model make one call at a time.
    Put it among an agent's tools only where bash was asked for: it runs whatever the model says, as you.
    """
    return structured_tool(langchain.tool(where if where is not None else Agents(idle_ttl=None), agent, **settings))


class _Whole(StructuredTool):
    """Gives its functions the arguments as they came. Each on its own would meet LangChain's names: what a model calls
    ``config`` is dropped otherwise, and ``self`` is a TypeError that ends the agent."""

    def _to_args_and_kwargs(self, tool_input: Any, tool_call_id: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (tool_input,), {}


def structured_tool(bound: Tool[Any] | AsyncTool[Any]) -> StructuredTool:
    """A LangChain tool that calls ``bound``, a contract's tool over sessions, for threads and for asyncio.

    Over an asyncio session (``AsyncAgents``, ``AsyncSession``) it can only be awaited. The arguments are checked by the
    contract, whose error tells the model what is wrong with them. A task that is cancelled ends its command.
    """

    def call(arguments: object) -> Any:
        try:
            return _content(bound(arguments))
        except ShellSessionError as error:
            raise ToolException(str(error)) from error
        finally:
            _tell(tool, bound)

    async def acall(arguments: object) -> Any:
        try:
            answer = bound(arguments) if isinstance(bound, AsyncTool) else call_in_thread(bound, arguments)
            return _content(await answer)
        except ShellSessionError as error:
            raise ToolException(str(error)) from error
        finally:
            _tell(tool, bound)

    tool = _Whole(
        name=bound.name,
        description=bound.description,
        args_schema=bound.definition["input_schema"],
        func=call if isinstance(bound, Tool) else None,
        coroutine=acall,
        handle_tool_error=True,
    )
    return tool


def _content(payload: Any) -> Any:
    """What the model is told. Raises ToolException for a payload that is an error."""
    if isinstance(payload, dict) and list(payload) == ["error"]:  # spec's, where nothing came of the call
        raise ToolException(payload["error"])
    if not isinstance(payload, ToolResult):
        return payload
    if payload.is_error:
        raise ToolException(payload.output)
    return payload.output


def _tell(tool: StructuredTool, bound: Tool[Any] | AsyncTool[Any]) -> None:
    """A description may name the working directory: the model is told where it is now."""
    with suppress(ShellSessionError):  # the session is gone, which the call has told
        tool.description = bound.description
