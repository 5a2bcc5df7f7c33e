"""pydantic-ai: a session's verbs as a toolset (extra ``pydantic-ai``).

Law: what the session refuses is told to the model, as a tool call that failed; nothing else is added.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from ..errors import ShellSessionError
from .extras import missing
from .toolbox import Toolbox

try:
    from pydantic_ai import FunctionToolset
    from pydantic_ai.exceptions import ToolFailed
except ImportError as error:
    raise missing("pydantic-ai", error) from error

if TYPE_CHECKING:
    from ..async_session import AsyncSession
    from ..daemon.async_client import AsyncRemoteSession


def toolset(session: AsyncSession | AsyncRemoteSession, **settings: Any) -> FunctionToolset[Any]:
    """The tools bash, send, wait, interrupt, restart and jobs: ``Agent(model, toolsets=[toolset(session)])``.

    ``settings`` are the Toolbox's. A session is one agent's: its calls are made one after the other.
    """
    toolbox = Toolbox(session, **settings)
    made: FunctionToolset[Any] = FunctionToolset()
    for name in Toolbox.VERBS:
        made.add_function(_failing(getattr(toolbox, name)), takes_ctx=False, sequential=True)
    return made


def _failing(verb: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    """The verb, with its refusals as pydantic-ai wants them."""

    @wraps(verb)
    async def call(*arguments: Any, **named: Any) -> str:
        try:
            return await verb(*arguments, **named)
        except ShellSessionError as error:
            raise ToolFailed(str(error)) from error

    return call
