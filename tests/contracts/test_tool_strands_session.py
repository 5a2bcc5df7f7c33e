"""Document 001, sessions: failures are session errors, each agent has one session, and nothing hangs."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import strandses
from strandses import NOTHING, Agent, Bash, execute, output
from system import is_alive, wait_until

from shellsession import Agents, Session
from shellsession.contracts import strands

agent, bash = strandses.agent, strandses.bash

pytestmark = pytest.mark.usefixtures("company")


@pytest.mark.parametrize(
    ("command", "message", "stdout"),
    [
        ("echo said; exit 3", "ended the session's bash, with exit status 3", "said\n"),
        ("exit 0", "ended the session's bash, with exit status 0", ""),
        ("exec echo instead", "ended the session's bash, with exit status 0", "instead\n"),
        ("trap : ERR; set -e; echo x; false; echo y", "ended the session's bash, with exit status 1", "x\n"),
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


def test_a_shell_that_died_between_calls_is_reported(bash: Bash, agents: Agents) -> None:
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


def test_a_session_is_closed_when_its_agent_is_collected(agents: Agents) -> None:
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


def test_agents_that_are_equal_are_two(agents: Agents) -> None:
    """As in a WeakMap: which object it is counts."""

    class Equal(Agent):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    one, two = Equal(), Equal()
    execute(strands.tool(agents, agent=one), "X=1")
    assert output(strands.tool(agents, agent=two), "echo ${X-none}") == "none"


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


def test_a_session_in_other_hands_is_a_session_error(new_session: Callable[..., Session]) -> None:
    session = new_session()
    session.run("sleep 100", timeout=0.05, on_timeout="yield")
    with pytest.raises(strands.BashSessionError, match=r"^Bash session error: "):
        execute(strands.tool(session), "true")
