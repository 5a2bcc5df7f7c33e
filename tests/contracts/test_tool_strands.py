"""Document 001: one persistent bash for each agent. contracts/parity/001_strands.md lists its requirements."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import strandses
from hypothesis import given, strategies as st
from strandses import NOTHING, Agent, Bash, execute, output
from system import is_alive, wait_until

from shellsession import Agents, AsyncAgents, ContractError
from shellsession.contracts import strands
from shellsession.contracts.contract import CallError
from shellsession.models import Request, Result

agent, bash = strandses.agent, strandses.bash

pytestmark = pytest.mark.usefixtures("company")


# -- the definition


def test_the_definition_is_one_flat_object(bash: Bash, agents: Agents) -> None:
    schema: Any = bash.definition["input_schema"]
    assert (bash.name, schema["type"], schema["required"]) == ("bash", "object", ["mode"])
    assert schema["properties"]["mode"]["enum"] == ["execute", "restart"]
    assert schema["properties"]["command"]["type"] == "string"
    assert schema["properties"]["timeout"]["type"] == "number"
    assert schema["properties"]["timeout"]["default"] == 120
    text = json.dumps(bash.definition)
    assert [word for word in ("anyOf", "oneOf", "$ref", "discriminator", "null") if f'"{word}"' in text] == []
    assert agents.list() == []  # to tell of it makes no session


def test_the_description_warns(bash: Bash) -> None:
    assert "executes arbitrary bash commands without sandboxing or restrictions" in bash.description
    assert "Security warning: " in bash.description
    assert "Only use it with trusted input." in bash.description
    assert "persistent" in bash.description


# -- the examples of the document


def test_direct_invocation(bash: Bash) -> None:
    assert execute(bash, 'echo "Hello from bash"') == {"output": "Hello from bash", "error": ""}


def test_a_file_in_the_current_directory(bash: Bash, tmp_path: Path) -> None:
    (tmp_path / "one").touch()
    assert output(bash, "ls") == "one"
    assert execute(bash, 'echo "Hello World" > notes.txt') == NOTHING
    assert (tmp_path / "notes.txt").read_text() == "Hello World\n"


def test_session_persistence(bash: Bash) -> None:
    assert execute(bash, 'MY_VAR="hello"') == NOTHING
    assert output(bash, "echo $MY_VAR") == "hello"
    execute(bash, "greet() { echo hi $1; }; cd /; alias there=true; set -u")
    assert output(bash, "greet you; pwd; there && echo ${nobody-unset}") == "hi you\n/\nunset"


def test_restart(bash: Bash, tmp_path: Path) -> None:
    execute(bash, 'TEMP_VAR="exists"; cd /')
    assert bash({"mode": "restart"}) == "Bash session restarted"
    assert output(bash, "echo $TEMP_VAR") == ""
    assert output(bash, "pwd") == str(tmp_path)


def test_a_restart_before_the_first_command_takes_no_slot() -> None:
    with Agents(max_sessions=1) as agents:
        somebody = Agent()
        for agent in ("a1", somebody):
            assert strands.tool(agents, agent=agent)({"mode": "restart"}) == "Bash session restarted"
        assert agents.list() == []
        two = strands.tool(agents, agent="a2")
        assert output(two, "X=1; echo 2") == "2"
        assert output(two, " \n") == ""
        assert strands.tool(agents, agent="a1")({"mode": "restart"}) == "Bash session restarted"
        assert two({"mode": "restart"}) == "Bash session restarted"
        assert output(two, "echo ${X-gone}") == "gone"
        unused = strands.tool(agents, agent=somebody)
        del somebody, agent
        with pytest.raises(strands.BashSessionError, match="Bash session error: the agent of this tool is gone"):
            unused({"mode": "restart"})
    with pytest.raises(strands.BashSessionError, match="these agents were closed"):
        two({"mode": "restart"})


def test_restart_ends_what_the_session_started(bash: Bash) -> None:
    pid = int(execute(bash, "sleep 1000 & echo $!")["output"])
    bash({"mode": "restart"})
    wait_until(lambda: not is_alive(pid), "the background job's end")


def test_file_operations(bash: Bash) -> None:
    assert execute(bash, 'echo "content" > myfile.txt') == NOTHING
    assert output(bash, "cat myfile.txt") == "content"


def test_command_piping(bash: Bash, tmp_path: Path) -> None:
    for name in ("a.ts", "b.ts", "c.py"):
        (tmp_path / name).touch()
    assert output(bash, 'ls -la | grep ".ts" | wc -l') == "2"


def test_error_handling(bash: Bash) -> None:
    found = execute(bash, "nonexistent_command")
    assert found == {"output": "", "error": "bash: nonexistent_command: command not found"}


def test_multi_step_operations(bash: Bash, tmp_path: Path) -> None:
    for command in ("mkdir -p temp_workspace", "cd temp_workspace", "touch file1.txt file2.txt"):
        assert execute(bash, command) == NOTHING
    assert output(bash, "pwd && ls") == f"{tmp_path}/temp_workspace\nfile1.txt\nfile2.txt"


# -- what comes back


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo out; echo err >&2", ("out", "err")),
        ("printf plain", ("plain", "")),
        ("printf 'two\\n\\n'; printf 'e\\n\\n\\n' >&2", ("two\n", "e\n\n")),
        ("printf '  spaces  \\n'", ("  spaces  ", "")),
        ("echo", ("", "")),
        ("printf '\\xff\\xe2\\x82\\xac\\n'", ("\ufffd\u20ac", "")),
        ("[[ -t 0 || -t 1 || -t 2 ]] || echo pipes", ("pipes", "")),
        ("echo still; false", ("still", "")),
        ("(exit 3)", ("", "")),
        ("# a comment", ("", "")),
    ],
)
def test_stdout_and_stderr_come_apart_without_the_last_newline(
    bash: Bash, command: str, expected: tuple[str, str]
) -> None:
    assert execute(bash, command) == dict(zip(("output", "error"), expected, strict=True))


def test_output_of_megabytes_comes_back_whole(bash: Bash) -> None:
    assert output(bash, "seq 1000000") == "\n".join(map(str, range(1, 1_000_001)))


def test_output_beyond_16_mib_is_cut_and_counted(bash: Bash) -> None:
    found = output(bash, "yes 123456789 | head -n 2000000")
    omitted = re.search(r"\n\[(\d+) bytes omitted\]\n", found)
    assert omitted
    assert len(found) - len(omitted[0]) + 1 == strands.MAX_OUTPUT
    assert int(omitted[1]) == 20_000_000 - strands.MAX_OUTPUT


def test_max_chars_bounds_the_output(agents: Agents) -> None:
    found = output(strands.tool(agents, agent="a", max_chars=1000), "seq 1000000")
    assert len(found) <= 1000
    assert re.search(r"\[\.\.\. 6 8[\d ]+ bytes omitted \.\.\.\]", found)


@given(st.binary(max_size=50), st.binary(max_size=50), st.none() | st.integers(0, 255))
def test_every_result_has_its_payload(stdout: bytes, stderr: bytes, exit_code: int | None) -> None:
    payload = strands.render(Result(stdout, stderr, exit_code, None, "/", 0.0, "exited"), 1.0)
    assert payload["output"] == stdout.decode("utf-8", "replace").removesuffix("\n")
    assert payload["error"] == stderr.decode("utf-8", "replace").removesuffix("\n")


# -- time


def test_the_timeout_is_120_seconds_or_the_calls() -> None:
    contract = strands.Strands()
    found = [
        contract.parse({"mode": "execute", "command": "true", **more})
        for more in ({}, {"timeout": 300}, {"timeout": None})
    ]
    assert [(one.timeout, one.on_timeout) for one in found if isinstance(one, Request)] == [
        (120.0, "kill"),
        (300.0, "kill"),
        (120.0, "kill"),
    ]


def test_at_the_timeout_bash_is_killed_at_once(bash: Bash, agents: Agents, tmp_path: Path) -> None:
    execute(bash, "X=1; cd /")
    (info,) = agents.list()
    command = f"echo part; echo way >&2; trap '' TERM INT HUP; sleep 1000 & echo $! >{tmp_path}/pid; wait; echo late"
    with pytest.raises(strands.BashTimeoutError) as caught:
        execute(bash, command, timeout=2)
    error = caught.value
    assert str(error).startswith("Command timed out after 2 seconds")
    assert (error.stdout, error.stderr.splitlines()[0]) == ("part\n", "way")
    assert "[stdout]\npart\n[stderr]\nway" in str(error)
    assert info.pid is not None
    assert not is_alive(info.pid)
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert output(bash, "echo ${X-gone}; pwd") == f"gone\n{tmp_path}"


def test_errors_can_be_distinguished(bash: Bash) -> None:
    """As the document's example of try and catch does."""
    with pytest.raises(TimeoutError) as caught:
        execute(bash, "sleep 1000", timeout=0.1)
    assert isinstance(caught.value, strands.BashTimeoutError)
    assert not isinstance(caught.value, strands.BashSessionError)
    assert isinstance(caught.value, ContractError)


@pytest.mark.parametrize("kind", [strands.BashTimeoutError, strands.BashSessionError, strands.BashInputError])
def test_errors_cross_processes(kind: type[CallError]) -> None:
    again = pickle.loads(pickle.dumps(kind("it ended", "out\n", "err")))
    assert type(again) is kind
    assert (str(again), again.stdout, again.stderr) == ("it ended\n[stdout]\nout\n[stderr]\nerr", "out\n", "err")


# -- asyncio


def test_the_same_for_asyncio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        async with AsyncAgents() as agents:
            bash = strands.tool(agents, agent="a1")
            assert await bash({"mode": "restart"}) == "Bash session restarted"
            assert agents.list() == []
            assert await bash({"mode": "execute", "command": "X=1; cd /"}) == NOTHING
            assert await bash({"mode": "execute", "command": "echo $X; pwd"}) == {"output": "1\n/", "error": ""}
            assert await bash({"mode": "restart"}) == "Bash session restarted"
            with pytest.raises(strands.BashTimeoutError):
                await bash({"mode": "execute", "command": "sleep 1000", "timeout": 0.1})
            with pytest.raises(strands.BashSessionError, match="exit status 4"):
                await bash({"mode": "execute", "command": "exit 4"})
            assert await bash({"mode": "execute", "command": "pwd"}) == {"output": str(tmp_path), "error": ""}

    asyncio.run(main())
