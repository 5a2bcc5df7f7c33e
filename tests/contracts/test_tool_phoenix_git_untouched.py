"""Document 004, REQ-BASH-007: the tool changes the commit message, and nothing else in a call of git."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
import repositories
from phoenixes import Bash
from repositories import TRAILER, Repository, bare, git

from shellsession import Agents, Session
from shellsession.contracts import phoenix
from shellsession.contracts.phoenix import ToolResult

pytestmark = repositories.MARKS

pattern, repository, bash = repositories.pattern, repositories.repository, repositories.bash
temporary, isolated = repositories.temporary, repositories.isolated


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo 'git commit -m x'", "git commit -m x\n"),
        ("# git commit -m x", ""),
        ("git log --format=%s -- commit file", "base\n"),
        ("git config --get user.name commit; git config user.name", "A\n"),
        ('git() { echo "own $*"; }; git commit -m x', "own commit -m x\n"),
        ("git commit --dry-run -qm x >/dev/null; git diff --cached --name-only", "file\n"),
        ("set -x; git commit --dry-run -qm x >/dev/null", None),
        ("git -c man.viewer=shown -c man.shown.cmd='echo shown' commit --help", "shown git-commit\n"),
        ("git commit -h 2>&1 | head -c 20", "usage: git commit [-"),
    ],
)
def test_nothing_else_is_touched(bash: Bash, repository: Repository, command: str, output: str | None) -> None:
    found = bash({"command": command})
    assert repository.messages() == []
    if output is None:
        assert re.fullmatch(r"\++ git commit --dry-run -qm x\n", found.output), "the trace is the command's own"
    else:
        assert found.output == output


@pytest.mark.parametrize(
    "command",
    [
        "git commit -qm x",
        "git commit",
        "git commit --nonsense",
        'git commit --allow-empty -m "$UNSET"',
        "git commit --allow-empty -qm '' -m ' ' --message=",
        "echo >empty; git commit --allow-empty -F empty",
        "git nonsense commit",
    ],
)
def test_what_fails_fails_as_ever(isolated: Bash, repository: Repository, command: str) -> None:
    git("reset", "-q", "--hard")
    plain = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "EDITOR": "/bin/false", "VISUAL": "/bin/false"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert plain.returncode
    expected = f"[command failed: exit code {plain.returncode}]\n{plain.stderr}{plain.stdout}"
    found = isolated({"command": command})
    assert (sorted(found.output), found.is_error) == (sorted(expected), True)


def test_git_is_the_program(bash: Bash, repository: Repository) -> None:
    found = bash({"command": "command -v git; type -t git env xargs; declare -F; compgen -A function; : git commit"})
    assert found == ToolResult(f"{shutil.which('git')}\nfile\nfile\nfile\n")


def test_a_call_that_does_not_commit_has_no_setting(isolated: Bash, bash: Bash, repository: Repository) -> None:
    look = "git config core.hooksPath; env | grep GIT_CONFIG_COUNT; git rev-parse --git-path hooks"
    for command in (f"{look}; : pre-commit git-commit commits", f"{look}"):
        assert bash({"command": command}) == ToolResult(".git/hooks\n")
    assert "GIT_CONFIG" not in isolated({"command": "declare -p"}).output.replace("GIT_CONFIG_NOSYSTEM", "")
    assert bash({"command": f"{look}; : git commit"}).output.count("/phoenix-git.") == 2
    assert bash({"command": look}) == ToolResult(".git/hooks\n")


def test_the_environment_has_the_setting_and_nothing_else(isolated: Bash, repository: Repository) -> None:
    before, after = (isolated({"command": f"env; : {word}"}).output.splitlines() for word in ("git", "git commit"))
    added = sorted(line.partition("=")[0] for line in set(after) - set(before))
    assert added == ["GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0"]


@pytest.mark.parametrize(
    "command", ["git commit -qm '' -m x", ": >x; echo x >repository/x; git -C repository commit -qFx"]
)
def test_a_message_with_any_text_is_not_empty(bash: Bash, repository: Repository, command: str) -> None:
    assert bash({"command": f"{'cd ..; ' if '-C' in command else ''}{command}"}) == ToolResult("")
    assert [bare(message) for message in repository.messages()] == ["x"]


def test_each_of_two_tools_over_one_bash_has_its_own_trailer(repository: Repository) -> None:
    trailers = [TRAILER, "Assisted-by: B <b@c>", None]
    with Agents() as agents:
        tools = [phoenix.tool(agents, agent="a1", persistent=True, trailer=trailer) for trailer in trailers]
        tools[0]({"command": "KEPT=1; set -e"})
        for bash in (*tools, *reversed(tools)):
            assert bash({"command": "git commit -q --allow-empty -m $KEPT"}) == ToolResult("")
    messages = [f"1\n\n{trailer}\n" if trailer else "1\n" for trailer in trailers]
    assert repository.messages() == [*messages, *reversed(messages)]


@pytest.mark.parametrize(
    ("state", "command", "output"),
    [
        ("set -o posix", "/usr/bin/git commit -qm x", ""),
        ("shopt -s nocasematch; set -f; IFS=git", "git commit -qm x", ""),
        ("set -e", "git commit -qm x && git status --short", ""),
    ],
)
def test_a_session_of_the_callers_may_be_in_any_state(
    repository: Repository, state: str, command: str, output: str
) -> None:
    with Session() as session:
        session.run(state)
        assert phoenix.tool(session)({"command": command}) == ToolResult(output)
