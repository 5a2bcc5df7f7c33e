"""MCP: a session's verbs as the tools of a Model Context Protocol server, over stdio (extra ``mcp``).

Law: standard input and output belong to the protocol; bash, and what it runs, never hold them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from ..errors import ShellSessionError
from ..models import VERSION
from .extras import missing
from .toolbox import PROGRESS, Command, Interactive, Patience, Timeout, Toolbox, Typed

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations
except ImportError as error:
    raise missing("mcp", error) from error

_INSTRUCTIONS: Final = """\
One bash that stays open. `bash` runs a command in it; directory, variables and functions persist between calls. A
command that takes long is handed back running: `wait` for it, `send` it input, or `interrupt` it."""


def server(toolbox: Toolbox) -> MCPServer:
    """A server whose tools are the toolbox's verbs: ``server(Toolbox(session)).run("stdio")``."""

    class Checking(MCPServer):
        """The SDK passes over unknown arguments, and tells of others in pydantic's words."""

        async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
            if name in toolbox.VERBS:
                try:
                    toolbox.checked(name, arguments)
                except ShellSessionError as error:
                    raise ToolError(str(error)) from error
            return await super().call_tool(name, arguments, context)

    made = Checking("shellsession", instructions=_INSTRUCTIONS, version=VERSION, log_level="WARNING")
    acts = ToolAnnotations(destructive_hint=True, open_world_hint=True)
    looks = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    @made.tool(description=toolbox.bash.__doc__, annotations=acts, structured_output=False)
    async def bash(
        command: Command, context: Context, timeout: Timeout = None, interactive: Interactive = False
    ) -> str:
        return await _answer(toolbox.bash(command, timeout, interactive), context)

    @made.tool(description=toolbox.send.__doc__, annotations=acts, structured_output=False)
    async def send(text: Typed, context: Context) -> str:
        return await _answer(toolbox.send(text), context)

    @made.tool(description=toolbox.wait.__doc__, annotations=looks, structured_output=False)
    async def wait(context: Context, seconds: Patience = None) -> str:
        return await _answer(toolbox.wait(seconds), context)

    @made.tool(description=toolbox.interrupt.__doc__, annotations=acts, structured_output=False)
    async def interrupt() -> str:
        return await _answer(toolbox.interrupt())

    @made.tool(description=toolbox.restart.__doc__, annotations=acts, structured_output=False)
    async def restart() -> str:
        return await _answer(toolbox.restart())

    @made.tool(description=toolbox.jobs.__doc__, annotations=looks, structured_output=False)
    async def jobs() -> str:
        return await _answer(toolbox.jobs())

    return made


def serve(agent: str | None = None, socket: str | None = None, **settings: Any) -> None:
    """Serve on stdin and stdout until the client closes them; ``settings`` are the Toolbox's.

    Without ``agent`` the session is this server's own; with one it is that agent's, held by the daemon.
    """

    async def main() -> None:
        async with await _session(agent, socket) as session:
            await server(Toolbox(session, **settings)).run_stdio_async()

    asyncio.run(main())


async def _session(agent: str | None, socket: str | None) -> AbstractAsyncContextManager[Any]:
    if agent is None:
        from ..async_session import AsyncSession

        return AsyncSession()
    from ..daemon.async_client import aconnect

    return await aconnect(agent, socket=socket)


async def _answer(verb: Awaitable[str], context: Context | None = None) -> str:
    """What a verb says; its refusals are for the model to read."""
    PROGRESS.set(context.report_progress if context is not None else None)  # in the task of this request alone
    try:
        return await verb
    except ShellSessionError as error:
        raise ToolError(str(error)) from error
