"""MCP: a session's verbs as the tools of a Model Context Protocol server, over stdio (extra ``mcp``).

Law: standard input and output belong to the protocol; bash, and what it runs, never hold them.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

from ..async_session import AsyncSession
from ..daemon.async_client import AsyncRemoteSession, aconnect
from ..errors import ShellSessionError
from ..models import VERSION
from .extras import missing
from .toolbox import Command, Interactive, Patience, Timeout, Toolbox, Typed
from .turn import PROGRESS

try:
    import anyio
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.stdio import stdio_server
    from mcp.shared.message import SessionMessage
    from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, ToolAnnotations
except ImportError as error:
    raise missing("mcp", error) from error

_INSTRUCTIONS: Final = """\
One bash that stays open. `bash` runs a command in it; directory, variables and functions persist between calls. A
command that takes long is handed back running: `wait` for it, `send` it input, or `interrupt` it."""

_UNREADABLE: Final = (
    "the request is no JSON of whole characters (half of a surrogate pair? a byte that is no UTF-8?): nothing was run"
)


def server(toolbox: Toolbox) -> MCPServer:
    """A server whose tools are the toolbox's verbs: ``server(Toolbox(session)).run("stdio")``."""

    class Checking(MCPServer):
        """The SDK passes over unknown arguments and unreadable requests, and tells of the rest in pydantic's words."""

        async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
            if name in toolbox.VERBS:
                try:
                    arguments = toolbox.checked(name, arguments)
                except ShellSessionError as error:
                    raise ToolError(str(error)) from error
            return await super().call_tool(name, arguments, context)

        async def run_stdio_async(self) -> None:
            core = self._lowlevel_server
            with _stdin() as lines:
                async with stdio_server(lines) as (arriving, writing), anyio.create_task_group() as group:
                    passing, passed = anyio.create_memory_object_stream[Any](0)
                    group.start_soon(_answer_unread, arriving, passing, writing)
                    await core.run(passed, writing, core.create_initialization_options())
                    group.cancel_scope.cancel()

    made = Checking("shellsession", instructions=_INSTRUCTIONS, version=VERSION, log_level="WARNING")
    acts = ToolAnnotations(destructive_hint=True, open_world_hint=True)
    looks = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    @made.tool(description=inspect.getdoc(toolbox.bash), annotations=acts, structured_output=False)
    async def bash(
        command: Command, context: Context, timeout: Timeout = None, interactive: Interactive = False
    ) -> str:
        return await _answer(toolbox.bash(command, timeout, interactive), context)

    @made.tool(description=inspect.getdoc(toolbox.send), annotations=acts, structured_output=False)
    async def send(text: Typed, context: Context) -> str:
        return await _answer(toolbox.send(text), context)

    @made.tool(description=inspect.getdoc(toolbox.wait), annotations=looks, structured_output=False)
    async def wait(context: Context, seconds: Patience = None) -> str:
        return await _answer(toolbox.wait(seconds), context)

    @made.tool(description=inspect.getdoc(toolbox.interrupt), annotations=acts, structured_output=False)
    async def interrupt() -> str:
        return await _answer(toolbox.interrupt())

    @made.tool(description=inspect.getdoc(toolbox.restart), annotations=acts, structured_output=False)
    async def restart() -> str:
        return await _answer(toolbox.restart())

    @made.tool(description=inspect.getdoc(toolbox.jobs), annotations=looks, structured_output=False)
    async def jobs() -> str:
        return await _answer(toolbox.jobs())

    return made


def serve(agent: str | None = None, socket: str | None = None, **settings: Any) -> None:
    """Serve on stdin and stdout until the client closes them; ``settings`` are the Toolbox's.

    Without ``agent`` the session is this server's own; with one it is that agent's, held by the daemon.
    """

    async def main() -> None:
        connect = None if agent is None else partial(_connect, agent, socket)
        session: Any = AsyncSession() if connect is None else await connect()
        async with session:
            await server(Toolbox(session, connect=connect, **settings)).run_stdio_async()

    asyncio.run(main())


@contextmanager
def _stdin() -> Iterator[Any]:
    """Standard input, where a byte that is no UTF-8 stays one, so that its line is not read: the SDK would put U+FFFD
    there, and run that. As with the SDK, who else reads descriptor 0 meanwhile reads nothing."""
    wire, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    try:  # it is not closed: a thread may still read it, and another file get its number
        yield anyio.wrap_file(os.fdopen(wire, encoding="utf-8", errors="surrogateescape", closefd=False))
    finally:
        os.dup2(wire, 0)


def _unread(error: Exception) -> int | str | None:
    """The id of a request that the SDK could not read, as one of half a surrogate pair; None where there is none."""
    try:
        line = cast(Any, error).errors(include_url=False)[0]["input"]  # pydantic's error has the whole of it
        number = json.loads(line)["id"]
        str(number).encode()  # half a pair in the id itself cannot be written back
    except (AttributeError, ValueError, TypeError, LookupError, RecursionError):
        return None
    return number if type(number) in (int, str) else None


async def _answer_unread(arriving: Any, passing: Any, writing: Any) -> None:
    """Pass on what arrives; the SDK would only drop what it cannot read, and who has asked would wait for ever."""
    async with passing:
        async for item in arriving:
            if not isinstance(item, Exception):
                await passing.send(item)
            elif (request := _unread(item)) is not None:
                said = ErrorData(code=PARSE_ERROR, message=_UNREADABLE)
                await writing.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request, error=said)))


async def _connect(agent: str, socket: str | None) -> AsyncRemoteSession:
    return await aconnect(agent, socket=socket)


async def _answer(verb: Awaitable[str], context: Context | None = None) -> str:
    """What a verb says; its refusals are for the model to read."""
    PROGRESS.set(context.report_progress if context is not None else None)  # in the task of this request alone
    try:
        return await verb
    except ShellSessionError as error:
        raise ToolError(str(error)) from error
