"""Attempts of an agent of the daemon: they ask a person in its name, and nothing stays of them."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import cli
from daemons import Daemon, Raw, running
from questions import POLICY, answered, asked, decide, waiting
from system import wait_until

from shellsession import (
    InvalidRequest,
    NoSuchAgent,
    Policy,
    PolicyRefused,
    RemoteSession,
    Result,
    ShellSessionError,
    connect,
)
from shellsession.branch.attempt import Attempt
from shellsession.branch.mounts import fault
from shellsession.daemon.client import admin

if reason := fault():
    pytest.skip(reason, allow_module_level=True)


@pytest.fixture
def sh(daemon: Daemon, agent: str, place: Path) -> Iterator[RemoteSession]:
    """A session on a branch, whose commands wait for a yes."""
    with connect(agent, daemon.socket, False, cwd=place, branch=place, policy=POLICY) as sh:
        yield sh
        sh.close()
    admin.forget(agent, daemon.socket)


@contextmanager
def tried(make: Callable[[], Attempt]) -> Iterator[Future[Attempt]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(make)


def listed(daemon: Daemon) -> set[str]:
    """The agents that have a session."""
    return {one["agent"] for one in admin.agents(daemon.socket)}


def attempts(daemon: Daemon, agent: str) -> list[str]:
    """The agents of the attempts of that agent."""
    return [one for one in listed(daemon) if one.startswith(f"{agent}-attempt-")]


def close_idle(daemon: Daemon, *agents: str) -> None:
    """Have the daemon close those of these agents' sessions that are idle, and wait until it has."""
    for one in (*agents, other := agents[0] + "idle"):  # which is idle for a shorter time than the others
        connect(one, daemon.socket, False, idle_ttl=0.2).disconnect()
    wait_until(lambda: other not in listed(daemon), "the end of another session")


# -- an attempt asks in the name of its agent


def test_rule_of_an_agent_holds_in_its_attempts_and_in_no_fork(sh: RemoteSession, daemon: Daemon) -> None:
    answered(sh, daemon, "accept_rule", "touch new")
    answered(sh, daemon, "accept_session", "echo $0")
    for text in ("touch new", "echo $0"):
        sh.attempt(text, patience=0.01).discard()
    with sh.fork(sh.agent + "fork") as fork:
        with pytest.raises(PolicyRefused, match="nobody has answered"):
            fork.run("touch new", patience=0.01)
        fork.close()


def test_attempt_asks_as_its_agent_and_what_is_remembered_is_of_that(
    sh: RemoteSession, daemon: Daemon, raw: Raw
) -> None:
    raw.ask("watch", agent=sh.agent)
    with tried(lambda: sh.attempt("touch new")) as made:
        question = asked(daemon, sh.agent)
        assert question["agent"] == sh.agent
        assert raw.receive().header["question"] == question
        assert {one["agent"]: one["question"] for one in admin.agents(daemon.socket)}[sh.agent] == question["id"]
        decide(daemon, question["id"], "accept_rule")
        made.result().discard()
    assert [one["agent"] for one in admin.remembered(daemon.socket)] == [sh.agent]
    sh.attempt("touch new", patience=0.01).discard()
    assert sh.run("touch new", patience=0.01).ok


def test_close_cancels_the_question_of_an_attempt_and_that_of_the_agent_those_of_all(
    sh: RemoteSession, daemon: Daemon
) -> None:
    with tried(lambda: sh.attempt("true")) as one:
        asked(daemon, sh.agent)
        (first,) = attempts(daemon, sh.agent)
        with tried(lambda: sh.attempt("touch new")) as two:
            kept = asked(daemon, sh.agent, 2)
            cli(daemon.socket, "kill", first)
            assert "the session was closed" in str(one.exception())
            assert waiting(daemon, sh.agent) == [kept]
            sh.close()
            assert "the session was closed" in str(two.exception())
    assert waiting(daemon) == []


def test_attempt_whose_question_waits_is_not_closed_for_being_idle(daemon: Daemon, agent: str, place: Path) -> None:
    with (
        connect(agent, daemon.socket, False, cwd=place, branch=place, policy=POLICY) as sh,
        tried(lambda: sh.attempt("touch new")) as made,
    ):
        question = asked(daemon, agent)
        both = {agent, *attempts(daemon, agent)}
        close_idle(daemon, *both)
        assert both <= listed(daemon)
        decide(daemon, question["id"], "decline")
        assert isinstance(made.exception(), PolicyRefused)
        sh.close()


def test_question_of_an_attempt_outlives_the_daemon_and_the_next_attempt_gets_the_answer(
    tmp_path: Path, place: Path
) -> None:
    with running(tmp_path / "d") as daemon, connect("a", daemon.socket, cwd=place, branch=place, policy=POLICY) as sh:
        with tried(lambda: sh.attempt("touch new")) as made:
            id = asked(daemon, "a")["id"]
            daemon.stop(signal.SIGKILL)
            assert isinstance(made.exception(), ShellSessionError)
        admin.shutdown(daemon.socket)  # the one that the client has started to ask about its question
    with running(tmp_path / "d") as daemon, connect("a", daemon.socket, cwd=place, branch=place, policy=POLICY) as sh:
        decide(daemon, id)
        sh.attempt("touch new", patience=0.01).discard()
        with pytest.raises(PolicyRefused, match="nobody has answered"):
            sh.run("touch new", patience=0.01)
        sh.close()


# -- nothing stays of an attempt


def rows(path: str) -> list[str]:
    """The tables of the database that have something of an attempt."""
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        has_any = "SELECT count(*) FROM {} WHERE instr(agent, CAST('-attempt-' AS BLOB))"
        return [name for name in tables if database.execute(has_any.format(name)).fetchone() != (0,)]


_TRIES = """
import os, signal, sys
from shellsession import connect
connect(sys.argv[1], sys.argv[2], False, idle_ttl=0.2).attempt("X=3")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_no_record_of_an_attempt_outlives_it_however_it_ends(tmp_path: Path, place: Path) -> None:
    with ExitStack() as sessions:

        def opened() -> RemoteSession:
            given: dict[str, Any] = {"branch": place, "recover": True, "policy": Policy(deny_commands=["curl"])}
            return sessions.enter_context(connect("a", daemon.socket, False, cwd=place, **given))

        with running(tmp_path / "d") as daemon:
            path = admin.stats(daemon.socket)["state"]
            sh = opened()
            sh.attempt("X=1").apply()
            sh.attempt("X=2").discard()
            assert rows(path) == []
            subprocess.run([sys.executable, "-c", _TRIES, "a", daemon.socket], check=False)
            wait_until(lambda: not listed(daemon), "its end for being idle")
            assert rows(path) == []
            opened().attempt("X=4")
            daemon.stop()  # it keeps the states of all sessions
        assert rows(path) == []
        with running(tmp_path / "d") as daemon:
            opened().attempt("X=5")
            assert len(attempts(daemon, "a")) == 1
            daemon.stop(signal.SIGKILL)
        assert rows(path) == []
        with running(tmp_path / "d") as daemon:
            assert opened().run("true").ok
            assert admin.forget(None, daemon.socket) == 0  # nobody but that agent is known


def test_attempt_that_was_idle_for_too_long_leaves_its_name_free(
    daemon: Daemon, agent: str, place: Path, raw: Raw
) -> None:
    name = f"{agent}-attempt-1"
    with connect(agent, daemon.socket, False, cwd=place, branch=place, policy=Policy(deny_commands=["curl"])) as sh:
        sh.run("X=1")
        raw.ask("fork", agent=agent, to=name, attempt=True)
        assert raw.run(name, "X=2")["exit_code"] == 0
        close_idle(daemon, name)
        wait_until(lambda: name not in listed(daemon), "its end")
        raw.ask("fork", agent=agent, to=name, attempt=True)
        assert raw.run(name, "exit $X")["exit_code"] == 1
        cli(daemon.socket, "kill", name)
        sh.close()


def test_attempt_is_tried_nowhere_else_when_its_daemon_ends(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later daemon would open a session in its place, with neither the files nor the shell of the fork."""
    run = RemoteSession.run
    with ExitStack() as daemons:
        first = daemons.enter_context(running(tmp_path / "d"))

        def late(sh: RemoteSession, command: Any, **options: Any) -> Result:
            first.stop(signal.SIGKILL)
            daemons.enter_context(running(tmp_path / "d"))
            return run(sh, command, **options)

        connect("a", first.socket, False, cwd=place, branch=place).run("true")
        sh = connect("a", first.socket, False)
        monkeypatch.setattr(RemoteSession, "run", late)
        with pytest.raises(NoSuchAgent, match="a-attempt-"):
            sh.attempt(f"touch {place}/new")
        assert not (place / "new").exists()
        assert attempts(first, "a") == []


def test_attempt_takes_no_idempotency_key(sh: RemoteSession) -> None:
    with pytest.raises(InvalidRequest, match="whose receipts end with it"):
        sh.attempt("true", idempotency_key="k")


def test_attempt_that_has_ended_cannot_be_applied_and_its_session_goes_on(
    daemon: Daemon, agent: str, place: Path
) -> None:
    with connect(agent, daemon.socket, False, cwd=place, branch=place) as sh:
        attempt = sh.attempt("X=2")
        cli(daemon.socket, "kill", *attempts(daemon, agent))
        with pytest.raises(InvalidRequest, match="has ended: it was closed, was idle for too long"):
            attempt.apply()
        attempt.discard()
        assert sh.run("echo $X").stdout == "\n"
        sh.close()


# -- what it needs meanwhile


def test_session_is_not_idle_while_an_attempt_of_it_is_open(daemon: Daemon, agent: str, place: Path) -> None:
    with connect(agent, daemon.socket, False, cwd=place, branch=place) as sh:
        sh.run("X=1")
        attempt = sh.attempt("true")
        close_idle(daemon, agent)
        assert sh.run("echo $X").stdout == "1\n"
        attempt.discard()
        close_idle(daemon, agent)
        wait_until(lambda: agent not in listed(daemon), "its end")
