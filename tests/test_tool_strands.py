"""Document 001: one bash that stays for each agent; its requirements are listed in contracts/parity/001_strands.md."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from support import is_alive, wait_until

from shellsession import Agents, AsyncAgents, ContractError, Session
from shellsession.contracts import strands
from shellsession.contracts.binding import Tool
from shellsession.contracts.contract import Restart
from shellsession.contracts.failing import CallError
from shellsession.models import Request, Result

pytestmark = pytest.mark.usefixtures("company")

Bash = Tool[strands.Payload]
NOTHING = {"output": "", "error": ""}


class Agent:
    """What holds a session: any object will do."""


TAKES = "; the arguments are mode, command (optional), timeout (optional)"


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
def bash(agents: Agents, agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bash:
    monkeypatch.chdir(tmp_path)
    return strands.tool(agents, agent=agent)


def execute(bash: Bash, command: str, **fields: object) -> Any:
    return bash({"mode": "execute", "command": command, **fields})


def output(bash: Bash, command: str) -> str:
    """What a command prints that has nothing to complain of."""
    found = execute(bash, command)
    assert found["error"] == ""
    return str(found["output"])


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
    assert "trusted input" in bash.description
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


def test_what_was_dropped_of_an_endless_output_is_counted(bash: Bash) -> None:
    found = output(bash, f"head -c {(16 << 20) + 1000} /dev/zero | tr '\\0' a; echo the end")
    assert found.startswith("aaa")
    assert found.endswith("aaa" + "the end")
    assert "\n[1008 bytes omitted]\n" in found


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
        execute(bash, command, timeout=0.3)
    error = caught.value
    assert str(error).startswith("Command timed out after 0.3 seconds")
    assert (error.stdout, error.stderr.splitlines()[0]) == ("part\n", "way")
    assert "[stdout]\npart\n[stderr]\nway" in str(error)
    assert info.pid is not None
    assert not is_alive(info.pid)
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert output(bash, "echo ${X-gone}; pwd") == f"gone\n{tmp_path}"


def test_errors_can_be_told_apart(bash: Bash) -> None:
    """As the document's example of try and catch does."""
    with pytest.raises(TimeoutError) as caught:
        execute(bash, "sleep 1000", timeout=0.1)
    assert isinstance(caught.value, strands.BashTimeoutError)
    assert not isinstance(caught.value, strands.BashSessionError)
    assert isinstance(caught.value, ContractError)


@pytest.mark.parametrize("kind", [strands.BashTimeoutError, strands.BashSessionError])
def test_errors_cross_processes(kind: type[CallError]) -> None:
    again = pickle.loads(pickle.dumps(kind("it ended", "out\n", "err")))
    assert type(again) is kind
    assert (str(again), again.stdout, again.stderr) == ("it ended\n[stdout]\nout\n[stderr]\nerr", "out\n", "err")


# -- the session and its failures


@pytest.mark.parametrize(
    ("command", "message", "stdout"),
    [
        ("echo said; exit 3", "ended the session's bash, with exit status 3", "said\n"),
        ("exit 0", "ended the session's bash, with exit status 0", ""),
        ("exec echo instead", "ended the session's bash, with exit status 0", "instead\n"),
        ("set -e; echo x; false; echo y", "ended the session's bash, with exit status 1", "x\n"),
        ("kill -9 $$", "killed by signal 9", ""),
    ],
)
def test_a_command_that_ends_the_shell_is_a_session_error(
    bash: Bash, tmp_path: Path, command: str, message: str, stdout: str
) -> None:
    execute(bash, "X=1; cd /")
    with pytest.raises(strands.BashSessionError, match=message) as caught:
        execute(bash, command)
    assert "state is lost" in str(caught.value)
    assert caught.value.stdout == stdout
    assert output(bash, "echo ${X-gone}; pwd") == f"gone\n{tmp_path}"


def test_a_shell_that_dies_between_calls_is_told(bash: Bash, agents: Agents) -> None:
    execute(bash, "X=1")
    (info,) = agents.list()
    assert info.pid is not None
    os.kill(info.pid, 9)
    wait_until(lambda: not is_alive(info.pid or 0), "the shell's end")
    with pytest.raises(strands.BashSessionError, match="not run"):
        execute(bash, "echo $X")
    assert output(bash, "echo ${X-gone}") == "gone"


def test_a_bash_that_cannot_start_is_a_session_error() -> None:
    with Session(bash="/nonexistent/bash") as session, pytest.raises(strands.BashSessionError, match=r"^Bash session"):
        execute(strands.tool(session), "true")


def test_no_room_for_one_more_session_is_a_session_error() -> None:
    with Agents(max_sessions=1) as agents:
        agents.run("other", "true")
        with pytest.raises(strands.BashSessionError, match="1 agents have sessions"):
            execute(strands.tool(agents, agent="a1"), "true")


def test_sessions_start_at_the_first_command(agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a restart comes before it."""
    agent = Agent()
    bash = strands.tool(agents, agent=agent)
    assert agents.list() == []
    assert bash({"mode": "restart"}) == "Bash session restarted"
    assert agents.list() == []
    monkeypatch.chdir(tmp_path)
    assert output(bash, "pwd") == str(tmp_path)
    assert [info.pid is None for info in agents.list()] == [False]
    monkeypatch.chdir("/")
    bash({"mode": "restart"})
    assert output(bash, "pwd") == str(tmp_path)


def test_a_session_goes_with_its_agent(agents: Agents) -> None:
    agent = Agent()
    bash = strands.tool(agents, agent=agent)
    pid = int(output(bash, "echo $$"))
    seen = weakref.ref(agent)
    del agent
    gc.collect()
    assert seen() is None
    assert agents.list() == []
    wait_until(lambda: not is_alive(pid), "the end of the agent's bash")
    with pytest.raises(strands.BashSessionError, match="gone"):
        execute(bash, "true")


def test_the_environment_is_inherited_and_its_own(bash: Bash, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_HOST", "it's here")
    assert output(bash, "echo $FROM_HOST; echo ${PAGER-none}") == f"it's here\n{os.environ.get('PAGER', 'none')}"
    execute(bash, 'export OWN="value"')
    assert output(bash, "bash -c 'echo $OWN'") == "value"
    assert "OWN" not in os.environ
    execute(bash, "unset OWN")
    assert output(bash, "echo ${OWN-unset}") == "unset"


# -- troubleshooting


@pytest.mark.parametrize("command", ["cat", "read line", "python3 -c 'input()' 2>/dev/null", "sort"])
def test_hanging_a_command_that_reads_its_input_meets_the_end(bash: Bash, command: str) -> None:
    assert execute(bash, command, timeout=20) == NOTHING


def test_hanging_a_command_that_waits_for_the_terminal_is_ended(bash: Bash) -> None:
    execute(bash, "X=kept")
    with pytest.raises(strands.BashSessionError, match="waits for input"):
        execute(bash, "read line </dev/tty", timeout=20)
    assert output(bash, "echo $X") == "kept"


@pytest.mark.parametrize(
    "command", ['echo "never closed', "if true; then echo", "cat <(", "for i in 1 2; do", "((", "f() {"]
)
def test_hanging_half_a_command_is_an_error_at_once(bash: Bash, command: str) -> None:
    execute(bash, "X=kept")
    found = execute(bash, command, timeout=20)
    assert found["output"] == ""
    assert "syntax error" in found["error"] or "unexpected EOF" in found["error"]
    assert output(bash, "echo $X") == "kept"


def test_hanging_a_shorter_timeout_helps(bash: Bash) -> None:
    with pytest.raises(strands.BashTimeoutError, match="after 1 seconds"):
        execute(bash, "while :; do sleep 1000; done", timeout=1)


def test_state_the_same_agent_has_the_same_session(agents: Agents, agent: Agent) -> None:
    one, again = (strands.tool(agents, agent=agent) for _ in range(2))
    execute(one, "X=1")
    assert output(again, "echo $X") == "1"
    again({"mode": "restart"})
    assert output(one, "echo ${X-restarted}") == "restarted"


def test_state_each_agent_has_its_own_session(agents: Agents) -> None:
    first, second = Agent(), Agent()
    one, two = (strands.tool(agents, agent=agent) for agent in (first, second))
    execute(one, "X=1; cd /")
    assert output(two, "echo ${X-none}; pwd") == f"none\n{Path.cwd()}"
    two({"mode": "restart"})
    assert output(one, "echo $X; pwd") == "1\n/"


def test_permissions_are_the_hosts(bash: Bash, tmp_path: Path) -> None:
    assert output(bash, "id -u; id -g; umask").split()[:2] == [str(os.getuid()), str(os.getgid())]
    script = tmp_path / "script"
    script.write_text("echo ran\n")
    script.chmod(0o600)
    assert execute(bash, "./script") == {"output": "", "error": "bash: ./script: Permission denied"}
    execute(bash, "chmod +x script")
    assert output(bash, "./script") == "ran"


def test_quoting_is_bashs(bash: Bash, tmp_path: Path) -> None:
    (tmp_path / "a file; with $(special) 'characters'").write_text("read\n")
    assert output(bash, """cat "a file; with \\$(special) 'characters'" """) == "read"


# -- bad calls


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


def test_restart_looks_at_nothing_else(bash: Bash, tmp_path: Path) -> None:
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


@given(st.binary(max_size=50), st.binary(max_size=50), st.none() | st.integers(0, 255))
def test_every_result_has_its_payload(stdout: bytes, stderr: bytes, exit_code: int | None) -> None:
    payload = strands.render(Result(stdout, stderr, exit_code, None, "/", 0.0, "exited"), 1.0)
    assert payload["output"] == stdout.decode("utf-8", "replace").removesuffix("\n")
    assert payload["error"] == stderr.decode("utf-8", "replace").removesuffix("\n")


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


def test_a_session_in_other_hands_is_a_session_error(new_session: Callable[..., Session]) -> None:
    session = new_session()
    session.run("sleep 100", timeout=0.05, on_timeout="yield")
    with pytest.raises(strands.BashSessionError, match=r"^Bash session error: "):
        execute(strands.tool(session), "true")
