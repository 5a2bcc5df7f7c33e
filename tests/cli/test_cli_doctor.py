"""``shellsession doctor``: each finding is true for this machine, and each failure comes with advice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shellsession.cli import doctor


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = doctor.main(words)
    return status, capsys.readouterr().out


def test_a_machine_on_which_these_tests_pass_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    status, told = said(capsys)
    assert status == 0
    assert "FAIL" not in told
    lines = [json.loads(line) for line in said(capsys, "--json")[1].splitlines()]
    assert [one["name"] for one in lines[:3]] == ["system", "bash", "/proc"]
    assert {one["state"] for one in lines} <= {"ok", "limited"}
    assert not any("b'" in one["found"] for one in lines)
    assert all(one["advice"] or one["name"] == "sandbox" for one in lines if one["state"] == "limited")


def test_what_is_missing_has_its_advice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert doctor._bash().state == doctor._session().state == "ok"  # a session looks in the default places, too
    monkeypatch.setattr(os, "defpath", os.fspath(tmp_path))
    status, told = said(capsys)
    assert status == 1
    assert "[FAIL] session     no 'bash' on PATH" in told
    assert "[FAIL] bash        none on PATH" in told
    assert "install bash 4.4 or newer" in told
    assert "install the package bubblewrap" in told


def test_what_others_have_bash_run_first_is_not_taken_for_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "greeting").write_text("echo welcome")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "greeting"))
    monkeypatch.setenv("BASH_FUNC_echo%%", "() { printf 'function %s' \"$*\"; }")
    assert doctor._bash().state == "ok"


def test_another_system_is_refused_in_words() -> None:
    program = "import sys; sys.platform = 'darwin'; import shellsession"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ImportError: shellsession needs Linux" in done.stderr


def test_ptrace_that_is_forbidden_names_the_commands_that_may_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_number", lambda path: 2)
    assert doctor._ptrace().advice.startswith("the rest of an interrupted command may run before it is stopped")


def test_a_bash_that_hangs_at_its_start_is_given_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "_LONGEST", 0.5)
    hangs = tmp_path / "bash"
    hangs.write_text('#!/bin/sh\ncase "$*" in *watcher.bash*) exec /bin/bash "$@";; esac\nexec sleep 1000\n')
    hangs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    status, told = said(capsys)
    assert status == 1
    assert f"[FAIL] bash        {hangs}" in told
    assert "[FAIL] session     bash has not started within 0.5 s" in told
