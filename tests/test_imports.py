"""Imports only point down: the table of who may know whom, held against the source."""

from __future__ import annotations

import ast
import functools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import shellsession

_ROOT: Final = Path(shellsession.__file__).parent

# From the ground up; a module may import from the rows below its own and from no other.
_LAYERS: Final = (
    ("errors", "record"),
    ("models",),
    ("checks", "any_session", "any_job"),
    (
        "engine.output",
        "engine.framing",
        "engine.texts",
        "engine.spare",
        "daemon.wire",
        "daemon.ledger",
        "contracts.contract",
    ),
    ("policy.heredocs", "policy.keywords", "policy.nameless"),
    ("policy.lexer",),
    ("policy.words", "policy.secrets", "policy.sandbox", "daemon.records"),
    ("policy.feeds", "policy.lines"),
    ("policy.grammar", "policy.subcommands", "policy.findings"),
    ("policy.starter",),
    ("policy.elsewhere", "policy.git"),
    ("policy.starters",),
    ("policy.started", "policy.special", "policy.variables"),
    ("policy.commands",),
    ("policy.rules",),
    ("engine.processes", "engine.directories", "engine.vfork", "engine.environment", "engine.signals", "engine.pacing"),
    ("engine.activity", "engine.cgroups", "engine.tags", "engine.streams", "daemon.audit"),
    ("engine.readers",),
    ("engine.family", "engine.guard", "engine.files", "engine.keyboard"),
    ("engine.launch",),
    ("engine.shell",),
    ("engine.spawn",),
    ("engine.waiting", "engine.draining", "engine.waiters", "engine.alarm"),
    ("engine.loop_waiting", "engine.spill", "engine.jobs"),
    ("engine.call",),
    ("engine.pump", "engine.tracing"),
    ("engine.unattended", "engine.ladder"),
    ("engine.core",),
    ("engine.results", "engine.handshake"),
    ("engine.teardown", "engine.typist"),
    ("engine.endings",),
    ("engine.attending",),
    ("engine.steps",),
    ("engine.dialogue",),
    ("base", "async_output", "turns", "options"),
    ("async_session", "session", "registry"),
    ("agents",),
    ("daemon.opening", "daemon.endpoint"),
    ("daemon.requests", "daemon.link", "daemon.jobs", "daemon.incoming", "daemon.search"),
    (
        "daemon.autostart",
        "daemon.listening_socket",
        "daemon.remote",
        "daemon.exchange",
        "daemon.connection",
        "daemon.journal",
        "daemon.eager",
    ),
    ("daemon.giving_up",),
    ("daemon.client", "daemon.listener", "daemon.hold", "daemon.pieces"),
    ("daemon.audience", "daemon.outcomes"),
    ("daemon.shared", "daemon.nesting", "daemon.observing", "daemon.administration"),
    ("daemon.beside",),
    ("daemon.async_client", "daemon.verbs", "daemon.control", "daemon.sessions"),
    ("daemon.server",),
    ("daemon.acceptor",),
    ("daemon.service",),
    ("contracts.one_shot", "contracts.waiting"),
    ("contracts.surroundings", "contracts.asking", "contracts.failing"),
    ("contracts.located",),
    ("contracts.binding",),
    ("contracts.phoenix_background", "contracts.phoenix_git", "contracts.phoenix_lasting"),
    ("contracts.bashtool", "contracts.langchain", "contracts.phoenix", "contracts.spec", "contracts.strands"),
    ("integrations.extras", "integrations.telling", "integrations.threads"),
    ("integrations.turn",),
    ("integrations.toolbox",),
    ("integrations.anthropic", "integrations.mcp", "integrations.openai", "integrations.pydantic_ai"),
    ("integrations.langchain", "integrations.strands"),
    ("cli.listing", "cli.logs", "cli.editing"),
    ("cli.screen", "cli.history"),
    ("cli.terminal",),
    ("cli.arguments",),
    ("cli.results",),
    ("cli.passed",),
    ("cli.staying",),
    ("cli.run", "cli.ls", "cli.send", "cli.wait", "cli.interrupt", "cli.jobs", "cli.restart", "cli.kill", "cli.log"),
    ("cli.status", "cli.serve", "cli.stop", "cli.agent", "cli.completion", "cli.mcp"),
    ("cli.spectator", "cli.completeness"),
    ("cli.keys",),
    ("cli.attached",),
    ("cli.attach",),
    ("cli.main",),
    ("__main__",),
)
_LEVEL: Final = {module: level for level, row in enumerate(_LAYERS) for module in row}
_PACKAGES: Final = ("", "engine", "daemon", "contracts", "integrations", "policy", "cli")

_CONTRACTS: Final = {
    "contracts.bashtool",
    "contracts.contract",
    "contracts.failing",
    "contracts.langchain",
    "contracts.one_shot",
    "contracts.phoenix",
    "contracts.phoenix_background",
    "contracts.phoenix_git",
    "contracts.phoenix_lasting",
    "contracts.spec",
    "contracts.strands",
}
_INTEGRATIONS: Final = {
    "integrations.mcp",
    "integrations.threads",
    "integrations.toolbox",
    "integrations.turn",
    "cli.agent",
}
_POLICY: Final = {
    "policy.heredocs",
    "policy.keywords",
    "policy.nameless",
    "policy.lexer",
    "policy.lines",
    "policy.words",
    "policy.secrets",
    "policy.sandbox",
    "policy.feeds",
    "policy.grammar",
    "policy.findings",
    "policy.git",
    "policy.special",
    "policy.started",
    "policy.elsewhere",
    "policy.starter",
    "policy.starters",
    "policy.subcommands",
    "policy.variables",
    "policy.commands",
    "policy.rules",
}
_PURE_ROOMS: Final = _CONTRACTS | _POLICY
# Types alone: who names them touches nothing.
_NO_IO: Final = {("os", "PathLike")}
_IO: Final = {"os", "time", "socket", "select", "selectors", "asyncio", "threading", "subprocess"}
# The daemon's own side, and its asyncio client: they live in a loop.
_DAEMON: Final = {
    "daemon.async_client",
    "daemon.audience",
    "daemon.connection",
    "daemon.shared",
    "daemon.eager",
    "daemon.hold",
    "daemon.journal",
    "daemon.listener",
    "daemon.observing",
    "daemon.verbs",
    "daemon.server",
    "daemon.acceptor",
    "daemon.service",
}
_LOOPS: Final = {"engine.loop_waiting", "engine.draining", "engine.waiters", "engine.alarm"}
# Who alone may import what, wherever in the file the import stands.
_RESERVED: Final = {
    "ptyprocess": {"engine.shell", "engine.spawn"},
    "pexpect": {"engine.dialogue"},
    "termios": {"engine.keyboard", "engine.spawn", "engine.streams", "cli.terminal"},
    "tty": {"engine.streams"},
    "pty": set[str](),
    "ctypes": {"engine.vfork", "engine.tracing"},
    "asyncio": {
        *_LOOPS,
        "agents",
        "async_output",
        "async_session",
        "contracts.asking",
        "contracts.waiting",
        *_DAEMON,
        *_INTEGRATIONS,
    },
    "subprocess": {"engine.guard", "daemon.autostart", "cli.completeness"},
    "selectors": set[str](),
    "pydantic": {"daemon.requests", "integrations.anthropic", "integrations.toolbox", *_CONTRACTS},
    "tree_sitter": {"policy.grammar"},
    "tree_sitter_bash": {"policy.grammar"},
}
# Who alone may wait: for steps, for a grant, for what jobs say while nobody calls, for somebody's yes or no, for a
# descriptor that another thread has for a moment, for another client's command, for what is on its way to the daemon.
_WAITING: Final = {
    "contracts.asking",
    "contracts.waiting",
    "engine.waiting",
    "engine.loop_waiting",
    "engine.waiters",
    "engine.draining",
    "engine.spare",
    "engine.alarm",
    "daemon.server",
    "daemon.giving_up",
    "daemon.shared",
    "daemon.hold",
    "daemon.listener",
    "daemon.acceptor",
    "daemon.service",
    "integrations.turn",
}


class Import(NamedTuple):
    """One imported module: one of ours by its dotted place in the package, or a foreign one by its first name."""

    name: str
    ours: bool
    line: int


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(_ROOT.rglob("*.py")):
        place = path.relative_to(_ROOT).with_suffix("")
        name = ".".join(place.parts).removesuffix("__init__").removesuffix(".")
        yield name, ast.parse(path.read_text(encoding="utf-8"), str(path))


_TREES: Final = dict[str, ast.Module]()


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """For these tests only: each fork of the others would take longer beside so much."""
    _TREES.update(modules())
    yield
    _TREES.clear()
    imports.cache_clear()


@functools.cache
def imports(module: str, typing_too: bool = False) -> tuple[Import, ...]:
    """What a module imports when it runs, inside functions too."""
    return tuple(_imports(module, typing_too))


def _imports(module: str, typing_too: bool) -> Iterator[Import]:
    package = module if module in _PACKAGES else module.rpartition(".")[0]
    for node in _running(_TREES[module], typing_too):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first, _, rest = alias.name.partition(".")
                yield Import(rest or "" if first == "shellsession" else first, first == "shellsession", node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.level:
            parts = package.split(".") if package else []
            base = parts[: len(parts) - node.level + 1] + (node.module.split(".") if node.module else [])
            target = ".".join(base)
            if target in _PACKAGES:  # `from . import pump` names modules
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
            continue
        yield node
        yield from _running(node, typing_too)


def test_every_module_has_its_row_in_the_table() -> None:
    assert set(_TREES) - set(_PACKAGES) == set(_LEVEL)


@pytest.mark.parametrize("module", sorted(_LEVEL))
def test_imports_point_down(module: str) -> None:
    found = [one for one in imports(module) if one.ours]
    wrong = [one for one in found if _LEVEL.get(one.name, 99) >= _LEVEL[module]]
    assert not wrong, f"{module} may only import from rows below its own"


@pytest.mark.parametrize("package", _PACKAGES, ids=lambda name: name or "shellsession")
def test_packages_load_nothing_of_ours_at_import(package: str) -> None:
    assert [one for one in imports(package) if one.ours] == []


@pytest.mark.parametrize(
    "module",
    [
        "errors",
        "models",
        "engine.output",
        "engine.framing",
        "engine.texts",
        "daemon.wire",
        "daemon.records",
        "daemon.ledger",
        "daemon.pieces",
        "daemon.outcomes",
        *sorted(_CONTRACTS | _POLICY),
    ],
)
def test_pure_modules_touch_no_system(module: str) -> None:
    assert {one.name for one in imports(module)} & _IO == set()


@pytest.mark.parametrize("module", ["engine.waiting", "engine.loop_waiting"])
def test_waiting_knows_no_shell(module: str) -> None:
    assert {one.name for one in imports(module, typing_too=True) if one.ours} <= {"engine.waiting"}


@pytest.mark.parametrize("library", sorted(_RESERVED))
def test_what_is_reserved_stays_in_its_room(library: str) -> None:
    users = {module for module in _TREES for one in imports(module) if not one.ours and one.name == library}
    assert users <= _RESERVED[library]


@pytest.mark.parametrize("module", sorted(set(_LEVEL) - _WAITING))
def test_only_waiting_waits(module: str) -> None:
    polls = "select" in {one.name for one in imports(module)}  # elsewhere `poll` is our own verb
    for node in ast.walk(_TREES[module]):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        called = ast.unparse(node.func)
        where = f"{module}:{node.lineno}: {called}"
        assert called not in {"time.sleep", "asyncio.sleep", "asyncio.wait", "select.select", "signal.pause"}, where
        assert called not in {"select.epoll", "threading.Thread", "threading.Event"}, where
        if polls and node.func.attr == "poll" and called != "select.poll":
            assert [ast.unparse(argument) for argument in node.args] == ["0"], f"{where} is more than a look"


def test_two_rooms_alone_read_proc() -> None:
    readers = {
        module
        for module, tree in _TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"open", "os.listdir", "os.readlink", "os.stat"}
        and any("/proc" in ast.unparse(argument) for argument in node.args)
    }
    assert readers <= {"engine.processes", "engine.activity"}


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
    "module", ["asyncio", "pydantic", "shellsession.engine.shell", "pexpect", "subprocess", "dataclasses", "inspect"]
)
def test_a_client_is_cheap_to_import(module: str) -> None:
    assert "shellsession.daemon.client" in loaded_with("connect")
    assert module not in loaded_with("connect")


def test_the_bare_import_loads_none_of_our_modules() -> None:
    program = "import shellsession, sys; sys.exit(repr([m for m in sys.modules if m.startswith('shellsession.')]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def test_nothing_has_crept_into_the_top_level() -> None:
    """A core dump once had: what is there is few, and each has its reason."""
    top = _ROOT.parent
    if not (top / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no checkout, or no git")
    found = subprocess.run(["git", "ls-files"], cwd=top, capture_output=True, text=True, check=True).stdout.splitlines()
    names = "LICENSE Makefile README.md pyproject.toml shellsession tests benchmarks .ci .gitignore"
    assert {name.split("/")[0] for name in found} == set(names.split())
