"""Two layers as one: what the mount shows stays the same."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from overlays import BASES, LAYERS, Overlay, View, machine

from shellsession.branch.changes import changes
from shellsession.branch.merge import merge


def _plain(view: View) -> tuple[View, set[tuple[str, str]]]:
    """The tree without inodes, and the pairs of paths that are one file."""
    linked = {pair for pair in combinations(sorted(view), 2) if len({view[path]["inode"] for path in pair}) == 1}
    pairs = {pair for pair in linked if view[pair[0]]["inode"]}
    return {path: {**entry, "inode": 0} for path, entry in view.items()}, pairs


@machine
@given(BASES, LAYERS.filter(lambda layers: len(layers) > 1))
def test_merged_layers_show_what_both_did(overlay_place: Path, base: list[Any], layers: list[Any]) -> None:
    with TemporaryDirectory(dir=overlay_place) as directory:
        overlay = Overlay(Path(directory), base)
        overlay.play(*layers)
        view = overlay.view()  # a new mount: that in which a link was made gives its paths two inodes
        found = [(one.path, one.kind, one.what) for one in changes(overlay.base, overlay.layers)]
        for at in range(len(layers) - 1):
            into = f"{directory}/merged{at}"
            merge(overlay.layers[at], overlay.layers[at + 1], into)
            stack = [*overlay.layers[:at], into, *overlay.layers[at + 2 :]]
            assert _plain(overlay.view(stack)) == _plain(view)
            assert [(one.path, one.kind, one.what) for one in changes(overlay.base, stack)] == found


def test_merge_that_was_cut_off_is_begun_again(overlay: Overlay) -> None:
    view = overlay.play([("mkdir", "d"), ("many", "d", 3)], [("remove", "d/n1"), ("chmod", "d", 0o500)])[-1]
    into = f"{overlay.home}/merged"
    os.makedirs(f"{into}.new/left")
    merge(overlay.layers[0], overlay.layers[1], into)
    assert _plain(overlay.view([into])) == _plain(view)
    assert os.listdir(overlay.home) == ["merged"]
    with pytest.raises(OSError, match="merged"):
        merge(overlay.layers[0], overlay.layers[1], into)
