"""The layers of a branch on disk: what removes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from shellsession.branch.layers import remove


def test_directory_replaced_by_a_link_while_it_is_removed_leaves_the_files_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, home = tmp_path / "tree", tmp_path / "home"
    for directory in (tree / "d", home):
        directory.mkdir(parents=True)
        (directory / "file").write_text("precious")
        (directory / "file").chmod(0o400)
    about, scandir = (tree / "d").stat(), os.scandir

    def replace_when_opened(path: Any) -> Any:
        entries = scandir(path)
        if os.path.samestat(os.stat(path), about) and not (tree / "d").is_symlink():
            (tree / "d").rename(tree / "moved")
            (tree / "d").symlink_to(home)
        return entries

    monkeypatch.setattr(os, "scandir", replace_when_opened)
    remove(str(tree))
    assert (home / "file").read_text() == "precious"
    assert (home / "file").stat().st_mode & 0o777 == 0o400
    monkeypatch.undo()
    remove(str(tree))
    assert (not tree.exists(), os.listdir(home)) == (True, ["file"])


def test_tree_without_rights_is_removed_and_what_links_name_stays(tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    outside.write_text("kept")
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "link").symlink_to(outside)
    (tree / "a" / "b" / "hard").hardlink_to(outside)
    os.mkfifo(tree / "a" / "b" / "fifo")
    for path in (tree / "a" / "b", tree / "a"):
        path.chmod(0)
    remove(str(tree))
    assert (tree.exists(), outside.read_text(), os.listdir(tmp_path)) == (False, "kept", ["outside"])
