"""Strands Agents: a session's verbs (``tools``), or the tool of document 001 (``bash``), for ``Agent(tools=...)``.

With ``bash``, each agent has one session, made at its first command. Only a weak reference to the agent is kept: when
the agent is collected, its session is closed. The key of a call of ``tools`` is made from the agent's id, the
``tracking_id`` of the message, and the id of the call.
"""

from __future__ import annotations

from typing import Any, Unpack

from ..agents import Agents
from ..contracts import strands
from ..contracts.contract import definition
from ..extras import missing
from ..text import MAX_CHARS
from .call_key import call_key
from .capped import capped
from .threads import call_in_thread, unless
from .toolbox import Toolbox, ToolOptions

try:
    from strands import ToolContext, tool
except ImportError as error:
    raise missing("strands", error) from error


def tools(where: Any, agent: object = None, **options: Unpack[ToolOptions]) -> list[Any]:
    """The tools of ``Toolbox.VERBS``: ``Agent(tools=tools(session))``.

    ``where``: a session of any kind, or ``Agents`` with the name of the ``agent``. ``options``: see ``Toolbox``. A
    session belongs to one agent; its calls run one after the other. ``agent.cancel()`` ends the command. Raises
    InvalidRequest.
    """
    toolbox = Toolbox(where, agent, **options)
    # list[Any]: Agent takes a list of a union, and a list of one class is not that to a type checker.
    return [_verb_tool(toolbox, verb) for verb in toolbox.verbs]


def _verb_tool(toolbox: Toolbox, verb: str) -> Any:
    async def call(tool_context: ToolContext) -> str:
        """Run the call. The toolbox validates the arguments, not the SDK."""
        work = toolbox.call(verb, tool_context.tool_use["input"], _key(tool_context))
        return await unless(tool_context.cancel_signal.is_set, work)

    return _decorated(call, Toolbox.definition(verb))


def _key(context: ToolContext) -> str | None:
    """The key of a call. A message keeps its ``tracking_id``, a UUID, in every session manager and snapshot."""
    message = next((one for one in reversed(context.agent.messages) if one["role"] == "assistant"), None)
    tracking_id = message and message.get("tracking_id")
    return call_key("strands", context.agent.agent_id, tracking_id, context.tool_use["toolUseId"])


def _decorated(call: Any, definition: dict[str, Any]) -> Any:
    call.__annotations__["tool_context"] = ToolContext  # the SDK needs the class here, not its name as a string
    schema = {"json": definition["input_schema"]}
    make = tool(name=definition["name"], description=definition["description"], inputSchema=schema, context=True)
    return make(call)


def make_bash(agents: Agents | None = None, *, name: str = "bash", max_chars: int = MAX_CHARS) -> Any:
    """A tool for any number of agents, each with its own session.

    ``agents``: the ``Agents`` that holds the sessions (default: one of this tool's own, which keeps each session until
    its agent is collected). ``name``: the tool's name for the model. ``max_chars``: characters of
    output that the model gets of a call.
    Errors of the contract (BashInputError, BashTimeoutError, BashSessionError) reach the model as error results, with
    what the command had printed. ``agent.cancel()`` ends the command.
    """
    sessions = Agents(idle_ttl=None) if agents is None else agents
    contract = definition(strands.Strands(max_chars))

    async def bash(tool_context: ToolContext) -> Any:
        """Run the call. The contract validates the arguments, not the SDK."""
        bound = strands.tool(sessions, agent=tool_context.agent, max_chars=max_chars)
        is_cancelled = tool_context.cancel_signal.is_set
        return capped(await call_in_thread(bound, tool_context.tool_use["input"], is_cancelled), max_chars)

    return _decorated(bash, {**contract, "name": name})


bash = make_bash()
