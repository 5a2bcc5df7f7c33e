"""The command of a tool call runs once if an SDK replays the step, and again in another turn with the same id."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import homes
import pytest
from agents import Agent as OpenAIAgent, Runner
from agents.testing import ScriptedModel, assistant_message, function_call
from daemons import running
from homes import Home
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai.durable_exec import DurableRunContext
from replayed_agents import AGENTS
from scripted_langchain import Scripted, runs, says
from system import PATIENCE, wait_until

from shellsession import KeyConflict, OutcomeUnknown, RemoteSession, Session, StateLost, connect
from shellsession.daemon.server.receipts import unavailable
from shellsession.integrations import anthropic, langchain, openai, pydantic_ai
from shellsession.integrations.binding import run_to_end
from shellsession.integrations.call_key import call_key
from shellsession.integrations.toolbox import Toolbox, _for_model
from shellsession.models import KEY_MAX

_PROGRAM: Final = Path(__file__).with_name("replayed_agents.py")
home = homes.home
# Seconds for a program that first imports an SDK.
_PATIENCE: Final = 2 * PATIENCE
RUN: Final = "echo ran | tee -a runs"


def start(home: Home, sdk: str, place: Path, turns: int) -> subprocess.Popen[str]:
    words = [sys.executable, str(_PROGRAM), sdk, str(place), str(turns)]
    home.clients.append(client := subprocess.Popen(words, env=home.env, stdout=subprocess.PIPE, text=True))
    return client


def count(place: Path) -> int:
    """How often the command has begun."""
    return (place / "runs").read_text().count("ran\n") if (place / "runs").exists() else 0


@pytest.mark.timeout(150)
@pytest.mark.parametrize("ended", [False, True], ids=["which_runs", "which_has_ended"])
@pytest.mark.parametrize("sdk", AGENTS)
def test_agent_killed_in_its_second_turn_repeats_no_command(sdk: str, ended: bool, home: Home, tmp_path: Path) -> None:
    """Both turns have the same id and command. A workflow of DBOS is told to do both again, others the second one."""
    first = start(home, sdk, tmp_path, 2)
    (tmp_path / "go").touch()
    wait_until(lambda: count(tmp_path) == 2, "the second turn", _PATIENCE)
    first.kill()
    first.wait()
    if ended:
        (tmp_path / "ended").unlink()
        (tmp_path / "go").touch()
        wait_until((tmp_path / "ended").exists, "the end of the command")
    second = start(home, sdk, tmp_path, 2 if sdk == "dbos" else 1)
    if not ended:
        (tmp_path / "go").touch()
    said, _ = second.communicate(timeout=_PATIENCE)
    assert (said, second.returncode, count(tmp_path)) == ("built\n", 0, 2)


def test_time_travel_of_langgraph_runs_the_command_again(remote: RemoteSession, place: Path) -> None:
    model = Scripted(script=[runs(RUN, RUN), says("done"), says("done")])
    agent = create_agent(model, tools=langchain.tools(remote), checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}
    agent.invoke({"messages": [("user", "go")]}, thread)
    assert count(place) == 2  # of two calls in one message
    (before,) = (one for one in agent.get_state_history(thread) if "tools" in one.next)
    agent.invoke(None, before.config)
    assert count(place) == 4


def test_runtime_that_a_model_makes_up_is_an_unknown_argument(remote: RemoteSession, place: Path) -> None:
    (bash,) = (tool for tool in langchain.tools(remote) if tool.name == "bash")
    call = {"command": RUN, "runtime": {"tool_call_id": "1"}}
    said = bash.invoke({"type": "tool_call", "id": "1", "name": "bash", "args": call})
    assert "runtime" in said.text
    assert (said.status, count(place)) == ("error", 0)
    assert "must be an object" in bash.invoke(RUN)


def test_durable_engine_without_messages_gives_run_and_step() -> None:
    def context(**fields: Any) -> DurableRunContext[None]:
        given = {"run_id": "r", "conversation_id": "c", "run_step": 1, "tool_call_id": "bash:0", **fields}
        return DurableRunContext(None, **given)

    keys = {pydantic_ai._key(context(**fields)) for fields in ({}, {}, {"run_step": 2}, {"run_id": "s"})}
    assert len(keys) == 3
    assert pydantic_ai._key(context(run_id=None)) is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_sdk_that_names_only_the_call_runs_it_in_each_turn(remote: RemoteSession, place: Path) -> None:
    call = function_call("bash", json.dumps({"command": RUN}), call_id="bash:0")
    for _ in range(2):
        agent = OpenAIAgent("developer", model=ScriptedModel([[call], [assistant_message("done")]]))
        agent.tools = list(openai.function_tools(remote))
        asyncio.run(Runner.run(agent, "go"))
    (bash,) = (tool for tool in anthropic.tools(remote) if tool.name == "bash")
    for _ in range(2):
        bash.call({"command": RUN})
    assert count(place) == 4


def test_key_of_a_call_answers_its_repetition(remote: RemoteSession, place: Path) -> None:
    tools = Toolbox(remote)
    for _ in range(2):
        assert run_to_end(tools.call("bash", {"command": RUN}, "k1")) == "ran"
    assert count(place) == 1
    with pytest.raises(KeyConflict, match=r"nothing was run; call again$"):
        run_to_end(tools.call("bash", {"command": "echo other"}, "k1"))
    assert run_to_end(tools.call("bash", {"command": RUN}, "k2")) == "ran"
    assert run_to_end(tools.call("jobs", {}, "k2")) == "[no jobs]"  # runs no command


def test_error_about_a_lost_command_says_what_a_model_can_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    call = {"command": f"echo ran >>{tmp_path}/runs; sleep 60"}
    with running(tmp_path / "daemon") as daemon:
        tools = Toolbox(connect("lost", daemon.socket, False, cwd=tmp_path), patience=0.2)
        assert "still running" in run_to_end(tools.call("bash", call, "k1"))
        wait_until(lambda: count(tmp_path) == 1, "the command")
        daemon.stop(signal.SIGKILL)
    told = r"^the command was begun .*: it was not run again; .*, and call again to run it anew if need be$"
    with running(tmp_path / "daemon") as daemon, pytest.raises(OutcomeUnknown, match=told):
        run_to_end(Toolbox(connect("lost", daemon.socket, False, cwd=tmp_path)).call("bash", call, "k1"))
    assert count(tmp_path) == 1
    assert "tell the user" in _for_model(unavailable(OSError("No space left on device")))


def test_tools_without_receipts_run_each_call(remote: RemoteSession, place: Path) -> None:
    with Session(cwd=place) as here:
        for number, tools in enumerate((Toolbox(remote, receipts=False), Toolbox(here)), 1):
            for _ in range(2):
                assert run_to_end(tools.call("bash", {"command": RUN}, "k1")) == "ran"
            assert count(place) == 2 * number


def test_key_of_a_call_needs_each_part() -> None:
    assert call_key("sdk", "thread", "", "call") is None
    assert call_key("sdk", "thread", None, "call") is None
    keys = [
        call_key("sdk", *parts) for parts in (("a", "b", "c"), ("a", "bc", "d"), ("ab", "c", "d"), ("a", "b", "\ud800"))
    ]
    assert len(set(keys)) == 4
    assert all(key is not None and len(key) <= KEY_MAX for key in keys)
    assert call_key("sdk", "a", "b", "c") == keys[0]
    assert os.fsencode(keys[0] or "")


def test_receipts_must_be_a_flag() -> None:
    with Session() as session, pytest.raises(ValueError, match="receipts"):
        Toolbox(session, receipts="no")  # type: ignore[arg-type]


def test_call_after_an_unknown_outcome_says_what_is_lost_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    call = {"command": f"cd /usr; echo ran >>{tmp_path}/runs; sleep 60"}
    with running(tmp_path / "daemon") as daemon:
        tools = Toolbox(connect("lost", daemon.socket, False, cwd=tmp_path), patience=0.2)
        assert "still running" in run_to_end(tools.call("bash", call, "k1"))
        wait_until(lambda: count(tmp_path) == 1, "the command")
        daemon.stop(signal.SIGKILL)
    with running(tmp_path / "daemon") as daemon:
        tools = Toolbox(connect("lost", daemon.socket, False, cwd=tmp_path))
        with pytest.raises(OutcomeUnknown):
            run_to_end(tools.call("bash", call, "k1"))
        with pytest.raises(StateLost, match="nothing was run"):
            run_to_end(tools.call("bash", {"command": RUN}, "k2"))
        assert count(tmp_path) == 1
        assert run_to_end(tools.call("bash", {"command": RUN}, "k3")) == "ran"
