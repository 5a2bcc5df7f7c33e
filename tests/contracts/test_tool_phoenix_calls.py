"""Document 004: dangerous or invalid calls are refused, and all other text reaches bash."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import phoenixes
import pytest
from hypothesis import given, strategies as st

from shellsession import InvalidRequest, Session
from shellsession.contracts import phoenix
from shellsession.contracts.contract import HostPath, Look, Programs
from shellsession.contracts.phoenix import ToolResult
from shellsession.models import Request

Bash = phoenixes.Bash
bash = phoenixes.bash
lasting = phoenixes.lasting
TAKES = "; the arguments are command, slow_ok (optional), background (optional)"


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("rm -rf /", "rm -rf /"),
        ("rm -rf /*", "rm -rf /"),
        ("echo ok && rm -rf /tmp/x", "rm -rf /"),
        ("echo 'rm -rf /'", "rm -rf /"),
        ("echo x > /dev/sda1", "> /dev/sda"),
        ("mkfs.ext4 /dev/x", "mkfs."),
        ("echo 'dd if=.* of=/dev/'", "dd if=.* of=/dev/"),
    ],
)
@pytest.mark.parametrize("background", [False, True])
def test_dangerous_text_is_refused(bash: Bash, command: str, pattern: str, background: bool) -> None:
    said = f"Command contains dangerous pattern: {pattern}"
    assert bash({"command": command, "background": background}) == ToolResult(said, True, "safety_violation")


@pytest.mark.parametrize(
    "command", ["rm  -rf /nonexistent/x", "rm -r nowhere", "echo >/dev/sda_none", "mkfs", "dd if=a of=/dev/none"]
)
def test_only_the_documents_text_is_refused(command: str) -> None:
    steps = phoenix.Phoenix().steps({"command": command})
    assert next(steps) == Look(None)
    assert isinstance(steps.send(HostPath("/", "directory")), Request)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({}, "command: is missing" + TAKES),
        ({"command": None}, "command: should be a valid string" + TAKES),
        ({"command": 7}, "command: should be a valid string" + TAKES),
        ({"command": b"ls"}, "command: should be a valid string" + TAKES),
        ({"command": "ls", "slow_ok": "true"}, "slow_ok: should be a valid boolean" + TAKES),
        ({"command": "ls", "background": 1}, "background: should be a valid boolean" + TAKES),
        ({"command": "ls", "background": float("nan")}, "background: should be a valid boolean" + TAKES),
        ({"command": "a\0b"}, "command: contains a NUL character, which bash cannot read"),
        ({"command": "echo \ud800"}, "command: contains half of a surrogate pair, which is not text"),
        ("ls", "the arguments must be an object with fields, not str"),
        (None, "the arguments must be an object with fields, not NoneType"),
    ],
)
def test_bad_calls_are_error_results(bash: Bash, call: object, error: str) -> None:
    assert bash(call) == ToolResult(f"Invalid input: {error}", True, "invalid_args")


def test_fields_that_nobody_knows_are_ignored(bash: Bash) -> None:
    assert bash({"command": "echo here", "timeout": 1e400, "description": "why"}) == ToolResult("here\n")


@given(st.dictionaries(st.text(max_size=9), st.none() | st.booleans() | st.floats() | st.text() | st.lists(st.text())))
def test_foreign_calls_never_raise(call: dict[str, Any]) -> None:
    steps = phoenix.Phoenix().steps(call)
    with suppress(StopIteration):
        assert isinstance(next(steps), Look)


@given(st.text(), st.booleans(), st.booleans(), st.booleans())
def test_any_command_becomes_a_request(command: str, slow_ok: bool, background: bool, persistent: bool) -> None:
    steps = phoenix.Phoenix(persistent=persistent).steps(
        {"command": command, "slow_ok": slow_ok, "background": background}
    )
    with suppress(StopIteration):
        next(steps)
        asked = steps.send(HostPath("/", "directory"))
        if isinstance(asked, Programs):
            asked = steps.send("/nonexistent")
        assert isinstance(asked, Request)
        assert asked.merge_stderr
        assert asked.stdin is None


@pytest.mark.parametrize("persistent", [False, True])
@given(command=st.lists(st.sampled_from(["'", '"', "\\", "$", "`", "}", "{", " ", "€", "git commit", "!", "\n", "~"])))
def test_any_text_reaches_bash_as_it_is(bash: Bash, lasting: Bash, persistent: bool, command: list[str]) -> None:
    text = "".join(command)
    found = (lasting if persistent else bash)({"command": f"cat <<'_END_'\n{text}\n_END_"})
    assert found == ToolResult(f"{text}\n")


@pytest.mark.parametrize(
    "settings",
    [
        {"working_dir": ""},
        {"working_dir": "a\0b"},
        {"working_dir": 7},
        {"trailer": "a\nb: c"},
        {"trailer": "no colon"},
        {"trailer": 7},
    ],
)
def test_bad_settings_are_the_programmers(settings: dict[str, Any]) -> None:
    with Session() as session, pytest.raises(InvalidRequest, match=next(iter(settings))):
        phoenix.tool(session, **settings)
