"""What only some rooms may do: use the system or a library, wait, or read /proc."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Final

import pytest
import sources
from sources import MODULES, TREES, imports

trees = sources.trees

# They compute, and touch no system: modules, or rooms with all that lies in them.
_PURE: Final = (
    *(
        "errors",
        "text",
        "patterns",
        "feed",
        "notices",
        "redact",
        "models",
        "watching",
        "sandbox",
        "policy",
        "state.values",
        "state.dump",
        "state.writing",
        "engine.wire",
        "daemon.protocol.wire",
        "daemon.protocol.frames",
        "daemon.protocol.messages",
    ),
    *("engine.verbs.delivery", "engine.verbs.known", "daemon.server.ledger", "daemon.server.deliveries"),
    *("workflow.expression", "workflow.model", "workflow.report", "workflow.transcript"),
    *("contracts.contract", "contracts.one_shot", "contracts.spec", "contracts.langchain", "contracts.phoenix_git"),
)
_IO: Final = {"os", "time", "socket", "_socket", "_thread", "select", "selectors", "asyncio", "threading", "subprocess"}
# Who alone may import what, wherever in the file the import stands.
_RESERVED: Final = {
    "ptyprocess": {"engine.bash.shell", "engine.bash.spawn"},
    "pexpect": {"engine.io.dialogue", "integrations.swe_rex"},
    "termios": {"cli.terminal", "engine.bash.spawn", "engine.io.streams"},
    "tty": {"engine.io.streams"},
    "pty": set[str](),
    "ctypes": {"branch.trees", "engine.kernel.rooted", "engine.kernel.vfork", "engine.verbs.interrupt"},
    "asyncio": {
        "agents",
        "async_session",
        "cli.agent",
        "cluster",
        "contracts.cancel",
        "daemon.client.async_session",
        "daemon.server",
        "engine.io.loop",
        "integrations",
        "workflow.drivers",
    },
    # Of the daemon's clients only the transport knows what carries the bytes.
    "socket": {
        "branch.mounts",
        "daemon.server.service",
        "engine.bash.shell",
        "engine.bash.spawn",
        "engine.io.control_socket",
        "engine.kernel.vfork",
    },
    "subprocess": {
        "branch.mounts",
        "cli.doctor",
        "cli.prompt",
        "cli.workflow",
        "daemon.client.transport",
        "daemon.client.via",
        "engine.bash.watcher",
        "integrations.search",
    },
    "prompt_toolkit": {"cli.prompt"},
    "ray": {"cluster"},
    "selectors": set[str](),
    "pydantic": {
        "contracts",
        "daemon.server.requests",
        "integrations.anthropic",
        "integrations.mcp",
        "integrations.toolbox",
        "workflow",
    },
    "sqlite3": {"store"},
    "tree_sitter": {"policy.grammar"},
    "tree_sitter_bash": {"policy.grammar"},
    "yaml": {"workflow.loading"},
    "markdown_it": {"workflow.markdown"},
    "rich": {"cli.progress", "cli.top"},
}
# Who alone may wait: for steps, for a grant, for what jobs say while nobody calls, for somebody's yes or no, for a
# descriptor that another thread has for a moment, for another client's command, for what is on its way to the daemon,
# for a pipe that carries many connections, for the disk.
_WAITING: Final = {
    "cluster",
    "contracts.cancel",
    "daemon.client.exchange",
    "daemon.client.pipe",
    "daemon.protocol.mux",
    "daemon.server",
    "engine.io.drainer",
    "engine.io.jobs",
    "engine.io.loop",
    "engine.io.threads",
    "engine.io.waiter",
    "engine.kernel.proc",
    "integrations.binding",
    "integrations.threads",
    "integrations.toolbox",
    "store",
    "workflow.drivers",
}


def _is_of(module: str, rooms: Collection[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


@pytest.mark.parametrize("module", [module for module in MODULES if _is_of(module, _PURE)])
def test_pure_modules_touch_no_system(module: str) -> None:
    assert {one.name for one in imports(module)} & _IO == set()


@pytest.mark.parametrize("library", sorted(_RESERVED))
def test_what_is_reserved_stays_in_its_room(library: str) -> None:
    users = {module for module in TREES for one in imports(module) if not one.ours and one.name == library}
    assert {module for module in users if not _is_of(module, _RESERVED[library])} == set()


def test_only_waiting_waits() -> None:
    for module in MODULES:
        if not _is_of(module, _WAITING):
            no_wait_in(module)


def no_wait_in(module: str) -> None:
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
        and ast.unparse(node.func) in {"open", "os.open", "os.listdir", "os.readlink", "os.stat"}
        and any("/proc" in ast.unparse(argument) for argument in node.args)
    }
    assert readers <= {"engine.kernel.proc", "engine.kernel.activity"}
