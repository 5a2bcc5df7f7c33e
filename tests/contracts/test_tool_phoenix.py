"""Document 004, commands in the foreground. contracts/parity/004_phoenix.md lists its requirements."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import phoenixes
import pytest
from bashes import BUILTINS_FIRST_LINE, FIRST_LINE
from hypothesis import given, strategies as st

from shellsession import Agents, Session
from shellsession.contracts import bashtool, phoenix
from shellsession.contracts.phoenix import ToolResult
from shellsession.models import Result

Bash = phoenixes.Bash
bash = phoenixes.bash
lasting = phoenixes.lasting

LIMIT, SNIP = 131_072, 4_096  # the document's 128 KB, and its 4 KB of each end

DESCRIPTION = """\
Executes shell commands via bash -c, returning combined stdout/stderr.
Bash state changes (working dir, variables, aliases) don't persist between calls.

With background=true, returns immediately with output redirected to a file.
Use background for servers/demos that need to stay running.

MUST set slow_ok=true for potentially slow commands: builds, downloads,
installs, tests, or any other substantive operation.

IMPORTANT: Keep commands concise. The command input must be less than 60k tokens.
For complex scripts, write them to a file first and then execute the file.

<pwd>%s</pwd>"""


def result(stdout: bytes = b"", exit_code: int | None = 0, outcome: Any = "exited", **more: Any) -> Result:
    return Result(stdout, b"", exit_code, more.pop("signal", None), "/", 0.0, outcome, **more)


def test_the_definition_is_the_documents(bash: Bash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert bash.definition == {
        "name": "bash",
        "description": DESCRIPTION % tmp_path,
        "input_schema": {
            "type": "object",
            "required": ["command"],
            "properties": {
                "command": {"type": "string", "description": "Shell command to execute via bash -c"},
                "slow_ok": {
                    "type": "boolean",
                    "description": "Use extended 15-minute timeout for builds, tests, installs",
                },
                "background": {
                    "type": "boolean",
                    "description": "Run detached, return immediately with PID and output file",
                },
            },
        },
    }
    json.dumps(bash.definition)


def test_a_directory_name_that_is_not_utf_8_is_shown_as_text(bash: Bash, tmp_path: Path) -> None:
    """A provider's SDK could not send it, and that would be the end of the agent's run."""
    for name, shown in ((os.fsdecode(b"\xff\xfea"), "\ufffd\ufffda"), ("\ud800", "\ufffd")):
        with Agents() as agents:
            odd = phoenix.tool(agents, agent="odd", working_dir=f"{tmp_path}/{name}")
            assert f"<pwd>{tmp_path}/{shown}</pwd>" in odd.description
            assert f"does not exist: {tmp_path}/{shown} (" in odd({"command": "ls"}).output
            other = bashtool.tool(agents, agent="other", cwd=f"{tmp_path}/{name}")
            with pytest.raises(bashtool.Failed, match=f"{tmp_path}/{shown}: No such file"):
                other({"command": "ls"})
    (tmp_path / os.fsdecode(b"\xff\xfea")).mkdir()
    with Agents() as agents:
        odd = phoenix.tool(agents, agent="odd", working_dir=tmp_path / os.fsdecode(b"\xff\xfea"))
        assert odd({"command": "pwd | tail -c 4 | od -An -tx1"}).output == " ff fe 61 0a\n"


def test_the_description_has_the_directory_of_now(
    bash: Bash, lasting: Bash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Agents() as agents:
        fixed = phoenix.tool(agents, agent="a1", working_dir="/usr")
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            monkeypatch.chdir(tmp_path / name)
            assert f"<pwd>{tmp_path / name}</pwd>" in bash.description
            assert "<pwd>/usr</pwd>" in fixed.description
    lasting({"command": f"cd {tmp_path}"})
    assert f"<pwd>{tmp_path}</pwd>" in lasting.description
    assert lasting.description == DESCRIPTION.replace("don't persist", "persist") % tmp_path


def test_to_ask_for_the_definition_makes_no_session(tmp_path: Path) -> None:
    with Agents(max_sessions=1, cwd=tmp_path) as agents:
        agents.run("first", "true")
        for starts, place in (
            (None, str(Path.cwd())),
            (tmp_path / "x", str(tmp_path / "x")),
            ("x/y", f"{Path.cwd()}/x/y"),
        ):
            bash = phoenix.tool(agents, agent="second", persistent=True, working_dir=starts)
            assert f"<pwd>{place}</pwd>" in str(bash.definition["description"])
        assert [info.agent for info in agents.list()] == ["first"]
        assert f"<pwd>{tmp_path}</pwd>" in phoenix.tool(agents, agent="first", persistent=True).description


def test_output_is_combined_in_true_order(bash: Bash) -> None:
    command = "for ((i = 0; i < 300; i++)); do echo $i; echo $i >&2; sh -c 'echo x >&2; echo y'; done"
    assert bash({"command": command}) == ToolResult("".join(f"{i}\n{i}\nx\ny\n" for i in range(300)))


@pytest.mark.parametrize(
    ("command", "output", "code"),
    [
        ("echo hi", "hi\n", 0),
        ("", "", 0),
        ("cat; echo end", "end\n", 0),
        ("[[ -t 0 || -t 1 || -t 2 ]] || echo pipes", "pipes\n", 0),
        ("a=(1 2); echo ${#a[@]}", "2\n", 0),
        ("false", "", 1),
        ("echo out; echo err >&2; exit 3", "out\nerr\n", 3),
        ("kill -TERM $BASHPID", "", -1),
        ("nonexistent_command", f"bash: {FIRST_LINE}nonexistent_command: command not found\n", 127),
        ("cd /nowhere", f"bash: {BUILTINS_FIRST_LINE}cd: /nowhere: No such file or directory\n", 1),
        ("printf '\\xff\\xe2\\x82\\xac'", "\ufffd€", 0),
        ("cat <<'EOF'\n$HOME `x` \\n'\nEOF", "$HOME `x` \\n'\n", 0),
        ("set -e; false; echo not here", "", 1),
        ("exec sh -c 'echo replaced; exit 4'", "replaced\n", 4),
        ("# nothing but a comment", "", 0),
    ],
)
def test_the_payload_is_the_output(bash: Bash, command: str, output: str, code: int) -> None:
    expected = ToolResult(output)
    if code:
        expected = ToolResult(f"[command failed: exit code {code}]\n{output}", True, "command_failed")
    assert bash({"command": command}) == expected


def test_a_bash_that_a_signal_ended_has_no_exit_code() -> None:
    with Session() as session:
        found = phoenix.tool(session, persistent=True)({"command": "echo hi; kill -KILL $$"})
    lost = "its state is lost, the next command starts in a fresh one"
    told = f"[the session's bash was killed by signal 9 (SIGKILL); {lost}]\n"
    assert found == ToolResult(f"[command failed: exit code -1]\nhi\n{told}", True, "command_failed")


def test_null_means_that_the_model_left_a_field_out(bash: Bash) -> None:
    assert bash({"command": "echo hi", "slow_ok": None, "background": None}) == ToolResult("hi\n")
    assert phoenix.Phoenix().parse({"command": "true", "slow_ok": None}).timeout == 30


def test_the_description_is_the_documents_template() -> None:
    assert str(phoenix.TOOL["description"]).endswith("<pwd>{working_directory}</pwd>")


@pytest.mark.parametrize(("slow_ok", "seconds"), [(False, 30), (True, 900)])
def test_time_limits(slow_ok: bool, seconds: int) -> None:
    contract = phoenix.Phoenix()
    request = contract.request(phoenix.PhoenixInput(command="true", slow_ok=slow_ok))
    assert request.timeout == seconds
    said = phoenix.render(result(b"lost", None, "timed_out"), slow_ok)
    assert said == ToolResult(f"[command timed out after {seconds}s]", True, "timed_out")


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT, LIMIT + 1, 10 * LIMIT])
@pytest.mark.parametrize("status", [0, 3])
def test_long_output_is_snipped_in_the_middle(bash: Bash, size: int, status: int) -> None:
    command = f"{{ yes 123456789 | head -c {size - 5}; echo tail; }} | sed '1s/^1234/head/'; exit {status}"
    found = bash({"command": command})
    prefix = "[command failed: exit code 3]\n" if status else ""
    assert found.is_error == bool(status)
    assert found.output.startswith(prefix)
    whole = ("head56789\n" + "123456789\n" * (size // 10))[: size - 5] + "tail\n"
    got = {LIMIT + 1: "128.1KB", 10 * LIMIT: "1.3MB"}.get(size)
    if got is not None:
        header = f"[output truncated in middle: got {got}, max is 128KB]\n"
        whole = f"{header}{whole[:SNIP]}\n\n[snip]\n\n{whole[-SNIP:]}"
    assert found.output.removeprefix(prefix) == whole


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1KB"),
        (1025, "1.1KB"),
        (131072, "128KB"),
        (131073, "128.1KB"),
        (1 << 20, "1MB"),
        (3 << 29, "1.5GB"),
        (5 << 40, "5120GB"),
    ],
)
def test_sizes_are_humanized(size: int, said: str) -> None:
    assert phoenix.humanize_bytes(size) == said


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode), st.integers(1, LIMIT), st.integers(0, 1 << 40))
def test_output_never_exceeds_the_limit(piece: bytes, times: int, omitted: int) -> None:
    """The document's first property, for whatever bytes a command may print."""
    data = (piece * times)[:LIMIT]
    for one in (
        result(data, 1, stdout_omitted=omitted, stdout_cut=len(data) // 2),
        result(data, 0),
        result(data, None, signal=9),
    ):
        shown = phoenix.render(one, slow_ok=True).output.encode()
        assert len(shown) <= LIMIT + 200


def test_no_half_character_stands_at_the_snip(bash: Bash) -> None:
    found = bash({"command": "printf a; for ((i = 0; i < 200; i++)); do printf '€%.0s' {1..1000}; done; printf bc"})
    head, _, tail = found.output.split("\n", 1)[1].partition("\n\n[snip]\n\n")
    assert head == "a" + "€" * 1365
    assert tail == "€" * 1364 + "bc"


@pytest.mark.parametrize("background", [False, True])
def test_a_missing_working_directory_is_reported(tmp_path: Path, background: bool) -> None:
    with Agents() as agents:
        bash = phoenix.tool(agents, agent="a1", working_dir=f"{tmp_path}/gone")
        found = bash({"command": "rm -rf /", "background": background})
    said = f"Working directory does not exist: {tmp_path}/gone (conversation may need to be recreated)"
    assert found == ToolResult(said, True, "invalid_working_dir")


def test_a_working_directory_that_is_not_a_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with Agents() as agents:
        found = phoenix.tool(agents, agent="a1", working_dir=f"{tmp_path}/file")({"command": "rm -rf /"})
    assert found == ToolResult(f"Working directory is not a directory: {tmp_path}/file", True, "invalid_working_dir")


def test_the_hosts_own_directory_is_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bash: Bash) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    found = bash({"command": "true"})
    assert found.code == "invalid_working_dir"
    assert found.output.startswith("Working directory does not exist: ")


def test_commands_run_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b'c").mkdir()
    with Agents() as agents:
        fixed = phoenix.tool(agents, agent="a1", working_dir=tmp_path / "a b'c")
        relative = phoenix.tool(agents, agent="a2", working_dir="a b'c")
        lasting = phoenix.tool(agents, agent="a3", working_dir=f"{tmp_path}/a b'c", persistent=True)
        monkeypatch.setenv("CDPATH", "/usr")
        monkeypatch.chdir(tmp_path)
        for bash in (fixed, relative, lasting):
            assert bash({"command": 'printf %s "$PWD"'}) == ToolResult(f"{tmp_path}/a b'c")
        lasting({"command": "cd /"})
        assert lasting({"command": "pwd"}) == ToolResult("/\n")
        # a host that has lost its own directory still has this one
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        assert fixed({"command": 'printf %s "$PWD"'}).output.endswith("a b'c")
