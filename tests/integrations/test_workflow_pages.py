"""Our own pages as workflows: their commands run in one shell, and print what the pages show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from documents import TOP, blocks, own_daemon

from shellsession import Session, Workflow

_PAGES: Final = (
    "README.md",
    *(f"docs/{name}.md" for name in ("attach", "daemon", "design", "jobs", "output", "remote")),
)


@pytest.fixture(autouse=True)
def daemon_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_daemon(tmp_path_factory.mktemp("pages")):
        yield


@pytest.mark.parametrize("page", _PAGES)
def test_page_runs_as_a_workflow(page: str, tmp_path: Path) -> None:
    workflow = Workflow.load(TOP / page)
    with Session(cwd=tmp_path, timeout=50, agent_env=False) as session:
        report = workflow.run(session)
    assert report.ok, report.to_markdown()
    assert any(one.outcome == "success" for one in report.steps)


def test_page_about_workflows_is_right(tmp_path: Path) -> None:
    """The file that it shows, with the commands that it shows."""
    (file,) = blocks("docs/workflows.md", "yaml")
    (tmp_path / "release.yml").write_text(file.text)
    (commands,) = blocks("docs/workflows.md", "bash")
    check, run, resume = (line.partition("  #")[0] for line in commands.text.splitlines())
    with Session(cwd=tmp_path, timeout=50) as session:
        assert session.run(check).stdout.strip() == "release.yml: 3 steps, no mistakes"
        assert session.run(run).ok
        assert "nothing to resume" in session.run(resume).stderr
        broken = file.text.replace("test 1.2}", "nothing}")
        (tmp_path / "release.yml").write_text(broken)
        assert session.run(run).exit_code == 1
        (tmp_path / "release.yml").write_text(file.text)
        assert session.run(resume).ok
