"""The record of an agent: whatever becomes of its sessions, in any order, it stays confined and a loss is told once."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shellsession import AlreadyOpen, NoSuchAgent, Policy, TooManySessions
from shellsession.agents import Registry
from shellsession.options import Rules

AGENTS = st.sampled_from(["a", "b", "c"])
POLICIES = st.sampled_from([None, Policy(deny=["x"]), Policy(deny=["y"])])
_MOST = 2


class FakeSession:
    """A session as far as a registry sees it: a real one would take a bash for each step."""

    def __init__(self, rules: Rules) -> None:
        self.engine = SimpleNamespace(expired=False, last=None, options=SimpleNamespace(rules=rules))
        self.closed = self.relied_on = False
        self.policy = rules.policy
        self.pid, self.state, self.cwd, self.command, self.idle, self.attached = None, "new", "/", "", 0.0, False

    def jobs(self) -> list[Any]:
        return []

    def use(self, relied_on: bool) -> None:
        self.engine.last, self.relied_on = object(), relied_on

    def end(self, expired: bool) -> None:
        self.closed, self.engine.expired = True, expired


class Model(RuleBasedStateMachine):
    """Compares a registry with what is known of each agent: its rules, its session, and who is to be told of a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.registry: Registry[Any] = Registry(_MOST, None)
        self.rules_of: dict[str, Policy | None] = {}
        self.open: dict[str, FakeSession] = {}
        self.losses: dict[str, set[str]] = {}

    @rule(agent=AGENTS, policy=POLICIES, fails=st.booleans())
    def take(self, agent: str, policy: Policy | None, fails: bool) -> None:
        def make(rules: Rules) -> FakeSession:
            if fails:
                raise OSError
            return FakeSession(rules)

        was_open = self.open.get(agent)
        try:
            session = self.registry.take(agent, Rules(policy=policy), make)
        except AlreadyOpen:
            assert was_open is not None
            assert policy not in (None, was_open.policy)
            return
        except (TooManySessions, OSError):
            assert was_open is None
            self.rules_of[agent] = policy or self.rules_of.get(agent)
            return
        if was_open is None:
            self.rules_of[agent] = policy or self.rules_of.get(agent)
            self.open[agent] = session
        assert session is self.open[agent]
        assert session.policy == self.rules_of.get(agent), "an agent stays confined"

    @precondition(lambda self: self.open)
    @rule(data=st.data(), relied_on=st.booleans())
    def use(self, data: st.DataObject, relied_on: bool) -> None:
        self.open[data.draw(st.sampled_from(sorted(self.open)))].use(relied_on)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), expired=st.booleans())
    def end(self, data: st.DataObject, expired: bool) -> None:
        agent = data.draw(st.sampled_from(sorted(self.open)))
        session = self.open.pop(agent)
        session.end(expired)
        if expired and session.engine.last is not None:
            self.losses.setdefault(agent, set()).update({"run", "tool"} if session.relied_on else {"run"})

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        agent = data.draw(st.sampled_from(sorted(self.open)))
        self.registry.forget(agent, self.open.pop(agent))

    @rule(agent=AGENTS, report=st.sampled_from(["run", "tool"]))
    def tell(self, agent: str, report: Any) -> None:
        told = report in self.losses.get(agent, set())
        assert self.registry.take_loss(agent, report) is told, "a loss is told once"
        self.losses.get(agent, set()).discard(report)

    @rule(agent=AGENTS)
    def restart(self, agent: str) -> None:
        self.registry.forget_loss(agent)
        self.losses.pop(agent, None)

    @rule(agent=AGENTS)
    def close(self, agent: str) -> None:
        session, losses = self.open.pop(agent, None), self.losses.pop(agent, None)
        rules = self.rules_of.pop(agent, None)
        if session is None and not losses and rules is None:
            with pytest.raises(NoSuchAgent):
                self.registry.drop(agent)
        else:
            assert self.registry.drop(agent) == [one for one in [session] if one is not None]

    @rule()
    def fork(self) -> None:
        self.registry.reset_after_fork()
        self.open, self.losses = {}, {}

    @invariant()
    def knows_what_there_is(self) -> None:
        self.registry.settle()
        known = {str(key) for key in (*self.registry._open, *self.registry._others)}
        kept = {agent for agent, rules in self.rules_of.items() if rules is not None}
        assert known == {*self.open, *kept, *(agent for agent, losses in self.losses.items() if losses)}
        assert not self.registry._open.keys() & self.registry._others.keys()
        assert self.registry._open.keys() == self.open.keys()
        for agent in known:
            with suppress(KeyError):
                assert self.registry.rules(agent).policy == self.rules_of[agent]


Model.TestCase.settings = settings(stateful_step_count=30)
TestRecord = Model.TestCase
