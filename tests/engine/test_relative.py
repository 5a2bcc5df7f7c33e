"""Sessions start as before after the host changes directory or environment, or its directory is removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from daemons import Daemon

from shellsession import Agents, InvalidRequest, Limits, Session, ShellUnavailable, TooManySessions, connect

BASH = shutil.which("bash") or "/bin/bash"


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The host's directory, with two others in it."""
    for name in ("sub", "other/sub"):
        (place / name).mkdir(parents=True)
    monkeypatch.chdir(place)
    return place


def test_a_relative_directory_is_that_of_the_first_look(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(cwd="sub") as session:
        assert session.cwd == str(here / "sub")
        monkeypatch.chdir(here / "other")
        assert session.run("pwd").stdout == f"{here}/sub\n"
        assert session.run("exit 3").cwd == str(here / "sub")
        session.restart()
        assert session.run("pwd").stdout == f"{here}/sub\n"


@pytest.mark.parametrize("form", ["{}/link/..", "link/.."])
def test_the_way_up_from_a_link_is_the_kernels(here: Path, daemon: Daemon, form: str) -> None:
    (here / "link").symlink_to(here / "other" / "sub")
    with Session(cwd=form.format(here)) as session, connect(form, daemon.socket, cwd=form.format(here)) as remote:
        assert session.run("/bin/pwd -P").stdout == f"{here}/other\n"
        assert remote.run("/bin/pwd -P").stdout == f"{here}/other\n"


@pytest.mark.parametrize("cwd", [None, "/"])
def test_a_bash_by_a_relative_path_is_found_from_anywhere(
    here: Path, monkeypatch: pytest.MonkeyPatch, cwd: str | None
) -> None:
    (here / "mybash").symlink_to(BASH)
    with Session(bash="./mybash", cwd=cwd) as session:
        monkeypatch.chdir(here / "other")
        assert session.run("echo ok").stdout == "ok\n"
        session.restart()
        assert session.run("echo ok").stdout == "ok\n"


def test_a_bash_by_a_relative_entry_of_path_is_started(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "mybash").symlink_to(BASH)
    monkeypatch.setenv("PATH", ".:" + os.environ["PATH"])
    with Session(bash="mybash", cwd="/") as session:
        assert session.run("echo ok").stdout == "ok\n"


def test_a_host_whose_directory_is_gone_still_has_its_list(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Agents(max_sessions=1) as agents:
        agents.session("new")
        monkeypatch.chdir(here / "sub")
        (here / "sub").rmdir()
        (info,) = agents.list()
        assert (info.state, info.cwd) == ("new", f"{here}/sub (deleted)")
        with pytest.raises(TooManySessions):
            agents.session("another")
        assert Session().cwd == info.cwd
        for wrong in ({"cwd": "."}, {"bash": "./bash"}, {"limits": Limits(spill="out")}):
            with pytest.raises(InvalidRequest, match="gone"):
                Session(**wrong)
            with pytest.raises(InvalidRequest, match="gone"):
                connect("nowhere", "/nonexistent/socket", **wrong)
        with pytest.raises(ShellUnavailable, match="gone"):
            agents.run("new", "true")
        monkeypatch.chdir(here)


@pytest.mark.parametrize("again", ["restart", "exit"])
def test_a_later_shell_has_the_environment_of_the_first(monkeypatch: pytest.MonkeyPatch, again: str) -> None:
    given = {"PATH": os.environ["PATH"], "OTHER": "1"}
    monkeypatch.setenv("OURS", "before")
    with Session(cwd="/") as inheriting, Session(cwd="/", env=given) as own:
        monkeypatch.setenv("OURS", "first")
        for session in (inheriting, own):
            session.open()
        monkeypatch.setenv("OURS", "later")
        monkeypatch.setenv("THEIRS", "new")
        given["OTHER"] = "2"
        for session in (inheriting, own):
            session.restart() if again == "restart" else session.run("exit 3")
        assert inheriting.run("echo $OURS $THEIRS").stdout == "first\n"
        assert own.run("echo $OTHER $OURS").stdout == "1\n"
