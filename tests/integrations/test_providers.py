"""Anthropic, OpenAI and pydantic-ai: the real SDKs, with a scripted model in place of a paid one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from agents import Agent as OpenAIAgent, Runner, ShellActionRequest, ShellCallData, ShellCommandRequest
from agents.run_context import RunContextWrapper
from agents.testing import ScriptedModel, assistant_message, function_call
from anthropic.types import ToolUseBlock
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from system import LIMITS

from shellsession import Agents, AsyncSession, InvalidRequest, Policy, Session
from shellsession.integrations import anthropic, openai
from shellsession.integrations.pydantic_ai import toolset
from shellsession.integrations.toolbox import Toolbox
from shellsession.text import MAX_CHARS


@pytest.fixture
def session() -> Iterator[Session]:
    with Session() as session:
        yield session


def answer(session: Session, **call: object) -> dict[str, Any]:
    block = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": call}
    return anthropic.tool_result(anthropic.tool(session), block)


def test_anthropic_keeps_one_bash(session: Session) -> None:
    assert answer(session, command="cd /; word=hello") == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": "[no output]",
        "is_error": False,
    }
    assert answer(session, command="echo $PWD $word; echo oh >&2; exit 4")["content"].startswith(
        "[stdout]\n/ hello\n[stderr]\noh"
    )
    answer(session, command="word=again")
    assert answer(session, restart=True)["content"] == "[a fresh bash was started]"
    assert answer(session, command="echo ${word-gone}")["content"] == "gone"


def test_anthropics_own_block_is_taken(session: Session) -> None:
    block = ToolUseBlock(id="toolu_2", name="bash", input={"command": "echo hi"}, type="tool_use")
    assert anthropic.tool_result(anthropic.tool(session), block)["content"] == "hi"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({}, "command: is missing, and so is restart: pass one of them"),
        ({"command": None}, "command: is missing, and so is restart: pass one of them"),
        ({"command": 1}, "command: should be a valid string; the arguments are command (optional), restart (optional)"),
        ({"cmd": "ls"}, "cmd: is unknown; the arguments are command (optional), restart (optional)"),
        (
            {"restart": "yes"},
            "restart: should be a valid boolean; the arguments are command (optional), restart (optional)",
        ),
        (
            {"restart": 1},
            "restart: should be a valid boolean; the arguments are command (optional), restart (optional)",
        ),
        ({"command": "echo \ud800"}, "command: contains half of a surrogate pair, which is not text"),
        ({"command": "a\0"}, "command: contains a NUL character, which bash cannot read"),
    ],
)
def test_anthropic_bad_calls_are_error_results(session: Session, call: dict[str, object], said: str) -> None:
    found = answer(session, **call)
    assert (found["content"], found["is_error"]) == (said, True)


def test_anthropic_names_no_tool_that_the_model_has_not(session: Session) -> None:
    """It has ``bash`` alone."""
    said = answer(session, command="sleep 1000 & echo x")["content"].partition("\n[left running")[2]
    found = re.fullmatch(r" in the background: process (\d+)\]", said)
    assert found
    for command in ("echo more; sleep 1000", f"cat {found[1]}", "exit 3", "cat /dev/tty", "kill -9 $$"):
        try:
            said = anthropic.tool(session, timeout=0.3)({"command": command})
        except anthropic.BashCallError as error:
            said = str(error)
        assert "`" not in said


def test_anthropic_bad_settings_are_refused_at_once(session: Session) -> None:
    with pytest.raises(InvalidRequest, match="positive number of seconds"):
        anthropic.tool(session, timeout=-1)
    for max_chars in (-1, None, "x", 1.5, True):
        with pytest.raises(InvalidRequest, match="max_chars must be a number of characters, 200 or more, not "):
            anthropic.tool(session, max_chars=max_chars)


def test_a_tool_of_the_other_kind_is_refused_before_anything_runs(session: Session) -> None:
    waited: Any = anthropic.tool(AsyncSession())
    block = {"type": "tool_use", "id": "1", "name": "bash", "input": {"command": "echo never"}}
    for call in (lambda: anthropic.runnable(waited), lambda: anthropic.tool_result(waited, block)):
        with pytest.raises(InvalidRequest, match="this takes a Tool, not AsyncTool: use a"):
            call()
    threaded: Any = anthropic.tool(session)
    with pytest.raises(InvalidRequest, match="use runnable instead"):
        anthropic.async_runnable(threaded)
    with pytest.raises(InvalidRequest, match="use tool_result instead"):
        asyncio.run(anthropic.atool_result(threaded, block))
    assert session.pid is None


@pytest.mark.parametrize(
    "block",
    [None, {}, {"id": "1", "name": "other", "input": {"command": "touch ran"}}, {"name": "bash", "input": {}}],
    ids=["none", "empty", "another tool", "no id"],
)
def test_wrong_arguments_of_anthropics_tool_are_refused(session: Session, block: Any) -> None:
    with pytest.raises(InvalidRequest, match="nothing was run"):
        anthropic.tool_result(anthropic.tool(session), block)
    assert session.pid is None


def test_anthropic_says_what_a_time_limit_did(session: Session) -> None:
    call = {"id": "1", "name": "bash", "input": {"command": "echo begun; sleep 1000"}}
    for limit in LIMITS:
        found = anthropic.tool_result(anthropic.tool(session, timeout=limit), call)
        if "begun" in found["content"]:
            break
    assert found["content"].startswith("begun\n[ended by its time limit")


def test_anthropics_runner_runs_it(session: Session) -> None:
    from anthropic.lib.tools import ToolError

    made = anthropic.runnable(anthropic.tool(session))
    assert made.to_dict() == {"type": "bash_20250124", "name": "bash"}
    assert made.call({"command": "echo hi"}) == "hi"
    with pytest.raises(ToolError, match="is missing"):
        made.call({})

    async def main() -> None:
        async with AsyncSession() as session:
            made = anthropic.async_runnable(anthropic.tool(session))
            assert await made.call({"command": "echo hi"}) == "hi"
            with pytest.raises(ToolError, match="is missing"):
                await made.call({})
            block = {"id": "1", "name": "bash", "input": {"command": "false"}}
            assert (await anthropic.atool_result(anthropic.tool(session), block))["content"] == "[exit status 1]"

    asyncio.run(main())


def test_anthropic_over_agents() -> None:
    with Agents() as agents:
        one, two = (anthropic.tool(agents, agent=name) for name in ("one", "two"))
        one({"command": "word=hello"})
        assert two({"command": "echo ${word-none}"}) == "none"


def test_openai_function_tools_in_a_run() -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            tools = openai.function_tools(session)
            assert [tool.name for tool in tools] == [*Toolbox.VERBS]
            script = [
                [function_call("bash", {"command": "cd /; false"}, call_id="1")],
                [function_call("interrupt", {}, call_id="2")],
                [function_call("bash", {"command": "pwd"}, call_id="3")],
                [function_call("bash", {"command": 5}, call_id="4")],
                [function_call("bash", {"command": "touch ran", "cwd": "/"}, call_id="5")],
                [function_call("bash", "no JSON", call_id="6")],
                [function_call("bash", {"command": "true", "timeout": True}, call_id="7")],
                [function_call("bash", {"command": "true", "timeout": "1"}, call_id="8")],
                [function_call("bash", {"command": "true", "interactive": "yes"}, call_id="9")],
                [assistant_message("done")],
            ]
            result = await Runner.run(OpenAIAgent(name="a", model=ScriptedModel(script), tools=[*tools]), "go")
            items = [item for item in result.to_input_list() if item.get("type") == "function_call_output"]
            outputs = {item["call_id"]: str(item["output"]) for item in items}
            assert result.final_output == "done"
            assert (outputs["1"], outputs["3"]) == ("[exit status 1]", "/")
            assert outputs["2"].startswith("Error: there is no running command")
            takes = "the arguments are command, timeout (optional), interactive (optional)"
            assert outputs["4"] == f"Error: command: should be a valid string; {takes}"
            assert outputs["5"] == f"Error: cwd: is unknown; {takes}"
            assert outputs["7"] == outputs["8"] == f"Error: timeout: should be a valid number; {takes}"
            assert outputs["9"] == f"Error: interactive: should be a valid boolean; {takes}"
            assert outputs["6"] == "Error: the arguments are not JSON: nothing was run"

    asyncio.run(main())


def shell(session: AsyncSession, *commands: str, **action: int) -> Any:
    data = ShellCallData(call_id="1", action=ShellActionRequest(commands=list(commands), **action))
    execute = openai.shell_tool(session).executor
    assert execute is not None
    return execute(ShellCommandRequest(ctx_wrapper=RunContextWrapper(context=None), data=data))


def test_openai_shell_calls_are_run_in_order_and_keep_state() -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            found = await shell(session, "cd /; word=hello", "echo $PWD $word; echo oh >&2; (exit 3)", "echo $word")
            assert [one.stdout for one in found.output] == ["", "/ hello\n", "hello\n"]
            assert [one.outcome.exit_code for one in found.output] == [0, 3, 0]
            assert "oh\n" in found.output[1].stderr
            for limit in LIMITS:
                found = await shell(session, "echo begun; sleep 1000", "echo never", timeout_ms=int(limit * 1000))
                if found.output[0].stdout:
                    break
            assert [(one.stdout, one.status) for one in found.output] == [("begun\n", "timeout")]
            found = await shell(session, "a\0b", "seq 10000", max_output_length=100)
            assert "NUL" in found.output[0].stderr
            assert found.max_output_length == 100
            found = await shell(session, "printf err >&2; kill -9 $$", "echo ran in another directory")
            assert found.output[0].stderr == (
                "err\n[the session's bash was killed by signal 9 (SIGKILL); its state is lost, the next command"
                " starts in a fresh one]\n"
            )
            assert len(found.output) == 1
            assert (await shell(session, "echo ${word-gone}")).output[0].stdout == "gone\n"

    asyncio.run(main())


@pytest.mark.parametrize("timeout_ms", [True, "1", -5, 0.5, 10**400])
def test_openai_shell_calls_with_a_wrong_limit_run_nothing(timeout_ms: Any) -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            found = await shell(session, "echo ran", timeout_ms=timeout_ms)
            assert found.output[0].stdout == ""
            assert (
                found.output[0].stderr
                == "timeout_ms must be a number of milliseconds from 1 to 1000000000000: nothing was run"
            )
            assert found.output[0].outcome.exit_code == 1

    asyncio.run(main())


def test_openai_shell_output_has_both_ends_and_says_what_is_missing() -> None:
    """Of every command, where the call names no limit of its own."""

    async def main() -> None:
        async with AsyncSession() as session:
            found = await shell(session, "seq 1000000", "seq 20000 >&2")
            assert found.max_output_length is None
            for text, last in ((found.output[0].stdout, "1000000"), (found.output[1].stderr, "20000")):
                head, tail = text.split(" omitted ...]\n")
                assert head.startswith("1\n2\n")
                assert tail.endswith(f"\n{last}\n")
            assert sum(len(one.stdout) + len(one.stderr) for one in found.output) <= MAX_CHARS
            found = await shell(session, "seq 10000", max_output_length=100)
            assert " bytes (about 9 800 lines) omitted ...]" in found.output[0].stdout

    asyncio.run(main())


def test_openai_shell_calls_show_no_secret() -> None:
    async def main() -> None:
        async with AsyncSession(redact=["PIN-[0-9]"]) as session:
            assert (await shell(session, "echo PIN-1")).output[0].stdout == "***\n"
        async with AsyncSession(redact=["PIN-[0-9]"], policy=Policy(allow=["ls"])) as session:
            assert "'mysql ***' is not allowed" in (await shell(session, "mysql PIN-1")).output[0].stderr

    asyncio.run(main())


def test_pydantic_ai_toolset_in_a_run() -> None:
    calls = [
        ("bash", {"command": "cd /; false"}),
        ("interrupt", {}),
        ("bash", {"command": "pwd"}),
        ("bash", {"command": "cd /tmp", "timeout": True}),
        ("bash", {"command": "cd /tmp", "timeout": "1"}),
        ("bash", {"command": "cd /tmp", "interactive": "yes"}),
        ("bash", {"command": "pwd"}),
    ]

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tools = {tool.name: tool for tool in info.function_tools}
        assert sorted(tools) == sorted(Toolbox.VERBS)
        assert sorted(tools["bash"].parameters_json_schema["properties"]) == ["command", "interactive", "timeout"]
        assert str(tools["bash"].description).startswith("Run a command in a bash that stays open")
        done = sum(isinstance(message, ModelResponse) for message in messages)
        part = ToolCallPart(*calls[done]) if done < len(calls) else TextPart("done")
        return ModelResponse(parts=[part])

    async def main() -> None:
        async with AsyncSession() as session:
            run = await Agent(FunctionModel(model), toolsets=[toolset(session)]).run("go")
            found = [
                part for message in run.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)
            ]
            assert run.output == "done"
            assert [found[at].content for at in (0, 2, 6)] == ["[exit status 1]", "/", "/"]
            takes = "the arguments are command, timeout (optional), interactive (optional)"
            assert [str(part.content) for part in found[3:6]] == [
                f"timeout: should be a valid number; {takes}",
                f"timeout: should be a valid number; {takes}",
                f"interactive: should be a valid boolean; {takes}",
            ]
            assert "no running command" in str(found[1].content)
            assert found[1].outcome == "failed"
            json.dumps([part.content for part in found])

    asyncio.run(main())
