"""The pages of docs/ and the contributor's pages: their links lead somewhere, their names exist.

Their programs run in tests/integrations and tests/cluster.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import re
import tomllib
from collections.abc import Callable
from os.path import normpath
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from documents import PAGES, SITE, TOP, Block, anchors, blocks, cells, links, read

import shellsession
from benchmarks.report import quoted
from shellsession.cli.arguments import VERBS
from shellsession.engine.bash.spawn import _DROPPED, AGENT_ENV
from shellsession.errors import ShellSessionError
from shellsession.inner import InnerHere
from shellsession.options import Options
from shellsession.signatures import RunOptions

_BLOCKS: Final = [block for page in PAGES for block in blocks(page)]
_RUN: Final = [block for block in _BLOCKS if not block.unrun]
_UNRUN_MAX: Final = 10
_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
    "text": str,
}
_REFERENCE: Final = "".join(map(read, SITE))
# From where the pages name files.
_ROOTS: Final = (TOP, TOP / "shellsession", TOP / "shellsession" / "engine" / "verbs")


def test_each_block_says_what_it_is() -> None:
    """A block in another language would be run by nobody."""
    assert {block.language for block in _BLOCKS} <= {"python", "bash", "console", *_PARSERS}


def test_few_blocks_are_not_run() -> None:
    unrun = [block for block in _BLOCKS if block.unrun]
    assert len(unrun) <= _UNRUN_MAX, list(map(str, unrun))


@pytest.mark.parametrize("block", [block for block in _RUN if block.language in _PARSERS], ids=str)
def test_a_file_can_be_parsed(block: Block) -> None:
    _PARSERS[block.language](block.text)


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_links_lead_somewhere(page: str) -> None:
    for link in links(page):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = Path(normpath((TOP / page).parent / path if path else TOP / page))
        assert target.exists(), link
        assert page not in SITE or target.is_relative_to(TOP / "docs"), f"{link} is no part of the site"
        assert not anchor or anchor in anchors(target), link


def test_each_page_is_within_two_clicks_of_the_first() -> None:
    one_click = _linked("docs/index.md")
    assert set(SITE) <= one_click.union(*map(_linked, one_click))


def _linked(page: str) -> set[str]:
    """The pages to which a page links."""
    targets = [(TOP / page).parent / link.partition("#")[0] for link in links(page) if not link.startswith("http")]
    return {str(target.resolve().relative_to(TOP)) for target in targets if target.suffix == ".md"}


def _codes(*modules: str) -> set[str]:
    """The codes of the errors that these modules define, or that any module does."""
    for module in pkgutil.walk_packages(shellsession.__path__, "shellsession."):
        room = module.name.split(".")[1]
        if room not in ("integrations", "cluster", "__main__"):  # those that need an SDK
            importlib.import_module(module.name)
    kinds = [ShellSessionError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return {kind.code for kind in kinds if kind.__module__ in modules or not modules}


def test_each_error_has_a_section_of_troubleshooting() -> None:
    page = "docs/troubleshooting.md"
    sections = set(re.findall(r"^## `(\w+)`$", read(page), re.MULTILINE))
    assert sections == _codes("shellsession.errors", "shellsession.models")


def test_each_code_of_an_error_is_explained() -> None:
    elsewhere = {code for path in (TOP / "shellsession").rglob("*.py") for code in _written_codes(path)}
    page = read("docs/troubleshooting.md")
    assert {code for code in _codes() | elsewhere if f"`{code}`" not in page} == set()


def _written_codes(path: Path) -> list[str]:
    return re.findall(r'^    code = "(\w+)"$', path.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_reference_names_every_public_name() -> None:
    page = "".join(map(read, (name for name in SITE if name.startswith("docs/api/"))))
    shown = set(re.findall(r"^::: shellsession(?:\.\w+)*\.(\w+)$", page, re.MULTILINE))
    assert {name for name in shellsession.__all__ if name not in shown and f"`{name}`" not in page} == set()


def test_the_page_of_a_session_has_each_option_with_its_default() -> None:
    lines = [cells(line) for line in read("docs/session.md").splitlines() if line.startswith("| `")]
    shown = {name.strip("`"): default.strip("`") for name, default, _ in lines}
    declared = inspect.signature(shellsession.Session).parameters.values()
    assert shown == {one.name: repr(one.default).replace("'", '"') for one in declared}


def test_the_pages_name_every_verb() -> None:
    verbs = {name for name, _ in inspect.getmembers(shellsession.Session, inspect.isfunction) if name[0] != "_"}
    verbs -= set(dir(InnerHere))
    assert [verb for verb in verbs if f"`{verb}(" not in _REFERENCE] == []


def test_the_pages_name_every_option() -> None:
    options = [*RunOptions.__annotations__, *Options.__annotations__]
    internal = {"umask"}  # the daemon sets it
    assert [name for name in options if name not in internal and f"{name}=" not in _REFERENCE] == []


def test_the_pages_name_every_field_of_a_result() -> None:
    fields: list[Any] = [*shellsession.Result.__match_args__, *shellsession.Limits.__match_args__]
    assert [name for name in fields if f"`{name}`" not in _REFERENCE] == []


def test_the_page_of_the_command_line_names_every_verb() -> None:
    page = read("docs/daemon.md")
    assert [verb for verb in VERBS if f"`{verb}`" not in page and f"shellsession {verb}" not in page] == []


def test_the_pages_name_every_variable_that_is_added_or_taken() -> None:
    assert [name for name, value in AGENT_ENV.items() if f"`{name}={value}`" not in _REFERENCE] == []
    assert [name for name in _DROPPED if f"`{name}`" not in _REFERENCE] == []


@pytest.mark.parametrize("page", [page for page in ("README.md", *SITE) if "<!-- measured -->" in read(page)])
def test_quoted_figures_are_those_of_the_last_run(page: str) -> None:
    text, report = read(page), read("benchmarks/results.md")
    assert quoted(text, report) == text
    measured = re.findall(r"^<!-- measured -->$(.*?)^<!-- /measured -->$", text, re.DOTALL | re.MULTILINE)
    names = {cells(line)[0] for part in measured for line in part.splitlines() if line.startswith("| ")}
    assert names <= {cells(line)[0] for line in report.splitlines()}


def _named_files(page: str) -> set[str]:
    """The files that a page names as code: ``engine/wire.py``, ``tests/test_rooms.py``."""
    named = re.findall(r"`([\w/.-]+\.(?:py|bash|md|toml))(?:::\w+)?`", read(page))
    return {name for name in named if "NAME" not in name}  # which stands for a name of the reader's


@pytest.mark.parametrize("page", ["docs/design.md", "docs/promises.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_the_files_that_a_page_names_exist(page: str) -> None:
    assert {name for name in _named_files(page) if not any((root / name).exists() for root in _ROOTS)} == set()


@pytest.mark.parametrize("page", ["docs/design.md", "docs/promises.md", "SECURITY.md"])
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
