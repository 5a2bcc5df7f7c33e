"""pydantic-ai: a session's verbs as a toolset (extra ``pydantic-ai``).

An error of the toolbox or of the session reaches the model as a failed tool call with that message alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Unpack

from ..errors import ShellSessionError
from ..extras import missing
from .toolbox import Toolbox, ToolOptions

try:
    from pydantic_ai import FunctionToolset
    from pydantic_ai.exceptions import ToolFailed
except ImportError as error:
    raise missing("pydantic-ai", error) from error


def toolset(where: Any, agent: object = None, **options: Unpack[ToolOptions]) -> FunctionToolset[Any]:
    """The tools of ``Toolbox.VERBS``: ``Agent(model, toolsets=[toolset(session)])``.

    ``where``: a session of any kind, or ``Agents`` with the name of the ``agent``. ``options``: see ``Toolbox``. A
    session belongs to one agent; its calls run one after the other. Raises InvalidRequest.
    """
    toolbox = Toolbox(where, agent, **options)
    made: FunctionToolset[Any] = FunctionToolset()
    for name in Toolbox.VERBS:
        made.add_function(
            _verb_function(toolbox, name), False, name=name, sequential=True, prepare=_prepare(Toolbox.definition(name))
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


def _prepare(verb: dict[str, Any]) -> Callable[..., Any]:
    """A ``prepare`` function that gives the model the description and the arguments of the verb itself."""

    def prepare(_: Any, definition: Any) -> Any:
        return replace(definition, description=verb["description"], parameters_json_schema=verb["input_schema"])

    return prepare
