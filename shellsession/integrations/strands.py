"""Strands Agents: the tool of document 001 as a ``bash`` tool for ``Agent(tools=[bash])``.

Each agent has one session, made at its first command. Only a weak reference to the agent is kept: when the agent is
collected, its session is closed.
"""

from __future__ import annotations

from typing import Any

from ..agents import Agents
from ..contracts import strands
from ..contracts.contract import definition
from ..text import MAX_CHARS
from .capped import capped
from .extras import missing
from .threads import call_in_thread

try:
    from strands import ToolContext, tool
except ImportError as error:
    raise missing("strands", error) from error


def make_bash(agents: Agents | None = None, *, name: str = "bash", max_chars: int = MAX_CHARS) -> Any:
    """A tool for any number of agents, each with a session of its own.

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

    bash.__annotations__["tool_context"] = ToolContext  # the SDK needs the class here, not its name as a string
    schema = {"json": contract["input_schema"]}
    make = tool(name=name, description=contract["description"], inputSchema=schema, context=True)
    return make(bash)


bash = make_bash()
