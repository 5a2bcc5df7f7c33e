"""LangChain 1.x: a session's verbs, or any tool of a contract, as tools for ``create_agent(model, tools=...)``.

An error reaches the model as a tool message with status "error", and the agent goes on. The key of a call is made from
the thread, the task of the graph, the model's message, and the id of the call.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Final, Unpack

from ..agents import Agents, AsyncAgents
from ..contracts import langchain
from ..contracts.phoenix import ToolResult
from ..contracts.tool import AsyncTool, Tool
from ..errors import ShellSessionError
from ..extras import missing
from ..paging import check_chars
from ..text import MAX_CHARS
from .binding import run_to_end
from .call_key import call_key
from .capped import capped
from .threads import call_in_thread
from .toolbox import Toolbox, ToolOptions

try:
    from langchain_core.messages import AIMessage
    from langchain_core.tools import InjectedToolArg, StructuredTool, ToolException
except ImportError as error:
    raise missing("langchain", error) from error

_OWNER: Final = "langchain"
# The type of a parameter named ``runtime``: LangGraph's ``ToolNode`` fills it in, and no model or trace sees it.
_Runtime = Annotated[Any, InjectedToolArg]


def tools(where: Any, agent: object = None, **options: Unpack[ToolOptions]) -> list[StructuredTool]:
    """The tools of ``Toolbox.VERBS``: ``create_agent(model, tools=tools(session))``.

    ``where``: a session of any kind, or ``Agents`` with the name of the ``agent``. ``options``: see ``Toolbox``. A
    session belongs to one agent; its calls run one after the other, for ``invoke`` in any order. Raises InvalidRequest.
    """
    toolbox = Toolbox(where, agent, **options)
    return [_verb_tool(toolbox, verb) for verb in toolbox.verbs]


def _verb_tool(toolbox: Toolbox, verb: str) -> StructuredTool:
    async def acall(arguments: object, runtime: _Runtime = None) -> str:
        try:
            return await toolbox.call(verb, arguments, _key(runtime))
        except ShellSessionError as error:
            raise ToolException(str(error)) from error

    def call(arguments: object, runtime: _Runtime = None) -> str:
        return run_to_end(acall(arguments, runtime))

    definition = Toolbox.definition(verb)
    return _VerbTool(
        name=verb,
        description=definition["description"],
        args_schema=definition["input_schema"],
        func=call,
        coroutine=acall,
        handle_tool_error=True,
    )


def _key(runtime: Any) -> str | None:
    """The key of a call, from the ``ToolRuntime`` that a graph's ``ToolNode`` passes; None outside a thread.

    ``checkpoint_ns`` ends in the id of the task. A resumed thread repeats its task with the same id. Time travel makes
    another checkpoint, and so another task: its command is to run again.
    """
    if runtime is None:
        return None
    place, state = runtime.config.get("configurable", {}), runtime.state
    messages = state.get("messages", ()) if isinstance(state, dict) else getattr(state, "messages", state)
    message = next((one for one in reversed(messages) if isinstance(one, AIMessage)), None)
    parts = (place.get("thread_id"), place.get("checkpoint_ns"), message and message.id, runtime.tool_call_id)
    return call_key("langgraph", *parts)


def bash_tool(
    where: Agents | AsyncAgents | None = None, agent: object = _OWNER, *, max_chars: int = MAX_CHARS, **settings: Any
) -> StructuredTool:
    """The tool of document 002 as a LangChain tool.

    ``where``, ``agent``: the Agents, and the agent in it, whose session runs the calls. The default is a new Agents for
    this tool alone. ``max_chars``: as in ``structured_tool``. ``settings`` are the contract's: ``persistent=True``
    keeps one bash for all calls.
    With ``ainvoke``, the calls of one message run in their order. With ``invoke``, LangChain starts them all at once in
    threads, in any order; let the model make one call at a time there.
    Give an agent this tool only if its user asked for bash: it runs whatever the model writes, with your permissions.
    """
    bound = langchain.tool(where if where is not None else Agents(idle_ttl=None), agent, **settings)
    return structured_tool(bound, max_chars)


class _WholeInputTool(StructuredTool):
    """A tool that passes its function all arguments as one mapping.

    As keyword arguments they would clash with LangChain's own: it drops ``config``, and ``self`` raises a TypeError
    that ends the agent.
    """

    def _to_args_and_kwargs(self, tool_input: Any, tool_call_id: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (tool_input,), {}


class _VerbTool(_WholeInputTool):
    """A tool of a toolbox, which takes the runtime out of the arguments to which ``ToolNode`` has added it."""

    def _to_args_and_kwargs(self, tool_input: Any, tool_call_id: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        runtime = tool_input.get("runtime") if isinstance(tool_input, dict) else None
        if not hasattr(runtime, "tool_call_id"):  # there is none, or a model has made it up
            return (tool_input,), {}
        return ({name: value for name, value in tool_input.items() if name != "runtime"},), {"runtime": runtime}


def structured_tool(bound: Tool[Any] | AsyncTool[Any], max_chars: int = MAX_CHARS) -> StructuredTool:
    """A LangChain tool that calls ``bound``, the tool of a contract, from threads and from asyncio.

    Over an asyncio session (``AsyncAgents``, ``AsyncSession``) it can only be awaited. The contract checks the
    arguments; its error tells the model what is wrong. Cancelling the task ends the command. ``max_chars``: characters
    that the model gets of a call. Raises InvalidRequest.
    """
    check_chars(max_chars)

    def call(arguments: object) -> Any:
        try:
            return _content(bound(arguments), max_chars)
        except ShellSessionError as error:
            raise ToolException(capped(str(error), max_chars)) from error
        finally:
            _update_description(tool, bound)

    async def acall(arguments: object) -> Any:
        try:
            answer = bound(arguments) if isinstance(bound, AsyncTool) else call_in_thread(bound, arguments)
            return _content(await answer, max_chars)
        except ShellSessionError as error:
            raise ToolException(capped(str(error), max_chars)) from error
        finally:
            _update_description(tool, bound)

    tool = _WholeInputTool(
        name=bound.name,
        description=bound.description,
        args_schema=bound.definition["input_schema"],
        func=call if isinstance(bound, Tool) else None,
        coroutine=acall,
        handle_tool_error=True,
    )
    return tool


def _content(payload: Any, max_chars: int) -> Any:
    """The content of the tool message. Raises ToolException for a payload that is an error."""
    if isinstance(payload, dict) and list(payload) == ["error"]:  # the spec contract's, if the command did not run
        raise ToolException(capped(payload["error"], max_chars))
    if not isinstance(payload, ToolResult):
        return capped(payload, max_chars)
    if payload.is_error:
        raise ToolException(capped(payload.output, max_chars))
    return capped(payload.output, max_chars)


def _update_description(tool: StructuredTool, bound: Tool[Any] | AsyncTool[Any]) -> None:
    """Refresh the description, which may name the working directory."""
    with suppress(ShellSessionError):  # the session is gone; the call has reported that
        tool.description = bound.description
