"""Attempts of an agent of the daemon: they ask a person in its name, and nothing stays of them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import cli
from daemons import Daemon, Raw, running
from questions import POLICY, answered, asked, decide, waiting
from system import wait_until

from shellsession import PolicyRefused, RemoteSession, ShellSessionError, connect
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
        connect(agent, daemon.socket, False, cwd=place, branch=place, policy=POLICY, idle_ttl=0.2) as sh,
        tried(lambda: sh.attempt("touch new")) as made,
    ):
        question = asked(daemon, agent)
        with connect(agent + "idle", daemon.socket, False, idle_ttl=0.2) as other:
            other.run("true")  # it is idle for a shorter time
        wait_until(lambda: other.agent not in listed(daemon), "its end for being idle")
        assert len(attempts(daemon, agent)) == 1
        assert agent in listed(daemon)
        decide(daemon, question["id"], "decline")
        assert isinstance(made.exception(), PolicyRefused)


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
