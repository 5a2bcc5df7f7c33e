"""pydantic-ai: a session's verbs as a toolset (extra ``pydantic-ai``).

An error of the toolbox or of the session reaches the model as a failed tool call with that message alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import ShellSessionError
from .extras import missing
from .toolbox import Toolbox

if TYPE_CHECKING:
    from ..async_session import AsyncSession
    from ..daemon.client.async_session import AsyncRemoteSession


try:
    from pydantic_ai import FunctionToolset, Tool
    from pydantic_ai.exceptions import ToolFailed
except ImportError as error:
    raise missing("pydantic-ai", error) from error


def toolset(session: AsyncSession | AsyncRemoteSession, **settings: Any) -> FunctionToolset[Any]:
    """The tools of ``Toolbox.VERBS``: ``Agent(model, toolsets=[toolset(session)])``.

    ``settings`` are those of ``Toolbox``. A session belongs to one agent; its calls run one after the other.
    """
    toolbox = Toolbox(session, **settings)
    made: FunctionToolset[Any] = FunctionToolset()
    for name in Toolbox.VERBS:
        verb_tool = Tool(getattr(toolbox, name), takes_ctx=False).tool_def
        made.add_function(
            _verb_function(toolbox, name), False, name=name, sequential=True, prepare=_definition_of(verb_tool)
        )
    return made


def _verb_function(toolbox: Toolbox, name: str) -> Callable[..., Awaitable[str]]:
    """A function that calls the verb and raises ToolFailed for its errors.

    With any other exception, pydantic-ai gives up on a model that is wrong twice.
    """

    async def call(**arguments: Any) -> str:
        try:
            return await toolbox.call(name, arguments)
        except ShellSessionError as error:
            raise ToolFailed(str(error)) from error

    return call


def _definition_of(verb_tool: Any) -> Callable[..., Any]:
    """A ``prepare`` function that gives the model the description and the arguments of the verb itself."""

    def prepare(_: Any, definition: Any) -> Any:
        schema = verb_tool.parameters_json_schema
        return replace(definition, description=verb_tool.description, parameters_json_schema=schema)

    return prepare
