"""A policy over a tool that asks for confirmation: whom it asks, for how long, and what runs."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from policies import text_of
from system import PATIENCE, until

from shellsession import Agents, AsyncSession, Session
from shellsession.contracts import bashtool, langchain, phoenix, spec
from shellsession.contracts.bashtool import Failed
from shellsession.contracts.cancel import CancelToken
from shellsession.contracts.langchain import BashToolError
from shellsession.policy.rules import Policy

pytestmark = pytest.mark.usefixtures("company")


@pytest.mark.parametrize("where", ["contract", "policy"])
def test_confirm_does_not_block_the_loop(where: str) -> None:
    async def main() -> None:
        asked, answered = threading.Event(), threading.Event()

        def confirm(*_: str) -> bool:
            asked.set()
            return answered.wait(PATIENCE)

        async def answer() -> None:
            await until(asked.is_set)
            answered.set()

        policy = Policy(confirm=confirm, confirm_timeout=None) if where == "policy" else None
        async with AsyncSession() as session:
            bash = bashtool.tool(session, policy=policy, confirm=confirm if policy is None else None)
            answering = asyncio.create_task(answer())
            assert text_of(await bash({"command": "echo yes"})) == "yes\n"
            await answering

    asyncio.run(main())


def test_confirm_is_not_called_for_a_command_that_the_policy_denies(agents: Agents) -> None:
    asked: list[str] = []

    def confirm(command: str, *_: str) -> bool:
        asked.append(f"{len(_)} {command}")
        return True

    policy = Policy(deny_commands=["touch"], confirm=confirm)
    bash = bashtool.tool(agents, agent="a1", policy=policy, deny_patterns=["sudo"], confirm=confirm)
    with pytest.raises(Failed, match="'touch' is denied"):
        bash({"command": "touch x"})
    with pytest.raises(Failed, match="contains 'sudo'"):
        bash({"command": "sudo touch x"})
    assert asked == []
    assert text_of(bash({"command": "echo hi"})) == "hi\n"
    assert asked == ["0 echo hi", "2 echo hi"], "the tool's own first"


def test_confirm_gets_command_agent_and_cwd(agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, str]] = []

    def confirm(command: str, agent: str, cwd: str) -> bool:
        asked.append((command, agent, cwd))
        return True

    monkeypatch.chdir(tmp_path)
    policy = Policy(confirm=confirm)
    spec.tool(agents, agent="a1", policy=policy)({"command": "echo 'é'"})
    persistent = spec.tool(agents, agent="a2", persistent=True, policy=policy)
    persistent({"command": "cd /"})
    persistent({"command": "true"})
    bashtool.tool(agents, agent="a3", cwd="/usr", policy=policy)({"command": "true"})
    with Session() as session:
        spec.tool(session, policy=policy)({"command": "true"})
    place = str(tmp_path)
    assert asked == [
        ("echo 'é'", "a1", place),
        ("cd /", "a2", place),
        ("true", "a2", "/"),
        ("true", "a3", "/usr"),
        ("true", "", place),
    ]


def test_no_answer_in_time_means_no(agents: Agents, tmp_path: Path) -> None:
    released = threading.Event()

    def confirm(*_: str) -> bool:
        return released.wait(30)

    bash = spec.tool(agents, agent="a1", policy=Policy(confirm=confirm, confirm_timeout=0.1))
    begun = time.monotonic()
    found = bash({"command": f"touch {tmp_path}/ran"})
    assert found == {"error": "Failed to execute: refused by policy: it was not confirmed within 0.1 s"}
    assert time.monotonic() - begun < 20
    released.set()
    assert not (tmp_path / "ran").exists()


def test_a_slow_answer_is_waited_for(agents: Agents) -> None:
    def confirm(*_: str) -> bool:
        threading.Event().wait(0.05)
        return True

    for limit in (None, 30):
        policy = Policy(confirm=confirm, confirm_timeout=limit)
        assert spec.tool(agents, agent="a1", policy=policy)({"command": "echo hi"})["stdout"] == "hi\n"


def test_an_exception_of_confirm_is_reported_and_nothing_runs(
    agents: Agents, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def confirm(*_: str) -> bool:
        raise fault

    for fault, limit in ((LookupError("me"), None), (LookupError("me"), 30), (TimeoutError("me"), None)):
        policy = Policy(confirm=confirm, confirm_timeout=limit)
        call = {"command": f"touch {tmp_path}/ran"}
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="shellsession.interaction"):
            found = spec.tool(agents, agent="a1", policy=policy)(call)
        said = f"the function that confirms commands raised {type(fault).__name__}('me'): nothing was run"
        assert found == {"error": f"Failed to execute: {said}"}
        assert [record.__dict__["interaction"]["command"] for record in caplog.records] == [call["command"]]
        with pytest.raises(BashToolError, match=re.escape(said)):
            langchain.tool(agents, agent="a1", policy=policy)(call)
        failed = phoenix.tool(agents, agent="a1", policy=policy)(call)
        assert (failed.output, failed.code) == (said, "invalid_request")
    assert not (tmp_path / "ran").exists()


async def _says_yes(*_: str) -> bool:
    await asyncio.sleep(0)
    return True


async def _says_no(*_: str) -> bool:
    return False


async def _never_says(*_: str) -> bool:
    await asyncio.Event().wait()
    return True


_RELEASED: Final = threading.Event()


def _blocks(*_: str) -> bool:
    return _RELEASED.wait(30)


def _agrees(*_: str) -> bool:
    return True


@pytest.mark.parametrize(
    ("confirm", "limit", "reason"),
    [
        (_says_yes, None, ""),
        (_says_yes, 30, ""),
        (_agrees, 30, ""),
        (_agrees, None, ""),
        (_says_no, 30, "it was not confirmed"),
        (_never_says, 0.1, "it was not confirmed within 0.1 s"),
        (_blocks, 0.1, "it was not confirmed within 0.1 s"),
    ],
)
def test_async_tools_ask_functions_and_coroutine_functions(
    confirm: Callable[..., Any], limit: float | None, reason: str
) -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            bash = spec.tool(session, policy=Policy(confirm=confirm, confirm_timeout=limit))
            _RELEASED.clear()
            found = await bash({"command": "echo hi"})
            _RELEASED.set()
            if reason:
                assert found == {"error": f"Failed to execute: refused by policy: {reason}"}
            else:
                assert found["stdout"] == "hi\n"

    asyncio.run(main())


def test_a_tool_for_threads_cannot_ask_a_coroutine_function(agents: Agents) -> None:
    for limit in (None, 30):
        for function in (_says_yes, lambda *names: _says_yes(*names)):
            policy = Policy(confirm=function, confirm_timeout=limit)
            found = spec.tool(agents, agent="a1", policy=policy)({"command": "true"})
            assert found["error"].startswith("Failed to execute: confirm is a coroutine function, which only an async")


def test_confirm_is_called_even_if_the_call_was_cancelled_before(agents: Agents) -> None:
    token = CancelToken()
    token.cancel()

    def confirm(*_: str) -> bool:
        threading.Event().wait(0.05)
        return False

    found = spec.tool(agents, agent="a1", policy=Policy(confirm=confirm))({"command": "true"}, token)
    assert found == {"error": "Failed to execute: refused by policy: it was not confirmed"}


def test_a_cancelled_call_does_not_wait_for_the_answer(agents: Agents) -> None:
    token, released = CancelToken(), threading.Event()

    def confirm(*_: str) -> bool:
        token.cancel()
        return released.wait(30)

    begun = time.monotonic()
    found = spec.tool(agents, agent="a1", policy=Policy(confirm=confirm))({"command": "true"}, token)
    released.set()
    assert found == {"error": "Failed to execute: the call was cancelled"}
    assert time.monotonic() - begun < 20
