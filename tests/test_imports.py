"""Imports only point down: the table of allowed imports, checked against the source, and what each module loads."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from typing import Final

import pytest
import sources
from sources import MODULES, PACKAGES, ROOT, imports

trees = sources.trees

# The whole law: a module may import from its own room and from the rooms left of its own. Two rooms that stand side by
# side do not know each other. For a type checker alone it holds as well.
_LAW: Final = """
errors, text < patterns, search, extras, feed < paging, redact < models < files, notices, watching
< sandbox, signatures, policy, keys < state < observe, options
< engine.wire, engine.kernel < engine.io < branch < engine.bash < engine.verbs < inner < base, store
< session, async_session < agents
< daemon.protocol < daemon.client, daemon.server < contracts, cluster, workflow < integrations < cli < __main__
"""
_LEVEL: Final = {room.strip(): level for level, row in enumerate(_LAW.split("<")) for room in row.split(",")}


def _room(module: str) -> str:
    """The room of a module: it is one by itself, or lies in one."""
    while module not in _LEVEL:
        module = module.rpartition(".")[0]
        assert module, "this module lies in no room"
    return module


def _known(module: str) -> set[str]:
    """The modules of ours that it imports, also for a type checker alone. (A bare package is none.)"""
    return {one.name for one in imports(module, typing_too=True) if one.ours and one.name}


def test_imports_point_down() -> None:
    """A module may only import from its own room and from those below."""
    arrows = [(module, name) for module in MODULES for name in _known(module) if _room(name) != _room(module)]
    assert [arrow for arrow in arrows if _LEVEL[_room(arrow[1])] >= _LEVEL[_room(arrow[0])]] == []


def test_there_is_no_circle() -> None:
    left = {module: _known(module) for module in MODULES}
    while leaves := [module for module, known in left.items() if not known & left.keys()]:
        for module in leaves:
            del left[module]
    assert left == {}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda name: name or "shellsession")
def test_packages_load_nothing_of_ours_at_import(package: str) -> None:
    assert [one for one in imports(package) if one.ours] == []


@functools.cache
def loaded_with(name: str) -> frozenset[str]:
    """What a fresh interpreter has loaded when it has that name of ours; asked of once for all who ask."""
    program = f"import shellsession, sys; shellsession.{name}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return frozenset(done.stdout.split())


@pytest.mark.parametrize("library", ["asyncio", "pydantic", "unittest", "langchain"])
def test_a_sync_session_is_cheap_to_import(library: str) -> None:
    assert "shellsession.session" in loaded_with("Session")
    assert library not in loaded_with("Session")


@pytest.mark.parametrize(
    "module",
    ["asyncio", "pydantic", "shellsession.engine.bash.shell", "pexpect", "subprocess", "dataclasses", "inspect"],
)
def test_a_client_is_cheap_to_import(module: str) -> None:
    assert "shellsession.daemon.client.session" in loaded_with("connect")
    assert module not in loaded_with("connect")


def test_the_bare_import_loads_none_of_our_modules() -> None:
    program = "import shellsession, sys; sys.exit(repr([m for m in sys.modules if m.startswith('shellsession.')]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def test_nothing_has_crept_into_the_top_level() -> None:
    """A core dump once had: what is there is few, and each has its reason."""
    top = ROOT.parent
    if not (top / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no checkout, or no git")
    found = subprocess.run(["git", "ls-files"], cwd=top, capture_output=True, text=True, check=True).stdout.splitlines()
    names = "LICENSE Makefile README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md mkdocs.yml pyproject.toml MANIFEST.in"
    names += " shellsession tests benchmarks docs examples .ci .gitignore"
    assert {name.split("/")[0] for name in found} == set(names.split())
