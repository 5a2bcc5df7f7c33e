"""Document 000: one-shot bash. contracts/parity/000_spec.md lists its requirements."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from bashes import BUILTINS_FIRST_LINE, FIRST_LINE, VERSION
from hypothesis import given, strategies as st

from shellsession import Agents, Session
from shellsession.contracts import spec
from shellsession.contracts.tool import Tool
from shellsession.models import Request, Result

pytestmark = pytest.mark.usefixtures("company")

Bash = Tool[spec.SpecPayload]
MB = 1_048_576  # the document's, read as 2^20


def as_told(error: str, name: str = "/bin/bash") -> str:
    """As the document's bash tells of it, which calls itself so."""
    return f"{name}: {BUILTINS_FIRST_LINE if error.startswith('exec: ') else FIRST_LINE}{error}"


@pytest.fixture(scope="module")
def bash() -> Iterator[Bash]:
    with Agents() as agents:
        yield spec.tool(agents, agent="a1")


def test_the_definition_is_the_documents(bash: Bash) -> None:
    command = {"type": "string", "description": "The bash command to execute"}
    schema = {"type": "object", "properties": {"command": command}, "required": ["command"]}
    assert bash.definition == {
        "name": "bash",
        "description": "Execute a bash command and return stdout/stderr",
        "input_schema": {**schema, "additionalProperties": False},
    }
    json.dumps(bash.definition)


def test_examples(bash: Bash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("pattern\n" * 42 + "other\n")
    assert bash({"command": "echo 'hello world'"}) == {"stdout": "hello world\n", "stderr": "", "exitCode": 0}
    missing = bash({"command": "ls nonexistent"})
    assert missing == {
        "stdout": "",
        "stderr": "ls: cannot access 'nonexistent': No such file or directory\n",
        "exitCode": 2,
    }
    assert bash({"command": "cat file.txt | grep pattern | wc -l"}) == {"stdout": "42\n", "stderr": "", "exitCode": 0}


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({"command": ""}, "command: is empty"),
        ({}, "command: is missing; the arguments are command"),
        ({"command": None}, "command: should be a valid string; the arguments are command"),
        ({"command": 7}, "command: should be a valid string; the arguments are command"),
        ({"command": ["ls"]}, "command: should be a valid string; the arguments are command"),
        ({"command": b"ls"}, "command: should be a valid string; the arguments are command"),
        ({"command": "ls", "timeout": 1e400}, "timeout: is unknown; the arguments are command"),
        ({"command": "ls", "timeout": None}, "timeout: is unknown; the arguments are command"),
        ({"command": "ls", "x" * 9999: 1}, f"{'x' * 40}...: is unknown; the arguments are command"),
        ({"command": "a\0b"}, "command: contains a NUL character, which bash cannot read"),
        ({"command": "echo \ud800"}, "command: contains half of a surrogate pair, which is not text"),
        ("ls", "the arguments must be an object with fields, not str"),
        (None, "the arguments must be an object with fields, not NoneType"),
    ],
)
def test_bad_calls_are_errors(bash: Bash, call: object, error: str) -> None:
    assert bash(call) == {"error": f"Invalid input: {error}"}


@pytest.mark.parametrize("command", [" ", "\n", "\t \n", "# nothing"])
def test_blanks_are_a_command_that_does_nothing(bash: Bash, command: str) -> None:
    assert bash({"command": command}) == {"stdout": "", "stderr": "", "exitCode": 0}


@pytest.mark.parametrize(
    ("command", "stdout", "exit_code"),
    [
        ("a=(1 2 3); echo ${#a[@]} ${a[-1]}", "3 3\n", 0),
        ("echo one\nexit 3\necho two", "one\n", 3),
        ("cat; echo end", "end\n", 0),
        ("cat <<'EOF'\n$HOME `x`\nEOF", "$HOME `x`\n", 0),
        ("kill -TERM $BASHPID", "", 143),
        ("false | true; echo ${PIPESTATUS[*]}", "1 0\n", 0),
        ("set -e; false; echo not here", "", 1),
        ("[[ -t 0 || -t 1 || -t 2 ]] || echo pipes", "pipes\n", 0),
        ("printf '\\xff\\xe2\\x82\\xac'", "\ufffd\u20ac", 0),
        ("# nothing but a comment", "", 0),
        (" \n\t", "", 0),
    ],
)
def test_it_is_bash(bash: Bash, command: str, stdout: str, exit_code: int) -> None:
    assert bash({"command": command}) == {"stdout": stdout, "stderr": "", "exitCode": exit_code}


def test_nothing_is_kept_between_calls(bash: Bash) -> None:
    bash({"command": "cd /; KEPT=1; function kept() { :; }; set -u; alias kept=true"})
    found = bash({"command": "echo $PWD ${KEPT-no}; type -t kept; echo $-"})
    assert found["stdout"].startswith(f"{Path.cwd()} no\n")
    assert "u" not in found["stdout"].split()[-1]


def test_with_persistent_state_is_kept_and_the_description_says_so() -> None:
    with Agents() as agents:
        bash = spec.tool(agents, agent="a1", persistent=True)
        bash({"command": "cd /; KEPT=1"})
        assert bash({"command": "echo $PWD $KEPT"})["stdout"] == "/ 1\n"
        assert "persist between calls" in bash.description
        assert bash({"command": "exit 3"})["exitCode"] == 3
        assert bash({"command": "echo ${KEPT-gone}"})["stdout"] == "gone\n"


def test_it_waits_for_the_end(bash: Bash, tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    assert bash({"command": f"(echo go >{fifo}) & read x <{fifo}; echo $x"})["stdout"] == "go\n"


def test_at_the_time_limit_the_command_is_killed(bash: Bash, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert spec.Spec().parse({"command": "true"}).timeout == 30.0
    monkeypatch.setattr(spec, "TIMEOUT", 0.2)
    found = bash({"command": f"echo $BASHPID >{tmp_path}/pid; sleep 1000; echo late >{tmp_path}/late"})
    assert found == {"error": "Command timed out after 0.2 seconds"}
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert bash({"command": "echo again"})["stdout"] == "again\n"
    assert not (tmp_path / "late").exists()


@pytest.mark.parametrize(
    ("command", "error", "exit_code"),
    [
        ("nonexistent_command", "nonexistent_command: command not found", 127),
        ("./nowhere/at_all", "./nowhere/at_all: No such file or directory", 127),
        ("/etc/passwd", "/etc/passwd: Permission denied", 126),
        ("/etc", "/etc: Is a directory", 126),
        ("echo out; nonexistent_command", "nonexistent_command: command not found", 127),
        ("exec nonexistent_command", "exec: nonexistent_command: not found", 127),
        ("nonexistent_command 2>&1", "nonexistent_command: command not found", 127),
        ("echo out; ./nowhere/at_all 2>&1", "./nowhere/at_all: No such file or directory", 127),
        ("/etc/passwd 2>&1", "/etc/passwd: Permission denied", 126),
        ("nonexistent_command 2>/dev/null", None, 127),
        ("echo nonexistent_command: command not found; exit 127", None, 127),
        # a program's own word is no error of ours
        ("exit 127", None, 127),
        ("sh -c 'exit 126'", None, 126),
        ("sh -c 'nonexistent_command'", None, 127),
        ("bash -c '\nnonexistent_command'", None, 127),
        ("cd /nowhere; exit 127", None, 127),
        ("echo nonexistent_command: command not found >&2; exit 127", None, 127),
        ("nonexistent_command; true", None, 0),
        ("nonexistent_command; false", None, 1),
    ],
)
def test_what_bash_could_not_run_is_an_error_beside_the_outcome(
    bash: Bash, command: str, error: str | None, exit_code: int
) -> None:
    found = bash({"command": command})
    assert found.get("error") == (error and as_told(error))
    assert found["exitCode"] == exit_code
    assert found.keys() >= {"stdout", "stderr"}


def test_what_a_function_could_not_run_is_an_error_too(bash: Bash) -> None:
    for command, said, exit_code in (
        ("nonexistent_command", "nonexistent_command: command not found", 127),
        ("exec nonexistent_command", "exec: nonexistent_command: not found", 127),
        ("/etc/passwd", "/etc/passwd: Permission denied", 126),
    ):
        found = bash({"command": f"f() {{ {command}; }}; f"})
        name = "/bin/bash" if VERSION >= (5, 3) else "environment"  # what a function there is read from
        assert (found["exitCode"], found["error"]) == (exit_code, as_told(said, name))


@pytest.mark.parametrize("name", ["/bin/bash", "environment"])
def test_the_first_line_is_not_always_numbered(name: str) -> None:
    """Not by a bash before 5.1."""
    said = f"{name}: nonexistent_command: command not found"
    payload = spec.render(Result(b"", f"before\n{said}\n".encode(), 127, None, "/", 0.0, "exited"))
    assert payload["error"] == said


def test_where_state_is_kept_bash_says_it_otherwise() -> None:
    with Agents() as agents:
        bash = spec.tool(agents, agent="a1", persistent=True)
        for command in ("nonexistent_command", "f() { nonexistent_command; }; f"):
            assert bash({"command": command})["error"] == "bash: nonexistent_command: command not found"
        assert bash({"command": "exec nonexistent_command"})["error"] == "bash: exec: nonexistent_command: not found"
        assert "error" not in bash({"command": "bash -c '\nnonexistent_command'"})


def test_a_script_without_its_interpreter_could_not_be_run(bash: Bash, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    for command in (f"f() {{ {script}; }}; f", str(script)):
        found = bash({"command": command})
        assert found["error"] == found["stderr"].rstrip("\n")
    assert (found["exitCode"], found["error"]) in (
        (127, as_told(f"{script}: cannot execute: required file not found")),  # bash 5.2
        (126, f"/bin/bash: {script}: /no/such/interpreter: bad interpreter: No such file or directory"),  # 5.1, 5.3
    )


@pytest.mark.parametrize("more", [-1, 0, 1, MB, 5 * MB])
@pytest.mark.parametrize("redirection", ["", ">&2"])
def test_each_stream_is_cut_at_its_limit(bash: Bash, more: int, redirection: str) -> None:
    size = MB + more
    found = bash({"command": f"head -c {size} /dev/zero | tr '\\0' a {redirection}"})
    expected = "a" * min(size, MB) + ("... (truncated)" if more > 0 else "")
    assert found["stderr" if redirection else "stdout"] == expected
    assert found["stdout" if redirection else "stderr"] == ""
    assert found["exitCode"] == 0


def test_no_half_character_stands_before_the_suffix(bash: Bash) -> None:
    found = bash({"command": "printf a; for ((i = 0; i < 600; i++)); do printf 'é%.0s' {1..1000}; done"})
    assert found["stdout"] == "a" + "é" * ((MB - 1) // 2) + "... (truncated)"


def test_an_error_is_cut_as_its_stream_is(bash: Bash) -> None:
    found = bash({"command": "x" * 3 * MB})
    assert found["exitCode"] == 127
    assert found["error"] == as_told("x" * MB)[:MB] + "... (truncated)"


def test_no_directory_isolates_it(bash: Bash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    command = f"echo up >../up; cd / && echo there >{tmp_path}/there; cat {tmp_path}/up; pwd"
    assert bash({"command": command}) == {"stdout": "up\n/\n", "stderr": "", "exitCode": 0}
    assert (tmp_path / "there").read_text() == "there\n"


def test_it_runs_as_the_host(bash: Bash) -> None:
    assert bash({"command": "id -u; umask"})["stdout"].split()[0] == str(os.getuid())


def test_the_interaction_log_has_no_content(bash: Bash, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="shellsession.interaction"):
        bash({"command": "echo con''tent; echo more >&2; exit 4"})
    (record,) = caplog.records
    assert record.__dict__["interaction"] == {
        "tool": "bash",
        "command": "echo con''tent; echo more >&2; exit 4",
        "exitCode": 4,
        "outputSize": 13,
    }
    assert "content" not in record.getMessage()
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="shellsession.interaction"):
        bash({"command": f"head -c {5 * MB} /dev/zero; head -c 7 /dev/zero >&2"})
    assert caplog.records[0].__dict__["interaction"]["outputSize"] == 5 * MB + 7, "of what is not shown, too"


def test_a_command_that_timed_out_has_no_exit_code_in_the_log(
    bash: Bash, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spec, "TIMEOUT", 0.2)
    with caplog.at_level(logging.INFO, logger="shellsession.interaction"):
        bash({"command": "echo out; sleep 1000"})
    (record,) = caplog.records
    expected = {"tool": "bash", "command": "echo out; sleep 1000", "exitCode": None, "outputSize": 4}
    assert record.__dict__["interaction"] == expected


@pytest.mark.parametrize("persistent", [False, True])
def test_a_host_whose_path_has_no_bash_has_one(monkeypatch: pytest.MonkeyPatch, persistent: bool) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with Agents() as agents:
        found = spec.tool(agents, agent="a1", persistent=persistent)({"command": "echo $PATH"})
    assert found == {"stdout": "/nonexistent\n", "stderr": "", "exitCode": 0}


def test_a_bash_that_cannot_start_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with Session(bash="/nonexistent/bash") as session, caplog.at_level(logging.INFO, "shellsession.interaction"):
        found = spec.tool(session)({"command": "true"})
    (record,) = caplog.records  # all commands are logged
    interaction = record.__dict__["interaction"]
    assert interaction == {"tool": "bash", "command": "true", "exitCode": None, "outputSize": 0}
    assert list(found) == ["error"]
    assert found["error"].startswith("Failed to execute: ")


def test_no_resources_are_an_error() -> None:
    with Agents(max_sessions=1) as agents:
        agents.run("other", "true")
        found = spec.tool(agents, agent="a1")({"command": "true"})
    assert list(found) == ["error"]
    assert "1 agents have sessions" in found["error"]


def test_a_session_in_other_hands_is_an_error(new_session: Callable[..., Session]) -> None:
    session = new_session()
    session.run("sleep 100", timeout=0.05, on_timeout="yield")
    found = spec.tool(session)({"command": "true"})
    assert list(found) == ["error"]
    assert found["error"].startswith("Failed to execute: ")


@given(st.dictionaries(st.text(max_size=9), st.none() | st.booleans() | st.floats() | st.text() | st.lists(st.text())))
def test_foreign_calls_never_raise(call: dict[str, Any]) -> None:
    steps = spec.Spec().steps(call)
    with suppress(StopIteration):
        assert isinstance(next(steps), Request)


@given(st.binary(max_size=50), st.binary(max_size=50), st.none() | st.integers(0, 255))
def test_every_result_has_its_payload(stdout: bytes, stderr: bytes, exit_code: int | None) -> None:
    payload = spec.render(Result(stdout, stderr, exit_code, None, "/", 0.0, "exited"))
    assert payload["stdout"] == stdout.decode("utf-8", "replace")
    assert payload["stderr"] == stderr.decode("utf-8", "replace")
    json.dumps(payload)
