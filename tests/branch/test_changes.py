"""What the layers of a branch change: against a real overlay mount, and as a patch through git."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from branched import Place
from hypothesis import given
from overlays import BASES, LAYERS, Overlay, View, machine
from sandboxes import mine as mine, run_as, user as user

from shellsession import InvalidRequest
from shellsession.branch.changes import changes
from shellsession.branch.patch import patch

_ENV = {**os.environ, "GIT_DIR": "/dev/null/none"}  # it is in no repository


def _differences(before: View, after: View) -> dict[str, str]:
    """Compare two trees path by path; hard links do not count."""
    plain = [{path: {**entry, "inode": 0} for path, entry in view.items()} for view in (before, after)]
    both = {path: (plain[0].get(path), plain[1].get(path)) for path in plain[0] | plain[1]}
    kinds = {path: "added" if not old else "changed" if new else "removed" for path, (old, new) in both.items()}
    return {path: kind for path, kind in kinds.items() if both[path][0] != both[path][1]}


@machine
@given(BASES, LAYERS)
def test_changes_are_what_the_mount_shows(overlay_place: Path, base: list[Any], layers: list[Any]) -> None:
    with TemporaryDirectory(dir=overlay_place) as directory:
        overlay = Overlay(Path(directory), base)
        views = [overlay.tree(), *overlay.play(*layers)]
        for since in range(len(layers)):
            found = changes(overlay.base, overlay.layers, since=since)
            named = {change.path: change.kind for change in found if change.what != ("links",)}
            assert named == _differences(views[since], views[-1])
            assert [change.path for change in found] == sorted(
                {c.path for c in found}, key=lambda path: path.split("/")
            )
            for change in found:
                for entry, view in ((change.before, views[since]), (change.after, views[-1])):
                    assert (entry and entry.mode) == (view[change.path]["mode"] if change.path in view else None)


def _git_tree(view: View) -> dict[str, tuple[int, bool, str]]:
    """The part of a tree that git knows."""
    kept = {path: entry for path, entry in view.items() if entry["type"] in (stat.S_IFREG, stat.S_IFLNK)}
    return {
        path: (entry["type"], entry["type"] == stat.S_IFREG and bool(entry["mode"] & 0o100), entry["data"])
        for path, entry in kept.items()
    }


@machine
@given(BASES, LAYERS)
def test_patch_through_git_apply_makes_the_tree(overlay_place: Path, base: list[Any], layers: list[Any]) -> None:
    with TemporaryDirectory(dir=overlay_place) as directory:
        overlay = Overlay(Path(directory), base)
        view = overlay.play(*layers)[-1]
        text = patch(overlay.base, overlay.layers)
        if text:
            subprocess.run(["git", "apply", "-"], input=text, cwd=overlay.base, check=True, env=_ENV)
        assert _git_tree(overlay.tree()) == _git_tree(view)


def test_patch_of_a_repository_is_of_its_files_alone(overlay: Overlay) -> None:
    subprocess.run(["git", "init", "-q", overlay.base], check=True)
    overlay.play([("write", ".git/config", b"x".hex()), ("write", "f", b"1\n".hex())])
    text = patch(overlay.base, overlay.layers).decode()
    assert "a/.git/config" not in text
    subprocess.run(["git", "apply", "-"], input=text, text=True, cwd=overlay.base, check=True)
    assert Path(overlay.base, "f").read_text() == "1\n"


def test_patch_of_large_files_is_refused_by_their_sizes_alone(overlay: Overlay) -> None:
    overlay.play([("write", "small", b"1".hex()), ("write", "large", b"1".hex())])
    os.truncate(f"{overlay.layers[0]}/large", 8 << 30)
    with pytest.raises(InvalidRequest, match=r"the largest are 'large', 'small': look at diff\(\) without patch"):
        patch(overlay.base, overlay.layers)


def test_patch_leaves_out_files_that_cannot_be_read(user: str, mine: Path) -> None:
    place = Place(mine)

    def scenario() -> None:
        with place.session() as sh:
            sh.run("echo 1 >one; echo 2 >two; chmod 0 two; echo 3 >>file")
            place.base.joinpath("file").chmod(0)
            patched = sh.branch.diff(patch=True)
            assert patched.count(b"diff --git") == (3 if os.geteuid() == 0 else 1)  # root may read everything
            assert b"a/one" in patched

    run_as(user, scenario)


def test_replaced_directories_and_files_are_named_with_all_they_had(overlay: Overlay) -> None:
    overlay.play_base(
        ("mkdir", "d"), ("many", "d", 3), ("write", "f", b"old".hex()), ("mkdir", "kept"), ("many", "kept", 1_000)
    )
    overlay.play(
        [("remove", "d"), ("write", "d", b"file".hex()), ("remove", "f"), ("mkdir", "f"), ("many", "f", 2)],
        [("remove", "kept"), ("mkdir", "kept"), ("many", "kept", 998), ("write", "kept/n7", b"8".hex())],
    )
    found = {change.path: (change.kind, change.what) for change in changes(overlay.base, overlay.layers)}
    removed = {f"d/n{number}": ("removed", ()) for number in range(3)}
    removed |= {f"kept/n{number}": ("removed", ()) for number in (998, 999)}
    added = {f"f/n{number}": ("added", ()) for number in range(2)}
    changed = {"d": ("changed", ("type",)), "f": ("changed", ("type",)), "kept/n7": ("changed", ("content",))}
    assert found == removed | added | changed
    since = changes(overlay.base, overlay.layers, since=1)
    assert {change.path for change in since} == {"kept/n7", "kept/n998", "kept/n999"}
    seven = next(change for change in since if change.path == "kept/n7")
    assert seven.before
    assert seven.after
    assert (seven.before.size, seven.after.size) == (1, 1)


def test_what_is_not_applied_is_named_with_the_reason(overlay: Overlay) -> None:
    overlay.play_base(("write", "one", b"1".hex()), ("link", "one", "two"), ("write", "s", b"".hex()))
    overlay.play([("fifo", "f"), ("append", "one", b"1".hex()), ("chmod", "s", 0o4755), ("touch", "two")])
    found = {change.path: (change.skipped, change.note) for change in changes(overlay.base, overlay.layers)}
    assert found == {
        "f": ("a FIFO is not applied", ""),
        "one": ("", "the other hard links of the file keep the old content"),
        "s": ("", "its setuid and setgid bits are not applied"),
    }


def test_whiteouts_that_are_xattrs_count_where_the_directory_says_so(overlay: Overlay) -> None:
    """As newer kernels take them in a lower layer."""
    overlay.play_base(("mkdir", "d"), ("many", "d", 2), ("mkdir", "e"), ("many", "e", 1))
    layer = Path(overlay.base).with_name("made")
    for name in ("d/n0", "e/n0"):
        (layer / name).parent.mkdir(parents=True)
        (layer / name).touch()
        os.setxattr(layer / name, "user.overlay.whiteout", b"y")
    for directory in (layer, layer / "d"):
        os.setxattr(directory, "user.overlay.opaque", b"x")
    found = {change.path: change.kind for change in changes(overlay.base, [str(layer)])}
    assert found == {"d/n0": "removed", "e/n0": "changed"}


def test_links_in_the_way_are_not_followed(overlay: Overlay, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of others")
    overlay.play_base(("mkdir", "d"), ("write", "d/secret", b"".hex()))
    overlay.play([("append", "d/secret", b"1".hex())])
    os.rename(f"{overlay.base}/d", f"{overlay.base}/e")
    os.symlink(tmp_path, f"{overlay.base}/d")
    found = {change.path: (change.kind, change.what) for change in changes(overlay.base, overlay.layers)}
    assert found == {"d": ("changed", ("type",)), "d/secret": ("added", ())}
    assert b"of others" not in patch(overlay.base, overlay.layers)
