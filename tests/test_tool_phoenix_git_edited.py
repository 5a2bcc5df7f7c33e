"""Document 004, REQ-BASH-007: commits whose message an editor writes, in real repositories."""

from __future__ import annotations

from typing import Final

import pytest
import repositories
from phoenixes import Bash
from repositories import Repository, bare, git

pytestmark = repositories.MARKS

pattern, repository, bash = repositories.pattern, repositories.repository, repositories.bash

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
# What is committed by nobody.
REFUSED: Final = [
    "GIT_EDITOR=false git commit",
    "GIT_EDITOR='cp /dev/null' git commit",
    "GIT_EDITOR='cp ../message' git commit --dry-run --porcelain nowhere",
]


@pytest.mark.parametrize("command", WRITTEN, ids=range(len(WRITTEN)))
def test_a_commit_whose_message_an_editor_writes_gets_the_trailer_once(
    bash: Bash, repository: Repository, command: str
) -> None:
    (repository.path.parent / "message").write_text("subject\n\nbody\n")
    found = bash({"command": command})
    assert not found.is_error, found
    assert [bare(message) for message in repository.messages()] == WRITTEN[command]


@pytest.mark.parametrize("command", REFUSED, ids=range(len(REFUSED)))
def test_a_commit_that_git_refuses_is_none(bash: Bash, repository: Repository, command: str) -> None:
    (repository.path.parent / "message").write_text("subject\n")
    before = git("reflog")
    assert bash({"command": command}).code == "command_failed"
    assert git("reflog") == before


def test_a_message_that_an_editor_leaves_with_its_trailer_is_worded_once(bash: Bash, repository: Repository) -> None:
    assert not bash({"command": "GIT_EDITOR='sed -i 1isubject' git commit -q"}).is_error
    assert len(git("reflog").splitlines()) == 2
