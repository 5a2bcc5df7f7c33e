"""MCP: a session's verbs as the tools of a Model Context Protocol server, over stdio (extra ``mcp``).

Law: standard input and output belong to the protocol; bash, and what it runs, never hold them.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

from ..async_session import AsyncSession
from ..daemon.client.async_session import AsyncRemoteSession, aconnect
from ..errors import ShellSessionError
from ..models import VERSION
from .extras import missing
from .toolbox import PROGRESS, Command, Interactive, Patience, Timeout, Toolbox, Typed

try:
    import anyio
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.stdio import stdio_server
    from mcp.shared.message import SessionMessage
    from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, ToolAnnotations
except ImportError as error:
    raise missing("mcp", error) from error

_INSTRUCTIONS: Final = """\
One bash that stays open. `bash` runs a command in it; directory, variables and functions persist between calls. A
command that takes long is handed back running: `wait` for it, `send` it input, or `interrupt` it."""

_UNREADABLE: Final = (
    "the request is no JSON of whole characters (half of a surrogate pair? a byte that is no UTF-8?): nothing was run"
)
_MALFORMED: Final = (
    'the request is no JSON-RPC 2.0 ("jsonrpc": "2.0", its method a string, its params an object): nothing was run'
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
            with _stdin() as file:
                lines: Any = _Lines(file)
                async with stdio_server(lines) as (arriving, writing), anyio.create_task_group() as group:
                    passing, passed = anyio.create_memory_object_stream[Any](0)
                    group.start_soon(_answer_unread, lines, arriving, passing, writing)
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


class _Lines:
    """The lines of a file, for the SDK: of each it makes one message, or one error, and these come in order."""

    def __init__(self, file: Any) -> None:
        self._file, self._read = file, deque[str]()

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in self._file:
            self._read.append(line)
            yield line

    def take(self) -> str:
        """That of the next message or error."""
        return self._read.popleft()


def _refusal(line: str, error: Exception) -> JSONRPCError | None:
    """What is said to a request that the SDK could not read; None to what has no id that could be written back (it may
    be half of a surrogate pair), and to an answer: its id is ours, and may be that of a request of the client, too."""
    try:
        message = json.loads(line)
        number = message["id"]
        str(number).encode()
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    is_answer = "method" not in message and ("result" in message or "error" in message)
    if is_answer or type(number) not in (int, str):
        return None
    # Of what is no JSON to pydantic it names no place.
    is_json = bool(cast(Any, error).errors(include_url=False)[0]["loc"])
    code, said = (INVALID_REQUEST, _MALFORMED) if is_json else (PARSE_ERROR, _UNREADABLE)
    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=said))


async def _answer_unread(lines: _Lines, arriving: Any, passing: Any, writing: Any) -> None:
    """Pass on what arrives; the SDK would only drop what it cannot read, and who has asked would wait for ever."""
    async with passing:
        async for item in arriving:
            line = lines.take()
            if not isinstance(item, Exception):
                await passing.send(item)
            elif (refusal := _refusal(line, item)) is not None:
                await writing.send(SessionMessage(refusal))


async def _connect(agent: str, socket: str | None) -> AsyncRemoteSession:
    return await aconnect(agent, socket=socket)


async def _answer(verb: Awaitable[str], context: Context | None = None) -> str:
    """What a verb says; its refusals are for the model to read."""
    PROGRESS.set(context.report_progress if context is not None else None)  # in the task of this request alone
    try:
        return await verb
    except ShellSessionError as error:
        raise ToolError(str(error)) from error
