"""The rules of an agent, and their law: a rule stays until another is named in its place, or the agent is closed.

It holds whatever becomes of the agent's sessions: for the value, for agents, and for the sessions of daemons.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from shellsession import Agents, AlreadyOpen, InvalidRequest, Policy, Sandbox, ShellUnavailable
from shellsession.agents import AsyncAgents
from shellsession.daemon.protocol.wire import PROTOCOL
from shellsession.daemon.server import requests
from shellsession.daemon.server.journal import Journal
from shellsession.daemon.server.shared import Sessions
from shellsession.options import Rules
from shellsession.store import Store

_VALUES: Final[dict[str, Sequence[Any]]] = {
    "sandbox": (None, Sandbox(), Sandbox(write=["/tmp"], memory="1G")),
    "policy": (None, Policy(deny=["a"]), Policy(deny=[re.compile("b")], write=["/tmp/*"])),
    "redact": (False, True, (re.compile("PIN-[0-9]+"),)),
    "branch": (None, "/usr", "/tmp"),
}
_RULES: Final = st.builds(Rules, *map(st.sampled_from, _VALUES.values()))
# What becomes of a session. "forgotten": the agent is closed.
_ENDS: Final = ("open", "closed", "expired", "failed", "forgotten")


class Opened(NamedTuple):
    """One step: what a caller names, and what becomes of the session then."""

    named: Rules
    end: str


_STEPS: Final = st.lists(st.builds(Opened, _RULES, st.sampled_from(_ENDS)), max_size=8)


@given(st.lists(_RULES, max_size=6))
def test_rules_of_the_next_session_are_those_named_last(steps: list[Rules]) -> None:
    rules = Rules()
    for named in steps:
        rules = rules.next(named)
    for name, nothing in zip(Rules._fields, Rules(), strict=True):
        ever = [one for step in steps if (one := getattr(step, name)) not in (None, False)]
        assert getattr(rules, name) == (ever[-1] if ever else nothing)


@given(_RULES, _RULES)
def test_rules_lack_what_is_named_and_differs(rules: Rules, named: Rules) -> None:
    assert rules.lacks(named) == [
        name for name in Rules._fields if getattr(rules.next(named), name) != getattr(rules, name)
    ]
    assert rules.lacks(Rules()) == rules.lacks(rules) == []
    assert rules.next(named).lacks(named) == []


@given(_RULES)
def test_recorded_rules_are_read_as_they_were(rules: Rules) -> None:
    assert requests.rules_in_record("a", requests.record_with("a", "", rules), Rules()) == rules


@pytest.mark.parametrize("rules", ['{"walls": true}', '{"policy": {"walls": true}}', "no JSON"])
def test_recorded_rules_of_another_version_are_refused(rules: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read by this version"):
        requests.rules_in_record("a", rules, Rules())


def test_secrets_of_a_policy_are_not_recorded_and_must_be_named_again() -> None:
    record = requests.record_with("a", "", Rules(policy=Policy(deny=["x"], secrets=["hunter2"])))
    assert "hunter2" not in record
    with pytest.raises(InvalidRequest, match="whose values are not recorded"):
        requests.rules_in_record("a", record, Rules())
    record = requests.record_with("a", record, Rules(redact=True))
    with pytest.raises(InvalidRequest, match="whose values are not recorded"):
        requests.rules_in_record("a", record, Rules(redact=True))
    named = Rules(policy=Policy(deny=["y"]))
    assert requests.rules_in_record("a", record, named) == Rules(policy=Policy(deny=["x"]), redact=True)
    record = requests.record_with("a", record, named)
    assert requests.rules_in_record("a", record, Rules()) == Rules(policy=Policy(deny=["y"]), redact=True)


def test_rules_that_are_invalid_are_not_kept() -> None:
    with Agents() as agents:
        wrong: list[dict[str, Any]] = [{"policy": "x"}, {"sandbox": "x"}, {"redact": "x"}]
        for options in wrong:
            with pytest.raises(InvalidRequest):
                agents.session("a", **options)
        assert agents.session("a").policy is None


@settings(max_examples=40)
@given(_STEPS, _RULES)
def test_agent_keeps_its_rules_whatever_becomes_of_its_sessions(steps: list[Opened], defaults: Rules) -> None:
    with Agents(**defaults.options()) as agents:
        kept, is_open = Rules(), False
        for named, end in steps:
            options: dict[str, Any] = {**named._asdict(), "bash": "/no/such/bash"}
            if is_open and (lacking := defaults.next(kept).lacks(named)):
                with pytest.raises(AlreadyOpen, match=lacking[0]):
                    agents.session("a", **options)
            else:
                kept = kept.next(named)
                assert agents.session("a", **options).engine.options.rules == defaults.next(kept)
            is_open, kept = end == "open", Rules() if end == "forgotten" else kept
            session = agents.session("a")
            if end == "failed":
                with pytest.raises(ShellUnavailable):
                    agents.run("a", "true")
            elif end == "expired":
                session.close_if_idle(0.0)
            elif end == "closed":
                session.close()
            elif end == "forgotten":
                agents.close("a")


@settings(max_examples=40)
@given(st.lists(_STEPS, min_size=1, max_size=3), _RULES)
def test_agent_keeps_its_rules_whatever_becomes_of_its_daemons(lives: list[list[Opened]], defaults: Rules) -> None:
    given_to_daemon = requests.RulesFields.of(defaults).model_dump(exclude_defaults=True)
    store = Store(path="")

    async def live(steps: list[Opened], kept: Rules) -> Rules:
        async with AsyncAgents() as agents:
            sessions = Sessions(agents, Journal(None), store, given_to_daemon)
            for named, end in steps:
                try:
                    sessions.open(_open(named))
                    kept = kept.next(named)
                except AlreadyOpen:
                    assert defaults.next(kept).lacks(named)
                shared = sessions.of("a")
                assert shared.engine.options.rules == defaults.next(kept)
                if end == "forgotten":
                    await shared.session.close()
                    sessions.dismiss(shared)
                    sessions.forget("a")
                    kept = Rules()
                elif end == "expired":
                    await shared.session.close_if_idle(0.0)
                elif end != "open":
                    await shared.session.close()
                    sessions.dismiss(shared)
        return kept

    kept = Rules()
    for steps in lives:
        kept = asyncio.run(live(steps, kept))


def _open(named: Rules) -> requests.Open:
    fields = requests.RulesFields.of(named).model_dump()
    return requests.Open(
        protocol=PROTOCOL,
        id="1",
        agent="a",
        verb="open",
        cwd="/",
        env=dict(os.environ),
        inherited=True,
        umask=0o22,
        **fields,
    )
