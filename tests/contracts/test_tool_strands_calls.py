"""Document 001: every invalid call gets an input error that says what is valid."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import strandses
from hypothesis import given, strategies as st
from strandses import Bash, execute, output

from shellsession import Agents
from shellsession.contracts import strands
from shellsession.contracts.contract import FreshShell
from shellsession.models import Request

agent, bash = strandses.agent, strandses.bash

pytestmark = pytest.mark.usefixtures("company")


TAKES = "; the arguments are mode, command (optional), timeout (optional)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({}, "mode: is missing" + TAKES),
        ({"mode": None}, "mode: is missing" + TAKES),
        ({"mode": "run", "command": "ls"}, "mode: should be 'execute' or 'restart'" + TAKES),
        ({"mode": ["execute"], "command": "ls"}, "mode: should be 'execute' or 'restart'" + TAKES),
        ({"command": "ls"}, "mode: is missing" + TAKES),
        ({"mode": "execute"}, 'command is required when mode is "execute"'),
        ({"mode": "execute", "command": ""}, 'command is required when mode is "execute"'),
        ({"mode": "execute", "command": None}, 'command is required when mode is "execute"'),
        ({"mode": "execute", "command": 7}, "command: should be a valid string" + TAKES),
        ({"mode": "execute", "command": b"ls"}, "command: should be a valid string" + TAKES),
        ({"mode": "execute", "command": "a\0b"}, "command: contains a NUL character, which bash cannot read"),
        ({"mode": "execute", "command": "\ud800"}, "command: contains half of a surrogate pair, which is not text"),
        ({"mode": "execute", "command": "ls", "timeout": 0}, "timeout: should be greater than 0" + TAKES),
        ({"mode": "execute", "command": "ls", "timeout": -1}, "timeout: should be greater than 0" + TAKES),
        ({"mode": "execute", "command": "ls", "timeout": "5"}, "timeout: should be a valid number" + TAKES),
        ({"mode": "execute", "command": "ls", "timeout": True}, "timeout: should be a valid number" + TAKES),
        ({"mode": "execute", "command": "ls", "timeout": 10**400}, "timeout: should be a valid number" + TAKES),
        (
            {"mode": "execute", "command": "ls", "timeout": 1e10},
            "timeout: should be less than or equal to 1000000000" + TAKES,
        ),
        ({"mode": "execute", "command": "ls", "timeout": float("nan")}, "timeout: should be a finite number" + TAKES),
        ({"mode": "execute", "command": "ls", "timeout": float("inf")}, "timeout: should be a finite number" + TAKES),
        (
            {"mode": "execute", "command": "a" * ((16 << 20) + 1)},
            "the command is 16777217 bytes long, over 16777216: put it into a file and source that",
        ),
        ("ls", "the arguments must be an object with fields, not str"),
        (None, "the arguments must be an object with fields, not NoneType"),
    ],
)
def test_bad_calls_are_input_errors(bash: Bash, agents: Agents, call: object, message: str) -> None:
    with pytest.raises(strands.BashInputError) as caught:
        bash(call)
    assert str(caught.value) == f"Invalid input: {message}"
    assert agents.list() == []


def test_a_bad_call_is_no_error_of_the_session(bash: Bash) -> None:
    pid = output(bash, "X=kept; echo $$")
    with pytest.raises(ValueError, match="command is required") as caught:
        bash({"mode": "execute"})
    assert not isinstance(caught.value, strands.BashSessionError)
    assert output(bash, "echo $X $$") == f"kept {pid}"


def test_fields_that_nobody_knows_are_ignored(bash: Bash) -> None:
    assert execute(bash, "echo here", cwd="/nowhere", description="why") == {"output": "here", "error": ""}
    assert bash({"mode": "restart", "cwd": "/nowhere"}) == "Bash session restarted"


def test_restart_ignores_the_fields_of_execute(bash: Bash, tmp_path: Path) -> None:
    for others in ({"command": "touch here", "timeout": None}, {"command": "", "timeout": 0}, {"command": 7}):
        assert bash({"mode": "restart", **others}) == "Bash session restarted"
    assert list(tmp_path.iterdir()) == []


@given(
    st.dictionaries(
        st.sampled_from(["mode", "command", "timeout", "x"]),
        st.sampled_from(["execute", "restart"]) | st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    )
)
def test_foreign_calls_give_the_documented_error(call: dict[str, Any]) -> None:
    steps = strands.Strands().steps(call)
    with suppress(strands.BashInputError):
        assert isinstance(next(steps), Request | FreshShell)
