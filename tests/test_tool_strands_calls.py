"""Document 001, bad calls: whatever a model or a program gives, it gets a session error that says what is taken."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import strandses
from hypothesis import given, strategies as st
from strandses import Bash

from shellsession import Agents
from shellsession.contracts import strands
from shellsession.contracts.contract import Restart
from shellsession.models import Request

agent, bash = strandses.agent, strandses.bash

pytestmark = pytest.mark.usefixtures("company")


TAKES = "; the arguments are mode, command (optional), timeout (optional)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({}, "mode: is missing" + TAKES),
        ({"mode": None}, "mode: is missing" + TAKES),
        (
            {"mode": "run", "command": "ls"},
            "mode: should be 'execute' or 'restart'" + TAKES,
        ),
        (
            {"mode": ["execute"], "command": "ls"},
            "mode: should be 'execute' or 'restart'" + TAKES,
        ),
        ({"command": "ls"}, "mode: is missing" + TAKES),
        ({"mode": "execute"}, 'command: is required when mode is "execute"'),
        ({"mode": "execute", "command": ""}, 'command: is required when mode is "execute"'),
        ({"mode": "execute", "command": None}, 'command: is required when mode is "execute"'),
        (
            {"mode": "execute", "command": 7},
            "command: should be a valid string" + TAKES,
        ),
        (
            {"mode": "execute", "command": b"ls"},
            "command: should be a valid string" + TAKES,
        ),
        ({"mode": "execute", "command": "a\0b"}, "command: holds a NUL character, which bash cannot read"),
        ({"mode": "execute", "command": "\ud800"}, "command: holds half of a surrogate pair, which is no text"),
        (
            {"mode": "execute", "command": "ls", "timeout": 0},
            "timeout: should be greater than 0" + TAKES,
        ),
        (
            {"mode": "execute", "command": "ls", "timeout": -1},
            "timeout: should be greater than 0" + TAKES,
        ),
        (
            {"mode": "execute", "command": "ls", "timeout": "5"},
            "timeout: should be a valid number" + TAKES,
        ),
        (
            {"mode": "execute", "command": "ls", "timeout": True},
            "timeout: should be a valid number" + TAKES,
        ),
        (
            {"mode": "execute", "command": "ls", "timeout": 10**400},
            "timeout: should be a valid number" + TAKES,
        ),
        (
            {"mode": "execute", "command": "ls", "timeout": 1e10},
            "timeout: should be less than or equal to 1000000000" + TAKES,
        ),
        (
            {"mode": "execute", "command": "ls", "timeout": float("nan")},
            "timeout: should be a finite number" + TAKES,
        ),
        (
            {"mode": "execute", "command": "ls", "timeout": float("inf")},
            "timeout: should be a finite number" + TAKES,
        ),
        (
            {"mode": "execute", "command": "ls", "cwd": "/"},
            "cwd: is unknown" + TAKES,
        ),
        ({"mode": "restart", "cwd": "/"}, "cwd: is unknown" + TAKES),
        ({"mode": "execute", "command": "a" * ((16 << 20) + 1)}, None),
        ("ls", "the arguments are an object with fields, not str"),
        (None, "the arguments are an object with fields, not NoneType"),
    ],
)
def test_bad_calls_are_session_errors(bash: Bash, agents: Agents, call: object, message: str | None) -> None:
    with pytest.raises(strands.BashSessionError) as caught:
        bash(call)
    if message is not None:
        assert str(caught.value) == f"Invalid input: {message}"
    assert agents.list() == []


def test_restart_does_not_look_at_what_execute_takes(bash: Bash, tmp_path: Path) -> None:
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
    with suppress(strands.BashSessionError):
        assert isinstance(next(steps), Request | Restart)
