"""What changes the files of an agent's branch takes its turn, and is not done for a client that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import running as client_of
from daemons import Daemon, Raw, running, served
from system import wait_until

from shellsession import AlreadyOpen, RemoteSession, SessionBusy, connect
from shellsession.branch.mounts import fault
from shellsession.daemon.client import admin

if reason := fault():
    pytest.skip(reason, allow_module_level=True)

_VERBS = {
    "rollback": ("rollback", "{}", "first"),
    "checkpoint": ("checkpoint", "{}", "second"),
    "discard": ("branch", "discard", "{}"),
    "apply": ("branch", "apply", "{}"),
}


@pytest.fixture
def sh(daemon: Daemon, agent: str, place: Path) -> Iterator[RemoteSession]:
    with connect(agent, daemon.socket, False, cwd=place, branch=place) as sh:
        yield sh
        sh.close()


@pytest.mark.parametrize("words", _VERBS.values(), ids=_VERBS)
def test_change_of_files_of_a_client_that_was_killed_meanwhile_is_not_made(
    daemon: Daemon, raw: Raw, agent: str, sh: RemoteSession, place: Path, words: tuple[str, ...]
) -> None:
    sh.run("echo one >file")
    sh.checkpoint("first")
    with ThreadPoolExecutor(1) as pool:
        asker = pool.submit(sh.run, "echo two >file; until [ -e go ]; do sleep 0.02; done; echo done")
        wait_until(lambda: sh.state == "running", "the command")
        with client_of(daemon.socket, *(word.format(agent) for word in words)) as client:
            wait_until(lambda: served(raw) == 3, "its request")  # with the command, and this question
            client.kill()
        with connect(agent, daemon.socket, False) as other:
            other.write_file(str(place / "go"), b"")
        assert asker.result().stdout == "done\n"
    assert sh.run("cat file").stdout == "two\n"
    assert [one.name for one in sh.checkpoints()] == ["first"]
    assert list(place.iterdir()) == []


class _Ending:
    """The last session of an agent, which runs its shutdown command until ``finish``."""

    def __init__(self, daemon: Daemon, agent: str, place: Path, tmp_path: Path) -> None:
        self._go, begun = tmp_path / "go", tmp_path / "begun"
        waits = f"echo >{begun}; until [ -e {self._go} ]; do sleep 0.02; done"
        with connect(agent, daemon.socket, False, cwd=place, branch=place, shutdown=[waits]) as sh:
            assert sh.run("echo one >file").ok
        connect(agent, daemon.socket, False, idle_ttl=0.05).disconnect()
        wait_until(begun.exists, "its end")

    def finish(self) -> None:
        self._go.touch()


@pytest.fixture
def last(daemon: Daemon, agent: str, place: Path, tmp_path: Path) -> _Ending:
    return _Ending(daemon, agent, place, tmp_path)


def _is_listed(daemon: Daemon, agent: str) -> bool:
    return any(one["agent"] == agent for one in admin.agents(daemon.socket))


@pytest.mark.parametrize("end", ["it was idle", "it was closed"])
def test_agent_that_comes_back_while_its_last_session_still_ends_gets_its_branch(
    daemon: Daemon, raw: Raw, agent: str, place: Path, tmp_path: Path, end: str
) -> None:
    waits = f"echo >{tmp_path}/begun; until [ -e {tmp_path}/go ]; do sleep 0.02; done"
    with ThreadPoolExecutor(1) as pool:
        with connect(agent, daemon.socket, False, cwd=place, branch=place, shutdown=[waits]) as sh:
            assert sh.run("echo one >file").ok
            closing = pool.submit(sh.close) if end == "it was closed" else None
        if closing is None:
            connect(agent, daemon.socket, False, idle_ttl=0.05).disconnect()
        wait_until((tmp_path / "begun").exists, "its end")
        with connect(agent, daemon.socket, False, cwd=place, branch=place) as sh:
            raw.say("run", b"cat file", agent=agent)
            wait_until(lambda: _is_listed(daemon, agent), "its next session")
            (tmp_path / "go").touch()
            assert raw.receive().header["result"]["exit_code"] == 0
            sh.close()


def test_session_whose_request_waits_for_its_branch_does_not_expire(
    daemon: Daemon, raw: Raw, agent: str, place: Path, last: _Ending
) -> None:
    with connect(agent, daemon.socket, False, cwd=place, branch=place, idle_ttl=0.2) as sh:
        raw.say("run", b"cat file", agent=agent)
        connect(f"{agent}-later", daemon.socket, False, idle_ttl=0.4).disconnect()
        wait_until(lambda: not _is_listed(daemon, f"{agent}-later"), "the end of a session that may be idle longer")
        last.finish()
        assert raw.receive().header["result"]["exit_code"] == 0
        sh.close()


@pytest.mark.parametrize("end", ["it was idle", "it was closed"])
def test_agent_whose_unused_session_ended_before_the_one_that_uses_its_branch_waits_for_that(
    daemon: Daemon, raw: Raw, agent: str, place: Path, last: _Ending, end: str
) -> None:
    ttl = 0.05 if end == "it was idle" else None
    with connect(agent, daemon.socket, False, cwd=place, branch=place, idle_ttl=ttl) as unused:
        if end == "it was closed":
            unused.close()
        wait_until(lambda: not _is_listed(daemon, agent), "its end")
    with connect(agent, daemon.socket, False, cwd=place, branch=place) as sh:
        raw.say("run", b"cat file", agent=agent)
        wait_until(lambda: served(raw) == 2, "the request")  # with this question
        last.finish()
        assert raw.receive().header["result"]["exit_code"] == 0
        sh.close()


def test_command_that_may_not_wait_as_long_as_its_branch_is_in_use_is_refused(
    daemon: Daemon, agent: str, place: Path, last: _Ending
) -> None:
    with connect(agent, daemon.socket, False, cwd=place, branch=place) as sh:
        with pytest.raises(SessionBusy, match="still being closed, and uses its branch"):
            sh.run("cat file", timeout=0.1)
        last.finish()
        assert sh.run("cat file").stdout == "one\n"
        sh.close()


def test_session_of_an_agent_starts_on_its_branch(daemon: Daemon, agent: str, place: Path) -> None:
    with connect(agent, daemon.socket, False, branch=place) as sh:
        assert sh.run("pwd").stdout == f"{place}\n"
        sh.close()


def test_next_session_of_an_agent_keeps_automatic_checkpoints(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with running(tmp_path / "daemon") as daemon:
        with connect("a", daemon.socket, False, cwd=place, branch=place, auto_checkpoints=3) as sh:
            sh.run("echo one >file")
        daemon.stop()
    with running(tmp_path / "daemon") as daemon, connect("a", daemon.socket, False) as sh:
        sh.run("rm file")
        sh.rollback()
        assert sh.run("cat file").stdout == "one\n"
        with pytest.raises(AlreadyOpen, match="keeps fewer checkpoints"):
            connect("a", daemon.socket, False, branch=place, auto_checkpoints=4)
        sh.branch.discard()
        sh.close()
