"""Document 004, REQ-BASH-007: commits whose message comes from an editor, in real repositories."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Final

import pytest
import repositories
from phoenixes import Bash
from repositories import TRAILER, Repository, bare, git

from shellsession.contracts.phoenix import ToolResult

pytestmark = repositories.MARKS

pattern, repository, bash = repositories.pattern, repositories.repository, repositories.bash
temporary, isolated = repositories.temporary, repositories.isolated

# An editor that puts a message of its own in place of all that is there, and what is committed, without the trailer.
WRITTEN: Final[dict[str, list[str]]] = {
    "GIT_EDITOR='cp ../message' git commit -q": ["subject\n\nbody"],
    "git -c core.editor='cp ../message' commit -q": ["subject\n\nbody"],
    "git config core.editor 'cp ../message'; unset EDITOR VISUAL; git commit -q": ["subject\n\nbody"],
    "GIT_EDITOR='cp ../message' git commit -qe -m x": ["subject\n\nbody"],
    "git commit -qm x; GIT_EDITOR='cp ../message' git commit -q --amend": ["subject\n\nbody"],
    "git config alias.ci 'commit -q'; GIT_EDITOR='cp ../message' git ci": ["subject\n\nbody"],
    "GIT_EDITOR='cp ../message' git commit -q; git commit -qm second --allow-empty": ["subject\n\nbody", "second"],
    # what is there may as well stay
    "GIT_EDITOR='sed -i 1isubject' git commit -q": ["subject"],
}
# What git makes one commit of, or several; each is told with its hash, and post-commit hooks run once for each.
MADE: Final = [
    "GIT_EDITOR='cp ../message' git commit",
    "GIT_EDITOR='sed -i 1s/^/x/' git commit -v",
    "GIT_EDITOR='sed -i 1s/^/x/' git commit --cleanup=scissors",
    "GIT_EDITOR='cp ../message' git commit --cleanup=verbatim",
    "GIT_EDITOR='cp ../message' git -c core.commentChar=';' commit -v -e -m '#1'",
    "GIT_EDITOR=true git commit -e -F - <<<piped",
    "echo piped | git commit -F -",
    "printf 'caf\\351' | LC_ALL=C.UTF-8 git -c i18n.commitEncoding=latin1 commit -F -",
    "git commit -m $'a\\n\\n---\\nb'",
    "git config commit.cleanup strip; git commit --no-cleanup -m $'x\n#k'",
    "git commit --cleanup=strip --no-cleanup -m $'x\n#k'",
    "git commit -m x; GIT_EDITOR=: git commit --amend; git commit --amend --no-edit",
    "GIT_EDITOR=: git commit --fixup=amend:HEAD; GIT_EDITOR=: git commit --fixup=reword:HEAD",
    "git commit --fixup HEAD; GIT_EDITOR=: git commit --squash HEAD --allow-empty",
    "git commit -m a; git revert -n HEAD; git commit --no-edit; git revert -n HEAD; GIT_EDITOR=: git commit",
    "git commit -qm a; git switch -qd @~; git commit --allow-empty -m b; git merge --no-commit -; git commit --no-edit",
    "git commit -qm a; git switch -qd @~; echo x >file; git commit -am b; git merge -; git commit -a --no-edit",
    "git commit -qm a; git switch -qd @~; git merge --squash -; echo squashed >.git/SQUASH_MSG; git commit --no-edit",
    "GIT_EDITOR='sed -i 1s/$/x/' git commit -t ../message",
    "GIT_EDITOR='sed -i 1s/$/x/' git -c commit.template=../message commit",
    "git commit -t ../message -m subject",
    "git commit -v -m x --no-verify; git -c commit.verbose=2 commit --status --amend -m y; git commit --porcelain -m x",
    "git commit --dry-run -m x; D=$PWD; cd /; git -C $D commit --short -am x; git -C $D commit -m x",
    # hooks that write the message, or judge it
    "echo 'echo hooked >$1' >>.git/hooks/prepare-commit-msg; git commit --no-edit",
    "mkdir ../hooks; cp .git/hooks/* ../hooks; git config core.hooksPath ../hooks; git commit -m x",
    "echo 'grep ^subject $1' >>.git/hooks/commit-msg; GIT_EDITOR='cp ../message' git commit; git commit --amend -m x",
]
# What git refuses, and the words in which it does.
REFUSED: Final = [
    "git commit",
    "GIT_EDITOR=false git commit",
    "TERM=dumb; unset EDITOR VISUAL; git commit",
    "GIT_EDITOR='cp /dev/null' git commit",
    "GIT_EDITOR='rm -f' git commit",
    "GIT_EDITOR='cp ../message' git commit --dry-run --porcelain nowhere",
    # there is no message
    "git commit -a --no-edit",
    "git commit -s --no-edit",
    "git commit --amend -m ''",
    "GIT_EDITOR=: git commit",
    "GIT_EDITOR=true git commit -v",
    "GIT_EDITOR=: git commit -s",
    ": | git commit -F -",
    "GIT_EDITOR=: git commit -t ../message",
    "GIT_EDITOR=: git commit -s --template=$PWD/../message",
    "GIT_EDITOR=: git -c commit.template=../message commit",
    "cp ../message ~; git config commit.template '~/message'; git commit --no-edit",
]
HASH: Final = re.compile(r"\b[0-9a-f]{7,40}\b")
MADE_AS: Final = re.compile(r"^\[\S+ (?:\S+ )?([0-9a-f]{7,})\] ", re.M)  # [main 1234567] subject


class Twin:
    """The same repository twice: one for plain git, which tells what is right."""

    def __init__(self, repository: Repository) -> None:
        self.plain, self.ours = Repository(repository.path.parent / "plain"), repository
        (repository.path.parent / "message").write_text("subject\n\nbody\n")
        for name in ("prepare-commit-msg", "commit-msg", "post-commit"):
            hook = repository.path / ".git/hooks" / name
            hook.write_text(f"#!/bin/sh\necho {name} >>.git/hooked\n")
            hook.chmod(0o755)
        (repository.path / ".git/hooked").touch()
        shutil.copytree(repository.path, self.plain.path)

    def ask(self, command: str) -> tuple[int, str]:
        """What plain git says."""
        told = subprocess.run(
            ["bash", "-c", command],
            cwd=self.plain.path,
            env={**os.environ, "EDITOR": "/bin/false", "VISUAL": "/bin/false"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        shutil.rmtree(self.plain.path.parent / "hooks", ignore_errors=True)
        return told.returncode, told.stdout


def hooked(repository: Repository) -> str:
    return (repository.path / ".git/hooked").read_text()


@pytest.fixture
def twin(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Twin:
    for person in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{person}_DATE", "2037-01-01T00:00:00Z")  # git tells some that differ
    return Twin(repository)


@pytest.mark.parametrize("command", WRITTEN, ids=range(len(WRITTEN)))
def test_a_commit_whose_message_an_editor_writes_gets_the_trailer_once(
    isolated: Bash, repository: Repository, command: str
) -> None:
    (repository.path.parent / "message").write_text("subject\n\nbody\n")
    found = isolated({"command": command})
    assert not found.is_error, found
    assert [bare(message) for message in repository.messages()] == WRITTEN[command]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", MADE, ids=range(len(MADE)))
def test_a_commit_is_made_once_and_its_hash_is_printed(isolated: Bash, twin: Twin, command: str) -> None:
    code, told = twin.ask(command)
    found = isolated({"command": command})
    head = f"[command failed: exit code {code}]\n" if code else ""
    assert HASH.sub("", found.output) == HASH.sub("", head + told)
    assert set(MADE_AS.findall(found.output)) <= set(git("reflog", "--format=%h").splitlines())
    plain, ours = twin.plain.messages(), twin.ours.messages()
    assert len(plain) == len(ours)
    for wanted, message in zip(plain, ours, strict=True):
        assert message.split("\n").count(TRAILER) == 1
        expected = re.escape(HASH.sub("", wanted.rstrip("\n"))) + rf"\n\n?{TRAILER}\n+"
        assert re.fullmatch(expected, HASH.sub("", message)), (wanted, message)
    assert hooked(twin.ours) == hooked(twin.plain)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", REFUSED, ids=range(len(REFUSED)))
def test_what_git_refuses_is_refused_in_its_words(isolated: Bash, twin: Twin, command: str) -> None:
    before = git("reflog")
    code, told = twin.ask(command)
    assert code
    assert isolated({"command": command}) == ToolResult(
        f"[command failed: exit code {code}]\n{told}", True, "command_failed"
    )
    assert git("reflog") == before


def test_an_editor_that_fails_is_named(isolated: Bash, repository: Repository) -> None:
    before = git("reflog")
    found = isolated({"command": "GIT_EDITOR='cp ../nothing' git commit"})
    assert found.code == "command_failed"
    assert re.search("problem with the editor '.*cp \\.\\./nothing'", found.output)
    assert git("reflog") == before


def test_an_empty_message_that_is_allowed_stays_empty(isolated: Bash, repository: Repository) -> None:
    for command in ("-m ''", "--no-edit", "--amend --no-edit"):
        assert not isolated({"command": f"git commit -q --allow-empty --allow-empty-message {command}"}).is_error
    assert repository.messages() == ["", ""]
