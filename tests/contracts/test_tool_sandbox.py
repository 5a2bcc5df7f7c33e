"""Tools and sessions in a sandbox: where temporary files and the output files of phoenix go."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sandboxes
from daemons import Daemon
from sandboxes import needs_bwrap, run_as
from test_tool_phoenix_background import END, start

from shellsession import Agents, Sandbox, Session, connect
from shellsession.contracts import phoenix, spec
from shellsession.options import SessionOptions

mine, user = sandboxes.mine, sandboxes.user
pytestmark = needs_bwrap
LOOK = "mktemp >/dev/null && echo ${TMPDIR-none}"


def test_temporary_files_have_a_place(user: str, mine: Path) -> None:
    def scenario() -> None:
        with pytest.MonkeyPatch.context() as patch:
            for place in ("inside", "other", "changed"):
                (mine / place).mkdir()
            patch.chdir("/")
            patch.setenv("TMPDIR", str(mine / "other"))
            with Session(cwd="/", sandbox=Sandbox(write=[mine / "inside"])) as session:
                assert session.run(LOOK).stdout == "none\n", "not there: it is below a private /tmp"
                assert session.run("TMPDIR=/nowhere; echo $TMPDIR").stdout == "/nowhere\n", "commands have their way"
                patch.setenv("TMPDIR", str(mine / "changed"))
                assert spec.tool(session)({"command": LOOK})["stdout"] == "none\n"
                session.run("unset TMPDIR; set -u")
                patch.delenv("TMPDIR")
                assert spec.tool(session)({"command": LOOK})["stdout"] == "none\n"
                patch.setenv("TMPDIR", str(mine / "inside"))
                assert spec.tool(session)({"command": LOOK})["stdout"] == f"{mine}/inside\n"
            for read_only in ("/usr", "/nonexistent"):
                patch.setenv("TMPDIR", read_only)
                with Session(cwd="/", sandbox=Sandbox()) as session:
                    assert session.run(f"set -u; {LOOK}").stdout == "none\n"
            patch.setenv("TMPDIR", str(mine / "inside"))
            with Session(cwd="/", sandbox=Sandbox(write=[mine / "inside"])) as session:
                assert session.run(LOOK).stdout == f"{mine}/inside\n"

    run_as(user, scenario)


@pytest.mark.parametrize("where", ["a session", "agents", "a daemon"])
def test_a_call_gets_no_more_of_the_environment_than_the_session(
    where: str, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")  # the checkout may be in /tmp, which is another one inside
    monkeypatch.setenv("API_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "here")
    options: SessionOptions = {"cwd": "/", "sandbox": Sandbox(pass_env=["AWS_*"]), "extra_env": {"MORE": "more"}}
    made: Callable[[], Any] = {
        "a session": lambda: Session(**options),
        "agents": lambda: Agents(**options),
        "a daemon": lambda: connect("enclosed", daemon.socket, False, **options),
    }[where]
    with made() as session:
        for tool, persistent in ((spec, False), (phoenix, False), (spec, True)):
            name = {"agent": f"{tool.__name__} {persistent}"} if where == "agents" else {}
            bash = tool.tool(session, **name, persistent=persistent)
            for _ in range(2):
                said = str(bash({"command": "echo ${API_KEY-none} $AWS_REGION $MORE ${PAGER-}${GIT_EDITOR-}"}))
                assert "none here more" in said
                monkeypatch.setenv("API_KEY", "another")
        session.close()


@pytest.mark.parametrize("persistent", [False, True])
def test_the_output_of_a_background_command_is_where_its_reader_is(user: str, mine: Path, persistent: bool) -> None:
    """The model reads it with its next call; the host, where TMPDIR can be written on both sides."""

    def scenario() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", str(mine / "out"))
            (mine / "out").mkdir()
            for write, is_shared in (((), False), ((mine / "out",), True)):
                sandbox: dict[str, Any] = {"cwd": "/", "sandbox": Sandbox(write=write)}
                with Agents(**sandbox) as agents:
                    bash = phoenix.tool(agents, agent="a1", persistent=persistent, working_dir="/")
                    started = start(bash, "echo begun")
                    path = started.path
                    assert bash({"command": f"until grep -q 'background process' {path}; do :; done"}).output == ""
                    assert bash({"command": f"cat {path}"}).output == f"begun\n{END}"
                    assert path.exists() == is_shared
                    assert path.is_relative_to(mine if is_shared else "/tmp")

    run_as(user, scenario)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_commit_gets_the_trailer(user: str, mine: Path) -> None:
    def scenario() -> None:
        with Agents(cwd=str(mine), sandbox=Sandbox(write=[mine])) as agents:
            bash = phoenix.tool(agents, agent="a1", working_dir=mine)
            commit = "git -c user.name=A -c user.email=a@b.c commit -q --allow-empty -m m"
            assert bash({"command": f"git init -q . && {commit} && git log --format=%B"}).output.startswith(
                "m\n\nCo-authored-by"
            )

    run_as(user, scenario)
