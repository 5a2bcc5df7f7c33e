"""A real overlay mount: file operations in layers above a base, and the tree that it then shows."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import Phase, settings, strategies as st
from system import SOAK

from shellsession.branch.apply import moment

# It runs alone, in the namespace, perhaps as another user: no import of ours, and nothing but its arguments.
_PROGRAM: Final = r"""
import ctypes, json, os, shutil, stat, sys

libc = ctypes.CDLL(None, use_errno=True)

def tree(top):
    found = {}
    for directory, names, files in os.walk(top):
        for name in names + files:
            path = os.path.join(directory, name)
            about = os.lstat(path)
            kind = stat.S_IFMT(about.st_mode)
            entry = {"type": kind, "mode": stat.S_IMODE(about.st_mode), "data": "", "inode": 0, "attributes": {}}
            if kind == stat.S_IFREG:
                with open(path, "rb") as file:
                    entry["data"] = file.read().hex()
                entry["inode"] = about.st_ino if about.st_nlink > 1 else 0
            if kind == stat.S_IFLNK:
                entry["data"] = os.readlink(path)
            else:
                names_of = [one for one in os.listxattr(path) if one.startswith("user.")]
                entry["attributes"] = {one: os.getxattr(path, one).hex() for one in names_of}
            found[os.path.relpath(path, top)] = entry
    return found

def act(top, verb, path, *more):
    path = os.path.join(top, path)
    if verb == "write":
        with open(path, "wb") as file:
            file.write(bytes.fromhex(more[0]))
    elif verb == "append":
        with open(path, "ab") as file:
            file.write(bytes.fromhex(more[0]))
    elif verb == "mkdir":
        os.mkdir(path)
    elif verb == "remove":
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    elif verb == "rename":
        os.rename(path, os.path.join(top, more[0]))
    elif verb == "link":
        os.link(path, os.path.join(top, more[0]), follow_symlinks=False)
    elif verb == "symlink":
        os.symlink(more[0], path)
    elif verb == "chmod":
        os.chmod(path, more[0] | (0o700 if os.path.isdir(path) else 0))
    elif verb == "attribute":
        os.setxattr(path, "user.note", bytes.fromhex(more[0]))
    elif verb == "fifo":
        os.mkfifo(path)
    elif verb == "touch":
        os.utime(path, follow_symlinks=False)
    elif verb == "many":
        for number in range(more[0]):
            with open(os.path.join(path, f"n{number}"), "w") as file:
                file.write(str(number))

def play(top, actions):
    for action in actions:
        path = os.path.join(top, action[1])
        special = os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode) and not os.path.isdir(path)
        if action[0] in ("chmod", "append", "write", "attribute") and (special or os.path.islink(path)):
            continue  # it would change what a link names, or wait for a FIFO
        try:
            act(top, *action)
        except OSError:
            pass

def mount(base, lowers, upper, work, at):
    options = "userxattr,lowerdir=" + ":".join([*lowers[::-1], base])
    if upper:
        options += f",upperdir={upper},workdir={work}"
    if libc.mount(b"o", at.encode(), b"overlay", 0, options.encode()) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), options)

def main(job):
    layers, views = job["layers"], []
    os.makedirs(job["at"], exist_ok=True)
    lowers = list(layers[: job["done"]])
    for upper, actions in zip(layers[job["done"]:], job["actions"]):
        os.makedirs(upper); os.makedirs(upper + ".work")
        mount(job["base"], lowers, upper, upper + ".work", job["at"])
        play(job["at"], actions)
        views.append(tree(job["at"]))
        libc.umount2(job["at"].encode(), 0)
        lowers.append(upper)
    if not job["actions"]:
        mount(job["base"], lowers, "", "", job["at"])
        views.append(tree(job["at"]))
    return views

json.dump(main(json.load(sys.stdin)), sys.stdout)
"""
_NAMES = st.sampled_from(["a", "b", "c d", 'q"\t\\', "\udcff\u00e9"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)
_DATA = st.sampled_from([b"", b"x", b"one\n", b"one\ntwo\n", b"1\n2\n3\n4\n5\n6\n7\n8\n9\nX", b"\0\xff" * 40]).map(
    bytes.hex
)
_ACTIONS = st.one_of(
    st.tuples(st.just("write"), _PATHS, _DATA),
    st.tuples(st.just("append"), _PATHS, _DATA),
    st.tuples(st.sampled_from(["mkdir", "mkdir", "remove", "fifo", "touch"]), _PATHS),
    st.tuples(st.sampled_from(["rename", "link"]), _PATHS, _PATHS),
    st.tuples(st.just("symlink"), _PATHS, st.sampled_from(["a", "../..", "/etc/passwd", "nowhere"])),
    st.tuples(st.just("chmod"), _PATHS, st.sampled_from([0o644, 0o755, 0o700, 0o4755])),
    st.tuples(st.just("attribute"), _PATHS, _DATA),
)
_FIRST = [("mkdir", "a"), ("mkdir", "a/b"), ("write", "a/b/c d", b"one\ntwo\n".hex()), ("write", "b", b"x".hex())]
BASES = st.lists(_ACTIONS.filter(lambda action: action[0] != "fifo"), max_size=12).map(_FIRST.__add__)
LAYERS = st.lists(st.lists(_ACTIONS, min_size=1, max_size=8), min_size=1, max_size=3)
machine = settings(
    max_examples=600 if SOAK else 10, phases=[Phase.generate], deadline=None, database=None, derandomize=not SOAK
)
View = dict[str, Any]


def _run(job: dict[str, Any]) -> list[View]:
    command = ["unshare", "-Urm", os.path.realpath(sys.executable), "-ISc", _PROGRAM]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr)
    views: list[View] = json.loads(done.stdout)
    return views


@functools.cache
def refused(place: Path) -> str:
    """Return why there can be no overlay below that directory; "" if there can."""
    (place / "base").mkdir(exist_ok=True)
    job = {"base": str(place / "base"), "layers": [str(place / "layer")], "done": 0, "at": str(place / "at")}
    try:
        _run({**job, "actions": [[]]})
    except OSError as error:
        return str(error).strip().rpartition("\n")[2]
    return ""


def need_overlays(place: Path) -> None:
    if why := refused(place):
        pytest.skip(f"no overlay in a user namespace: {why}")


class Overlay:
    """A base and the layers above it."""

    def __init__(self, place: Path, actions: list[Any] | None = None) -> None:
        self.base, self._place = str(place / "base"), place
        self.layers: list[str] = []
        self.home, self.opened = str(place / "home"), 0
        os.mkdir(self.base)
        os.mkdir(self.home)
        namespace: dict[str, Any] = {"__name__": "overlays"}
        exec(_PROGRAM.rpartition("\njson.dump")[0], namespace)
        self._play, self._tree = namespace["play"], namespace["tree"]
        self.play_base(*(actions or []))
        self.begin()

    def begin(self) -> None:
        """Take what is in the base as old from now on."""
        self.opened = moment(self.base)

    def play_base(self, *actions: Any) -> None:
        """Do these operations in the base itself."""
        self._play(self.base, actions)

    def play(self, *layers: list[Any]) -> list[View]:
        """Do these operations in one new layer each. Return what the mount shows after each layer."""
        done = len(self.layers)
        self.layers += [str(self._place / f"layer{done + number}") for number in range(len(layers))]
        return self._mounted(done, layers)

    def view(self, layers: list[str] | None = None) -> View:
        """Return what a mount of these layers shows."""
        named = self.layers if layers is None else layers
        return self._mounted(len(named), (), named)[0]

    def tree(self, path: str = "") -> View:
        """Return what is in the base, or in another directory."""
        view: View = self._tree(path or self.base)
        return view

    def _mounted(self, done: int, actions: tuple[list[Any], ...], layers: list[str] | None = None) -> list[View]:
        job = {"base": self.base, "layers": layers or self.layers, "done": done, "at": str(self._place / "at")}
        return _run({**job, "actions": actions})


@pytest.fixture(scope="module")
def overlay_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("overlays")
    need_overlays(made)
    return made


@pytest.fixture
def overlay(overlay_place: Path) -> Iterator[Overlay]:
    with TemporaryDirectory(dir=overlay_place) as directory:
        yield Overlay(Path(directory))
