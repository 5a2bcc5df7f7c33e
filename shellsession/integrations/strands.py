"""Strands Agents: a ``bash`` tool for ``Agent(tools=[bash])``, which is the tool of document 001.

Law: each agent has one session, made at its first command; the agent is held weakly, and its session goes with it.
"""

from __future__ import annotations

from typing import Any

from ..agents import Agents
from ..contracts import strands
from ..contracts.contract import definition
from .extras import missing
from .threads import call_in_thread

try:
    from strands import ToolContext, tool
except ImportError as error:
    raise missing("strands", error) from error


def make_bash(agents: Agents | None = None, *, name: str = "bash") -> Any:
    """A tool for any number of agents, each with a session of its own.

    ``agents``: who holds their sessions (default: an ``Agents`` of this tool, in which they stay until their agent is
    collected). Errors of the contract (BashInputError, BashTimeoutError, BashSessionError) come to the model as error
    results, with what the command had printed; ``agent.cancel()`` ends the command. ``name``: what the model calls it.
    """
    sessions = Agents(idle_ttl=None) if agents is None else agents
    told = definition(strands.Strands())

    async def bash(tool_context: ToolContext) -> Any:
        """Run the call; its arguments are read by the contract, to the letter."""
        bound = strands.tool(sessions, agent=tool_context.agent)
        return await call_in_thread(bound, tool_context.tool_use["input"], tool_context.cancel_signal.is_set)

    bash.__annotations__["tool_context"] = ToolContext  # the SDK resolves names in the module, and this is no string
    make = tool(name=name, description=told["description"], inputSchema={"json": told["input_schema"]}, context=True)
    return make(bash)


bash = make_bash()
