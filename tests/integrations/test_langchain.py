"""LangChain's own agent, with our tool and a scripted model."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from scripted_langchain import Scripted, runs, says
from system import LIMITS, unique_seconds, wait_until, with_argument

from shellsession import Agents, AsyncAgents, Session
from shellsession.contracts import langchain, phoenix, spec, strands
from shellsession.integrations.langchain import bash_tool, structured_tool, tools


def work(tool: Any, *script: Any, awaited: bool = False) -> tuple[list[Any], Scripted]:
    """What an agent with this tool comes to: all messages, and the model that said its part of them."""
    model = Scripted(script=list(script))
    agent, asked = create_agent(model, [tool]), {"messages": [("user", "go")]}
    found = asyncio.run(agent.ainvoke(asked)) if awaited else agent.invoke(asked)
    return found["messages"], model


def results(messages: list[Any]) -> list[tuple[str, str]]:
    return [(message.text, message.status) for message in messages if isinstance(message, ToolMessage)]


def test_an_agent_uses_the_tool() -> None:
    messages, model = work(bash_tool(), runs("echo hello"), says("done"))
    assert results(messages) == [("hello\n", "success")]
    assert messages[-1].text == "done"
    assert [[tool.name for tool in bound] for bound in model.tools] == [["bash"], ["bash"]]


def test_the_agent_recovers_from_an_error() -> None:
    """The model hears of the status and of both streams, and goes on."""
    messages, model = work(bash_tool(), runs("echo out; echo err >&2; exit 3"), runs("echo better"), says("recovered"))
    said = "Command failed with exit status 3\n[stdout]\nout\n[stderr]\nerr"
    assert results(messages) == [(said, "error"), ("better\n", "success")]
    assert model.asked[1][-1].text == said
    assert messages[-1].text == "recovered"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "command: is missing; the arguments are command"),
        ({"command": 7}, "command: should be a valid string; the arguments are command"),
        ({"command": "ls", "cwd": "/"}, "cwd: is unknown; the arguments are command"),
        *[
            ({"command": "ls", name: 1}, f"{name}: is unknown; the arguments are command")
            for name in ("self", "config", "run_manager", "callbacks", "args", "tool_input", "arguments")
        ],
        ({"command": "a\0b"}, "command: contains a NUL character, which bash cannot read"),
        ({"command": "\ud800"}, "command: contains half of a surrogate pair, which is not text"),
    ],
)
@pytest.mark.parametrize("awaited", [False, True])
def test_a_wrong_call_is_reported_to_the_model(arguments: dict[str, object], said: str, awaited: bool) -> None:
    messages, _ = work(bash_tool(), runs(arguments), says("sorry"), awaited=awaited)
    assert results(messages) == [(f"Invalid input: {said}", "error")]


def test_a_wrong_call_of_the_seven_tools_is_reported_to_the_model() -> None:
    with Session() as session:
        bash = next(one for one in tools(session) if one.name == "bash")
        told = bash.invoke({"type": "tool_call", "id": "1", "name": "bash", "args": {"cmd": "ls"}})
        assert (told.status, told.content[:19]) == ("error", "command: is missing")


def test_a_timeout_is_reported_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in LIMITS:
        monkeypatch.setattr(langchain, "TIMEOUT", limit)
        messages, _ = work(bash_tool(), runs("echo part; sleep 1000"), says("I see"))
        if "part" in str(messages[-2].content):
            break
    assert results(messages) == [(f"Command timed out after {limit:g} seconds\n[stdout]\npart", "error")]


def test_the_schema_is_the_contracts() -> None:
    function = convert_to_openai_tool(bash_tool())["function"]
    told = langchain.tool(Agents(), "a1").definition
    assert function == {
        "name": "bash",
        "description": "Execute a bash command and return stdout/stderr",
        "parameters": told["input_schema"],
    }


@pytest.mark.parametrize(("persistent", "said"), [(False, "no"), (True, "kept")])
def test_state_is_kept_where_that_was_asked_for(persistent: bool, said: str) -> None:
    messages, model = work(bash_tool(persistent=persistent), runs("X=kept"), runs("echo ${X-no}"), says("done"))
    assert results(messages)[1] == (f"{said}\n", "success")
    assert ("persist between calls" in model.tools[0][0].description) is persistent


def test_each_tool_has_a_session_of_its_own() -> None:
    one, two = bash_tool(persistent=True), bash_tool(persistent=True)
    one.invoke({"command": "X=1"})
    assert (two.invoke({"command": "echo ${X-none}"}), one.invoke({"command": "echo $X"})) == ("none\n", "1\n")


def test_calls_side_by_side() -> None:
    messages, _ = work(bash_tool(), runs("echo one", "exit 2", "echo three"), says("done"))
    assert [status for _, status in results(messages)] == ["success", "error", "success"]


@pytest.mark.parametrize("persistent", [False, True])
def test_calls_of_one_message_are_run_in_their_order_where_they_are_awaited(tmp_path: Path, persistent: bool) -> None:
    numbers = [str(number) for number in range(8)]
    calls = runs(*(f"echo {number} >>{tmp_path}/log" for number in numbers))
    messages, _ = work(bash_tool(persistent=persistent), calls, says("done"), awaited=True)
    assert results(messages) == [("", "success")] * len(numbers)
    assert (tmp_path / "log").read_text().split() == numbers


def test_a_session_is_closed_when_its_tool_is_collected() -> None:
    tool = bash_tool()
    seconds = unique_seconds()
    tool.invoke({"command": f"sleep {seconds} >/dev/null 2>&1 &"})
    wait_until(lambda: with_argument(seconds), "the command")
    del tool
    gc.collect()  # a tool knows its function, and that the tool
    wait_until(lambda: not with_argument(seconds), "the end of the session")


def test_other_contracts_are_tools_too() -> None:
    with Agents() as agents:
        messages, _ = work(structured_tool(spec.tool(agents, "a1")), runs("exit 3"), says("done"))
        assert results(messages) == [('{"stdout": "", "stderr": "", "exitCode": 3}', "success")]
        tool = structured_tool(strands.tool(agents, "a1"))
        execute = {"mode": "execute", "command": "X=1; sleep 1000", "timeout": 0.2}
        messages, _ = work(tool, runs(execute), runs({"mode": "restart"}), says("done"))
        (timeout, status), restarted = results(messages)
        assert timeout.startswith("Command timed out after 0.2 seconds")
        assert (status, restarted) == ("error", ("Bash session restarted", "success"))


def test_spec_returns_its_payload_and_its_errors() -> None:
    with Agents() as agents:
        messages, _ = work(structured_tool(spec.tool(agents, "a1")), runs(""), runs("echo x"), says("done"))
    told = results(messages)
    assert told[0] == ("Invalid input: command: is empty", "error")
    assert told[1][1] == "success"
    assert json.loads(told[1][0]) == {"stdout": "x\n", "stderr": "", "exitCode": 0}


def test_phoenix_returns_its_output_and_its_errors() -> None:
    with Agents() as agents:
        tool = structured_tool(phoenix.tool(agents, "a1", persistent=True))
        messages, _ = work(tool, runs("echo hi"), runs("(exit 3)"), says("done"))
        assert results(messages) == [("hi\n", "success"), ("[command failed: exit code 3]\n", "error")]
    messages, _ = work(tool, runs("echo hi"), says("done"))
    assert results(messages) == [("these agents were closed: make a new Agents", "error")]


class Placed(langchain.LangChain):
    """A contract that names the working directory."""

    description = "Runs in {working_directory}"


def test_the_description_has_the_current_working_directory(tmp_path: Path) -> None:
    from shellsession.contracts.tool import Binder

    with Session(cwd=tmp_path) as session:
        tool = structured_tool(Binder(Placed)(session, persistent=True))
        _, model = work(tool, runs("cd /"), says("done"))
        assert tool.description == "Runs in /"
        assert len(model.tools) == 2


def test_for_asyncio() -> None:
    async def main() -> None:
        async with AsyncAgents() as agents:
            for tool in (bash_tool(agents), bash_tool()):
                model = Scripted(script=[runs("echo hi"), runs("exit 3"), says("done")])
                found = await create_agent(model, [tool]).ainvoke({"messages": [("user", "go")]})
                said = [("hi\n", "success"), ("Command failed with exit status 3", "error")]
                assert results(found["messages"]) == said
            with pytest.raises(NotImplementedError):
                bash_tool(agents).invoke({"command": "true"})

    asyncio.run(main())


@pytest.mark.parametrize("threads", [True, False])
def test_a_cancelled_call_ends_its_command(threads: bool) -> None:
    async def main() -> None:
        async with AsyncAgents() as agents:
            tool = bash_tool(None if threads else agents)
            seconds = unique_seconds()
            task = asyncio.create_task(tool.ainvoke({"command": f"sleep {seconds}"}))
            await asyncio.to_thread(wait_until, lambda: with_argument(seconds), "the command's start")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert with_argument(seconds) == []
            assert await tool.ainvoke({"command": "echo again"}) == "again\n"

    asyncio.run(main())
