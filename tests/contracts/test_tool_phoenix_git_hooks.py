"""Document 004, REQ-BASH-007: the hooks of a repository run as they do without the tool."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import repositories
from phoenixes import Bash
from repositories import TRAILER, Repository, bare, git

from shellsession.contracts.phoenix import ToolResult

pytestmark = repositories.MARKS

pattern, repository = repositories.pattern, repositories.repository
temporary, isolated = repositories.temporary, repositories.isolated

# What a hook is given: its name, arguments, input, directory and environment.
LOG: Final = r"""#!/bin/sh
{
  echo "== ${0##*/} $*"
  # the link itself is run, in the environment of the call
  case $0 in *-index-change | *-transaction) ;; *) echo "$0"; git config core.hooksPath ;; esac
  case ${0##*/} in pre-push | post-rewrite | *receive | *-transaction) cat ;; esac
  pwd
  env | grep ^GIT_ | grep -v ^GIT_CONFIG_ | sort
} >>"$LOG"
"""
CLIENT: Final = (
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg"),
    *("commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-auto-gc"),
    *("post-rewrite", "post-index-change", "reference-transaction"),
)
SERVER: Final = ("pre-receive", "update", "post-receive", "post-update")
SCENARIO: Final = """
git commit -qm one && git commit -q --amend -m two && git switch -qc side && echo 3 >file && git commit -qam three
git switch -q - && git merge -q --no-ff -m merged side && git rebase -q --root --force-rebase
git format-patch -q -1 HEAD && git reset -q --hard HEAD~ && git am -q 0001*
git init -q --bare ../there && cp $HOOKS ../there/hooks && git push -q ../there HEAD
git repack -q && git commit -q --allow-empty -m four && git repack -q
git -c gc.autoPackLimit=1 -c gc.autoDetach=false gc -q --auto
git --no-optional-locks status --short; git checkout -q HEAD~ && git stash list
"""
# What differs from run to run: hashes, and whether git finds a file as old as its index and looks at it again. (For
# that reason `git status` may not write the index, which would run a hook.)
VARYING: Final = re.compile(r"\b[0-9a-f]{7,40}\b|(?<=incoming-)\w+|(?<=== post-index-change )[01] [01]")


def install(directory: Path, name: str, text: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text)
    (directory / name).chmod(0o755)


def test_each_hook_is_given_what_git_gives_it(
    isolated: Bash, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks, logs = repository.path.parent / "hooks", [repository.path.parent / name for name in ("plain", "ours")]
    for person in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{person}_DATE", "2037-01-01T00:00:00Z")
    monkeypatch.setenv("HOOKS", " ".join(str(hooks / name) for name in SERVER))
    for name in CLIENT + SERVER:
        install(hooks, name, LOG)
    for name in CLIENT:
        shutil.copy(hooks / name, repository.path / ".git/hooks")
    before = repository.path.with_name("before")
    shutil.copytree(repository.path, before)

    monkeypatch.setenv("LOG", str(logs[0]))
    plain = {**os.environ, "EDITOR": "/bin/false", "VISUAL": "/bin/false"}
    done = subprocess.run(["bash", "-c", SCENARIO], env=plain, capture_output=True, text=True, check=True)
    shutil.rmtree(repository.path.parent / "there")
    shutil.rmtree(repository.path)
    before.rename(repository.path)
    monkeypatch.chdir(repository.path)

    monkeypatch.setenv("LOG", str(logs[1]))
    found = isolated({"command": SCENARIO})
    assert (found.is_error, VARYING.sub("", found.output)) == (False, VARYING.sub("", done.stdout + done.stderr))
    expected, seen = (VARYING.sub("", log.read_text()) for log in logs)
    assert seen == expected
    assert {line.split()[1] for line in seen.splitlines() if line.startswith("== ")} == {*CLIENT, *SERVER}
    assert git("log", "--all", "--format=%B").count(TRAILER) >= 3


# Where the repository's hooks are, for a commit in this directory.
PLACES: Final = {
    "git commit -qm m": ".git/hooks",
    "git config core.hooksPath .husky/_; git commit -qm m": ".husky/_",
    "git config --global core.hooksPath '~/hooks'; git commit -qm m": "../home/hooks",
    "git worktree add -q ../tree; cd ../tree; git commit -qm m --allow-empty": ".git/hooks",
    "git worktree add -q ../tree; git -C ../tree commit -qm m --allow-empty": ".git/hooks",
    "git -c protocol.file.allow=always submodule --quiet add ./. sub; cp .git/hooks/* .git/modules/sub/hooks; cd sub;"
    " git -c user.name=A -c user.email=a@b.c commit -qm m --allow-empty": ".git/hooks",
    "cd /; git --git-dir $OLDPWD/.git --work-tree $OLDPWD commit -qm m": ".git/hooks",
    "git commit --no-verify -qm m": "",
}


@pytest.mark.parametrize("command", PLACES, ids=range(len(PLACES)))
def test_hooks_are_found_where_the_repository_has_them(isolated: Bash, repository: Repository, command: str) -> None:
    seen = repository.path.parent / "seen"
    for name in ("pre-commit", "commit-msg", "post-commit"):
        install(repository.path / (PLACES[command] or ".git/hooks"), name, f'#!/bin/sh\necho ${{0##*/}} >>"{seen}"\n')
    assert isolated({"command": command}) == ToolResult("")
    assert seen.read_text().split() == ["pre-commit", "commit-msg", "post-commit"][0 if PLACES[command] else 2 :]
    module = repository.path / ".git/modules/sub"
    assert git("log", "--all", "--format=%B", cwd=module if module.exists() else None).count(TRAILER) == 1


def test_hooks_see_and_may_refuse_the_message(isolated: Bash, repository: Repository) -> None:
    install(repository.path / ".git/hooks", "commit-msg", '#!/bin/sh\ncat "$1"\nexit 1\n')
    found = isolated({"command": "git commit -qm refused"})
    assert found == ToolResult(f"[command failed: exit code 1]\nrefused\n\n{TRAILER}\n", True, "command_failed")


@pytest.mark.parametrize("name", ["pre-commit", "prepare-commit-msg"])
def test_a_hook_that_fails_ends_the_commit(isolated: Bash, repository: Repository, name: str) -> None:
    install(repository.path / ".git/hooks", name, "#!/bin/sh\necho no\nexit 3\n")
    assert isolated({"command": "git commit -qm m"}).output == "[command failed: exit code 1]\nno\n"
    assert repository.messages() == []


def test_a_message_that_a_hook_writes_gets_the_trailer(isolated: Bash, repository: Repository) -> None:
    install(repository.path / ".git/hooks", "prepare-commit-msg", '#!/bin/sh\necho "[X-1] $(cat "$1")" >"$1"\n')
    assert isolated({"command": "git commit -qm m"}) == ToolResult("")
    assert [bare(message) for message in repository.messages()] == ["[X-1] m"]


def test_a_commit_of_a_hook_is_the_hooks_own(isolated: Bash, repository: Repository) -> None:
    again = "#!/bin/sh\n[ -e .git/done ] || { touch .git/done; git commit -q --allow-empty -m own; }\n"
    install(repository.path / ".git/hooks", "post-commit", again)
    assert isolated({"command": "git commit -qm m"}) == ToolResult("")
    assert repository.messages()[1] == "own\n"
    assert bare(repository.messages()[0]) == "m"


def test_a_hook_that_is_not_executable_is_hinted_at(isolated: Bash, repository: Repository) -> None:
    hook = repository.path / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    plain = subprocess.run(["git", "commit", "-qm", "x"], capture_output=True, text=True, check=True).stderr
    assert "not set as executable" in plain
    assert isolated({"command": "git commit -q --allow-empty -m m"}) == ToolResult(plain)


def test_the_pre_commit_framework_finds_its_hooks(isolated: Bash, repository: Repository) -> None:
    """Its hook looks for the one that was there before beside itself."""
    hooks = repository.path / ".git/hooks"
    install(
        hooks,
        "pre-commit",
        '#!/usr/bin/env bash\nHERE="$(cd "$(dirname "$0")" && pwd)"\nexec "$HERE/$(basename "$0").legacy"\n',
    )
    install(hooks, "pre-commit.legacy", "#!/bin/sh\necho legacy\n")
    assert isolated({"command": "git commit -qm m"}) == ToolResult("legacy\n")


def test_a_push_to_a_checked_out_branch_is_the_receivers_matter(isolated: Bash, repository: Repository) -> None:
    git("clone", "-q", ".", "../there")
    git("config", "receive.denyCurrentBranch", "updateInstead", cwd=repository.path.parent / "there")
    assert isolated({"command": "git commit -qm m && git push -q ../there HEAD"}) == ToolResult("")
    assert (repository.path.parent / "there/file").read_text() == "two\n"
