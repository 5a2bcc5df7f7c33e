"""OpenAI Agents SDK: a session's verbs as function tools, and the shell tool of the Responses API (extra ``openai``).

A call of the shell tool has the shape that the Responses API defines: several commands in order, and one time limit
that holds for each.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Unpack

from ..contracts.contract import append_line, notice
from ..errors import InvalidRequest, ShellSessionError
from ..extras import missing
from ..models import LONGEST, Limits, Result, omitted_lines, streams_of
from ..paging import check_chars
from ..text import MAX_CHARS, shared
from .binding import awaited_session
from .toolbox import Toolbox, ToolOptions

if TYPE_CHECKING:
    from ..policy.secrets import Secrets


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

_LONGEST: Final = int(LONGEST) * 1000  # milliseconds


def function_tools(where: Any, agent: object = None, **options: Unpack[ToolOptions]) -> list[FunctionTool]:
    """The tools of ``Toolbox.VERBS``: ``Agent(name=..., tools=function_tools(session))``.

    ``where``: a session of any kind, or ``Agents`` with the name of the ``agent``. ``options``: see ``Toolbox``. A
    session belongs to one agent; its calls run one after the other. Raises InvalidRequest.
    """
    toolbox = Toolbox(where, agent, **options)
    return [_function_tool(toolbox, name) for name in toolbox.verbs]


def _function_tool(toolbox: Toolbox, name: str) -> FunctionTool:
    """The SDK's function tool, except that the model gets the reason why its arguments are wrong."""

    async def invoke(context: ToolContext[Any], text: str) -> str:
        try:
            return await toolbox.call(name, json.loads(text) if text else {})
        except ShellSessionError as error:
            return f"Error: {error}"
        except (ValueError, RecursionError):
            return "Error: the arguments are not JSON: nothing was run"

    made = function_tool(getattr(toolbox, name))
    return FunctionTool(made.name, made.description, made.params_json_schema, invoke)


def shell_tool(where: Any, agent: object = None, *, timeout: float = 120.0, max_chars: int = MAX_CHARS) -> ShellTool:
    """The shell tool of the Responses API, run in this session: ``Agent(name=..., tools=[shell_tool(session)])``.

    ``where``, ``agent``: as for ``function_tools``. ``timeout``: seconds for each command if the call names no limit.
    ``max_chars``: characters of output that the model gets of all commands of a call together, if the call names no
    limit. If a command times out or ends its bash, the following commands are not run: they may depend on its directory
    and variables. Raises InvalidRequest.
    """
    session, _ = awaited_session(where, agent)
    check_chars(max_chars)

    async def execute(request: ShellCommandRequest) -> ShellResult:
        action = request.data.action
        limit = (action.max_output_length or max_chars) // max(1, len(action.commands))
        outputs: list[ShellCommandOutput] = []
        for command in action.commands:
            try:
                seconds, limits = _seconds(action.timeout_ms, timeout), Limits(max_output=4 * limit)
                result = await session.run(command, timeout=seconds, tty=False, limits=limits)
                outputs.append(_output(command, result, limit, session.secrets))
                if not result.state_kept:
                    break
            except ShellSessionError as error:
                said = str(error) if session.secrets is None else session.secrets.mask(str(error))
                outputs.append(ShellCommandOutput(stderr=said, outcome=_exited(1), command=command))
            if outputs[-1].status == "timeout":
                break
        # Given a limit, the SDK keeps that much from the start of all outputs together. Pass it only if the call does.
        return ShellResult(output=outputs, max_output_length=action.max_output_length)

    return ShellTool(executor=execute)


def _seconds(timeout_ms: object, usual: float) -> float:
    """The time limit of a call in seconds. Raises InvalidRequest, as the SDK accepts integers of any size."""
    if not timeout_ms:
        return usual
    if type(timeout_ms) is not int or not 0 < timeout_ms <= _LONGEST:
        raise InvalidRequest(f"timeout_ms must be a number of milliseconds from 1 to {_LONGEST}: nothing was run")
    return timeout_ms / 1000


def _output(command: str, result: Result, limit: int, secrets: Secrets | None) -> ShellCommandOutput:
    timed_out = result.outcome in ("timed_out", "idle")
    outcome = ShellCallOutcome(type="timeout") if timed_out else _exited(result.exit_code)
    streams = streams_of(result) if secrets is None else secrets.streams(result)
    why = notice(result, stateful=True)
    stdout, stderr = shared(streams, max(0, limit - len(why) - 1), lines=omitted_lines(result))
    stderr = append_line(stderr, why)
    return ShellCommandOutput(stdout=stdout, stderr=stderr, outcome=outcome, command=command)


def _exited(exit_code: int | None) -> ShellCallOutcome:
    return ShellCallOutcome(type="exit", exit_code=exit_code)
