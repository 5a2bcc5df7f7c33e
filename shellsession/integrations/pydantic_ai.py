"""pydantic-ai: a session's verbs as a toolset (extra ``pydantic-ai``).

Law: what the toolbox or the session refuses is told to the model in a sentence, as a tool call that failed; nothing
else is added.
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
    """The tools bash, send, wait, interrupt, restart and jobs: ``Agent(model, toolsets=[toolset(session)])``.

    ``settings`` are the Toolbox's. A session is one agent's: its calls are made one after the other.
    """
    toolbox = Toolbox(session, **settings)
    made: FunctionToolset[Any] = FunctionToolset()
    for name in Toolbox.VERBS:
        own = Tool(getattr(toolbox, name), takes_ctx=False).tool_def
        made.add_function(_failing(toolbox, name), False, name=name, sequential=True, prepare=_telling(own))
    return made


def _failing(toolbox: Toolbox, name: str) -> Callable[..., Awaitable[str]]:
    """The verb, with its refusals as pydantic-ai wants them, which gives up a model that is wrong twice otherwise."""

    async def call(**arguments: Any) -> str:
        try:
            return await toolbox.call(name, arguments)
        except ShellSessionError as error:
            raise ToolFailed(str(error)) from error

    return call


def _telling(own: Any) -> Callable[..., Any]:
    """The model is told of the verb itself, with its arguments."""

    def prepare(_: Any, definition: Any) -> Any:
        schema = own.parameters_json_schema
        return replace(definition, description=own.description, parameters_json_schema=schema)

    return prepare
