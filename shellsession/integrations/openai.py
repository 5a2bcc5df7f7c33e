"""OpenAI: a session's verbs as function tools of the Agents SDK, and its shell tool (extra ``openai``).

Law: the shell tool's calls are taken as the Responses API words them: several commands in a row, one limit for each.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ..contracts.contract import append_line, notice
from ..errors import InvalidRequest, ShellSessionError
from ..models import LONGEST, Limits, Result
from .extras import missing
from .toolbox import Toolbox, streams

if TYPE_CHECKING:
    from ..async_session import AsyncSession
    from ..daemon.client.async_session import AsyncRemoteSession


try:
    from agents import (
        FunctionTool,
        ShellCallOutcome,
        ShellCommandOutput,
        ShellCommandRequest,
        ShellResult,
        ShellTool,
        function_tool,
    )
    from agents.tool_context import ToolContext
except ImportError as error:
    raise missing("openai", error) from error

# What is shown of each stream where the call names no limit: both ends of a build, and bounded.
_MAX_OUTPUT: Final = 1 << 16  # characters
_LONGEST: Final = int(LONGEST) * 1000  # milliseconds


def function_tools(session: AsyncSession | AsyncRemoteSession, **settings: Any) -> list[FunctionTool]:
    """The tools bash, send, wait, interrupt, restart and jobs: ``Agent(tools=function_tools(session))``.

    ``settings`` are the Toolbox's. A session is one agent's: its calls are made one after the other.
    """
    toolbox = Toolbox(session, **settings)
    return [_function_tool(toolbox, name) for name in Toolbox.VERBS]


def _function_tool(toolbox: Toolbox, name: str) -> FunctionTool:
    """The SDK's own, but that the model is told what was wrong with its arguments, which the SDK keeps to itself."""

    async def invoke(context: ToolContext[Any], text: str) -> str:
        try:
            return await toolbox.call(name, json.loads(text) if text else {})
        except ShellSessionError as error:
            return f"Error: {error}"
        except (ValueError, RecursionError):
            return "Error: the arguments are not JSON: nothing was run"

    made = function_tool(getattr(toolbox, name))
    return FunctionTool(made.name, made.description, made.params_json_schema, invoke)


def shell_tool(session: AsyncSession | AsyncRemoteSession, timeout: float = 120.0) -> ShellTool:
    """The Responses API's shell tool, run here: ``Agent(tools=[shell_tool(session)])``.

    ``timeout``: seconds for each command where the call names none. After one that timed out, or ended its bash (they
    were meant for its directory and variables), the rest are not run.
    """

    async def execute(request: ShellCommandRequest) -> ShellResult:
        action = request.data.action
        limit = action.max_output_length or _MAX_OUTPUT
        outputs: list[ShellCommandOutput] = []
        for command in action.commands:
            try:
                seconds, limits = _seconds(action.timeout_ms, timeout), Limits(max_output=4 * limit)
                result = await session.run(command, timeout=seconds, tty=False, limits=limits)
                outputs.append(_output(command, result, limit))
                if not result.state_kept:
                    break
            except ShellSessionError as error:
                outputs.append(ShellCommandOutput(stderr=str(error), outcome=_exited(1), command=command))
            if outputs[-1].status == "timeout":
                break
        # With a limit the SDK keeps so much from the start of all outputs together: only where the call wants that.
        return ShellResult(output=outputs, max_output_length=action.max_output_length)

    return ShellTool(executor=execute)


def _seconds(timeout_ms: object, usual: float) -> float:
    """The time limit of a call; the SDK takes whole numbers of any size. Raises InvalidRequest."""
    if not timeout_ms:
        return usual
    if type(timeout_ms) is not int or not 0 < timeout_ms <= _LONGEST:
        raise InvalidRequest(f"timeout_ms is a number of milliseconds from 1 to {_LONGEST}: nothing was run")
    return timeout_ms / 1000


def _output(command: str, result: Result, limit: int) -> ShellCommandOutput:
    timed_out = result.outcome in ("timed_out", "idle")
    outcome = ShellCallOutcome(type="timeout") if timed_out else _exited(result.exit_code)
    stdout, stderr = streams([result], limit)
    stderr = append_line(stderr, notice(result, stateful=True))
    return ShellCommandOutput(stdout=stdout, stderr=stderr, outcome=outcome, command=command)


def _exited(exit_code: int | None) -> ShellCallOutcome:
    return ShellCallOutcome(type="exit", exit_code=exit_code)
