"""Each of the five contracts for an ordinary user, in a directory that only this user can write."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import sandboxes
from sandboxes import ORDINARY, run_as
from system import wait_until

from shellsession import Agents
from shellsession.contracts import bashtool, langchain, phoenix, spec, strands
from shellsession.contracts.strands import BashTimeoutError

_GIT: Final = "git -c user.name=A -c user.email=a@b.c commit -q --allow-empty -m m"


user, mine = sandboxes.user, sandboxes.mine


def _spec(agents: Agents, mine: Path) -> None:
    bash = spec.tool(agents, agent="a1")
    assert bash({"command": "id -u; pwd"}) == {"stdout": f"{os.getuid()}\n{mine}\n", "stderr": "", "exitCode": 0}
    assert bash({"command": "cat /etc/shadow"})["exitCode"] == (0 if os.getuid() == 0 else 1)


def _strands(agents: Agents, mine: Path) -> None:
    bash = strands.tool(agents, agent="a1")
    assert bash({"mode": "execute", "command": "X=1; pwd"}) == {"output": str(mine), "error": ""}
    with pytest.raises(BashTimeoutError):
        bash({"mode": "execute", "command": "sleep 100", "timeout": 0.3})
    assert bash({"mode": "restart"}) == "Bash session restarted"
    assert bash({"mode": "execute", "command": "echo ${X-gone}"}) == {"output": "gone", "error": ""}


def _langchain(agents: Agents, mine: Path) -> None:
    assert langchain.tool(agents, agent="a1")({"command": "echo hi >file; cat file"}) == "hi\n"


def _bashtool(agents: Agents, mine: Path) -> None:
    found = bashtool.tool(agents, agent="a1", cwd=str(mine))({"command": "kill -9 $$"})
    assert found["details"] == {"exit_code": -1, "success": False}


def _phoenix(agents: Agents, mine: Path) -> None:
    bash = phoenix.tool(agents, agent="a1")
    if shutil.which("git"):
        assert not bash({"command": f"git init -q . && {_GIT}"}).is_error
        done = subprocess.run(["git", "log", "--format=%B"], capture_output=True, text=True, check=True)
        assert done.stdout == "m\n\nCo-authored-by: Phoenix <phoenix@exe.dev>\n\n"
    found = bash({"command": "echo $BASHPID; sleep 1000", "background": True})
    output = Path(found.output.partition("<output_file>")[2].partition("<")[0])
    pid = wait_until(output.read_text, "its first line").strip()
    assert output.stat().st_uid == os.getuid()
    bash({"command": f"kill -9 -{pid}"})
    wait_until(lambda: "signal: 9" in output.read_text(), "its last line")


SCENARIOS: Final[list[Callable[[Agents, Path], None]]] = [_spec, _strands, _langchain, _bashtool, _phoenix]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__.strip("_"))
def test_a_contract_holds(user: str, mine: Path, scenario: Callable[[Agents, Path], None]) -> None:
    def play() -> None:
        before = os.getcwd()
        os.environ.update(TMPDIR=str(mine), HOME=str(mine))
        os.chdir(mine)
        try:
            with Agents() as agents:
                scenario(agents, mine)
        finally:
            os.chdir(before)
        assert "ordinary" not in user or os.getuid() == ORDINARY

    with pytest.MonkeyPatch.context() as patch:
        for name in ("TMPDIR", "HOME"):
            patch.setenv(name, os.environ.get(name, "/tmp"))
        run_as(user, play)
