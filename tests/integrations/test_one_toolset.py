"""The same tools everywhere: over every kind of session, and in every SDK."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import Agent as OpenAIAgent, Runner
from agents.testing import ScriptedModel, assistant_message, function_call
from langchain.agents import create_agent
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from scripted_langchain import Scripted as LangChainModel, runs, says
from scripted_strands import Scripted as StrandsModel
from strands import Agent as StrandsAgent
from system import PATIENCE, unique_seconds, until, wait_until, with_argument

from shellsession import (
    Agents,
    AsyncAgents,
    AsyncSession,
    InvalidRequest,
    Policy,
    PolicyRefused,
    Session,
    SessionClosed,
    aconnect,
    connect,
)
from shellsession.integrations import anthropic, langchain, openai, pydantic_ai, strands
from shellsession.integrations.binding import run_to_end
from shellsession.integrations.toolbox import Toolbox

Story = Callable[[Toolbox], Awaitable[None]]
KINDS = ["Session", "AsyncSession", "connect", "aconnect", "Agents", "AsyncAgents"]


@asynccontextmanager
async def toolbox(kind: str, daemon: Any, **options: Any) -> AsyncIterator[Toolbox]:
    match kind:
        case "Session":
            with Session() as session:
                yield Toolbox(session, **options)
        case "AsyncSession":
            async with AsyncSession() as awaited:
                yield Toolbox(awaited, **options)
        case "connect":
            remote = await asyncio.to_thread(connect, "tools", daemon.socket)
            yield Toolbox(remote, **options)
            await asyncio.to_thread(remote.close)
        case "aconnect":
            async with aconnect("atools", daemon.socket) as aremote:
                yield Toolbox(aremote, **options)
                await aremote.close()
        case "Agents":
            with Agents() as agents:
                yield Toolbox(agents, "a1", **options)
        case "AsyncAgents":
            async with AsyncAgents() as aagents:
                yield Toolbox(aagents, "a1", **options)


def play(kind: str, daemon: Any, story: Story, **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE), toolbox(kind, daemon, **options) as tools:
            await story(tools)

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_state_and_status_over_every_kind_of_session(kind: str, daemon: Any) -> None:
    async def story(tools: Toolbox) -> None:
        await tools.call("bash", {"command": "cd /; X=1"})
        assert await tools.call("bash", {"command": "echo $X $PWD; false"}) == "1 /\n[exit status 1]"
        await tools.call("bash", {"command": "sleep 1000 >/dev/null & true"})
        assert "sleep 1000" in await tools.call("jobs", {})
        await tools.call("restart", {})
        assert await tools.call("bash", {"command": "echo ${X-gone}"}) == "gone"

    play(kind, daemon, story)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_command_is_handed_back_over_every_kind_of_session(kind: str, daemon: Any) -> None:
    async def story(tools: Toolbox) -> None:
        seconds = unique_seconds()
        assert "still running" in await tools.bash(f"X=kept; sleep {seconds}")
        tools._patience = PATIENCE
        await until(lambda: with_argument(seconds))
        assert "the shell, its directory and its variables are kept" in await tools.interrupt()
        assert with_argument(seconds) == []
        assert await tools.bash("echo $X") == "kept"
        assert "waits for input" in await tools.bash('read -p "name? " n; echo "hello $n"', interactive=True)
        assert "hello Ann" in await tools.send("Ann")

    play(kind, daemon, story, patience=0.5, tick=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_call_ends_its_command_over_every_kind_of_session(kind: str, daemon: Any) -> None:
    async def story(tools: Toolbox) -> None:
        seconds = unique_seconds()
        call = asyncio.ensure_future(tools.bash(f"X=kept; sleep {seconds}"))
        await asyncio.to_thread(wait_until, lambda: with_argument(seconds), "the command")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert with_argument(seconds) == []
        assert await tools.bash("echo $X") == "kept"

    play(kind, daemon, story)


@pytest.mark.parametrize("kind", [Agents, AsyncAgents])
def test_a_model_learns_once_that_its_session_has_expired(kind: Any, tmp_path: Path) -> None:
    """Nothing is run then: the command may be one for another directory. Who has run nothing has lost nothing."""

    async def expire(agents: Any) -> None:
        session = agents.session("a1")
        session.idle_ttl = 0.01
        agents.check_anew()
        await until(lambda: session.closed)

    async def main() -> None:
        agents = kind()
        try:
            tools = Toolbox(agents, "a1")
            for command in (f"cd {tmp_path}; X=1", "X=2"):
                await tools.bash(command)
                await expire(agents)
                with pytest.raises(SessionClosed, match=r"nothing was run.*variables and jobs are lost; call again"):
                    await tools.bash("touch never")
                assert await tools.bash("echo ${X-gone} $PWD; ls never 2>&-") == f"gone {os.getcwd()}\n[exit status 2]"
                await tools.restart()
            await expire(agents)
            assert await tools.bash("echo on") == "on"
        finally:
            closing = agents.close()
            if closing is not None:
                await closing

    asyncio.run(main())


def test_agents_need_a_name_and_a_session_has_none() -> None:
    with Agents() as agents, pytest.raises(InvalidRequest, match="pass its name"):
        Toolbox(agents)
    with Session() as session, pytest.raises(InvalidRequest, match="leave it out"):
        Toolbox(session, "a1")


def test_ctrl_c_ends_the_command_of_a_tool_that_is_not_awaited() -> None:
    seconds = unique_seconds()

    def press() -> None:
        wait_until(lambda: with_argument(seconds), "the command")
        os.kill(os.getpid(), signal.SIGINT)

    with Session() as session:
        tools = Toolbox(session)
        threading.Thread(target=press).start()
        with pytest.raises(KeyboardInterrupt):
            run_to_end(tools.bash(f"X=kept; sleep {seconds}"))
        assert with_argument(seconds) == []
        assert run_to_end(tools.bash("echo $X")) == "kept"


CALLS: list[dict[str, Any]] = [
    {"command": "cd /; X=1"},
    {"command": "echo $X $PWD; false"},
    {"command": "echo $X $PWD", "workdir": "/proc", "description": "as other tools have it"},
]
ANSWERS = ["[no output]", "1 /\n[exit status 1]", "1 /proc"]


def in_langchain(session: Any, awaited: bool) -> list[str]:
    model = LangChainModel(script=[*map(runs, CALLS), says("done")])
    agent = create_agent(model, tools=langchain.tools(session))
    question = {"messages": [{"role": "user", "content": "go"}]}
    state = asyncio.run(agent.ainvoke(question)) if awaited else agent.invoke(question)
    return [message.text for message in state["messages"] if message.type == "tool"]


def in_strands(session: Any, awaited: bool) -> list[str]:
    model = StrandsModel(*CALLS, "done")
    agent = StrandsAgent(model=model, tools=strands.tools(session), callback_handler=None)
    asyncio.run(agent.invoke_async("go")) if awaited else agent("go")
    return [text for text, _ in model.heard]


def in_openai(session: Any, awaited: bool) -> list[str]:
    calls = [[function_call("bash", json.dumps(one), call_id=f"call-{at}")] for at, one in enumerate(CALLS)]
    agent = OpenAIAgent("developer", model=ScriptedModel([*calls, [assistant_message("done")]]))
    agent.tools = list(openai.function_tools(session))
    ended = asyncio.run(Runner.run(agent, "go")) if awaited else Runner.run_sync(agent, "go")
    return [str(item.output) for item in ended.new_items if item.type == "tool_call_output_item"]


def in_pydantic_ai(session: Any, awaited: bool) -> list[str]:
    answers = list[str]()

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        answers[:] = [str(part.content) for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
        left = CALLS[len(answers) :]
        return ModelResponse(parts=[ToolCallPart("bash", left[0]) if left else TextPart("done")])

    agent = PydanticAgent(FunctionModel(model), toolsets=[pydantic_ai.toolset(session)])
    asyncio.run(agent.run("go")) if awaited else agent.run_sync("go")
    return answers


def in_anthropic(session: Any, awaited: bool) -> list[str]:
    """Without a client: its tool runner calls ``call`` with the input of each block."""
    made = anthropic.async_tools(session) if awaited else anthropic.tools(session)
    (bash,) = (tool for tool in made if tool.name == "bash")
    assert bash.to_dict()["input_schema"]["required"] == ["command"]

    async def main() -> list[str]:
        return [await bash.call(call) for call in CALLS]

    return asyncio.run(main()) if awaited else list(map(bash.call, CALLS))


# Some SDKs leave their event loops open, which garbage collection reports.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("awaited", [False, True], ids=["called", "awaited"])
@pytest.mark.parametrize("session", [Session, AsyncSession])
@pytest.mark.parametrize("sdk", [in_langchain, in_strands, in_openai, in_pydantic_ai, in_anthropic])
def test_state_and_status_in_every_sdk(sdk: Any, session: Any, awaited: bool) -> None:
    made = session()
    try:
        assert sdk(made, awaited) == ANSWERS
    finally:
        closing = made.close()
        if closing is not None:
            asyncio.run(closing)
        asyncio.set_event_loop(None)
        gc.collect()


@pytest.mark.parametrize("kind", ["Session", "aconnect"])
def test_tools_can_have_a_policy_of_their_own(kind: str, daemon: Any) -> None:
    asked = list[str]()

    async def confirm(command: str, _: str, cwd: str) -> bool:
        asked.append(command)
        return False

    async def story(tools: Toolbox) -> None:
        assert await tools.bash("echo fine") == "fine"
        with pytest.raises(PolicyRefused, match="not confirmed"):
            await tools.bash("rm x")
        assert asked == ["rm x"]

    async def limited(tools: Toolbox) -> None:
        assert "time limit" in await tools.bash("sleep 1000", timeout=500)

    play(kind, daemon, story, policy=Policy(allow=["echo"], confirm=confirm))
    play(kind, daemon, limited, policy=Policy(max_timeout=0.3))
