"""The pages of docs/ and the contributor's pages: their programs run, their links lead somewhere, their names exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest
from documents import TOP, Block, anchors, blocks, dialogue, links, looks_like, own_daemon, read, run_bash, run_python

_DOCS: Final = tuple(str(path.relative_to(TOP)) for path in sorted((TOP / "docs").glob("*.md")))
_PAGES: Final = (*_DOCS, "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
_PROGRAMS: Final = [block for page in _PAGES for block in blocks(page, "python")]
_COMMANDS: Final = [block for page in _PAGES for block in blocks(page, "bash", "console")]
# From where the pages name files.
_ROOTS: Final = (TOP, TOP / "shellsession", TOP / "shellsession" / "engine" / "verbs")
_TARGETS: Final = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))


@pytest.fixture(scope="module", autouse=True)
def daemon_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_daemon(tmp_path_factory.mktemp("docs")):
        yield


def test_each_block_says_what_it_is() -> None:
    """A block in another language would be run by nobody."""
    assert {block.language for page in _PAGES for block in blocks(page)} <= {"python", "bash", "console", "text"}
    assert _PROGRAMS
    assert _COMMANDS


@pytest.mark.parametrize("program", _PROGRAMS, ids=str)
def test_a_program_runs(program: Block) -> None:
    done = run_python(program.text)
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.findall(r"# prints: (.+)$", program.text, re.MULTILINE)
    assert not shown or done.stdout.splitlines() == shown


@pytest.mark.parametrize("block", [block for block in _COMMANDS if block.language == "console"], ids=str)
def test_a_command_prints_what_the_page_shows(block: Block) -> None:
    for command, shown in dialogue(block.text):
        done = run_bash(command)
        assert looks_like(done.stdout + done.stderr, shown), done.stdout + done.stderr


@pytest.mark.parametrize("block", [block for block in _COMMANDS if block.language == "bash"], ids=str)
def test_a_command_works(block: Block) -> None:
    """A target of make would run this test again: it has to exist. All other commands are run."""
    lines = [line.partition("  #")[0] for line in block.text.splitlines()]
    made = {word for line in lines if line.startswith("make ") for word in line.split()[1:] if "=" not in word}
    assert made <= _TARGETS
    others = "\n".join(line for line in lines if not line.startswith("make "))
    done = run_bash(f"set -e\n{others}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", ["README.md", *_PAGES])
def test_links_lead_somewhere(page: str) -> None:
    for link in links(page):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (TOP / page).parent / path if path else TOP / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", _DOCS)
def test_each_page_can_be_found_from_the_readme(page: str) -> None:
    assert page in {link.partition("#")[0] for link in links("README.md")}


def _named_files(page: str) -> set[str]:
    """The files that a page names as code: ``engine/wire.py``, ``tests/test_rooms.py``."""
    named = re.findall(r"`([\w/.-]+\.(?:py|bash|md|toml))(?:::\w+)?`", read(page))
    return {name for name in named if "NAME" not in name}  # which stands for a name of the reader's


@pytest.mark.parametrize("page", ["docs/design.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_the_files_that_a_page_names_exist(page: str) -> None:
    assert {name for name in _named_files(page) if not any((root / name).exists() for root in _ROOTS)} == set()


@pytest.mark.parametrize("page", ["docs/design.md", "SECURITY.md"])
def test_the_tests_that_a_page_names_exist(page: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", read(page))
    assert named
    for file, name in named:
        nodes = ast.walk(ast.parse(read(file)))
        assert name in {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}, (file, name)


def test_the_functions_that_the_design_names_exist() -> None:
    """A function or class, with its file behind it: ``Engine.run`` (``engine/verbs/engine.py``)."""
    named = re.findall(r"`([\w.]+)`\s\(`([\w/]+\.py)`", read("docs/design.md"))
    assert len(named) > 20
    for name, file in named:
        (path,) = {root / file for root in _ROOTS if (root / file).exists()}
        scope: ast.AST = ast.parse(path.read_text(encoding="utf-8"))
        for part in name.split("."):
            found = [node for node in ast.iter_child_nodes(scope) if getattr(node, "name", "") == part]
            assert found, f"{name} is not in {file} any more: correct docs/design.md"
            scope = found[0]


def test_the_order_of_rooms_is_the_one_that_is_tested() -> None:
    law = re.compile(r"^errors[^\"`]+__main__$", re.MULTILINE)
    shown, tested = (law.findall(read(page)) for page in ("docs/design.md", "tests/test_imports.py"))
    assert [law.split() for law in shown] == [law.split() for law in tested]
    assert len(tested) == 1


def test_the_package_carries_no_page() -> None:
    """But the tables of its contracts, which stand beside them."""
    assert {path.parent.name for path in (TOP / "shellsession").rglob("*.md")} == {"parity"}
