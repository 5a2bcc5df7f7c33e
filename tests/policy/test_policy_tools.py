"""A policy over a tool: refusals that reach the model, time limits, environments and results."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon
from policies import text_of

from shellsession import Agents, AsyncAgents, AsyncSession, InvalidRequest, Session, connect
from shellsession.contracts import bashtool, langchain, phoenix, spec, strands
from shellsession.contracts.bashtool import Failed
from shellsession.contracts.langchain import BashToolError
from shellsession.contracts.strands import BashTimeoutError
from shellsession.policy.rules import Policy

pytestmark = pytest.mark.usefixtures("company")

_TOKEN = "s3cr3t-t0ken"


@pytest.mark.parametrize(
    ("policy", "command", "reason"),
    [
        (Policy(deny=["touch"]), "touch x", "it contains 'touch'"),
        (Policy(deny=[re.compile("^tou")]), "touch x", "it matches '^tou'"),
        (Policy(deny_commands=["touch"]), "echo $(/usr/bin/touch x)", "'touch' is denied"),
        (Policy(allow=["echo"]), "touch x", "'touch x' is not allowed; allowed: echo"),
        (Policy(strict=True), "touch x; $A", "the name of a command is known only at run time: write it out"),
        (Policy(max_command=3), "touch x", "it is 7 bytes long, over 3: put it into a file"),
        (Policy(confirm=lambda *_: False), "touch x", "it was not confirmed"),
    ],
)
def test_what_is_refused_is_the_contracts_own_error_and_does_not_run(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy, command: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = f"Failed to execute: refused by policy: {reason}"
    assert spec.tool(agents, agent="a1", policy=policy)({"command": command}) == {"error": expected}
    with pytest.raises(Failed) as raised:
        bashtool.tool(agents, agent="a1", policy=policy)({"command": command})
    assert str(raised.value) == expected
    assert list(tmp_path.iterdir()) == []
    assert agents.list() == []  # not even a session was made for it


def test_what_is_not_refused_runs(agents: Agents) -> None:
    policy = Policy(deny=["rm -rf /"], deny_commands=["rm"], allow=["echo", "printf"], strict=True, max_command=99)
    assert spec.tool(agents, agent="a1", policy=policy)({"command": "echo 'rm' | printf x"})["stdout"] == "x"


def test_sessions_of_every_kind_have_policies(daemon: Daemon) -> None:
    policy, call = Policy(deny=["no"]), {"command": "echo no"}
    with Session() as session, connect("policy", socket=daemon.socket) as remote:
        for one in (session, remote):
            assert "it contains 'no'" in spec.tool(one, policy=policy)(call)["error"]

    async def main() -> None:
        async with AsyncSession() as session, AsyncAgents() as agents:
            for bash in (spec.tool(session, policy=policy), spec.tool(agents, agent="a1", policy=policy)):
                assert "it contains 'no'" in (await bash(call))["error"]
                assert (await bash({"command": "echo yes"}))["stdout"] == "yes\n"

    asyncio.run(main())


@pytest.mark.parametrize("policy", [True, "rm", ["rm"], Policy])
def test_only_a_policy_is_one(agents: Agents, policy: Any) -> None:
    with pytest.raises(InvalidRequest, match="policy must be a Policy"):
        spec.tool(agents, agent="a1", policy=policy)


def test_the_contracts_own_checks_come_first(agents: Agents) -> None:
    policy = Policy(deny=["x"], confirm=lambda *_: pytest.fail("asked"))
    bash = bashtool.tool(agents, agent="a1", deny_patterns=["x"], confirm=lambda command: False, policy=policy)
    with pytest.raises(Failed, match=r"^Command blocked"):
        bash({"command": "x"})
    with pytest.raises(Failed, match=r"^Command was not confirmed"):
        bash({"command": "y"})


def test_time_limits_are_clamped_and_the_message_has_the_policys_limit(agents: Agents) -> None:
    call, policy = {"command": "sleep 100"}, Policy(max_timeout=0.2)
    for usual in (None, 30):
        with pytest.raises(Failed, match=r"^Command timed out after 0\.2s$"):
            bashtool.tool(agents, agent="a1", timeout=usual, policy=policy)(call)
    found = spec.tool(agents, agent="a1", policy=policy)(call)
    assert found == {"error": "Command timed out after 0.2 seconds"}
    with pytest.raises(BashToolError, match=r"^Command timed out after 0\.2 seconds$"):
        langchain.tool(agents, agent="a1", policy=policy)(call)
    assert phoenix.tool(agents, agent="a1", policy=policy)(call).output == "[command timed out after 0.2s]"
    with pytest.raises(BashTimeoutError, match=r"^Command timed out after 0\.2 seconds; "):
        strands.tool(agents, agent="a1", policy=policy)({"mode": "execute", **call})


def test_async_tools_tell_the_policys_time_limit_as_well() -> None:
    async def main() -> None:
        async with AsyncAgents() as agents:
            bash = spec.tool(agents, agent="a1", policy=Policy(max_timeout=0.2))
            assert await bash({"command": "sleep 100"}) == {"error": "Command timed out after 0.2 seconds"}

    asyncio.run(main())


def test_the_environment_of_agents_is_filtered(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDDEN_X", "1")
    monkeypatch.setenv("SEEN_X", "2")
    policy = Policy(hide_prefixes=["HIDDEN_"], hide_values=["^ghp_"])
    bash = spec.tool(agents, agent="a1", policy=policy)
    look = {"command": "env | grep _X= | sort"}
    assert bash(look)["stdout"] == "SEEN_X=2\n"
    assert spec.tool(agents, agent="a2", persistent=True, policy=policy)(look)["stdout"] == "SEEN_X=2\n"
    monkeypatch.setenv("HIDDEN_Y_X", "3")
    monkeypatch.setenv("LATER_X", "ghp_x")
    monkeypatch.setenv("OTHER_X", "4")
    assert bash(look)["stdout"] == "OTHER_X=4\nSEEN_X=2\n"


def test_what_is_hidden_is_hidden_in_a_session_that_others_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDDEN_X", "1")
    policy, look = Policy(hide_prefixes=["HIDDEN_"]), {"command": "echo ${HIDDEN_X-none}"}
    with Agents() as agents, Session() as session:
        assert spec.tool(agents, agent="a1")(look)["stdout"] == "1\n"
        assert spec.tool(agents, agent="a1", policy=policy)(look)["stdout"] == "none\n"
        assert spec.tool(session, policy=policy)(look)["stdout"] == "none\n"


def test_secrets_are_masked_in_results_and_logs(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_API_TOKEN", _TOKEN)
    monkeypatch.setenv("HIDDEN_X", "hidden-one")
    policy = Policy(mask_secrets=True, hide_prefixes=["HIDDEN_"], secrets=["named-one"])
    bash = spec.tool(agents, agent="a1", policy=policy)
    command = f"echo $MY_API_TOKEN ${{HIDDEN_X-gone}} hidden-one; echo named-one {_TOKEN} >&2"
    with caplog.at_level(logging.INFO, logger="shellsession.interaction"):
        found = bash({"command": command})
    assert found == {"stdout": "*** gone ***\n", "stderr": "*** ***\n", "exitCode": 0}
    (record,) = caplog.records
    assert record.__dict__["interaction"]["command"] == "echo $MY_API_TOKEN ${HIDDEN_X-gone} ***; echo *** *** >&2"
    assert _TOKEN not in record.getMessage()
    assert _TOKEN in spec.tool(agents, agent="a2", policy=Policy())({"command": "echo $MY_API_TOKEN"})["stdout"]
    bash_003 = bashtool.tool(agents, agent="a3", policy=policy)
    assert text_of(bash_003({"command": "echo $MY_API_TOKEN"})) == "***\n"


def test_named_secrets_are_masked_without_asking_for_it(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_TOKEN", _TOKEN)
    bash = spec.tool(agents, agent="a1", policy=Policy(secrets=["pin"]))
    assert bash({"command": "echo pi''n $MY_API_TOKEN"})["stdout"] == f"*** {_TOKEN}\n"


@pytest.mark.parametrize("persistent", [False, True])
def test_what_bash_says_to_a_contract_is_not_masked(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, persistent: bool
) -> None:
    """Each letter that it may say is a secret; and what the command says is masked all the same."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    policy = Policy(secrets=[*"0123456789abcdef", "Exit", "Done"])
    bash = bashtool.tool(agents, agent="a1", policy=policy, persistent=persistent)
    found = bash({"command": "printf Exit >&2; (exit 137)"})
    assert found["content"][0]["text"] == "Exit code: 137\nSTDOUT:\n\nSTDERR:\n***"
    bash_004 = phoenix.tool(agents, agent="a1", policy=policy, persistent=persistent)
    assert bash_004({"command": "echo xyz0; (exit 3)"}).output == "[command failed: exit code 3]\nxyz***\n"
    said = bash_004({"command": "echo hi", "background": True}).output
    assert re.match(
        rf"<pid>(\d+)</pid>\n<output_file>{re.escape(str(tmp_path))}/[^*]*/output</output_file>\n.*kill -9 -\1<", said
    )


def test_what_a_contract_adds_is_not_judged(agents: Agents) -> None:
    """The first command in a bash that all calls share is preceded by its preparation."""
    policy = Policy(deny=[re.compile("^(?!echo )")], allow=["echo"], max_command=9)
    bash = phoenix.tool(agents, agent="a1", persistent=True, policy=policy)
    assert bash({"command": "echo hi"}).output == "hi\n"
    assert bash({"command": "ls"}).code == "policy_refused"
