"""Document 003 before a command runs: denied commands are blocked, unconfirmed ones do not run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import bashtools
import pytest
from bashtools import told

from shellsession import Agents, AsyncSession, Session
from shellsession.contracts import bashtool
from shellsession.contracts.bashtool import Failed

agents, bash = bashtools.agents, bashtools.bash

pytestmark = pytest.mark.usefixtures("company")


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("rm -rf /", "rm -rf /"),
        ("echo 'rm -rf /tmp/x'", "rm -rf /"),  # a substring is a substring
        ("sudo reboot; rm -rf /", "sudo"),  # the first of the list
        ("echo it's 'quo'ted", "it's 'quo'"),
    ],
)
def test_denied_patterns_are_blocked_and_nothing_runs(agents: Agents, command: str, pattern: str) -> None:
    asked: list[str] = []
    deny = ["sudo", "rm -rf /", "it's 'quo'"]
    bash = bashtool.tool(agents, agent="deny", deny_patterns=deny, confirm=asked.append)
    with pytest.raises(Failed) as raised:
        bash({"command": command})
    assert str(raised.value) == f"Command blocked by safety policy: contains '{pattern}'"
    assert asked == []


def test_what_yoagent_denies_can_be_named(agents: Agents) -> None:
    bash = bashtool.tool(agents, agent="deny", deny_patterns=bashtool.YOAGENT_DENY_PATTERNS)
    denied = [("rm -rf /*", "rm -rf /"), ("mkfs.ext4 x", "mkfs"), ("dd if=a of=b", "dd if="), (":(){:|:&};:", None)]
    for command, pattern in denied:
        with pytest.raises(Failed) as raised:
            bash({"command": command})
        assert str(raised.value) == f"Command blocked by safety policy: contains '{pattern or command}'"
    assert bashtool.YOAGENT_DENY_PATTERNS[1] == "rm -rf /*"


def test_what_is_not_denied_runs(agents: Agents) -> None:
    bash = bashtool.tool(agents, agent="deny", deny_patterns=["rm -rf /", "SUDO"])
    assert bash({"command": "echo rm -rf . sudo"}) == told("Exit code: 0\nrm -rf . sudo\n")


@pytest.mark.parametrize("answer", ["no", "n", 1, [False]], ids=repr)
def test_an_answer_other_than_true_or_false_is_refused(tmp_path: Path, answer: object) -> None:
    with Session() as session:
        bash = bashtool.tool(session, confirm=lambda _: answer)
        with pytest.raises(bashtool.Failed, match="return True or False"):
            bash({"command": f"touch {tmp_path}/ran"})
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("answer", [False, None, 0])
def test_unless_it_is_confirmed_nothing_runs(agents: Agents, tmp_path: Path, answer: object) -> None:
    bash = bashtool.tool(agents, agent="confirm", confirm=lambda command: answer)
    with pytest.raises(Failed) as raised:
        bash({"command": f"touch {tmp_path}/ran"})
    assert str(raised.value) == "Command was not confirmed by the user."
    assert not (tmp_path / "ran").exists()


def test_confirm_gets_the_command_as_the_model_wrote_it(agents: Agents) -> None:
    asked: list[str] = []

    def confirm(command: str) -> bool:
        asked.append(command)
        return True

    bash = bashtool.tool(agents, agent="confirm", confirm=confirm)
    assert bash({"command": "echo 'é'; :"}) == told("Exit code: 0\né\n")
    assert asked == ["echo 'é'; :"]


def test_an_exception_of_confirm_is_reported_and_nothing_is_run(agents: Agents, tmp_path: Path) -> None:
    def confirm(command: str) -> bool:
        raise LookupError(command)

    bash = bashtool.tool(agents, agent="confirm", confirm=confirm)
    with pytest.raises(
        Failed, match=r"^Failed to execute: the function that confirms commands raised LookupError\('touch "
    ):
        bash({"command": f"touch {tmp_path}/ran"})
    assert not (tmp_path / "ran").exists()


def test_a_coroutine_function_confirms_for_async_tools() -> None:
    async def confirm(command: str) -> bool:
        await asyncio.sleep(0)
        return "yes" in command

    async def main() -> None:
        async with AsyncSession() as session:
            bash = bashtool.tool(session, confirm=confirm)
            assert await bash({"command": "echo yes"}) == told("Exit code: 0\nyes\n")
            with pytest.raises(Failed, match=r"^Command was not confirmed by the user\.$"):
                await bash({"command": "echo no"})

    asyncio.run(main())
    with Session() as session:
        for function in (confirm, lambda command: confirm(command)):
            with pytest.raises(
                Failed, match=r"^Failed to execute: confirm is a coroutine function, which only an async"
            ):
                bashtool.tool(session, confirm=function)({"command": "echo yes"})
