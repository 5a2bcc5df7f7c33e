"""A project with a branch, whose layers are beside it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shellsession import Session


class Place:
    """A project, with a file and these directories, and the layers of its branch. The owner of ``top`` has all."""

    def __init__(self, top: Path, *directories: str) -> None:
        self.base, self.layers = top / "home" / "project", top / "state" / "branch"
        for path in (self.base, self.layers.parent, *(self.base / name for name in directories)):
            path.mkdir(parents=True)
        (self.base / "file").write_text("base\n")
        self._names = self._found()
        for path in top.rglob("*"):
            os.chown(path, top.stat().st_uid, top.stat().st_gid)

    @contextmanager
    def session(self, **options: Any) -> Iterator[Session]:
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, as a program is that was just started
        given: dict[str, Any] = {"cwd": self.base, "branch": self.base, "branch_dir": self.layers, "timeout": 20}
        with Session(**given | options) as session:
            yield session

    @property
    def names(self) -> list[str]:
        """The layers, and the directories of forks."""
        found = [name for name in os.listdir(self.layers / "layers") if name != "base"]
        forks = self.layers / "forks"
        return sorted(found + (os.listdir(forks) if forks.exists() else []))

    def check_untouched(self) -> None:
        assert (self.base / "file").read_text() == "base\n"
        assert self._found() == self._names

    def _found(self) -> list[Path]:
        return sorted(self.base.rglob("*"))
