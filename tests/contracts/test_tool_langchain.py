"""Document 002 (SPEC-06): stdout or an error. contracts/parity/002_langchain.md lists its requirements."""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from bashes import FIRST_LINE
from daemons import Daemon
from hypothesis import given, strategies as st
from system import PATIENCE

from shellsession import Agents, AsyncAgents, ContractError, Session, connect
from shellsession.contracts import langchain, spec
from shellsession.contracts.langchain import BashToolError
from shellsession.contracts.tool import Tool
from shellsession.models import Request, Result
from shellsession.policy.rules import Policy

pytestmark = pytest.mark.usefixtures("company")

Bash = Tool[str]
MB = 1_048_576  # the document's, 1024 * 1024


@pytest.fixture(scope="module")
def bash() -> Iterator[Bash]:
    with Agents() as agents:
        yield langchain.tool(agents, agent="a1")


def failed(bash: Bash, command: str) -> BashToolError:
    """The error of a command that does not do well."""
    with pytest.raises(BashToolError) as caught:
        bash({"command": command})
    return caught.value


def test_the_definition_is_that_of_document_000(bash: Bash) -> None:
    assert bash.definition == spec.TOOL


@pytest.mark.parametrize(
    ("command", "stdout"),
    [
        ("echo hello", "hello\n"),
        ("printf plain", "plain"),
        ("true", ""),
        ("echo out; echo err >&2", "out\n"),
        ("echo first; exit 0; echo second", "first\n"),
        ("printf '\\xff\\xe2\\x82\\xac'", "\ufffd\u20ac"),
        ("cat; echo end", "end\n"),
        ("a=(1 2); echo ${#a[@]}", "2\n"),
        ("[[ -t 0 || -t 1 || -t 2 ]] || echo pipes", "pipes\n"),
        ("false | true", ""),
    ],
)
def test_stdout_comes_back_as_text(bash: Bash, command: str, stdout: str) -> None:
    assert bash({"command": command}) == stdout


@pytest.mark.parametrize(
    ("command", "status", "stdout", "stderr"),
    [
        ("exit 3", 3, "", ""),
        ("echo out; echo err >&2; exit 4", 4, "out\n", "err\n"),
        ("false", 1, "", ""),
        ("nonexistent_command", 127, "", f"bash: {FIRST_LINE}nonexistent_command: command not found\n"),
        ("kill -TERM $BASHPID", 143, "", ""),
        ("echo x; set -e; false; echo y", 1, "x\n", ""),
    ],
)
def test_a_failing_command_raises_all_that_came_of_it(
    bash: Bash, command: str, status: int, stdout: str, stderr: str
) -> None:
    error = failed(bash, command)
    assert (error.exit_status, error.stdout, error.stderr) == (status, stdout, stderr)
    lines = [f"Command failed with exit status {status}"]
    lines += [f"[{name}]\n{text.rstrip()}" for name, text in (("stdout", stdout), ("stderr", stderr)) if text]
    assert str(error) == "\n".join(lines)
    assert isinstance(error, ContractError)


def test_after_30_seconds_the_command_is_ended(bash: Bash, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert langchain.LangChain().parse({"command": "true"}).timeout == 30.0
    monkeypatch.setattr(langchain, "TIMEOUT", 0.3)
    error = failed(bash, f"echo part; echo $BASHPID >{tmp_path}/pid; sleep 1000; echo late >{tmp_path}/late")
    assert str(error) == "Command timed out after 0.3 seconds\n[stdout]\npart"
    assert (error.stdout, error.exit_status) == ("part\n", None)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert bash({"command": "echo again"}) == "again\n"
    assert not (tmp_path / "late").exists()


@pytest.mark.parametrize("redirection", ["", ">&2"])
def test_the_buffer_holds_1_mb_of_each_stream(bash: Bash, redirection: str) -> None:
    command = "echo kept; head -c {} /dev/zero | tr '\\0' a " + redirection
    size = MB - (0 if redirection else len("kept\n"))
    found = bash({"command": command.format(size)})
    assert found == "kept\n" + ("" if redirection else "a" * size)
    error = failed(bash, command.format(size + 1))
    assert str(error).startswith("Command ended: it printed more than 1048576 bytes; ")
    assert error.exit_status is None
    long = "a" * MB
    assert (error.stdout, error.stderr) == (("kept\n", long) if redirection else (("kept\n" + long)[: len(long)], ""))


def test_what_is_too_much_is_the_first_of_it(bash: Bash) -> None:
    begun = time.monotonic()
    error = failed(bash, "seq 10000000; sleep 1000")
    expected = "".join(f"{number}\n" for number in range(1, 170000))
    assert error.stdout == expected[:MB]
    assert time.monotonic() - begun < PATIENCE


def test_so_it_is_in_a_daemon_and_for_asyncio(daemon: Daemon) -> None:
    with connect("tools", socket=daemon.socket) as remote:
        expected = failed(langchain.tool(remote), "seq 10000000").stdout
    assert (expected[:6], len(expected)) == ("1\n2\n3\n", MB)

    async def main() -> None:
        async with AsyncAgents() as agents:
            with pytest.raises(BashToolError) as raised:
                await langchain.tool(agents, agent="a1", policy=Policy(secrets=["5"]))({"command": "seq 10000000"})
            assert raised.value.stdout == expected.replace("5", "***")[:MB]

    asyncio.run(main())


def test_an_endless_printer_is_ended_at_once(bash: Bash) -> None:
    begun = time.monotonic()
    assert "more than 1048576 bytes" in str(failed(bash, "yes"))
    assert time.monotonic() - begun < PATIENCE
    assert bash({"command": "echo again"}) == "again\n"


def test_blanks_are_a_command_that_does_nothing(bash: Bash) -> None:
    assert bash({"command": " \n"}) == ""


def test_what_waits_for_the_terminal_is_ended(bash: Bash) -> None:
    error = failed(bash, "read x </dev/tty")
    assert "waits for input" in str(error)
    assert error.exit_status is None


def test_nothing_is_kept_between_calls(bash: Bash) -> None:
    bash({"command": "cd /; KEPT=1"})
    assert bash({"command": "echo $PWD ${KEPT-no}"}) == f"{Path.cwd()} no\n"


def test_with_persistent_state_is_kept_and_the_description_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with Agents() as agents:
        bash = langchain.tool(agents, agent="a1", persistent=True)
        assert "persist between calls" in bash.description
        bash({"command": "cd /; KEPT=1"})
        assert bash({"command": "echo $PWD $KEPT"}) == "/ 1\n"
        assert failed(bash, "(exit 3)").exit_status == 3
        assert "more than" in str(failed(bash, "yes"))
        with monkeypatch.context() as patch:
            patch.setattr(langchain, "TIMEOUT", 0.2)
            assert "timed out" in str(failed(bash, "sleep 1000"))
        assert bash({"command": "echo $PWD $KEPT"}) == "/ 1\n"


@pytest.mark.parametrize("status", [0, 3])
def test_with_persistent_the_end_of_the_shell_is_reported(status: int) -> None:
    with Agents() as agents:
        bash = langchain.tool(agents, agent="a1", persistent=True)
        bash({"command": "KEPT=1"})
        error = failed(bash, f"echo said; exit {status}")
        assert (error.exit_status, error.stdout) == (status, "said\n")
        assert "state is lost" in str(error)
        assert bash({"command": "echo ${KEPT-gone}"}) == "gone\n"


def test_errors_cross_processes() -> None:
    again = pickle.loads(pickle.dumps(BashToolError("it failed", "out", "err", 3)))
    assert (again.message, again.stdout, again.stderr, again.exit_status) == ("it failed", "out", "err", 3)
    assert str(again) == "it failed\n[stdout]\nout\n[stderr]\nerr"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({}, "command: is missing; the arguments are command"),
        ({"command": ""}, "command: is empty"),
        ({"command": None}, "command: should be a valid string; the arguments are command"),
        ({"command": 7}, "command: should be a valid string; the arguments are command"),
        ({"command": "ls", "timeout": 1e400}, "timeout: is unknown; the arguments are command"),
        ({"command": "a\0b"}, "command: contains a NUL character, which bash cannot read"),
        ({"command": "\udfff"}, "command: contains half of a surrogate pair, which is not text"),
        ("ls", "the arguments must be an object with fields, not str"),
        ([], "the arguments must be an object with fields, not list"),
    ],
)
def test_bad_calls_are_errors(bash: Bash, call: object, message: str) -> None:
    with pytest.raises(BashToolError) as caught:
        bash(call)
    assert str(caught.value) == f"Invalid input: {message}"
    assert (caught.value.stdout, caught.value.stderr, caught.value.exit_status) == ("", "", None)


def test_a_bash_that_cannot_start_is_an_error() -> None:
    with Session(bash="/nonexistent/bash") as session:
        assert str(failed(langchain.tool(session), "true")).startswith("Failed to execute: ")


def test_a_session_in_other_hands_is_an_error(new_session: Callable[..., Session]) -> None:
    session = new_session()
    session.run("sleep 100", timeout=0.05, on_timeout="yield")
    assert str(failed(langchain.tool(session), "true")).startswith("Failed to execute: ")


def test_the_same_for_asyncio() -> None:
    async def main() -> None:
        async with AsyncAgents() as agents:
            bash = langchain.tool(agents, agent="a1")
            assert await bash({"command": "echo hi"}) == "hi\n"
            with pytest.raises(BashToolError, match="exit status 3"):
                await bash({"command": "exit 3"})

    asyncio.run(main())


@given(st.dictionaries(st.text(max_size=9), st.none() | st.booleans() | st.floats() | st.text() | st.lists(st.text())))
def test_foreign_calls_give_the_documented_error(call: dict[str, Any]) -> None:
    steps = langchain.LangChain().steps(call)
    with suppress(BashToolError):
        assert isinstance(next(steps), Request)


@given(st.binary(max_size=50), st.binary(max_size=50), st.none() | st.integers(0, 255))
def test_every_result_is_stdout_or_an_error(stdout: bytes, stderr: bytes, exit_code: int | None) -> None:
    result = Result(stdout, stderr, exit_code, None, "/", 0.0, "exited")
    text = stdout.decode("utf-8", "replace")
    if exit_code == 0:
        assert langchain.render(result) == text
        return
    with pytest.raises(BashToolError) as caught:
        langchain.render(result)
    assert (caught.value.stdout, caught.value.exit_status) == (text, exit_code)
    assert text.removesuffix("\n") in str(caught.value)
