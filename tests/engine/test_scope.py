"""The directory and the variables of one command, where an exception comes before the command is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from shellsession import Session
from shellsession.engine.verbs import submit


def test_they_are_restored_if_the_command_was_never_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with Session(cwd=tmp_path) as sh:
        sh.run("X=before")
        with monkeypatch.context() as patch:
            patch.setattr(submit, "start", cut)
            with pytest.raises(KeyboardInterrupt):
                sh.run("echo never", cwd="/", env={"X": "x"})
        assert sh.run("echo $X; pwd").stdout == f"before\n{tmp_path}\n"
