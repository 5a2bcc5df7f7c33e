"""Document 003: execution, truncation and results. contracts/parity/003_bashtool.md lists its requirements."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import bashtools
import pytest
from bashes import FIRST_LINE
from bashtools import Bash, text_of, told
from hypothesis import given, strategies as st

from shellsession import Agents, InvalidRequest, Session
from shellsession.contracts import bashtool
from shellsession.contracts.bashtool import Failed, InvalidArgs
from shellsession.models import Request, Result

agents, bash = bashtools.agents, bashtools.bash

pytestmark = pytest.mark.usefixtures("company")


def test_the_definition(bash: Bash) -> None:
    command = {"type": "string", "description": "The bash command to execute"}
    schema = {"type": "object", "properties": {"command": command}, "required": ["command"]}
    assert bash.definition["input_schema"] == {**schema, "additionalProperties": False}
    assert bash.definition["name"] == "bash"
    json.dumps(bash.definition)


@pytest.mark.parametrize(
    ("command", "text", "exit_code"),
    [
        ("echo hello", "Exit code: 0\nhello\n", 0),
        ("printf x", "Exit code: 0\nx", 0),
        ("", "Exit code: 0\n", 0),
        ("echo err >&2", "Exit code: 0\nSTDOUT:\n\nSTDERR:\nerr\n", 0),
        ("echo out; echo err >&2; exit 3", "Exit code: 3\nSTDOUT:\nout\n\nSTDERR:\nerr\n", 3),
        ("exit 255", "Exit code: 255\n", 255),
        ("false", "Exit code: 1\n", 1),
        (
            "nonsense_here",
            f"Exit code: 127\nSTDOUT:\n\nSTDERR:\nbash: {FIRST_LINE}nonsense_here: command not found\n",
            127,
        ),
        ("[[ -t 0 || -t 1 || -t 2 ]] || echo pipes; cat", "Exit code: 0\npipes\n", 0),
    ],
)
def test_both_layouts_and_failure_is_no_error(bash: Bash, command: str, text: str, exit_code: int) -> None:
    assert bash({"command": command}) == told(text, exit_code)


def test_it_is_what_bash_c_runs(bash: Bash) -> None:
    found = bash({"command": "a=(1 2 3); cat <<EOF\n${a[@]:1} $((1 + 1))\nEOF\nfalse | true; echo ${PIPESTATUS[*]}"})
    assert text_of(found) == "Exit code: 0\n2 3 2\n1 0\n"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({}, "command: is missing; the arguments are command"),
        ({"command": None}, "command: should be a valid string; the arguments are command"),
        ({"command": 7}, "command: should be a valid string; the arguments are command"),
        ({"command": ["ls"]}, "command: should be a valid string; the arguments are command"),
        ({"command": float("nan")}, "command: should be a valid string; the arguments are command"),
        ({"cmd": "ls"}, "command: is missing; the arguments are command"),
        ({"command": "ls", "timeout": 1e400}, "timeout: is unknown; the arguments are command"),
        ({"command": "a\0b"}, "command: contains a NUL character, which bash cannot read"),
        ({"command": "echo \ud800"}, "command: contains half of a surrogate pair, which is not text"),
        ("ls", "the arguments must be an object with fields, not str"),
        (None, "the arguments must be an object with fields, not NoneType"),
    ],
)
def test_bad_calls_are_invalid_args(bash: Bash, call: object, error: str) -> None:
    with pytest.raises(InvalidArgs) as raised:
        bash(call)
    assert str(raised.value) == error
    assert raised.value.code == "bashtool_invalid_args"


def test_it_runs_in_the_directory_that_is_named(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a b'c", "-P", "x"):
        (tmp_path / name).mkdir()
        bash = bashtool.tool(agents, agent="cwd", cwd=str(tmp_path / name))
        assert bash({"command": 'printf %s "$PWD"; cd /'}) == told(f"Exit code: 0\n{tmp_path / name}")
        monkeypatch.chdir(tmp_path)
        bash = bashtool.tool(agents, agent="cwd", cwd=name)
        assert bash({"command": 'printf %s "$PWD"'}) == told(f"Exit code: 0\n{tmp_path / name}")
    monkeypatch.chdir(tmp_path / "x")
    assert text_of(bashtool.tool(agents, agent="cwd")({"command": "pwd"})) == f"Exit code: 0\n{tmp_path}/x\n"


@pytest.mark.parametrize("before", [None, "/usr"])
def test_a_command_does_not_see_how_it_was_started(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is None:
        monkeypatch.delenv("OLDPWD", raising=False)
    else:
        monkeypatch.setenv("OLDPWD", before)
    for agent in ("one", "one", "two"):
        bash = bashtool.tool(agents, agent=f"{agent}{before}")
        assert text_of(bash({"command": "echo ${OLDPWD-none}"})) == f"Exit code: 0\n{before or 'none'}\n"


@pytest.mark.parametrize(("name", "reason"), [("gone", "No such file or directory"), ("file", "Not a directory")])
def test_an_invalid_cwd_fails_to_execute(agents: Agents, tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    bash = bashtool.tool(agents, agent="cwd", cwd=str(tmp_path / name))
    with pytest.raises(Failed) as raised:
        bash({"command": "true"})
    assert str(raised.value) == f"Failed to execute: {tmp_path / name}: {reason}"


def test_a_bash_that_cannot_start_is_a_failure_to_execute() -> None:
    with Session(bash="/nonexistent/bash") as session, pytest.raises(Failed, match=r"^Failed to execute: .*nonexist"):
        bashtool.tool(session)({"command": "true"})


def test_a_session_in_other_hands_is_a_failure_to_execute(new_session: Callable[..., Session]) -> None:
    session = new_session()
    session.run("sleep 100", timeout=0.05, on_timeout="yield")
    with pytest.raises(Failed, match=r"^Failed to execute: "):
        bashtool.tool(session)({"command": "true"})


@pytest.mark.parametrize(("timeout", "said"), [(0.2, "0.2"), (1, "1"), (1.0, "1")])
def test_at_the_time_limit_the_command_is_ended(agents: Agents, tmp_path: Path, timeout: float, said: str) -> None:
    bash = bashtool.tool(agents, agent="timeout", timeout=timeout)
    with pytest.raises(Failed) as raised:
        bash({"command": f"echo $BASHPID >{tmp_path}/pid; sleep 1000; echo late >{tmp_path}/late"})
    assert str(raised.value) == f"Command timed out after {said}s"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert bash({"command": "echo again"}) == told("Exit code: 0\nagain\n")
    assert not (tmp_path / "late").exists()


@pytest.mark.parametrize("redirection", ["", ">&2"])
@pytest.mark.parametrize(
    ("limit", "written", "shown"),
    [
        (10, "a" * 9, None),
        (10, "a" * 10, None),
        (10, "a" * 11, "a" * 10),
        (10, "a" * 21, "a" * 10),
        (10, "a" * 500 + "b" * 500, "a" * 10),
        (10, "é" * 5, None),
        (10, "a" + "é" * 5, "a" + "é" * 4),
        (10, "a" + "é" * 500, "a" + "é" * 4),
        (10, "abcdefg" + "🎉" * 9, "abcdefg"),
        (0, "a", ""),
        (0, "", None),
        (9, b"\xff" * 3, None),
        (8, b"\xff" * 3, "\ufffd" * 2),
        (8, b"\xff" * 300, "\ufffd" * 2),
    ],
)
def test_each_stream_is_cut_at_its_limit_in_bytes(
    agents: Agents, tmp_path: Path, limit: int, written: str | bytes, shown: str | None, redirection: str
) -> None:
    data = written.encode() if isinstance(written, str) else written
    (tmp_path / "data").write_bytes(data)
    bash = bashtool.tool(agents, agent="limits", max_output_bytes=limit)
    text = text_of(bash({"command": f"cat {tmp_path}/data {redirection}"}))
    expected = data.decode("utf-8", "replace") if shown is None else shown + "\n... (output truncated)"
    layout = f"STDOUT:\n\nSTDERR:\n{expected}" if redirection and expected else expected
    assert text == f"Exit code: 0\n{layout}"


def test_what_is_no_utf_8_is_replaced(bash: Bash) -> None:
    assert text_of(bash({"command": "printf '\\xff\\xe2\\x82\\xac\\xe2'"})) == "Exit code: 0\n\ufffd€\ufffd"


@pytest.mark.parametrize(
    ("command", "exit_code"), [("kill -9 $$", -1), ("kill -9 $BASHPID", -1), ("sh -c 'kill -9 $$'; exit $?", 137)]
)
def test_without_an_exit_code_it_is_minus_one(agents: Agents, command: str, exit_code: int) -> None:
    bash = bashtool.tool(agents, agent="signals")
    found = bash({"command": command})
    assert found["details"] == {"exit_code": exit_code, "success": False}
    assert text_of(found).startswith(f"Exit code: {exit_code}\n")
    assert bash({"command": "echo again"}) == told("Exit code: 0\nagain\n")


def test_nothing_is_kept_between_calls_unless_it_is_persistent(agents: Agents, tmp_path: Path) -> None:
    command, look = {"command": "cd /; KEPT=1"}, {"command": "echo $PWD ${KEPT-no}"}
    bash = bashtool.tool(agents, agent="isolated", cwd=tmp_path)
    bash(command)
    assert bash(look) == told(f"Exit code: 0\n{tmp_path} no\n")
    assert "persist" not in bash.description
    bash = bashtool.tool(agents, agent="persistent", cwd=tmp_path, persistent=True)
    assert text_of(bash({"command": "pwd"})) == f"Exit code: 0\n{tmp_path}\n"
    bash(command)
    assert bash(look) == told("Exit code: 0\n/ 1\n")
    assert "persist between calls" in bash.description


@pytest.mark.parametrize(
    "settings",
    [
        {"deny_patterns": "rm"},
        {"deny_patterns": [1]},
        {"deny_patterns": b"rm"},
        {"deny_patterns": None},
        {"deny_patterns": 3},
        {"deny_patterns": ["rm", ""]},
        {"persistent": "no"},
        {"confirm": True},
        {"cwd": ""},
        {"cwd": 3},
        {"cwd": "a\0b"},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": "3"},
        {"timeout": True},
        {"max_output_bytes": -1},
        {"max_output_bytes": 1.5},
    ],
)
def test_bad_settings_are_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        bashtool.BashTool(**settings)


@given(st.dictionaries(st.text(max_size=9), st.none() | st.booleans() | st.floats() | st.text() | st.lists(st.text())))
def test_foreign_calls_run_or_are_invalid_args(call: dict[str, Any]) -> None:
    with suppress(InvalidArgs):
        assert isinstance(next(bashtool.BashTool().steps(call)), Request)


@given(st.binary(max_size=50), st.binary(max_size=50), st.none() | st.integers(0, 255), st.integers(0, 60))
def test_every_result_has_its_payload(stdout: bytes, stderr: bytes, exit_code: int | None, limit: int) -> None:
    payload = bashtool.render(Result(stdout, stderr, exit_code, None, "/", 0.0, "exited"), limit)
    assert payload["details"] == {"exit_code": -1 if exit_code is None else exit_code, "success": exit_code == 0}
    assert payload["content"] == [{"type": "text", "text": text_of(payload)}]
    head, _, text = text_of(payload).partition("\n")
    assert head == f"Exit code: {payload['details']['exit_code']}"
    if not stderr:
        whole = stdout.decode("utf-8", "replace")
        shown = text.removesuffix("\n... (output truncated)")
        assert whole.startswith(shown)
        assert len(shown.encode()) <= max(limit, len(whole.encode()) if text == whole else limit)
        assert (text == whole) == (len(whole.encode()) <= limit)
    json.dumps(payload)
