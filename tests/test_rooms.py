"""What each room alone may do: touch the system at all, use a library, wait, read /proc."""

from __future__ import annotations

import ast
from typing import Final

import pytest
import sources
from sources import ROOMS, TREES, imports

trees = sources.trees

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
    "policy.words",
    "policy.grammar",
    "policy.programs",
    "policy.commands",
    "policy.rules",
    "policy.secrets",
    "policy.sandbox",
    "policy.seccomp",
}
_IO: Final = {"os", "time", "socket", "_socket", "_thread", "select", "selectors", "asyncio", "threading", "subprocess"}
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
    # Of the daemon's clients only the transport knows what carries the bytes.
    "socket": {
        "daemon.acceptor",
        "daemon.endpoint",
        "daemon.listening_socket",
        "daemon.transport",
        "engine.control",
        "engine.shell",
        "engine.spawn",
    },
    "subprocess": {"engine.guard", "daemon.transport", "cli.prompt"},
    "prompt_toolkit": {"cli.prompt"},
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
    "daemon.exchange",
    "daemon.shared",
    "daemon.hold",
    "daemon.listener",
    "daemon.acceptor",
    "daemon.service",
    "integrations.turn",
}


@pytest.mark.parametrize(
    "module",
    [
        "errors",
        "models",
        "engine.output",
        "engine.framing",
        "engine.marks",
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


@pytest.mark.parametrize("library", sorted(_RESERVED))
def test_what_is_reserved_stays_in_its_room(library: str) -> None:
    users = {module for module in TREES for one in imports(module) if not one.ours and one.name == library}
    assert users <= _RESERVED[library]


@pytest.mark.parametrize("module", sorted(set(ROOMS) - _WAITING))
def test_only_waiting_waits(module: str) -> None:
    polls = "select" in {one.name for one in imports(module)}  # elsewhere `poll` is our own verb
    for node in ast.walk(TREES[module]):
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
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"open", "os.listdir", "os.readlink", "os.stat"}
        and any("/proc" in ast.unparse(argument) for argument in node.args)
    }
    assert readers <= {"engine.processes", "engine.activity"}
