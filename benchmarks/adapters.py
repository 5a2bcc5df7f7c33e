"""What a tool call costs in each SDK: against that SDK's call of a tool that does nothing, then the session's own run.

These two are made one after the other. Measured apart they look cheaper: what runs after a switch between processes
runs with cold caches.

Run it where the SDKs are: ``make test-integrations`` makes that environment.

    .venv-integrations/bin/python -m benchmarks.adapters
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from agents import function_tool
from agents.tool_context import ToolContext
from anthropic import beta_async_tool
from langchain_core.tools import tool as langchain_tool
from mcp import Client
from mcp.server import MCPServer
from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.usage import RunUsage
from strands import Agent, tool as strands_tool
from strands.models import BedrockModel
from strands.tools.executors._executor import ToolExecutor

from benchmarks.measure import Spread, duration, ratios, spread
from shellsession import AsyncSession, Session
from shellsession.integrations import anthropic, langchain, mcp, openai, pydantic_ai, strands
from shellsession.integrations.toolbox import Toolbox, limits_for

Call = Callable[[], Awaitable[object]]

_BAR: Final = 1.3  # for AsyncSession
_COMMAND: Final = "true"
_ARGUMENTS: Final = {"command": _COMMAND}


async def nothing(command: str, timeout: float | None = None, interactive: bool = False) -> str:
    """Do nothing."""
    return "[no output]"


def _named(tools: list[Any]) -> Any:
    return next(tool for tool in tools if getattr(tool, "name", getattr(tool, "tool_name", "")) == "bash")


# Each function takes a session, or None for the tool that does nothing, and returns the call that the SDK would make.


async def _langchain(session: Any, _: AsyncExitStack) -> Call:
    made = langchain_tool("bash")(nothing) if session is None else _named(langchain.tools(session))
    call = {"type": "tool_call", "name": "bash", "args": _ARGUMENTS, "id": "1"}
    return lambda: made.ainvoke(call)


async def _openai(session: Any, _: AsyncExitStack) -> Call:
    made = function_tool(nothing, name_override="bash") if session is None else _named(openai.function_tools(session))
    text = json.dumps(_ARGUMENTS)
    context = ToolContext(None, tool_name="bash", tool_call_id="1", tool_arguments=text)
    return lambda: made.on_invoke_tool(context, text)


async def _pydantic_ai(session: Any, _: AsyncExitStack) -> Call:
    toolset = FunctionToolset() if session is None else pydantic_ai.toolset(session)
    if session is None:
        toolset.add_function(nothing, name="bash")
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    manager = await ToolManager(toolset).for_run_step(context)
    part = ToolCallPart("bash", json.dumps(_ARGUMENTS), "1")
    return lambda: manager.handle_call(part)


async def _strands(session: Any, _: AsyncExitStack) -> Call:
    """The SDK has no public way to call one tool in this loop."""
    made = strands_tool(nothing, name="bash") if session is None else _named(strands.tools(session))
    agent = Agent(model=BedrockModel(region_name="us-east-1"), tools=[made], callback_handler=None)

    async def call() -> object:
        use = {"toolUseId": "1", "name": "bash", "input": _ARGUMENTS}
        return [event async for event in ToolExecutor._stream(agent, use, [], {})]

    return call


async def _anthropic(session: Any, _: AsyncExitStack) -> Call:
    made = beta_async_tool(nothing) if session is None else _named(anthropic.async_tools(session))
    return lambda: made.call(_ARGUMENTS)


async def _mcp(session: Any, stack: AsyncExitStack) -> Call:
    """Through the official client, in this process."""
    server = MCPServer("nothing") if session is None else mcp.server(Toolbox(session))
    if session is None:
        server.tool(name="bash", structured_output=False)(nothing)
    client = await stack.enter_async_context(Client(server))
    return lambda: client.call_tool("bash", _ARGUMENTS)


_SDKS: Final[Mapping[str, Callable[[Any, AsyncExitStack], Awaitable[Call]]]] = {
    "LangChain": _langchain,
    "OpenAI Agents": _openai,
    "Pydantic AI": _pydantic_ai,
    "Strands": _strands,
    "Anthropic": _anthropic,
    "MCP": _mcp,
}


def own_run(session: Any) -> Call:
    """The session's own run, with the options of the tools."""
    options: dict[str, Any] = {"timeout": 5.0, "on_timeout": "yield", "tty": False, "limits": limits_for(30_000)}
    if isinstance(session, AsyncSession):
        return partial(session.run, _COMMAND, **options)

    async def run() -> object:
        return session.run(_COMMAND, **options)

    return run


def both(first: Call, second: Call) -> Call:
    async def call() -> None:
        await first()
        await second()

    return call


async def interleaved(calls: Mapping[str, Call], bursts: int, size: int) -> dict[str, list[float]]:
    """Make every call in turn, ``size`` times in a burst. Returns the median of each burst."""
    clock, medians = time.perf_counter, {name: list[float]() for name in calls}
    for burst in range(-1, bursts):  # the first one only warms up
        for name, call in calls.items():
            took = []
            for _ in range(size):
                start = clock()
                await call()
                took.append(clock() - start)
            if burst >= 0:
                medians[name].append(statistics.median(took))
    return medians


def _shown(values: Spread) -> str:
    return f"{duration(values.mid)} ({duration(values.low)}-{duration(values.high)})"


async def measure(session: Any, bursts: int, size: int) -> dict[str, Spread]:
    """Measure each SDK, and print a line of a table for it. Returns the ratios."""
    found = {}
    async with AsyncExitStack() as stack:
        calls = {"run": (run := own_run(session))}
        for name, make in _SDKS.items():
            idle, bash = await make(None, stack), await make(session, stack)
            assert all(["[no output]" in str(await call()) for call in (idle, bash)]), name
            calls |= {name: idle, f"{name}, run": both(idle, run), f"{name}, bash": bash}
        took = await interleaved(calls, bursts, size)
    print(f"\nThe session's own run: {_shown(spread(took['run']))}\n")
    print(f"| SDK | a tool that does nothing | that, then a run | `bash` | ratio |\n{'|---' * 5}|")
    for name in _SDKS:
        floor, call = took[f"{name}, run"], took[f"{name}, bash"]
        found[name] = ratio = ratios(call, floor)
        print(f"| {' | '.join((name, *map(_shown, map(spread, (took[name], floor, call)))))} | {ratio} x |")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adapters", description=__doc__)
    parser.add_argument("--bursts", type=int, default=40)
    parser.add_argument("--size", type=int, default=25, help="calls in a burst")
    args = parser.parse_args()

    async def run() -> bool:
        async with AsyncSession() as awaited:
            print(f"AsyncSession, bar {_BAR} x")
            found = await measure(awaited, args.bursts, args.size)
        with Session() as session:
            print("\nSession, no bar: its commands run in threads")
            await measure(session, args.bursts, args.size)
        return all(ratio.mid <= _BAR for ratio in found.values())

    return 0 if asyncio.run(run()) else 1


if __name__ == "__main__":
    sys.exit(main())
