"""Agents whose handed-back command has ended before anyone asked for its result."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from system import PATIENCE, is_alive, until, wait_until

from shellsession import Agents, AsyncAgents, TooManySessions

NewAgents = Callable[..., Agents]

BACK: dict[str, Any] = {"timeout": 0.02, "on_timeout": "yield"}
# Nobody has made the file before it is handed back, however slow the machine is.
COMMAND = "until [ -e go ]; do sleep 0.01; done; rm go; echo said; (exit 7)"


def handed_back(agents: Agents, place: Path, agent: object = "a", command: str = COMMAND, **options: Any) -> None:
    """That command was, and comes to its end now."""
    assert agents.run(agent, command, **BACK, **options).runs_on
    (place / "go").touch()
    wait_until(lambda: not (place / "go").exists(), "its last words")


def states(agents: Agents | AsyncAgents) -> list[str]:
    return [info.state for info in agents.list()]


def test_an_idle_agent_is_still_listed(new_agents: NewAgents, place: Path) -> None:
    agents = new_agents(1)
    handed_back(agents, place)
    wait_until(lambda: states(agents) == ["idle"], "its end")
    (info,) = agents.list()
    assert (info.command, info.jobs, info.idle > 0) == ("", 0, True)
    with pytest.raises(TooManySessions) as refused:
        agents.run("b", "true")
    assert refused.value.idle == ("a",)
    result = agents.session("a").wait(PATIENCE)
    assert (result.stdout, result.exit_code) == ("said\n", 7)


def test_one_that_ended_its_shell_is_new(new_agents: NewAgents, place: Path) -> None:
    agents = new_agents()
    handed_back(agents, place, command=f"{COMMAND}; exit 7")
    wait_until(lambda: states(agents) == ["new"], "its end")
    result = agents.session("a").wait(PATIENCE)
    assert (result.stdout, result.exit_code, result.outcome) == ("said\n", 7, "shell_exited")


@pytest.mark.parametrize("command", [COMMAND, f"{COMMAND}; exit 7"], ids=["prompt", "exit"])
def test_it_expires(new_agents: NewAgents, place: Path, command: str) -> None:
    agents = new_agents(idle_ttl=0.2)
    handed_back(agents, place, command=command)
    pid = agents.session("a").pid
    wait_until(lambda: agents.list() == [], "its end")
    assert pid is not None
    wait_until(lambda: not is_alive(pid), "the end of its shell: it leaves the list first")


def test_it_expires_in_a_loop(place: Path) -> None:
    async def main() -> None:
        async with AsyncAgents(idle_ttl=0.2, cwd=place) as agents:
            assert (await agents.run("a", COMMAND, **BACK)).runs_on
            (place / "go").touch()
            await until(lambda: agents.list() == [])

    asyncio.run(main())


def test_what_it_has_left_running_keeps_it(new_agents: NewAgents, place: Path) -> None:
    agents = new_agents(idle_ttl=0.05)
    handed_back(agents, place, command=f"until [ -e stop ]; do sleep 0.01; done & {COMMAND}")
    handed_back(agents, place, "b")
    wait_until(lambda: [info.agent for info in agents.list()] == ["a"], "the end of the other one")
    assert states(agents) == ["running"]
    (place / "stop").touch()
    wait_until(lambda: agents.list() == [], "its end")


def test_an_iteration_over_a_stream_keeps_the_session(new_agents: NewAgents, place: Path) -> None:
    agents = new_agents(idle_ttl=0.05)
    pieces = agents.session("a").stream(f"echo begun; {COMMAND}")
    assert next(pieces) == ("stdout", b"begun\n")
    (place / "go").touch()
    wait_until(lambda: not (place / "go").exists(), "its last words")
    handed_back(agents, place, "b")
    wait_until(lambda: [info.agent for info in agents.list()] == ["a"], "the end of the other one")
    assert [piece for piece in pieces if isinstance(piece, tuple)] == [("stdout", b"said\n")]


def test_a_callback_that_has_not_returned_keeps_it(new_agents: NewAgents, place: Path) -> None:
    called, go = threading.Event(), threading.Event()

    def hear(_: str, data: bytes) -> None:
        called.set()
        assert go.wait(PATIENCE)

    agents = new_agents(idle_ttl=0.05)
    handed_back(agents, place, on_output=hear)
    assert called.wait(PATIENCE)
    try:
        handed_back(agents, place, "b")
        wait_until(lambda: [info.agent for info in agents.list()] == ["a"], "the end of the other one")
    finally:
        go.set()
    wait_until(lambda: agents.list() == [], "its end")


def test_an_awaited_one_keeps_it_too(place: Path) -> None:
    async def main() -> None:
        called, go = asyncio.Event(), asyncio.Event()

        async def hear(_: str, data: bytes) -> None:
            called.set()
            await go.wait()

        async with AsyncAgents(idle_ttl=0.05, cwd=place) as agents:
            assert (await agents.run("a", COMMAND, **BACK, on_output=hear)).runs_on
            (place / "go").touch()
            await asyncio.wait_for(called.wait(), PATIENCE)
            assert (await agents.run("b", COMMAND, **BACK)).runs_on
            (place / "go").touch()
            await until(lambda: [info.agent for info in agents.list()] == ["a"])
            go.set()
            await until(lambda: agents.list() == [])

    asyncio.run(main())


def test_an_agent_whose_callback_it_was_is_collected(new_agents: NewAgents, place: Path) -> None:
    class Agent:
        def hear(self, _: str, data: bytes) -> None:
            pass

    agents, agent = new_agents(idle_ttl=0.05), Agent()
    handed_back(agents, place, agent, on_output=agent.hear)
    gone = weakref.ref(agent)
    del agent
    wait_until(lambda: gc.collect() >= 0 and gone() is None, "its end")
