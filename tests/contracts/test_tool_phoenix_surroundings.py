"""Document 004 with secrets, environments, state, policies and sessions of all kinds."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import phoenixes
import pytest
from daemons import Daemon
from hypothesis import example, given, strategies as st
from system import is_alive, wait_until

from shellsession import Agents, AsyncAgents, AsyncSession, Session, connect
from shellsession.contracts import phoenix, strands
from shellsession.contracts.cancel import CancelToken
from shellsession.contracts.phoenix import ToolResult
from shellsession.policy.rules import Policy

pytestmark = pytest.mark.usefixtures("company")

PREFIXES = ("ANTHROPIC_", "OPENAI_", "GEMINI_", "AWS_SECRET", "PHOENIX_")
SECRETS = {
    "ANTHROPIC_API_KEY": "s1",
    "OPENAI_": "s2",
    "GEMINI_KEY": "s3",
    "AWS_SECRET_ACCESS_KEY": "s4",
    "PHOENIX_DB": "s5",
}
KEPT = {
    name: "kept"
    for name in ("ANTHROPIC", "OPENAI", "GEMINI", "AWS_REGION", "AWS_ACCESS_KEY_ID", "PHOENIX", "X_OPENAI_")
}

Bash = phoenixes.Bash
temporary = phoenixes.temporary
bash = phoenixes.bash
lasting = phoenixes.lasting


@pytest.mark.parametrize("persistent", [False, True])
def test_at_the_time_limit_all_that_the_command_started_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, persistent: bool
) -> None:
    monkeypatch.setattr(phoenix, "TIMEOUT", 0.4)
    start = "sleep 1000 & echo $! >>pids; setsid sleep 1000 & echo $! >>pids; (trap '' INT TERM; sleep 1000) & "
    with Agents() as agents:
        bash = phoenix.tool(agents, agent="a1", persistent=persistent, working_dir=str(tmp_path))
        found = bash({"command": f"{start} echo $! >>pids; sh -c 'echo $$ >>pids; sleep 1000; :'; echo late >late"})
        assert found == ToolResult("[command timed out after 0.4s]", True, "timed_out")
        pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
        assert len(pids) == 4
        assert not any(is_alive(pid) for pid in pids)
        assert bash({"command": "echo again"}) == ToolResult("again\n")
    assert not (tmp_path / "late").exists()


def test_what_the_session_cannot_do_is_an_error_result(new_session: Callable[..., Session]) -> None:
    with Session(bash="/nonexistent/bash") as session:
        found = phoenix.tool(session)({"command": "true"})
    assert (found.is_error, found.code) == (True, "unavailable")
    session = new_session()
    session.run("sleep 100", timeout=0.05, on_timeout="yield")
    found = phoenix.tool(session)({"command": "true", "background": True})
    assert (found.is_error, found.code) == (True, "busy")
    huge = phoenix.tool(new_session())({"command": "#" * (17 << 20)})
    assert (huge.is_error, huge.code) == (True, "invalid_request")


@given(st.dictionaries(st.text() | st.sampled_from(sorted(SECRETS | KEPT)), st.text()))
@example(SECRETS | KEPT)
def test_secrets_are_never_kept(environ: dict[str, str]) -> None:
    """The document's second property; nothing else is lost, and only the editors are added."""
    options = phoenix.Phoenix().session_options(environ)["env"]
    rest = {name: value for name, value in environ.items() if not name.startswith(PREFIXES)}
    assert options == {**rest, "EDITOR": "/bin/false", "VISUAL": "/bin/false"}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("callers", [False, True], ids=["agents", "session"])
@pytest.mark.parametrize("background", [False, True])
def test_secrets_reach_no_command(
    monkeypatch: pytest.MonkeyPatch, persistent: bool, callers: bool, background: bool
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(f"{name}_2", value)
    for name, value in KEPT.items():
        monkeypatch.setenv(name, value)
    command = 'env | cut -d= -f1; echo "[$ANTHROPIC_API_KEY$OPENAI_]"; for n in ${!PHOENIX_@}; do echo $n; done'
    with Agents() as agents, Session() as session:
        bash = (
            phoenix.tool(session, persistent=persistent)
            if callers
            else phoenix.tool(agents, agent="a1", persistent=persistent)
        )
        for _ in range(2):
            found = bash({"command": command, "background": background})
            said = found.output
            if background:
                path = Path(said.partition("<output_file>")[2].partition("<")[0])
                said = wait_until(lambda path=path: (t := path.read_text()).endswith("]\n") and t, "its end")  # type: ignore[misc]
            assert not any(name.startswith(PREFIXES) for name in said.split())
            assert "[]" in said
            assert set(KEPT) <= set(said.split())


@pytest.mark.parametrize("background", [False, True])
def test_what_another_tool_started_the_session_with_is_not_handed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, background: bool
) -> None:
    for name in (*SECRETS, "OPENAI_X-Y", "KEPT-X"):
        monkeypatch.setenv(name, "LEAK")
    with Agents() as agents:
        assert "OPENAI_X-Y=LEAK" in str(strands.tool(agents, agent="a1")(mode="execute", command="env"))
        bash = phoenix.tool(agents, agent="a1")
        monkeypatch.chdir(tmp_path)
        bash(command="env >seen && mv seen all", background=background)
        wait_until((tmp_path / "all").exists, "the environment")
        seen = (tmp_path / "all").read_text()
        assert [line for line in seen.splitlines() if line.endswith("=LEAK")] == ["KEPT-X=LEAK"]


@pytest.mark.parametrize("state", ["readonly OPENAI_KEY", "IFS=_", "set -k"])
def test_a_secret_of_a_session_in_any_state_is_not_handed_on(state: str) -> None:
    with Session(extra_env={"OPENAI_KEY": "s"}) as session:
        session.run(state)
        for persistent in (False, True):
            bash = phoenix.tool(session, persistent=persistent)
            said = bash({"command": "env"}).output
            assert "PATH=" in said
            assert "OPENAI_KEY=" not in said


def test_the_environment_is_otherwise_the_hosts(monkeypatch: pytest.MonkeyPatch, bash: Bash) -> None:
    for name, value in (SECRETS | KEPT).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EDITOR", "vi")
    found = dict(
        entry.split("=", 1)
        for entry in bash({"command": "env -0; :"}).output.split("\0")
        if not entry.startswith("_=")
        if entry
    )
    done = subprocess.run(["bash", "-c", "env -0; :"], env=dict(os.environ), capture_output=True, text=True, check=True)
    plain = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry and not entry.startswith("_="))
    plain = {name: value for name, value in plain.items() if not name.startswith(PREFIXES)}
    assert found == {**plain, "EDITOR": "/bin/false", "VISUAL": "/bin/false"}


def test_no_editor_opens(bash: Bash, lasting: Bash) -> None:
    with Session(extra_env={"EDITOR": "vi", "VISUAL": "vi"}) as session:
        for one in (bash, lasting, phoenix.tool(session), phoenix.tool(session, persistent=True)):
            assert one({"command": "echo $EDITOR $VISUAL"}) == ToolResult("/bin/false /bin/false\n")


@pytest.mark.parametrize("persistent", [False, True])
def test_the_rebase_guard_is_for_its_call_alone(monkeypatch: pytest.MonkeyPatch, persistent: bool) -> None:
    monkeypatch.setenv("GIT_SEQUENCE_EDITOR", "own")
    with Agents() as agents:
        bash = phoenix.tool(agents, agent="a1", persistent=persistent)
        guarded = bash({"command": "printenv GIT_SEQUENCE_EDITOR  # git rebase -i"}).output
        assert guarded == "echo 'Interactive rebase requires background=true' && exit 1\n"
        assert bash({"command": "printenv GIT_SEQUENCE_EDITOR"}).output == "own\n"


def test_nothing_is_kept_between_calls(bash: Bash) -> None:
    bash({"command": "cd /; KEPT=1; kept() { :; }; alias kept=true; umask 0"})
    found = bash({"command": "echo $PWD ${KEPT-no}; type -t kept; umask"})
    first, second = found.output.splitlines()
    assert first == f"{Path.cwd()} no"
    assert len(second.split()) == 1


def test_with_persistent_everything_is_kept(tmp_path: Path) -> None:
    with Agents() as agents:
        bash = phoenix.tool(agents, agent="a1", persistent=True)
        bash({"command": "cd /; KEPT=1; export PHOENIX_OWN=2 EDITOR=ed; (exit 7)"})
        assert bash({"command": "echo $? $PWD $KEPT $PHOENIX_OWN $EDITOR"}) == ToolResult("7 / 1 2 ed\n")
        assert bash({"command": "exit 3"}).output.startswith("[command failed: exit code 3]")
        assert bash({"command": "echo ${KEPT-gone} $EDITOR"}) == ToolResult("gone /bin/false\n")


@pytest.mark.parametrize("options", ["set -e", "set -u", "set -f", "set -C", "set -a", "set -o posix", "IFS=abcde_hi"])
def test_a_session_that_the_caller_made_may_be_in_any_state(options: str) -> None:
    with Session() as session:
        session.run(options)
        pid = session.pid
        for persistent in (False, True):
            bash = phoenix.tool(session, persistent=persistent)
            assert bash({"command": 'echo hi; echo "$EDITOR" | cat'}) == ToolResult("hi\n/bin/false\n")
        assert bash({"command": "echo again $$"}) == ToolResult(f"again {session.pid}\n")
        assert session.pid == pid


@pytest.mark.parametrize(
    ("state", "output"),
    [
        ("set -x", "+ false\n+ echo 1\n1\n"),
        ("set -v", "false\necho $?\n1\n"),
        ("set -xv", "false\n+ false\necho $?\n+ echo 1\n1\n"),
    ],
)
def test_the_trace_is_the_commands_alone(state: str, output: str) -> None:
    with Agents() as agents:
        bash = phoenix.tool(agents, agent="a1", persistent=True)
        bash({"command": state})
        for _ in range(2):
            found = bash({"command": "false\necho $?"})
            assert re.sub(r"^\++ ", "+ ", found.output, flags=re.MULTILINE) == output
        bash({"command": "git rebase -i nothing; (exit 5)"})
        assert bash({"command": "echo $?"}).output.endswith("5\n")


def test_a_name_in_the_environment_prepares_no_bash() -> None:
    with Session(extra_env={"_phoenix": "", "OPENAI_KEY": "s"}) as session:
        bash = phoenix.tool(session, persistent=True)
        assert bash({"command": "echo ${OPENAI_KEY-none} $EDITOR"}) == ToolResult("none /bin/false\n")


def test_a_bash_that_cannot_be_prepared_is_an_error() -> None:
    with Session() as session:
        session.run("readonly _phoenix")
        bash = phoenix.tool(session, persistent=True)
        for background in (False, True):
            assert bash({"command": "echo hi", "background": background}).code == "unavailable"


@pytest.mark.parametrize("persistent", [False, True])
def test_a_policy_judges_the_command_of_the_model(persistent: bool) -> None:
    asked: list[str] = []

    def confirm(command: str, agent: str, cwd: str) -> bool:
        asked.append(command)
        return "git" in command

    policy = Policy(allow=["echo"], confirm=confirm, max_command=40)
    with Session() as session:
        bash = phoenix.tool(session, persistent=persistent, policy=policy)
        assert bash({"command": "echo hi"}) == ToolResult("hi\n")
        assert bash({"command": "echo git | cut -c-3"}) == ToolResult("git\n")
        refused = bash({"command": "touch x"})
        assert (refused.is_error, refused.code) == (True, "policy_refused")
        assert not bash({"command": "echo hi", "background": True}).is_error
        assert bash({"command": "touch x", "background": True}).code == "policy_refused"
    assert asked == ["echo git | cut -c-3", "touch x", "touch x"]
    with Session() as session:  # the first command of a bash is asked about once
        asked.clear()
        bash = phoenix.tool(session, persistent=persistent, policy=Policy(confirm=confirm))
        assert bash({"command": "echo git"}) == ToolResult("git\n")
    assert asked == ["echo git"]


def test_a_cancelled_call_is_an_error_result(bash: Bash) -> None:
    token = CancelToken()
    token.cancel()
    assert bash({"command": "sleep 100"}, cancel=token) == ToolResult("the call was cancelled", True, "call_cancelled")


def test_sessions_of_all_kinds(daemon: Daemon) -> None:
    expected = ToolResult("[command failed: exit code 3]\nhi\n", True, "command_failed")
    call = {"command": "echo hi; (exit 3)"}
    with connect("tools", socket=daemon.socket) as remote:
        for persistent in (False, True):
            bash = phoenix.tool(remote, persistent=persistent)
            assert bash(call) == expected

    async def main() -> None:
        async with AsyncSession() as session:
            assert await phoenix.tool(session)(call) == expected
        async with AsyncAgents() as agents:
            assert await phoenix.tool(agents, agent="a1")(call) == expected

    asyncio.run(main())
