"""The source of the package, and the imports of each of its modules."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import shellsession

ROOT: Final = Path(shellsession.__file__).parent
TREES: Final = dict[str, ast.Module]()  # of each module and package; see ``trees``
# Only types: to import them touches nothing.
_NO_IO: Final = {("os", "PathLike")}


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


_PATHS: Final = {_name(path): path for path in sorted(ROOT.rglob("*.py"))}
PACKAGES: Final = tuple(name for name, path in _PATHS.items() if path.name == "__init__.py")
MODULES: Final = sorted(_PATHS.keys() - set(PACKAGES))


class Import(NamedTuple):
    """One imported module. One of ours has its dotted name within the package; another one has its top-level name."""

    name: str
    ours: bool
    line: int


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """Parse the source for these tests only: so much memory would slow down each fork of other tests."""
    TREES.update((name, ast.parse(path.read_text(encoding="utf-8"), str(path))) for name, path in _PATHS.items())
    yield
    TREES.clear()
    imports.cache_clear()


@functools.cache
def imports(module: str, typing_too: bool = False) -> tuple[Import, ...]:
    """What a module imports when it runs, including imports inside functions."""
    return tuple(_imports(module, typing_too))


def _imports(module: str, typing_too: bool) -> Iterator[Import]:
    package = module if module in PACKAGES else module.rpartition(".")[0]
    for node in _running(TREES[module], typing_too):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first, _, rest = alias.name.partition(".")
                yield Import(rest or "" if first == "shellsession" else first, first == "shellsession", node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.level:
            parts = package.split(".") if package else []
            base = parts[: len(parts) - node.level + 1] + (node.module.split(".") if node.module else [])
            target = ".".join(base)
            if target in PACKAGES:  # `from . import pump` imports modules
                for alias in node.names:
                    yield Import(".".join([*base, alias.name]), True, node.lineno)
            else:
                yield Import(target, True, node.lineno)
        elif isinstance(node, ast.ImportFrom) and {(node.module, alias.name) for alias in node.names} <= _NO_IO:
            continue
        elif isinstance(node, ast.ImportFrom):
            first, _, rest = (node.module or "").partition(".")
            yield Import(rest if first == "shellsession" else first, first == "shellsession", node.lineno)


def _running(tree: ast.AST, typing_too: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and not typing_too and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from (part for statement in node.orelse for part in (statement, *_running(statement, typing_too)))
            continue
        yield node
        yield from _running(node, typing_too)
