"""Document 004, REQ-BASH-007: the message of a commit, and nothing else of what git is asked, is touched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time

import pytest
import repositories
from hypothesis import given, strategies as st
from phoenixes import Bash
from repositories import TRAILER, Repository, bare, git

from shellsession import Agents, Session
from shellsession.contracts import phoenix
from shellsession.contracts.phoenix import ToolResult
from shellsession.contracts.phoenix_git import prelude

pytestmark = repositories.MARKS

pattern, repository, bash = repositories.pattern, repositories.repository, repositories.bash
temporary, isolated = repositories.temporary, repositories.isolated


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo 'git commit -m x'", "git commit -m x\n"),
        ("printf '%s|' git commit -m x", "git|commit|-m|x|"),
        ("cat <<EOF\ngit commit -m x\nEOF", "git commit -m x\n"),
        ("timeout 5 echo git commit -m x", "git commit -m x\n"),
        ("env echo git commit", "git commit\n"),
        ("sh -c 'echo git commit'", "git commit\n"),
        ("sh -c 'echo $0 $1' git commit", "git commit\n"),
        ("exec 3>&1; echo git commit >&3", "git commit\n"),
        ("(exec echo git commit)", "git commit\n"),
        ("env -u X echo git commit", "git commit\n"),
        ("echo commit | xargs echo git", "git commit\n"),
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
        "git commit --allow-empty --amend --message $'\\n'",
        "git commit -aqm '' --allow-empty",
        "git commit --allow-empty --mess '' --mes=",
        "echo >empty; git commit --allow-empty -F empty",
        "echo >empty; git commit --allow-empty --file=$PWD/empty",
        "git nonsense commit",
        "type nothing && git commit -qm x",
        "PATH=/nonexistent\nsudo -n git commit -m x",
        "PATH=/nonexistent\n\ndash -c 'git commit -m x'",
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


@pytest.mark.parametrize("behind", ["", "# git commit", "git commit --dry-run -qm x >/dev/null"])
@pytest.mark.parametrize(
    "command",
    [
        *("command -v git", "type -p git", "type git", "hash git; type -a git", "command -pv git; command -V git"),
        'f() { :; }; command -v f; type -t f; [ -x "$(command -v git)" ] && echo yes; command -v nothing || echo no',
        "IFS=git; set -f; type git; command -v command type",
    ],
)
def test_who_asks_what_git_is_gets_the_truth(isolated: Bash, repository: Repository, command: str, behind: str) -> None:
    plain = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert isolated({"command": f"{command}\n{behind}"}).output.endswith(plain.stdout)


def test_with_persistent_git_is_a_function_and_its_path_is_told() -> None:
    with Session() as session:
        bash = phoenix.tool(session, persistent=True)
        assert bash({"command": "command -v git; type -P git"}).output == f"git\n{shutil.which('git')}\n"


def test_a_declaration_of_git_is_none(isolated: Bash) -> None:
    assert isolated({"command": "declare -F git"}).output.startswith("[command failed: exit code 1]")


def test_the_environment_holds_nothing_of_it(
    bash: Bash, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    found = bash({"command": "git commit -qm m; env"})
    assert not re.search("_phoenix|BASH_FUNC|o-authored", found.output)


@pytest.mark.parametrize(
    "command", ["git commit -qm '' -m x", ": >x; echo x >repository/x; git -C repository commit -qFx"]
)
def test_a_message_with_something_in_it_is_none_of_the_empty_ones(
    bash: Bash, repository: Repository, command: str
) -> None:
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


def test_a_git_function_of_the_session_stays(repository: Repository) -> None:
    with Session() as session:
        session.run("git() { echo own; }")
        bash = phoenix.tool(session, persistent=True)
        assert bash({"command": "git commit -m x"}) == ToolResult("own\n")
        phoenix.tool(session)({"command": "git commit -qm m"})  # in a bash that knows nothing of it
        assert [bare(message) for message in repository.messages()] == ["m"]


@pytest.mark.parametrize(
    ("state", "command", "output"),
    [
        ("timeout() { echo own; }", "timeout 5 git commit -qm x", ""),
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


@given(st.text())
def test_text_without_the_word_git_gets_no_function(command: str) -> None:
    assert not prelude(command.replace("git", "gut"), TRAILER)


@pytest.mark.parametrize("words", ["git env ", "env git commit ", "/usr/", "commit /usr/bin/git ", "command -v git;"])
def test_long_text_is_read_quickly(words: str) -> None:
    begun = time.monotonic()
    prelude(words * (1_000_000 // len(words)), TRAILER)
    assert time.monotonic() - begun < 10
