"""An agent stays confined until it is closed: its next session has the same sandbox, policy and redaction.

`tests/test_rules.py` holds which rules it has after any order of events.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from sandboxes import needs_bwrap
from system import wait_until

from shellsession import Agents, AlreadyOpen, AsyncAgents, NoSuchAgent, Policy, PolicyRefused, Sandbox, ShellUnavailable

NO_RM: Final = Policy(deny_commands=["rm"])
NO_LS: Final = Policy(deny_commands=["ls"])
NewAgents = Callable[..., Agents]


class Agent:
    """Any object may be an agent."""


def expire(agents: Agents, agent: object = "a") -> None:
    """As when ``idle_ttl`` has passed."""
    agents.session(agent).close_if_idle(0.0)


def refuses_rm(agents: Agents, agent: object = "a") -> bool:
    try:
        agents.run(agent, "rm -f /no/such/file")
    except PolicyRefused:
        return True
    return False


@needs_bwrap
def test_it_stays_in_its_sandbox(new_agents: NewAgents, place: Path, tmp_path: Path) -> None:
    agents = new_agents(idle_ttl=0.05)
    agents.session("a", sandbox=Sandbox(write=[place]), policy=NO_RM, redact=["hunter2"])
    for _ in range(2):
        wait_until(lambda: not agents.list(), "its end")
        assert not agents.run("a", f"touch {tmp_path}/outside").ok
        assert not (tmp_path / "outside").exists()
        assert refuses_rm(agents)
        assert agents.session("a").redact is not False


@pytest.mark.parametrize("agent", ["a", Agent()], ids=["a name", "an object"])
@pytest.mark.parametrize("way", ["run", "session", "restart"])
def test_it_keeps_its_policy(new_agents: NewAgents, agent: object, way: str) -> None:
    agents = new_agents()
    agents.session(agent, policy=NO_RM)
    for _ in range(2):
        expire(agents, agent)
        if way != "run":
            getattr(agents, way)(agent)
        assert refuses_rm(agents, agent)
    assert not refuses_rm(agents, "another")


def test_it_keeps_its_policy_with_asyncio() -> None:
    async def main() -> None:
        async with AsyncAgents() as agents:
            agents.session("a", policy=NO_RM)
            await agents.session("a").close_if_idle(0.0)
            with pytest.raises(PolicyRefused):
                await agents.run("a", "rm -f /no/such/file")

    asyncio.run(main())


@pytest.mark.parametrize("end", ["open", "expired", "failed"])
def test_the_close_of_an_agent_forgets_it(new_agents: NewAgents, end: str) -> None:
    agents = new_agents()
    agents.session("a", policy=NO_RM, bash="/no/such/bash" if end == "failed" else "bash")
    if end == "expired":
        expire(agents)
    if end == "failed":
        with pytest.raises(ShellUnavailable):
            agents.run("a", "true")
    agents.close("a")
    assert not refuses_rm(agents)
    agents.close("a")
    with pytest.raises(NoSuchAgent):
        agents.close("a")


def test_the_agents_of_a_forked_child_keep_their_policies(new_agents: NewAgents) -> None:
    agents = new_agents()
    agents.session("a", policy=NO_RM)
    if (child := os.fork()) == 0:
        status = 2
        with suppress(BaseException):
            status = 0 if refuses_rm(agents) else 1
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_nothing_is_kept_of_an_object_that_was_collected(new_agents: NewAgents) -> None:
    agents: Any = new_agents()
    agent = Agent()
    agents.session(agent, policy=NO_RM)
    expire(agents, agent)
    agents.list()
    del agent
    gc.collect()
    assert (agents.registry._open, agents.registry._others) == ({}, {})


def test_state_that_its_session_made_counts_as_lost(new_agents: NewAgents) -> None:
    agents = new_agents()
    agents.session("a").run("A=1")
    expire(agents)
    first, second = (agents.run("a", "true").reason for _ in range(2))
    assert "closed after being idle for too long" in first
    assert second == ""


def test_other_rules_for_an_open_session_are_refused(tmp_path: Path) -> None:
    with Agents(cwd=tmp_path) as agents:
        agents.run("a", "true")
        others: list[dict[str, Any]] = [{"policy": NO_LS}, {"redact": True}]
        for options in others:
            with pytest.raises(AlreadyOpen):
                agents.session("a", **options)
        agents.session("b", policy=NO_LS, redact=["x"])
        agents.session("b", policy=NO_LS, redact=["x"])
        agents.session("b", timeout=5)


def test_leaving_its_session_is_not_closing_the_agent() -> None:
    with Agents() as agents:
        with agents.session("a", policy=NO_LS) as session:
            session.run("true")
        with pytest.raises(PolicyRefused):
            agents.run("a", "ls")


def test_a_session_that_never_started_replaces_no_rules() -> None:
    with Agents() as agents:
        with agents.session("a", policy=NO_LS) as session:
            session.run("true")
        agents.session("a", policy=None, bash="/no/such/bash")
        with pytest.raises(ShellUnavailable):
            agents.run("a", "true")
        with pytest.raises(PolicyRefused):
            agents.run("a", "ls")
