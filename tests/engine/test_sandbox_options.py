"""The values that a Sandbox accepts, its command line, and the control groups of version 2."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, ValidationError

from shellsession import InvalidRequest, Sandbox, Session
from shellsession.engine.bash import cgroups
from shellsession.sandbox import Facts, command_line

BAD: list[dict[str, Any]] = [
    {"write": "/tmp"},
    {"write": Path("/tmp")},
    {"write": 5},
    {"write": None},
    {"hide": [""]},
    {"hide": [b"/bytes"]},
    {"hide": ["/nul\0"]},
    {"hide": ["/lone\ud800"]},
    {"hide": [None]},
    {"network": 1},
    {"memory": "much"},
    {"memory": "512MM"},
    {"memory": ""},
    {"memory": "-1M"},
    {"memory": "1K"},
    {"memory": 10.5},
    {"memory": True},
    {"memory": 10**40},
    {"memory": "9" * 5000},
    {"memory": "٣G"},
    {"processes": 1},
    {"processes": "9"},
    {"processes": 2.0},
    {"processes": True},
    {"processes": 10**40},
    {"pass_env": "API_KEY"},
    {"pass_env": ["API_KEY=secret"]},
    {"pass_env": [""]},
    {"missing_ok": "yes"},
    {"cpu": 0},
    {"cpu": -1},
    {"cpu": float("nan")},
    {"cpu": float("inf")},
    {"cpu": "1"},
    {"cpu": True},
]


@pytest.mark.parametrize("options", BAD, ids=lambda options: repr(options)[:40])
def test_invalid_values_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=f"sandbox.{next(iter(options))}"):
        Sandbox(**options)


_ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.text())


@given(
    st.dictionaries(
        st.sampled_from(["write", "hide", "network", "memory", "processes", "cpu", "pass_env", "missing_ok"]), _ANYTHING
    )
)
def test_nothing_else_than_the_documented_error(options: dict[str, Any]) -> None:
    try:
        sandbox = Sandbox(**options)
    except InvalidRequest:
        return
    assert Sandbox(**options) == sandbox
    assert hash(sandbox) == hash(Sandbox(**options))


@pytest.mark.parametrize(
    ("given", "expected"),
    [("512M", 512 << 20), ("512 MiB", 512 << 20), ("2GB", 2 << 30), (1 << 30, 1 << 30), ("33554432", 32 << 20)],
)
def test_sizes(given: Any, expected: int) -> None:
    assert Sandbox(memory=given).memory_bytes == expected


class Settings(BaseModel):
    sandbox: Sandbox


def test_a_model_may_hold_one() -> None:
    given = {"write": ["/a", Path("/b")], "memory": "512M"}
    assert Settings(sandbox=Sandbox(write=["/a"])).sandbox == Sandbox(write=["/a"])
    assert Settings.model_validate({"sandbox": given}).sandbox == Sandbox(write=["/a", "/b"], memory="512M")
    with pytest.raises(ValidationError, match=r"sandbox\.write: '' is not the path"):
        Settings.model_validate({"sandbox": {"write": [""]}})


def test_a_relative_path_starts_at_the_present_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sandbox = Sandbox(write=["."], hide=["x"])
    monkeypatch.chdir("/")
    assert sandbox.paths == ((str(tmp_path),), (f"{tmp_path}/x",))


@pytest.mark.parametrize("sandbox", [True, {}, "yes", Sandbox])
def test_a_session_takes_nothing_else_for_one(sandbox: Any) -> None:
    with pytest.raises(InvalidRequest, match="sandbox must be a Sandbox"):
        Session(sandbox=sandbox)


def line(sandbox: Sandbox, **facts: Any) -> str:
    usual = Facts(
        False, "unshare", "bwrap", "/home/me", "/run/user/1/home", "/run/user/1/home/seat", "/run/user/1/home/seat/no"
    )
    known = {name: getattr(usual, name) for name in usual.__slots__} | facts
    return " ".join(command_line(sandbox, Facts(**known), ["bash"], 3))


LINES: dict[str, tuple[Sandbox, dict[str, Any], list[str], list[str]]] = {
    "nothing asked for": (
        Sandbox(),
        {},
        [
            "--ro-bind / / --dev /dev",
            "--tmpfs /tmp",
            "--unshare-net",
            "--cap-drop ALL --seccomp 3",
            "--chdir /home/me -- bash",
        ],
        ["--bind", "--size", "--disable-userns"],
    ),
    "root": (Sandbox(), {"root": True}, ["--disable-userns", "--remount-ro /proc"], []),
    "network, and what resolves names": (
        Sandbox(network=True),
        {"resolver": ("/run/resolve/conf",)},
        ["--tmpfs /run --ro-bind /run/resolve/conf /run/resolve/conf"],
        ["--unshare-net"],
    ),
    "no network, nothing to resolve": (Sandbox(), {"resolver": ("/run/resolve/conf",)}, [], ["/run/resolve/conf"]),
    "the host's own /tmp": (Sandbox(), {"write": ("/tmp",)}, ["--bind /tmp /tmp"], ["--tmpfs /tmp"]),
    "everything": (Sandbox(), {"write": ("/",)}, ["--bind / / --dev /dev", "--tmpfs /run"], ["--tmpfs /tmp"]),
    "outside in": (
        Sandbox(),
        {"write": ("/a/b/c", "/a-b"), "hide": (("/a/b", True), ("/a", True), ("/a/b/c/key", False))},
        ["--tmpfs /a --bind /a/b/c /a/b/c --ro-bind /run/user/1/home/seat/no /a/b/c/key"],
        ["--tmpfs /a/b "],
    ),
    "hidden where nothing is": (Sandbox(), {"hide": (("/run/some/socket", False), ("/tmp/x", True))}, [], ["/tmp/x"]),
    "our own files stay hidden": (
        Sandbox(),
        {"write": ("/run",)},
        [
            "--bind /run /run --bind /run/user /run/user --bind /run/user/1 /run/user/1"
            " --perms 0555 --tmpfs /run/user/1/home --ro-bind /run/user/1/home/seat"
        ],
        ["--tmpfs /run "],
    ),
    "a bound on what /tmp takes of the memory": (
        Sandbox(memory="64M"),
        {},
        ["--size 33554432 --perms 1777 --tmpfs /tmp", "--size 16777216 --perms 1777 --tmpfs /dev/shm"],
        [],
    ),
}


@pytest.mark.parametrize(("sandbox", "facts", "there", "absent"), LINES.values(), ids=LINES)
def test_command_lines(sandbox: Sandbox, facts: dict[str, Any], there: list[str], absent: list[str]) -> None:
    said = line(sandbox, **facts)
    assert [part for part in there if part not in said] == []
    assert [part for part in absent if part in said] == []


# -- control groups of version 2, as the kernel's documentation has them: this tree only imitates one


class Tree:
    """A delegated branch: ``scope`` has our process, ``slice`` above it lends memory and pids to its children."""

    def __init__(self, root: Path, lent: str) -> None:
        self._mkdir = os.mkdir
        self.slice = root / "slice"
        self.scope = self.slice / "scope"
        self.scope.mkdir(parents=True)
        for directory, controllers in ((root, ""), (self.slice, lent), (self.scope, "")):
            (directory / "cgroup.procs").write_text("")
            (directory / "cgroup.subtree_control").write_text(controllers)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        """As the kernel does: a new group has its files."""
        self._mkdir(path, mode)
        lent = (Path(path).parent / "cgroup.subtree_control").read_text().split()
        files = {"memory": ["memory.max", "memory.swap.max"], "pids": ["pids.max"], "cpu": ["cpu.max"]}
        for name in ["cgroup.procs", *(name for one in lent for name in files[one])]:
            (Path(path) / name).write_text("")


@pytest.mark.parametrize(
    ("lent", "held"),
    [("memory pids cpu", {"memory", "pids", "cpu"}), ("memory pids", {"memory", "pids"}), ("", set())],
    ids=["three", "two", "none"],
)
def test_groups_of_version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lent: str, held: set[str]) -> None:
    tree = Tree(tmp_path, lent)
    monkeypatch.setattr(cgroups, "own_groups", lambda: [cgroups.Group(str(tree.scope), str(tmp_path), frozenset())])
    monkeypatch.setattr(os, "mkdir", tree.mkdir)
    groups = cgroups.make("box", cgroups.limits(1 << 29, 258, 0.5))
    assert groups.enforced == held
    assert groups.directories == ((str(tree.slice / "box"),) if held else ())
    said = {path.name: path.read_text() for path in (tree.slice / "box").glob("*.*max")}
    expected = {"memory.max": "536870912", "memory.swap.max": "0", "pids.max": "258", "cpu.max": "50000 100000"}
    assert said == {name: value for name, value in expected.items() if name.split(".")[0] in held}


def test_no_group_where_we_may_not_move_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path, "memory pids")
    (tree.slice / "cgroup.procs").unlink()
    monkeypatch.setattr(cgroups, "own_groups", lambda: [cgroups.Group(str(tree.scope), str(tmp_path), frozenset())])
    assert cgroups.make("box", {"pids": 9}) == ((), frozenset())
    assert not (tree.slice / "box").exists()


def test_the_groups_we_are_in_are_found() -> None:
    ours = cgroups.own_groups()
    if not ours:
        pytest.skip("no control groups are mounted here")
    found = 0
    for group in ours:
        members = Path(group.directory, "cgroup.procs")
        found += members.exists() and str(os.getpid()) in members.read_text().split()
    assert found == len(ours)
