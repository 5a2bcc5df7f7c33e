"""Git repositories for the tests of document 004, the tool that commits there, and checks of the commit messages."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import phoenixes
import pytest
from phoenixes import Bash

from shellsession import Agents
from shellsession.contracts import phoenix

TRAILER = "Co-authored-by: Phoenix <phoenix@exe.dev>"  # the document's
MARKS = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.usefixtures("company"),
]
temporary, isolated = phoenixes.temporary, phoenixes.bash


def git(*arguments: str, cwd: Path | None = None) -> str:
    return subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True, text=True).stdout


class Repository:
    """A git repository with one commit and one staged change."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        self.path.mkdir()
        git("init", "-q", cwd=self.path)
        # maintenance: else each commit starts one more process, which checks for clean-up work
        ours = {"user.name": "A", "user.email": "a@b.c", "commit.gpgsign": "false", "maintenance.auto": "false"}
        for name, value in ours.items():
            git("config", name, value, cwd=self.path)
        (self.path / "file").write_text("one\n")
        git("add", "file", cwd=self.path)
        git("commit", "-qm", "base", cwd=self.path)
        (self.path / "file").write_text("two\n")
        git("add", "file", cwd=self.path)

    def messages(self) -> list[str]:
        """The messages of all commits after the first, the oldest first."""
        return git("log", "--reverse", "--format=%B%x00", cwd=self.path).split("\0\n")[1:-1]


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that is copied for each test: a new one would take nine processes of git."""
    home = tmp_path_factory.mktemp("pattern")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        Repository(home / "repository").make()
    return home / "repository"


@pytest.fixture
def repository(tmp_path: Path, pattern: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    repository = Repository(tmp_path / "repository")
    shutil.copytree(pattern, repository.path, ignore=shutil.ignore_patterns("*.sample"))
    monkeypatch.chdir(repository.path)
    return repository


@pytest.fixture(params=["isolated", "persistent"])
def bash(request: pytest.FixtureRequest) -> Iterator[Bash]:
    with Agents() as agents:
        yield phoenix.tool(agents, agent="a1", persistent=request.param == "persistent")


def bare(message: str) -> str:
    """The message without the trailers that git itself recognises. Each must be there once."""
    trailers = subprocess.run(
        ["git", "interpret-trailers", "--parse"], input=message, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert [line.lower() for line in trailers].count(TRAILER.lower()) == 1, message
    assert message.lower().count(TRAILER.lower()) == 1, message
    assert message.count(TRAILER) or TRAILER.lower() in message, message  # git treats them as equal
    return message[: message.index("\n\n" + trailers[0])]
