"""Tools take the agents of a cluster, and their sessions, as they take any others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from clusters import LONG

from shellsession import InvalidRequest, Policy, PolicyRefused
from shellsession.cluster import AsyncRayAgents, RayAgents
from shellsession.contracts import bashtool, phoenix, spec, strands
from shellsession.integrations.toolbox import Toolbox

pytestmark = pytest.mark.timeout(2 * LONG)


async def use(tools: Toolbox) -> None:
    async with asyncio.timeout(LONG):
        assert await tools.call("bash", {"command": "cd /; X=1"}) == "[no output]"
        assert await tools.call("bash", {"command": "echo $X $PWD; false"}) == "1 /\n[exit status 1]"
        tools._patience = 0.5
        assert "still running" in await tools.call("bash", {"command": "echo begun; sleep 1000"})
        tools._patience = LONG
        assert "are kept" in await tools.call("interrupt", {})
        with pytest.raises(PolicyRefused):
            await tools.call("bash", {"command": "reboot"})
        await tools.call("restart", {})
        assert await tools.call("bash", {"command": "echo ${X-gone}"}) == "gone"
        for _ in range(2):
            assert await tools.call("bash", {"command": "echo $((++count))"}, "key") == "1"


OPTIONS: dict[str, Any] = {"patience": LONG, "tick": 0.1, "policy": Policy(deny_commands=["reboot"])}


def test_tools_of_agents_and_of_a_session(cluster: Any) -> None:
    with RayAgents() as agents:
        asyncio.run(use(Toolbox(agents, "a", **OPTIONS)))
        asyncio.run(use(Toolbox(agents.session("b"), **OPTIONS)))


def test_tools_of_asyncio_agents_and_of_a_session(cluster: Any) -> None:
    async def main() -> None:
        async with AsyncRayAgents() as agents:
            await use(Toolbox(agents, "a", **OPTIONS))
            await use(Toolbox(agents.session("b"), **OPTIONS))

    asyncio.run(main())


def test_contracts_of_agents(cluster: Any, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setenv("ONLY_HERE", "secret")
    monkeypatch.chdir(place)
    with RayAgents(cwd="/") as agents:
        once = spec.tool(agents, agent="a")
        assert once({"command": "echo $PWD [$ONLY_HERE]; X=1"})["stdout"] == "/ []\n"
        assert once({"command": "echo [$X]; exit 3"}) == {"stdout": "[]\n", "stderr": "", "exitCode": 3}
        shared: Any = strands.tool(agents, agent="b")
        shared({"mode": "execute", "command": "X=1"})
        assert shared({"mode": "execute", "command": "echo $X $PWD [$ONLY_HERE]"})["output"] == "1 / []"
        shared({"mode": "restart"})
        assert shared({"mode": "execute", "command": "echo [$X]"})["output"] == "[]"
        there = bashtool.tool(agents, agent="c", cwd="/usr")
        assert "\n/usr\n" in there({"command": "pwd"})["content"][0]["text"]


def test_contracts_of_asyncio_agents(cluster: Any) -> None:
    async def main() -> None:
        async with AsyncRayAgents() as agents:
            tool = spec.tool(agents, agent="a", persistent=True)
            await tool({"command": "X=1"})
            assert (await tool({"command": "echo $X"}))["stdout"] == "1\n"

    asyncio.run(main())


def test_a_model_learns_that_its_session_was_closed(cluster: Any) -> None:
    """By its idle_ttl, or as here by another driver."""
    with RayAgents(name="tools") as agents:
        tool = spec.tool(agents, agent="a", persistent=True)
        tool({"command": "X=1"})
        RayAgents(name="tools").close("a")
        assert "closed" in tool({"command": "echo [$X]"})["error"]
        assert tool({"command": "echo [$X]"})["stdout"] == "[]\n"


def test_what_a_contract_cannot_do_is_refused(cluster: Any) -> None:
    with RayAgents() as agents:
        with pytest.raises(InvalidRequest, match="on another one"):
            phoenix.tool(agents, agent="a")
        with pytest.raises(InvalidRequest, match="agent="):
            spec.tool(agents)  # type: ignore[call-overload]
