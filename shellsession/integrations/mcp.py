"""MCP: a Model Context Protocol server over stdio whose tools are a session's verbs (extra ``mcp``).

Standard input and output carry the protocol. Bash and its commands never inherit them.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Annotated, Any, Final, Unpack, cast

from pydantic import BaseModel

from ..async_session import AsyncSession
from ..daemon.client.async_session import AsyncRemoteSession
from ..errors import ShellSessionError
from ..extras import missing
from ..models import VERSION, Request, to_bytes
from ..options import SessionOptions
from ..policy.rules import UNCONFIRMED, Policy, refused
from ..signatures import Seconds
from ..text import escaped
from .binding import AwaitedSession
from .toolbox import PROGRESS, Command, Interactive, Timeout, Toolbox, ToolOptions

try:
    import anyio
    from mcp.server import MCPServer
    from mcp.server.elicitation import ElicitationResult
    from mcp.server.mcpserver import Context, Elicit, Resolve
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.stdio import stdio_server
    from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated
    from mcp.shared.message import SessionMessage
    from mcp.types import (
        INVALID_REQUEST,
        PARSE_ERROR,
        CallToolResult,
        ErrorData,
        JSONRPCError,
        TextContent,
        ToolAnnotations,
    )
except ImportError as error:
    raise missing("mcp", error) from error

_INSTRUCTIONS: Final = """\
One bash that stays open. `bash` runs a command in it; directory, variables and functions persist between calls. A
command that takes long is handed back running: `wait` for it, `send` it input, or `interrupt` it."""

_ACTS: Final = ToolAnnotations(destructive_hint=True, open_world_hint=True)
_LOOKS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)

_UNREADABLE: Final = (
    "the request is not valid JSON in UTF-8 (half of a surrogate pair? an invalid byte?): nothing was run"
)
_MALFORMED: Final = (
    'the request is not JSON-RPC 2.0 ("jsonrpc": "2.0", its method a string, its params an object): nothing was run'
)

_CANNOT_ASK: Final = (
    "refused by policy: the user must confirm this command, and this client cannot ask them (MCP elicitation)"
)

# The directory for the command of this task's request, of which the SDK knows nothing.
_WORKDIR: Final[ContextVar[str | None]] = ContextVar("workdir", default=None)


# The resource with the notices of the session, and how long to wait for a session in place of a closed one.
NOTICES: Final = "shellsession://notices"
_OF_NOTICES: Final = "What has happened to background jobs and running commands: the latest notices, the oldest first"
_RETRY: Final = 1.0


class Confirmation(BaseModel):
    """The answer of a person who lets a command run: it has no fields, because accepting is the whole answer."""


def server(toolbox: Toolbox, asking: Policy | None = None) -> MCPServer:
    """A server whose tools are the toolbox's verbs: ``server(Toolbox(session)).run("stdio")``.

    ``asking``: a policy with ``confirm``. Where that would be called, the client asks its user instead (elicitation).
    Where the questions of the session wait in the daemon, it asks its user about these, who may be the first to answer.
    """
    queue = toolbox.queue
    # What the user was asked, and has not answered.
    elicited = set[str]()

    class CheckedServer(MCPServer):
        """Adds checks to the SDK's server.

        The SDK ignores unknown arguments and unreadable requests, and words other errors as pydantic does.
        """

        async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
            if name not in toolbox.verbs:
                return await super().call_tool(name, arguments, context)
            if context is not None:  # only in the task of this request
                PROGRESS.set(lambda seconds, line: context.report_progress(seconds, None, line or None))
            try:
                if name == "bash" and (asking is not None or queue):  # the SDK asks the user first
                    checked = toolbox.checked(name, arguments)
                    _WORKDIR.set(checked.pop("workdir", None))
                    return await self._call_asking(name, checked, context)
                text = await toolbox.call(name, arguments)
            except ShellSessionError as error:
                raise ToolError(str(error)) from error
            return CallToolResult(content=[TextContent(type="text", text=text)])

        async def _call_asking(self, name: str, arguments: dict[str, Any], context: Any) -> Any:
            try:
                return await super().call_tool(name, arguments, context)
            except ToolError as error:  # the SDK puts words of its own before ours
                raise error.__cause__ if isinstance(error.__cause__, ToolError) else error from None

        async def run_stdio_async(self) -> None:
            core = self._lowlevel_server
            with _stdin() as file:
                lines: Any = _LineReader(file)
                async with stdio_server(lines) as (incoming, outgoing), anyio.create_task_group() as group:
                    sender, receiver = anyio.create_memory_object_stream[Any](0)
                    group.start_soon(_refuse_unreadable, lines, incoming, sender, outgoing)
                    if "monitor" in toolbox.verbs:
                        group.start_soon(_publish, toolbox, bus)
                    await core.run(receiver, outgoing, core.create_initialization_options())
                    group.cancel_scope.cancel()

    bus = InMemorySubscriptionBus()
    mcp_server = CheckedServer(
        "shellsession", instructions=_INSTRUCTIONS, version=VERSION, log_level="WARNING", subscriptions=bus
    )
    if "monitor" in toolbox.verbs:

        @mcp_server.resource(NOTICES, name="notices", description=_OF_NOTICES, mime_type="application/json")
        async def notices() -> str:
            return json.dumps([vars(notice) for notice in await toolbox.notices()])

    async def ask(command: str, context: Context, interactive: bool = False) -> Elicit[Confirmation] | None:
        """The question to the client's user, or None if there is none."""
        capabilities = context.client_capabilities
        can_ask = capabilities is not None and capabilities.elicitation is not None
        place = f" in {workdir}" if (workdir := _WORKDIR.get()) else ""
        try:
            waits = await toolbox.question(workdir, command, interactive) if queue and can_ask else None
            if waits is not None and waits["state"] == "open":
                elicited.add(text := _text_of(waits))
                return Elicit(text, Confirmation)
            question = (
                ""
                if asking is None
                else asking.judge(
                    Request(to_bytes("command", command), cwd=_WORKDIR.get()), clock=time.thread_time
                ).question
            )
        except ShellSessionError as error:
            raise ToolError(str(error)) from error
        if not question:
            return None
        if not can_ask:
            raise ToolError(_CANNOT_ASK)
        return Elicit(f"Run this command{place}?\n\n{question}", Confirmation)

    async def asked_bash(
        command: Command, answer: Any, timeout: Timeout = None, interactive: Interactive = False
    ) -> str:
        try:
            waits = await toolbox.question(_WORKDIR.get(), command, interactive) if queue else None
            if waits is not None and (text := _text_of(waits)) in elicited:
                elicited.discard(text)
                if waits["state"] == "open":
                    await toolbox.answer(waits["id"], answer.action)
            elif answer.action != "accept":
                raise refused(UNCONFIRMED)
            text = await toolbox.bash_in(_WORKDIR.get(), command, timeout, interactive)
            return await toolbox.noticed("bash", text)
        except ShellSessionError as error:
            raise ToolError(str(error)) from error

    # The SDK calls ``ask`` first, which no annotation in the source can name, as it is local.
    asked_bash.__annotations__["answer"] = Annotated[ElicitationResult[Confirmation], Resolve(ask)]
    for verb in toolbox.verbs:
        mcp_server.add_tool(
            asked_bash if verb == "bash" and (asking is not None or queue) else getattr(toolbox, verb),
            verb,
            description=Toolbox.definition(verb)["description"],
            annotations=_LOOKS if verb in ("wait", "read_output", "monitor", "diff") else _ACTS,
            structured_output=False,
        )
    return mcp_server


def _text_of(question: Mapping[str, Any]) -> str:
    """A question of the daemon, for the user of a client."""
    command, given = question["command"].split("\n"), (f"With {line}" for line in question["given"])
    return "\n".join([f"Run this command in {escaped(question['cwd'])}?\n", *map(escaped, (*command, *given))])


def serve(
    agent: str | None = None,
    socket: str | None = None,
    options: SessionOptions | None = None,
    asking: Policy | None = None,
    idle_ttl: Seconds = ...,
    **settings: Unpack[ToolOptions],
) -> None:
    """Serve on stdin and stdout until the client closes them. ``settings`` are those of ``Toolbox``.

    Without ``agent``, the server has its own session; with it, the session is that agent's in the daemon.
    ``options``: those of the session. ``asking``: see ``server``. Raises AlreadyOpen if the agent has a session with
    other options. ``idle_ttl``: see ``connect``.
    """
    made_with = options or {}

    async def main() -> None:
        connect = None if agent is None else partial(_connect, agent, socket, made_with, idle_ttl)
        session: Any = AsyncSession(**made_with) if connect is None else await connect()
        async with session:
            if connect is None:
                await session.open()  # a sandbox that cannot be made is reported now, not at the first call
            await server(Toolbox(session, connect=connect, **settings), asking).run_stdio_async()

    asyncio.run(main())


async def _publish(toolbox: Toolbox, bus: InMemorySubscriptionBus) -> None:
    """Tell the subscribers of the resource whenever there is something new in it."""
    last = 0
    while True:
        try:
            if (number := await toolbox.await_notice(last)) != last:
                last = number
                await bus.publish(ResourceUpdated(uri=NOTICES))
        except ShellSessionError:
            await anyio.sleep(_RETRY)


@contextmanager
def _stdin() -> Iterator[Any]:
    """Yield standard input as a file that keeps invalid UTF-8 bytes, so that a line with one is refused.

    The SDK would replace such a byte by U+FFFD and run the result. Within the block, descriptor 0 is /dev/null, as with
    the SDK.
    """
    wire, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    try:  # not closed at the end: a thread may still be reading it, and another file could get its number
        yield anyio.wrap_file(os.fdopen(wire, encoding="utf-8", errors="surrogateescape", closefd=False))
    finally:
        os.dup2(wire, 0)


class _LineReader:
    """Reads the lines of a file for the SDK, and remembers them.

    The SDK turns each line into one message or one error, in order.
    """

    def __init__(self, file: Any) -> None:
        self._file, self._read = file, deque[str]()

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in self._file:
            self._read.append(line)
            yield line

    def take(self) -> str:
        """The line of the next message or error."""
        return self._read.popleft()


def _refusal(line: str, error: Exception) -> JSONRPCError | None:
    """The reply to a request that the SDK could not read, or None if there can be none.

    There is none if the id cannot be written back (it may be half of a surrogate pair). There is none to a response,
    either: the server chose its id, and a request of the client may have the same one.
    """
    try:
        message = json.loads(line)
        number = message["id"]
        str(number).encode()
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    is_answer = "method" not in message and ("result" in message or "error" in message)
    if is_answer or type(number) not in (int, str):
        return None
    # For text that is not JSON, pydantic's error has no location.
    is_json = bool(cast(Any, error).errors(include_url=False)[0]["loc"])
    code, said = (INVALID_REQUEST, _MALFORMED) if is_json else (PARSE_ERROR, _UNREADABLE)
    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=said))


async def _refuse_unreadable(lines: _LineReader, incoming: Any, sender: Any, outgoing: Any) -> None:
    """Forward messages to the server, and answer those that the SDK could not read.

    The SDK would drop them without a reply, and the client would wait forever.
    """
    async with sender:
        async for item in incoming:
            line = lines.take()
            if not isinstance(item, Exception):
                await sender.send(item)
            elif (refusal := _refusal(line, item)) is not None:
                await outgoing.send(SessionMessage(refusal))


async def _connect(agent: str, socket: str | None, options: SessionOptions, idle_ttl: Seconds) -> AwaitedSession:
    named, unnamed = options.copy(), {"recover": options.get("recover", False)}
    named.pop("recover", None)
    session = AsyncRemoteSession.for_arguments(agent, socket, True, named, idle_ttl=idle_ttl, defaults=unnamed)
    await session.connect()
    if session.opened_here:  # otherwise it could wait for a command of another client
        await session.open()
    return session
