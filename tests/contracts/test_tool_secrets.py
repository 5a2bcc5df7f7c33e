"""A tool masks the secrets of the host's present environment, and those with which its bash started."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from system import PATIENCE, wait_until

from shellsession import Agents, Session
from shellsession.contracts import spec, strands
from shellsession.policy.rules import Policy
from shellsession.policy.secrets import Secrets

MASKING = Policy(mask_secrets=True)


@pytest.mark.parametrize("where", ["agents", "session", "a session's own"])
def test_secrets_that_the_host_has_changed_or_taken_out_are_still_those_of_its_bash(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Also in a shell that came after a first one: it has that one's environment."""
    monkeypatch.setenv("MY_API_TOKEN", "first-value")
    look = "echo $MY_API_TOKEN ''second''-value"
    with Agents() as agents, Session(env={**os.environ} if where == "a session's own" else None) as session:
        place: Any
        place, named = (agents, {"agent": "a1"}) if where == "agents" else (session, {})
        kept = strands.tool(place, policy=MASKING, **named)
        one_shot = spec.tool(place, policy=MASKING, **named)

        def said(command: str) -> str:
            return str(kept({"mode": "execute", "command": command})["output"])

        assert said(look) == "*** second-value"
        monkeypatch.setenv("MY_API_TOKEN", "second-value")
        assert said(look) == "*** ***"
        assert one_shot({"command": f"{look}; echo first''-value"})["stdout"] == "*** ***\n***\n"
        monkeypatch.delenv("MY_API_TOKEN")
        assert said(look) == "*** ***"
        with pytest.raises(strands.BashSessionError, match=r"\*\*\*"):
            said("echo $MY_API_TOKEN; exit 3")
        assert said(look) == "*** ***"


def test_a_secret_that_is_changed_while_a_call_runs_is_still_one(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "first-value")
    bash = spec.tool(agents, agent="a1", policy=MASKING)
    assert bash({"command": "true"})["stdout"] == ""
    monkeypatch.setenv("MY_API_TOKEN", "second-value")
    with ThreadPoolExecutor() as pool:
        wait = f"touch {tmp_path}/up; until [ -e {tmp_path}/go ]; do :; done"
        call = pool.submit(bash, {"command": f"{wait}; echo $MY_API_TOKEN; echo second''-value''-and-more"})
        wait_until((tmp_path / "up").exists, "the call")
        monkeypatch.setenv("MY_API_TOKEN", "second-value-and-more")  # which the one of before begins
        (tmp_path / "go").touch()
        assert call.result(PATIENCE)["stdout"] == "***\n***\n"


@pytest.mark.parametrize("name", ["MY_API_TOKEN", "HIDDEN", "DATABASE_URL"])
def test_a_secret_that_was_rotated_stays_one_whatever_else_changes(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """An earlier call may have written it down, and it may be good for a while."""
    prefix = "db://me:" if name == "DATABASE_URL" else ""
    suffix = "@host" if prefix else ""
    bash = spec.tool(agents, agent="a1", policy=Policy(mask_secrets=True, hide_prefixes=["HIDDEN"]))
    for number in range(10):
        monkeypatch.setenv(name, f"{prefix}value-{number}{suffix}")
        bash({"command": "true"})
    for number in range(100):
        monkeypatch.setenv("REQUEST", str(number))
        bash._secrets()
    monkeypatch.delenv(name)
    written = tmp_path / "written"
    written.write_text(" ".join(f"value-{number}" for number in range(10)) + " a value")
    assert bash({"command": f"cat {written}"})["stdout"] == "*** " * 10 + "a value"
    for number in range(100):
        monkeypatch.setenv(name, f"other-{number}")
        bash._secrets()
    assert len(bash._earlier) < 50


def test_the_secrets_are_looked_for_once_for_each_environment(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[Secrets]()

    def known(policy: Policy, *environs: Any) -> Secrets:
        looked.append(Secrets(*environs[:1]))
        return looked[-1]

    monkeypatch.setattr(Policy, "known_secrets", known)
    bash = spec.tool(agents, agent="a1", policy=MASKING)
    for _ in range(3):
        bash({"command": "true"})
    before = len(looked)
    bash({"command": "true"})
    assert len(looked) == before
    monkeypatch.setenv("MY_API_TOKEN", "other-value")
    bash({"command": "true"})
    assert len(looked) == before + 1
