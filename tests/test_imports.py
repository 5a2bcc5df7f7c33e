"""Imports only point down: the table of who may know whom, held against the source; who needs little loads little."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from typing import Final

import pytest
import sources
from sources import PACKAGES, ROOMS, ROOT, imports

trees = sources.trees

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
    ("engine.marks", "policy.words"),
    ("policy.secrets", "policy.sandbox", "policy.seccomp", "daemon.records"),
    ("policy.grammar",),
    ("policy.programs",),
    ("policy.commands",),
    ("policy.rules",),
    ("engine.processes", "engine.vfork", "engine.environment", "engine.signals", "engine.pacing"),
    ("engine.activity", "engine.cgroups", "engine.directories", "engine.tags", "engine.streams"),
    ("engine.readers", "daemon.audit"),
    ("engine.family", "engine.guard", "engine.orphans", "engine.files", "engine.keyboard", "engine.control"),
    ("engine.launch",),
    ("engine.shell",),
    ("engine.spawn",),
    ("engine.waiting", "engine.draining", "engine.waiters", "engine.alarm"),
    ("engine.loop_waiting", "engine.spill", "engine.jobs"),
    ("engine.call",),
    ("engine.pump", "engine.tracing"),
    ("engine.unattended", "engine.ladder", "engine.held_output"),
    ("engine.core",),
    ("engine.results", "engine.handshake"),
    ("engine.teardown", "engine.typist"),
    ("engine.endings",),
    ("engine.attending", "engine.ordinary"),
    ("engine.steps",),
    ("engine.dialogue",),
    ("base", "async_output", "turns", "options"),
    ("async_session", "session", "registry"),
    ("agents",),
    ("daemon.inherited", "daemon.endpoint"),
    ("daemon.opening", "daemon.directory_lock"),
    ("daemon.requests", "daemon.transport", "daemon.incoming"),
    ("daemon.link", "daemon.listening_socket", "daemon.connection", "daemon.journal", "daemon.eager"),
    ("daemon.exchange",),
    ("daemon.remote",),
    ("daemon.client", "daemon.listener", "daemon.hold", "daemon.pieces"),
    ("daemon.audience", "daemon.outcomes"),
    ("daemon.shared", "daemon.nesting", "daemon.observing", "daemon.administration"),
    ("daemon.beside",),
    ("daemon.sessions",),
    ("daemon.async_client", "daemon.verbs", "daemon.control"),
    ("daemon.server",),
    ("daemon.acceptor",),
    ("daemon.service",),
    ("contracts.one_shot", "contracts.waiting"),
    ("contracts.surroundings", "contracts.asking", "contracts.failing", "contracts.programs"),
    ("contracts.located",),
    ("contracts.binding",),
    ("contracts.phoenix_background", "contracts.phoenix_git", "contracts.phoenix_lasting"),
    ("contracts.bashtool", "contracts.langchain", "contracts.phoenix", "contracts.spec", "contracts.strands"),
    ("integrations.extras", "integrations.telling", "integrations.threads"),
    ("integrations.turn",),
    ("integrations.toolbox",),
    ("integrations.anthropic", "integrations.mcp", "integrations.openai", "integrations.pydantic_ai"),
    ("integrations.langchain", "integrations.strands"),
    ("cli.listing", "cli.logs", "cli.terminal", "cli.hardening", "cli.words"),
    ("cli.prompt",),
    ("cli.arguments", "cli.passed"),
    ("cli.results",),
    ("cli.staying", "cli.plain"),
    ("cli.run", "cli.ls", "cli.send", "cli.wait", "cli.interrupt", "cli.jobs", "cli.restart", "cli.kill", "cli.log"),
    ("cli.status", "cli.serve", "cli.stop", "cli.agent", "cli.completion", "cli.mcp"),
    ("cli.attach",),
    ("cli.main",),
    ("__main__",),
)
# Of the daemon's modules; all others are the server's.
_PROTOCOL: Final = {"daemon.wire", "daemon.records", "daemon.endpoint", "daemon.directory_lock"}
_CLIENT: Final = {
    "daemon.inherited",
    "daemon.opening",
    "daemon.transport",
    "daemon.link",
    "daemon.exchange",
    "daemon.remote",
    "daemon.client",
    "daemon.async_client",
    "daemon.control",
}
_LEVEL: Final = {module: level for level, row in enumerate(_LAYERS) for module in row}


def test_every_module_has_its_row_in_the_table() -> None:
    assert set(ROOMS) == set(_LEVEL)


@pytest.mark.parametrize("module", sorted(_LEVEL))
def test_imports_point_down(module: str) -> None:
    found = [one for one in imports(module) if one.ours]
    wrong = [one for one in found if _LEVEL.get(one.name, 99) >= _LEVEL[module]]
    assert not wrong, f"{module} may only import from rows below its own"


def test_neither_side_of_the_daemon_knows_the_other() -> None:
    """What both may know is the protocol."""
    sides = {"protocol": _PROTOCOL, "client": _CLIENT, "server": _of_the_daemon() - _PROTOCOL - _CLIENT}
    allowed = {"protocol": _PROTOCOL, "client": _PROTOCOL | _CLIENT, "server": _of_the_daemon() - _CLIENT}
    for side, modules in sides.items():
        for module in modules:
            known = {one.name for one in imports(module, typing_too=True) if one.ours} & _of_the_daemon()
            assert known <= allowed[side], f"{module} is of the {side}"


def _of_the_daemon() -> set[str]:
    return {room for room in ROOMS if room.startswith("daemon.")}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda name: name or "shellsession")
def test_packages_load_nothing_of_ours_at_import(package: str) -> None:
    assert [one for one in imports(package) if one.ours] == []


@pytest.mark.parametrize("module", ["engine.waiting", "engine.loop_waiting"])
def test_waiting_knows_no_shell(module: str) -> None:
    assert {one.name for one in imports(module, typing_too=True) if one.ours} <= {"engine.waiting"}


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
    top = ROOT.parent
    if not (top / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no checkout, or no git")
    found = subprocess.run(["git", "ls-files"], cwd=top, capture_output=True, text=True, check=True).stdout.splitlines()
    names = "LICENSE Makefile README.md pyproject.toml shellsession tests benchmarks .ci .gitignore"
    assert {name.split("/")[0] for name in found} == set(names.split())
