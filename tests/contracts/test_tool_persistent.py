"""The one-shot contracts with ``persistent=True`` report to the model when the state is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from system import PYTHON

from shellsession import Agents, InvalidRequest
from shellsession.contracts import bashtool, langchain, phoenix, spec
from shellsession.contracts.tool import Tool

TOLD: Final = "its state is lost, the next command starts in a fresh one"
# Each contract, and where in its payload a model reads of it.
CONTRACTS: Final[dict[str, tuple[Any, Callable[[Any], str]]]] = {
    "spec": (spec, lambda found: found["stderr"]),
    "bashtool": (bashtool, lambda found: found["content"][0]["text"].partition("STDERR:\n")[2]),
    "phoenix": (phoenix, lambda found: found.output.partition("]\n")[2] or found.output),
}


@pytest.fixture(scope="module")
def agents() -> Iterator[Agents]:
    with Agents() as agents:
        yield agents


@pytest.mark.parametrize("name", CONTRACTS)
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("exit 0", f"[the command ended the session's bash, with exit status 0; {TOLD}]\n"),
        ("exit 3", f"[the command ended the session's bash, with exit status 3; {TOLD}]\n"),
        ("kill -9 $$", f"[the session's bash was killed by signal 9 (SIGKILL); {TOLD}]\n"),
        ("printf err >&2; exec true", f"err\n[the command ended the session's bash, with exit status 0; {TOLD}]\n"),
        ("echo err >&2; exec true", f"err\n[the command ended the session's bash, with exit status 0; {TOLD}]\n"),
    ],
)
def test_lost_state_is_reported(agents: Agents, name: str, command: str, said: str) -> None:
    contract, read = CONTRACTS[name]
    bash: Tool[Any] = contract.tool(agents, agent=name, persistent=True)
    bash({"command": "KEPT=1"})
    assert read(bash({"command": command})).endswith(said)
    found = bash({"command": "echo ${KEPT-gone}"})
    assert "gone" in str(found)
    assert TOLD not in str(found), "once is enough"


@pytest.mark.parametrize("name", CONTRACTS)
def test_nothing_is_said_where_nothing_was_promised(agents: Agents, name: str) -> None:
    contract, _ = CONTRACTS[name]
    bash = contract.tool(agents, agent=name)
    for command in ("exit 0", "exit 3", "kill -9 $$", "kill -9 $PPID"):
        assert TOLD not in str(bash({"command": command}))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("name", CONTRACTS)
def test_the_result_of_a_command_that_reads_the_terminal_says_why_it_was_ended(
    agents: Agents, name: str, persistent: bool
) -> None:
    contract, read = CONTRACTS[name]
    bash = contract.tool(agents, agent=f"{name} {persistent}", persistent=persistent)
    found = bash({"command": "echo before; read x </dev/tty; echo after"})
    said = "the command was ended (the command waits for input from the terminal)"
    if name == "spec":
        assert (found["stdout"], found["stderr"], found["error"]) == ("before\n", "", said)
    else:
        assert "before" in str(found)
        assert "after" not in str(found)
        assert read(found).endswith(f"[{said}]\n")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["bashtool", "phoenix"])
@pytest.mark.parametrize(
    "command", ["bash -ic 'echo x'", "stty -F /dev/tty raw", f"{PYTHON} -c 'import getpass; getpass.getpass()'"]
)
def test_a_command_that_would_have_the_terminal_to_itself_does_not_hang(
    agents: Agents, name: str, command: str
) -> None:
    """It leads a group of its own, which is not in the foreground there: the kernel stops it."""
    contract, _ = CONTRACTS[name]
    bash = contract.tool(agents, agent=f"{name} {command}")
    said = "the command was ended (the command waits for input from the terminal)"
    assert said in str(bash({"command": f"echo before; {command}; echo after"}))


@pytest.mark.parametrize("make", [spec.tool, langchain.tool, bashtool.tool, phoenix.tool])
def test_an_answer_of_confirm_that_is_not_a_bool_is_refused(make: Any) -> None:
    with Agents() as agents, pytest.raises(InvalidRequest, match="persistent is True or False, not 'no'"):
        make(agents, agent="flag", persistent="no")
