"""When a session expires, a tool that relied on its state reports that once; other tools do not."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from system import wait_until

from shellsession import Agents, AsyncAgents, NoSuchAgent, agents as registry
from shellsession.contracts import bashtool, langchain, phoenix, spec, strands
from shellsession.errors import ContractError

TOLD: Final = "idle for too long; its state is lost, the next command starts in a fresh one"
ONE_SHOT: Final = {"spec": spec, "langchain": langchain, "bashtool": bashtool, "phoenix": phoenix}
GONE: Final = "echo ${KEPT-gone}"
NewAgents = Callable[..., Agents]


class Person:
    """An agent that is an object."""


def says(bash: Any, command: str) -> str:
    """What a model reads."""
    is_strands = "mode" in bash.definition["input_schema"]["properties"]
    try:
        return str(bash({"command": command, **({"mode": "execute"} if is_strands else {})}))
    except ContractError as error:
        return str(error)


def expire(agents: Any, agent: object = "a") -> None:
    """As when ``idle_ttl`` has passed."""
    agents.registry.find(agent).close_if_idle(0.0)


STATEFUL: Final = [(strands, {}), *((contract, {"persistent": True}) for contract in ONE_SHOT.values())]


@pytest.mark.sampled
@pytest.mark.parametrize("looked", [False, True], ids=["at once", "when somebody has looked"])
@pytest.mark.parametrize("agent", ["a", Person()], ids=["a name", "an object"])
@pytest.mark.parametrize(("contract", "settings"), STATEFUL)
def test_a_stateful_tool_reports_the_loss_once(
    new_agents: NewAgents, place: Path, contract: Any, settings: dict[str, bool], agent: object, looked: bool
) -> None:
    agents = new_agents()
    bash = contract.tool(agents, agent=agent, **settings)
    assert "kept" in says(bash, "KEPT=kept; echo $KEPT")
    expire(agents, agent)
    if looked:
        assert agents.list() == []
        assert bash.definition["name"] == "bash"  # phoenix's asks where it is
    again = contract.tool(agents, agent=agent, **settings)  # as hosts bind them anew for each call
    assert TOLD in says(again, f"touch {place}/ran")
    assert not (place / "ran").exists()
    assert "gone" in says(bash, GONE)
    expire(agents, agent)
    assert TOLD in says(bash, GONE), "another loss"


def test_the_loss_is_reported_if_the_session_expired(new_agents: NewAgents) -> None:
    agents = new_agents(idle_ttl=0.05)
    bash = strands.tool(agents, agent="a")
    says(bash, "KEPT=kept")
    wait_until(lambda: not agents.list(), "its end")
    assert TOLD in says(bash, GONE)


@pytest.mark.parametrize("kind", [Agents, AsyncAgents])
def test_what_strands_keeps_expires_only_where_that_was_asked_for(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    """Document 001: a session lasts until its agent is collected, or restarts it."""
    monkeypatch.setattr(registry, "_IDLE_TTL", 0.01)

    async def main() -> None:
        bounded = kind(idle_ttl=0.01)
        for agents in (unbounded := kind(), bounded):
            told = strands.tool(agents, agent="a")({"mode": "execute", "command": "KEPT=kept"})
            other = agents.run("b", "true")
            for call in (told, other):
                if inspect.isawaitable(call):
                    await call
        await asyncio.to_thread(
            wait_until, lambda: not (unbounded.registry.find("b") or bounded.registry.find("a")), "their end"
        )
        assert unbounded.registry.find("a").state == "idle"
        for agents in (unbounded, bounded):
            if (closing := agents.close()) is not None:
                await closing

    asyncio.run(main())


def test_the_loss_is_reported_with_asyncio() -> None:
    async def main() -> None:
        async with AsyncAgents() as agents:
            bash = strands.tool(agents, agent="a")
            await bash({"mode": "execute", "command": "KEPT=kept"})
            await agents.session("a").close_if_idle(0.0)
            with pytest.raises(strands.BashSessionError, match=TOLD):
                await bash({"mode": "execute", "command": GONE})
            assert await bash({"mode": "execute", "command": GONE}) == {"output": "gone", "error": ""}
            await agents.session("a").close_if_idle(0.0)
            await agents.restart("a")
            assert await bash({"mode": "execute", "command": GONE}) == {"output": "gone", "error": ""}

    asyncio.run(main())


def closed(agents: Agents) -> None:
    with suppress(NoSuchAgent):  # it has expired
        agents.close("a")


WAYS: Final[dict[str, Callable[[Agents, Any], object]]] = {
    "the model restarts": lambda agents, bash: bash({"mode": "restart"}),
    "the host restarts": lambda agents, bash: agents.restart("a"),
    "the host closes it": lambda agents, bash: closed(agents),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("expires", ["before", "never"])
def test_an_end_that_was_requested_is_not_reported_as_a_loss(new_agents: NewAgents, way: str, expires: str) -> None:
    agents = new_agents()
    bash = strands.tool(agents, agent="a")
    says(bash, "KEPT=kept")
    if expires == "before":
        expire(agents)
    WAYS[way](agents, bash)
    assert "gone" in says(bash, GONE)


@pytest.mark.parametrize("name", ONE_SHOT)
def test_one_shot_calls_do_not_consume_the_report_of_a_loss(new_agents: NewAgents, name: str) -> None:
    agents = new_agents()
    bash, kept = ONE_SHOT[name].tool(agents, agent="a"), strands.tool(agents, agent="a")
    says(bash, "true")
    expire(agents)
    assert "gone" in says(kept, f"{GONE}; KEPT=kept"), "nothing of it was lost"
    expire(agents)
    assert "gone" in says(bash, GONE)
    assert "gone" in agents.run("a", GONE).stdout
    assert TOLD in says(kept, GONE)


def test_what_was_prepared_and_never_used_is_no_loss(new_agents: NewAgents) -> None:
    agents = new_agents()
    bash = strands.tool(agents, agent="a")
    says(bash, "true")
    expire(agents)
    assert TOLD in says(bash, "true")
    expire(agents)
    assert "here" in says(bash, "echo here")


def test_the_names_that_are_kept_are_bounded_and_objects_are_not_kept(
    new_agents: NewAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_KEPT_MAX", 2)
    agents = new_agents()
    for name in ("first", "second", "third"):
        says(strands.tool(agents, agent=name), "true")
        expire(agents, name)
    agents.list()
    assert [TOLD in says(strands.tool(agents, agent=name), "true") for name in ("first", "second", "third")] == [
        False,
        True,
        True,
    ]
    person = Person()
    says(strands.tool(agents, agent=person), "true")
    expire(agents, person)
    agents.list()
    assert id(person) in agents.registry._others
    del person
    gc.collect()
    assert agents.registry._others.keys() <= {"first", "second", "third"}
