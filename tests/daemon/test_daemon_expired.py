"""A session of the daemon that has expired: the agent stays confined, and its next result reports the loss."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import cli
from daemons import Daemon, running
from sandboxes import needs_bwrap
from system import wait_until

from shellsession import (
    InvalidRequest,
    Policy,
    PolicyRefused,
    Sandbox,
    SessionClosed,
    ShellUnavailable,
    aconnect,
    connect,
)
from shellsession.daemon.client import admin
from shellsession.daemon.client.admin import Visit

NO_LS = Policy(deny_commands=["ls"])
LOST = "this is a new session: the last one was closed after being idle for too long, and its state is lost"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon


def expire(daemon: Daemon, agent: str) -> None:
    """Have the daemon close the session for being idle."""
    connect(agent, daemon.socket, False, idle_ttl=0.01).disconnect()
    await_end(daemon, agent)


def await_end(daemon: Daemon, agent: str) -> None:
    wait_until(lambda: agent not in [info["agent"] for info in admin.agents(daemon.socket)], "its end")


@needs_bwrap
def test_run_stays_in_the_sandbox_and_says_that_the_state_is_lost(daemon: Daemon, tmp_path: Path) -> None:
    (project := tmp_path / "project").mkdir()
    flags = ("--sandbox", "--write", str(project), "--cwd", str(project), "--deny", "git push")
    assert cli(daemon.socket, "run", "-s", "cli", "--no-recover", *flags, "--", "A=1").returncode == 0
    for _ in range(2):
        expire(daemon, "cli")
        said = f"touch {tmp_path}/outside; [[ -w / ]] || echo confined; echo ${{API_KEY-none}}"
        done = cli(
            daemon.socket, "run", "-s", "cli", "--no-recover", "--", said, cwd=str(project), env={"API_KEY": "secret"}
        )
        assert done.stdout == b"confined\nnone\n"
        assert done.stderr.decode().endswith(f"shellsession: {LOST}; it starts in {project}\n")
        assert not (tmp_path / "outside").exists()
    expire(daemon, "cli")
    done = cli(daemon.socket, "run", "-s", "cli", "git push", cwd=str(project))
    assert done.stderr == b"shellsession: refused by policy: 'git push' is denied\n"
    done = cli(daemon.socket, "run", "-s", "cli", *flags, "--", "echo again")
    assert done.stdout == b"again\n", "the same flags are accepted"


@pytest.mark.parametrize("expires", [True, False])
def test_kill_forgets_the_rules(daemon: Daemon, expires: bool) -> None:
    agent = f"killed-{expires}"
    run = ("run", "-s", agent, "--cwd", "/")
    assert cli(daemon.socket, *run, "--deny", "ls", "true").returncode == 0
    if expires:
        expire(daemon, agent)
    cli(daemon.socket, "kill", agent)
    done = cli(daemon.socket, *run, "ls -d /")
    assert done.stdout == b"/\n"


@needs_bwrap
def test_a_client_gets_a_session_that_is_confined_as_before(daemon: Daemon, tmp_path: Path) -> None:
    sandbox = Sandbox(write=[str(tmp_path)])
    with connect("a", daemon.socket, False, cwd="/", sandbox=sandbox, policy=NO_LS, redact=True) as session:
        session.run("A=1")
    expire(daemon, "a")
    with connect("a", daemon.socket, False, cwd="/") as session:
        assert session.policy == NO_LS
        assert session.redact is not False
        result = session.run("[[ -w / ]]")
        assert (result.ok, result.reason) == (False, f"{LOST}; it starts in /")
        with pytest.raises(PolicyRefused):
            session.run("ls")


def test_rules_outlive_a_start_that_failed(daemon: Daemon) -> None:
    failing = connect("fails", daemon.socket, False, cwd="/", startup=["exit 3"], policy=NO_LS)
    with failing, pytest.raises(ShellUnavailable):
        failing.run("true")
    with connect("fails", daemon.socket, False, cwd="/") as session, pytest.raises(PolicyRefused):
        session.run("ls")


def test_a_client_never_runs_in_a_later_session(daemon: Daemon) -> None:
    """That one may have other rules."""
    with connect("later", daemon.socket, False, cwd="/", policy=NO_LS) as session:
        session.run("true")
        cli(daemon.socket, "kill", "later")
        with connect("later", daemon.socket, False, cwd="/") as other:
            assert other.run("ls -d /").stdout == "/\n"
            with pytest.raises(SessionClosed):
                session.run("ls -d /")


def test_a_client_of_an_earlier_session_forgets_no_rules(daemon: Daemon) -> None:
    with connect("rules", daemon.socket, False, cwd="/") as first:
        first.run("true")
        expire(daemon, "rules")
        with connect("rules", daemon.socket, False, cwd="/", policy=NO_LS) as second:
            second.run("true")
        expire(daemon, "rules")
        first.close()
        with connect("rules", daemon.socket, False, cwd="/") as third, pytest.raises(PolicyRefused):
            third.run("ls")
    cli(daemon.socket, "kill", "rules")


def test_the_close_of_an_expired_session_forgets_the_rules(daemon: Daemon) -> None:
    session = connect("closed", daemon.socket, False, cwd="/", policy=NO_LS)
    session.run("true")
    expire(daemon, "closed")
    session.close()
    with connect("closed", daemon.socket, False, cwd="/") as again:
        assert again.run("ls -d /").stdout == "/\n"


@pytest.mark.parametrize("expires", [True, False])
def test_rules_outlive_an_opening_that_failed(daemon: Daemon, expires: bool) -> None:
    name = f"gone-{expires}"
    with pytest.raises(InvalidRequest, match="not a directory"):
        connect(name, daemon.socket, False, cwd="/nonexistent", policy=NO_LS)
    with connect(name, daemon.socket, False, cwd="/") as session, pytest.raises(PolicyRefused):
        session.run("ls")
    if expires:
        expire(daemon, name)
        with pytest.raises(InvalidRequest, match="not a directory"):
            connect(name, daemon.socket, False, cwd="/nonexistent", policy=Policy(deny_commands=["other"]))
        with Visit(name, daemon.socket) as visit:  # as `attach` leaves
            connect(name, daemon.socket, False, cwd="/").disconnect()
            visit.close_unused()
        with connect(name, daemon.socket, False, cwd="/") as session, pytest.raises(PolicyRefused):
            session.run("other")
    assert cli(daemon.socket, "kill", name).returncode == 0
    assert cli(daemon.socket, "kill", name).returncode == 125
    with connect(name, daemon.socket, False, cwd="/") as session:
        assert session.run("ls -d /").stdout == "/\n"


def test_an_idle_ttl_of_a_client_goes_before_that_of_the_daemon(tmp_path: Path) -> None:
    async def expires(daemon: Daemon) -> None:
        """Connect again, with a time after which the session ends."""
        async with aconnect("kept", daemon.socket, False, idle_ttl=0.05):
            await asyncio.to_thread(await_end, daemon, "kept")

    with running(tmp_path / "daemon", "--idle-ttl", "0.05") as daemon:
        with connect("kept", daemon.socket, False, idle_ttl=None) as kept:
            kept.run("A=1")
            connect("usual", daemon.socket, False).disconnect()
            await_end(daemon, "usual")
            assert kept.run("echo $A").stdout == "1\n"
        asyncio.run(expires(daemon))


@pytest.mark.parametrize("seconds", [0, -1, "5", True])
def test_an_idle_ttl_is_checked(daemon: Daemon, seconds: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^idle_ttl must be a positive number"):
        connect("a", daemon.socket, False, idle_ttl=seconds)
