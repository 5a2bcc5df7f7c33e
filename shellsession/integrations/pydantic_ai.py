"""pydantic-ai: a session's verbs as a toolset (extra ``pydantic-ai``).

An error of the toolbox or of the session reaches the model as a failed tool call with that message alone. The key of a
call is made from the conversation, the run, the model's response (or the step of the run), and the id of the call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Unpack

from ..errors import ShellSessionError
from ..extras import missing
from .call_key import call_key
from .toolbox import Toolbox, ToolOptions

try:
    from pydantic_ai import FunctionToolset, RunContext
    from pydantic_ai.exceptions import ToolFailed, UserError
    from pydantic_ai.messages import ModelResponse
except ImportError as error:
    raise missing("pydantic-ai", error) from error


def toolset(where: Any, agent: object = None, **options: Unpack[ToolOptions]) -> FunctionToolset[Any]:
    """The tools of ``Toolbox.VERBS``: ``Agent(model, toolsets=[toolset(session)])``.

    ``where``: a session of any kind, or ``Agents`` with the name of the ``agent``. ``options``: see ``Toolbox``. A
    session belongs to one agent; its calls run one after the other. Raises InvalidRequest.
    """
    toolbox = Toolbox(where, agent, **options)
    made: FunctionToolset[Any] = FunctionToolset()
    for name in toolbox.verbs:
        made.add_function(
            _verb_function(toolbox, name), True, name=name, sequential=True, prepare=_prepare(Toolbox.definition(name))
        )
    return made


def _verb_function(toolbox: Toolbox, name: str) -> Callable[..., Awaitable[str]]:
    """A function that calls the verb and raises ToolFailed for its errors.

    With any other exception, pydantic-ai gives up on a model that is wrong twice.
    """

    async def call(context: RunContext[Any], /, **arguments: Any) -> str:
        try:
            return await toolbox.call(name, arguments, _key(context))
        except ShellSessionError as error:
            raise ToolFailed(str(error)) from error

    return call


def _key(context: RunContext[Any]) -> str | None:
    """The key of a call. The messages say which response made it, also when a later run goes on from stored ones."""
    turn: str | None
    try:
        response = next((one for one in reversed(context.messages) if isinstance(one, ModelResponse)), None)
    except UserError:  # a durable engine has left them out: its runs keep their id and repeat their steps
        run, turn = context.run_id, str(context.run_step)
    else:
        run, turn = response and response.run_id, response and response.timestamp.isoformat()
    return call_key("pydantic-ai", context.conversation_id, run, turn, context.tool_call_id)


def _prepare(verb: dict[str, Any]) -> Callable[..., Any]:
    """A ``prepare`` function that gives the model the description and the arguments of the verb itself."""

    def prepare(_: Any, definition: Any) -> Any:
        return replace(definition, description=verb["description"], parameters_json_schema=verb["input_schema"])

    return prepare
