"""The directory of programs that contracts need: a process has one, and leaves none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from shellsession import ShellUnavailable
from shellsession.contracts import tool
from shellsession.contracts.contract import Programs

WANTED = Programs("programs-test.", ("one", "two"), "#!/bin/sh\necho $0 $1\n", (("none", "/nonexistent/none"),))


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "_made", {})


def test_the_program_runs_under_each_name_and_nobody_writes_there() -> None:
    path = tool.directory(WANTED)
    assert tool.directory(WANTED) == path
    for name in WANTED.names:
        assert subprocess.check_output([f"{path}/{name}", "x"], text=True) == f"{path}/{name} x\n"
    assert os.readlink(f"{path}/none") == "/nonexistent/none"
    assert {os.stat(one).st_mode & 0o777 for one in (path, f"{path}/one", f"{path}/two")} == {0o555}


def test_one_that_was_removed_is_made_anew() -> None:
    path = tool.directory(WANTED)
    os.chmod(path, 0o755)
    shutil.rmtree(path)
    assert Path(tool.directory(WANTED), "one").exists()


def test_the_directory_is_removed_with_its_process_and_not_by_a_forked_child() -> None:
    script = (
        "import os; from shellsession.contracts import tool; from shellsession.contracts.contract import Programs\n"
        "path = tool.directory(Programs('programs-test.', ('one',), '#!/bin/sh\\n'))\n"
        "if os.fork() == 0: raise SystemExit\n"
        "os.wait(); print(path, os.path.exists(path))\n"
    )
    path, there = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    assert there == "True"
    assert not os.path.exists(path)


def test_where_programs_cannot_run_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(prefix: str, dir: str) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ShellUnavailable, match=r"/var/tmp \(mounted noexec\), .*set TMPDIR"):
        tool.directory(WANTED)
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(ShellUnavailable, match=r"/var/tmp \(Permission denied\)"):
        tool.directory(WANTED)
