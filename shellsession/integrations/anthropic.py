"""Anthropic: a session's verbs (``tools``), or the ``bash_20250124`` tool, for the SDK's tool runner.

Models were trained on ``bash_20250124``: they call it with ``{"command": text}`` or ``{"restart": true}``, and expect
one bash that keeps its state. ``tool`` and ``tool_result`` serve it without the SDK (extra ``anthropic``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

from pydantic import Field

from ..contracts.contract import BadCall, Contract, FreshShell, Input, Steps, to_text
from ..contracts.tool import AsyncTool, Binder, Tool
from ..errors import ContractError, InvalidRequest, ShellSessionError
from ..extras import missing
from ..models import Request, Result, check_seconds
from ..text import MAX_CHARS
from .binding import run_to_end
from .toolbox import Toolbox, ToolOptions, describe, limits_for

if TYPE_CHECKING:
    from anthropic.lib.tools import BetaAsyncBuiltinFunctionTool, BetaBuiltinFunctionTool

# The entry for the request's list of tools. The API has the description and the schema.
TOOL: Final = {"type": "bash_20250124", "name": "bash"}


class BashCallError(ContractError):
    """The call failed. The message is for the model, in a ``tool_result`` with ``is_error``."""

    code = "anthropic_bash"


class BashInput(Input):
    command: str | None = Field(default=None, description="The bash command to run")
    restart: bool | None = Field(default=None, description="True for a fresh bash")


class Bash(Contract[str]):
    """The bash tool.

    ``timeout``: seconds that a command may run (None: no limit). ``max_chars``: characters of a
    result that the model gets. Raises InvalidRequest.
    """

    Input = BashInput
    persistent = True

    def __init__(self, timeout: float | None = 120.0, max_chars: int = MAX_CHARS) -> None:
        check_seconds("timeout", timeout)
        self._timeout, self._max_chars = timeout, max_chars
        self._limits = limits_for(max_chars)

    @property
    def description(self) -> str:
        return "Run commands in a bash shell"

    def parse(self, call: object) -> Request | FreshShell:
        """The call as a request. Raises BadCall."""
        arguments = BashInput.read(call)
        if arguments.restart:
            return FreshShell()
        if arguments.command is None:
            raise BadCall("command: is missing, and so is restart: pass one of them")
        return Request(to_text("command", arguments.command), timeout=self._timeout, tty=False, limits=self._limits)

    def steps(self, call: object) -> Steps[str]:
        try:
            result: Result | None = yield self.parse(call)
        except (BadCall, ShellSessionError) as error:
            raise BashCallError(str(error)) from None
        return "[a fresh bash was started]" if result is None else describe([result], self._max_chars, jobs="")


tool = Binder(Bash)


def tool_result(bash: Tool[str], block: Mapping[str, Any] | Any) -> dict[str, Any]:
    """Run a ``tool_use`` block (the SDK's object, or its JSON) and return the ``tool_result`` block for it.

    Raises InvalidRequest for a block of another tool, and for an ``AsyncTool``.
    """
    _check(bash, Tool, "atool_result")
    block_id, call = _parts(block)
    try:
        return _answer(block_id, bash(call), is_error=False)
    except BashCallError as error:
        return _answer(block_id, str(error), is_error=True)


async def atool_result(bash: AsyncTool[str], block: Mapping[str, Any] | Any) -> dict[str, Any]:
    """As ``tool_result``, for asyncio."""
    _check(bash, AsyncTool, "tool_result")
    block_id, call = _parts(block)
    try:
        return _answer(block_id, await bash(call), is_error=False)
    except BashCallError as error:
        return _answer(block_id, str(error), is_error=True)


def _parts(block: Mapping[str, Any] | Any) -> tuple[str, object]:
    """The id of a ``tool_use`` block, and the arguments of the call. Raises InvalidRequest for any other block."""
    get: Callable[[str, object], Any] = block.get if isinstance(block, Mapping) else partial(getattr, block)
    block_id, name = get("id", None), get("name", None)
    if not isinstance(block_id, str) or name != TOOL["name"]:
        raise InvalidRequest(f"not a tool_use block with an id and the name {TOOL['name']!r}: nothing was run")
    return block_id, get("input", None)


def _answer(block_id: str, text: str, *, is_error: bool) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": block_id, "content": text, "is_error": is_error}


def _sdk() -> Any:
    """The SDK's module of tool classes. Only the two functions below need the SDK. Raises MissingExtra."""
    try:
        from anthropic.lib import tools
        from anthropic.lib.tools import ToolError  # noqa: F401 - the newest name that is needed: checks the version
    except ImportError as error:
        raise missing("anthropic", error) from error
    return tools


def _check(bash: object, kind: type, other: str) -> None:
    """Refuse an ``AsyncTool`` where a ``Tool`` is needed, and the reverse: the call would run nothing."""
    if not isinstance(bash, kind):
        raise InvalidRequest(f"this takes a {kind.__name__}, not {type(bash).__name__}: use {other} instead")


def runnable(bash: Tool[str]) -> BetaBuiltinFunctionTool:
    """The tool for the SDK's tool runner: ``client.beta.messages.tool_runner(tools=[runnable(bash)], ...)``.

    Raises InvalidRequest for an ``AsyncTool``.
    """
    sdk = _sdk()
    _check(bash, Tool, "async_runnable")
    return _for_runner(sdk, TOOL, bash)


def async_runnable(bash: AsyncTool[str]) -> BetaAsyncBuiltinFunctionTool:
    """As ``runnable``, for the asynchronous client."""
    sdk = _sdk()
    _check(bash, AsyncTool, "runnable")
    return _for_async_runner(sdk, TOOL, bash)


def tools(where: Any, agent: object = None, **options: Unpack[ToolOptions]) -> list[BetaBuiltinFunctionTool]:
    """The tools of ``Toolbox.VERBS``, for ``client.beta.messages.tool_runner(tools=...)``.

    ``where``: a session of any kind, or ``Agents`` with the name of the ``agent``. ``options``: see ``Toolbox``. The
    tools of ``AsyncAnthropic`` are ``async_tools``. Raises InvalidRequest.
    """
    sdk, toolbox = _sdk(), Toolbox(where, agent, **options)

    def caller(verb: str) -> Callable[[object], str]:
        return lambda call: run_to_end(toolbox.call(verb, call))

    return [_for_runner(sdk, Toolbox.definition(verb), caller(verb)) for verb in toolbox.verbs]


def async_tools(where: Any, agent: object = None, **options: Unpack[ToolOptions]) -> list[BetaAsyncBuiltinFunctionTool]:
    """As ``tools``, for ``AsyncAnthropic``."""
    sdk, toolbox = _sdk(), Toolbox(where, agent, **options)
    return [_for_async_runner(sdk, Toolbox.definition(verb), partial(toolbox.call, verb)) for verb in toolbox.verbs]


def _for_runner(sdk: Any, definition: Mapping[str, Any], run: Callable[[object], str]) -> BetaBuiltinFunctionTool:
    class Runnable(sdk.BetaBuiltinFunctionTool):
        def to_dict(self) -> Any:
            return dict(definition)

        def call(self, input: object) -> str:
            try:
                return run(input)
            except ShellSessionError as error:
                raise sdk.ToolError(str(error)) from error

    return Runnable()


def _for_async_runner(
    sdk: Any, definition: Mapping[str, Any], run: Callable[[object], Awaitable[str]]
) -> BetaAsyncBuiltinFunctionTool:
    class Runnable(sdk.BetaAsyncBuiltinFunctionTool):
        def to_dict(self) -> Any:
            return dict(definition)

        async def call(self, input: object) -> str:
            try:
                return await run(input)
            except ShellSessionError as error:
                raise sdk.ToolError(str(error)) from error

    return Runnable()
