"""Strands Agents' own agent, with our tool and a scripted model."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
from scripted_strands import Said, Scripted
from strands import Agent
from system import LIMITS, PATIENCE, is_alive, unique_seconds, wait_until, with_argument

from shellsession import Agents, AsyncSession
from shellsession.integrations.strands import bash, make_bash, tools


def execute(command: str, **fields: object) -> dict[str, Any]:
    return {"mode": "execute", "command": command, **fields}


def make(*script: Said, tool: Any = bash) -> Any:
    return Agent(model=Scripted(*script), tools=[tool], callback_handler=None)


def work(*script: Said, tool: Any = bash) -> list[tuple[str, str]]:
    """What the tool told the model of an agent."""
    agent = make(*script, tool=tool)
    agent("go")
    heard: list[tuple[str, str]] = agent.model.heard
    return heard


def output(text: str, error: str = "") -> tuple[str, str]:
    return json.dumps({"output": text, "error": error}), "success"


def test_an_agent_uses_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document's first example, too: list the files, create one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").touch()
    assert work(execute("ls"), execute('echo "Hello World" > notes.txt'), "done") == [output("one"), output("")]
    assert (tmp_path / "notes.txt").read_text() == "Hello World\n"


def test_the_calls_of_one_message_are_run_in_their_order(tmp_path: Path) -> None:
    lines = [f"mkdir -p {tmp_path}/a", f"cd {tmp_path}/a", "echo one >f", "cp f g", "echo two >f", "cat g f; X=1"]
    calls = [*map(execute, lines), {"mode": "restart"}, execute("echo ${X-gone}")]
    heard = work(calls, "done")
    assert sorted(heard) == sorted(
        [*[output("")] * 5, output("one\ntwo"), ("Bash session restarted", "success"), output("gone")]
    )


def test_the_description_says_so() -> None:
    agent = make("hi")
    agent("go")
    (told,) = agent.model.tools[0]
    assert told["name"] == "bash"
    assert "without sandboxing or restrictions" in told["description"]
    assert told["inputSchema"]["json"]["required"] == ["mode"]
    assert set(told["inputSchema"]["json"]["properties"]) == {"mode", "command", "timeout"}


def test_state_persists_until_a_restart() -> None:
    heard = work(execute("X=1; cd /"), execute("echo $X $PWD"), {"mode": "restart"}, execute("echo ${X-gone}"), "done")
    assert heard == [output(""), output("1 /"), ("Bash session restarted", "success"), output("gone")]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (execute("echo part; exit 3"), "BashSessionError - Bash session error: the command ended the session's bash"),
        ({"mode": "execute"}, "Invalid input: command is required"),
        ({"mode": "nothing"}, "Invalid input: mode: "),
        (execute("ls", timeout="5"), "Invalid input: timeout: should be a valid number"),
        (execute("ls", timeout=True), "Invalid input: timeout: should be a valid number"),
        (execute("a\0b"), "Invalid input: command: contains a NUL"),
    ],
)
def test_the_agent_recovers_from_an_error(call: dict[str, Any], said: str) -> None:
    (text, status), after = work(call, execute("echo better"), "recovered")
    assert text.startswith(f"Error: {said}")
    assert ("[stdout]\npart" in text) is ("part" in call.get("command", ""))
    assert (status, after) == ("error", output("better"))


def test_the_agent_recovers_from_a_timeout() -> None:
    for limit in LIMITS:
        (text, status), after = work(execute("echo part; sleep 1000", timeout=limit), execute("echo better"), "fine")
        if "part" in text:
            break
    assert text.startswith(f"Error: BashTimeoutError - Command timed out after {limit:g} seconds;")
    assert "[stdout]\npart" in text
    assert (status, after) == ("error", output("better"))


def test_each_agent_has_its_own_session() -> None:
    one, two = make(execute("X=1"), "done", execute("echo ${X-none}"), "done"), make(execute("echo ${X-none}"), "done")
    for agent in (one, two, one):
        agent("go")
    assert one.model.heard[-1] == output("1")
    assert two.model.heard == [output("none")]


def test_a_session_is_closed_when_its_agent_is_collected() -> None:
    agent = make(execute("echo $$"), "done")
    agent("go")
    pid = int(json.loads(agent.model.heard[0][0])["output"])
    assert is_alive(pid)
    seen = weakref.ref(agent)
    del agent
    gc.collect()
    assert seen() is None
    wait_until(lambda: not is_alive(pid), "the end of the agent's bash")


def test_agents_of_ours_hold_the_sessions_where_they_are_given() -> None:
    with Agents() as agents:
        agent = make(execute("true"), "done", tool=make_bash(agents))
        assert agents.list() == []
        agent("go")
        assert len(agents.list()) == 1


def test_direct_invocation() -> None:
    agent = make()
    found = agent.tool.bash(mode="execute", command='echo "Hello from bash"')
    assert (found["status"], found["content"]) == ("success", [{"text": output("Hello from bash")[0]}])


def test_another_name() -> None:
    assert make(tool=make_bash(name="shell")).tool_names == ["shell"]


@pytest.mark.parametrize("way", ["agent.cancel()", "the task is cancelled"])
def test_a_cancelled_call_ends_its_command(way: str) -> None:
    async def main() -> None:
        seconds = unique_seconds()
        agent = make(execute("X=kept"), execute(f"sleep {seconds}"), "done")
        task = asyncio.create_task(agent.invoke_async("go"))
        await asyncio.to_thread(wait_until, lambda: with_argument(seconds), "the command's start")
        if way == "agent.cancel()":
            agent.cancel()
            assert (await task).stop_reason == "cancelled"
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert with_argument(seconds) == []
        found = await asyncio.to_thread(lambda: agent.tool.bash(mode="execute", command="echo $X"))
        assert found["content"] == [{"text": output("kept")[0]}]

    asyncio.run(main())


def test_cancelling_the_agent_ends_the_command_of_the_seven_tools() -> None:
    async def main() -> None:
        seconds = unique_seconds()
        async with AsyncSession() as session:
            model = Scripted({"command": f"sleep {seconds}"}, "done")
            agent = Agent(model=model, tools=tools(session), callback_handler=None)
            task = asyncio.create_task(agent.invoke_async("go"))
            await asyncio.to_thread(wait_until, lambda: with_argument(seconds), "the command's start")
            agent.cancel()
            assert (await asyncio.wait_for(task, PATIENCE)).stop_reason == "cancelled"
            assert with_argument(seconds) == []

    asyncio.run(main())
