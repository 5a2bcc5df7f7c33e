"""The limit on agents in a daemon: its error names the idle ones, and agents idle for long are closed."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path

import pytest
from clients import hand_back
from commands import cli
from daemons import Raw, looks_into_it, running, serving
from system import is_alive, unique_seconds, wait_until, with_argument

from shellsession import (
    LimitReached,
    RemoteSession,
    SessionClosed,
    ShellUnavailable,
    TooManySessions,
    aconnect,
    connect,
)
from shellsession.daemon.client import admin


def test_session_whose_bash_did_not_start_takes_no_room(tmp_path: Path) -> None:
    with running(tmp_path / "daemon", "--max-sessions", "1") as daemon, Raw(daemon.socket) as raw:
        with pytest.raises(ShellUnavailable):
            connect("a", daemon.socket, False, cwd="/", bash="/bin/false").run("true")
        assert raw.agents() == []
        for agent in ("a", "b"):
            with connect(agent, daemon.socket, False, cwd="/") as session:
                assert session.run("echo room").stdout == "room\n"
                session.close()


def test_at_the_limit_the_idle_ones_are_named(tmp_path: Path) -> None:
    with running(tmp_path / "daemon", "--max-sessions", "2") as daemon, Raw(daemon.socket) as raw:

        def open(agent: str) -> RemoteSession:
            return connect(agent, daemon.socket, False, cwd="/")

        async def open_too() -> None:
            await aconnect("four", daemon.socket, False, cwd="/")

        one, two = open("one"), open("two")
        two.run("sleep 100", timeout=0.05, on_timeout="yield")
        with pytest.raises(TooManySessions) as refused:
            open("three")
        assert refused.value.idle == ("one",)
        with pytest.raises(TooManySessions) as refused:
            asyncio.run(open_too())
        assert refused.value.idle == ("one",)
        assert [info["agent"] for info in raw.agents()] == ["one", "two"]
        one.close()
        three = open("three")
        assert three.run("echo room").stdout == "room\n"
        with pytest.raises(SessionClosed):
            one.run("true")
        two.interrupt()
        for session in (two, three):
            session.disconnect()


@looks_into_it
def test_who_cannot_be_opened_takes_no_place_and_hears_whose_limit_it_is(tmp_path: Path) -> None:
    with (
        running(tmp_path / "daemon", "--max-sessions", "2") as daemon,
        connect("one", daemon.socket, False, cwd="/") as one,
        connect("two", daemon.socket, False, cwd="/") as two,
    ):
        one.run("true")
        before = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{daemon.pid}/fd"))
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (used + 15, before[1]))
        with pytest.raises(LimitReached, match=rf"^the daemon \(pid {daemon.pid}\) may open .*shellsession stop"):
            two.run("true")
        assert [info["agent"] for info in admin.agents(daemon.socket)] == ["one"]
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)
        with connect("three", daemon.socket, False, cwd="/") as three:
            assert three.run("echo room").stdout == "room\n"
            three.close()
        assert two.run("echo back").stdout == "back\n"


def test_many_agents_with_long_names_are_listed(tmp_path: Path) -> None:
    """More than a header holds: who lists them, and who finds no room any more."""
    names = [f"{number:04d}".ljust(256, "\U0001f600") for number in range(1000)]
    with running(tmp_path / "daemon") as daemon, Raw(daemon.socket) as raw:
        for name in names:
            raw.open(name)
        assert [one["agent"] for one in admin.agents(daemon.socket)] == names
        assert cli(daemon.socket, "ls", "--names").stdout.decode().splitlines() == names
        with pytest.raises(TooManySessions, match="limit") as refused:
            connect("one more", daemon.socket, False)
    assert sorted(refused.value.idle) == names


def test_there_may_be_more_agents_than_a_usual_limit_of_open_files_has_room_for(tmp_path: Path) -> None:
    """And programs are started with that limit all the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with running(tmp_path / "daemon") as daemon, Raw(daemon.socket) as raw:
            for number in range(60):
                raw.open(str(number))
                reply = raw.ask("run", b"ulimit -Sn; ulimit -Hn", agent=str(number))
                assert reply.parts[:1] == (f"256\n{hard}\n".encode(),), reply
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_idle_are_closed_and_the_busy_are_not(tmp_path: Path) -> None:
    with running(tmp_path / "daemon") as daemon, Raw(daemon.socket) as raw:
        seconds = unique_seconds()

        def expire(agent: str) -> None:
            connect(agent, daemon.socket, False, idle_ttl=0.05).disconnect()

        def agents() -> list[str]:
            return [info["agent"] for info in raw.agents()]

        sessions = {agent: connect(agent, daemon.socket, False, cwd="/") for agent in ("job", "running", "idle")}
        sessions["job"].run(f"sleep {seconds} &")
        hand_back(sessions["running"], f"sleep {seconds}")
        pid = int(sessions["idle"].run("echo $$").stdout)
        for agent in sessions:  # the idle one is closed later than the first look at the others
            expire(agent)
        wait_until(lambda: agents() == ["job", "running"], "the end of the idle one")
        wait_until(lambda: not is_alive(pid), "the end of its bash")
        with pytest.raises(SessionClosed, match="connect again"):
            sessions["idle"].run("true")
        with connect("idle", daemon.socket, False, cwd="/") as again:
            assert again.run("echo fresh").stdout == "fresh\n"
        wait_until(lambda: len(with_argument(seconds)) == 2, "the busy ones' commands")
        expire("idle")
        sessions["running"].interrupt()
        wait_until(lambda: agents() == ["job"], "the end of the one that has become idle")
        sessions["job"].jobs()[0].kill()
        wait_until(lambda: agents() == [], "the end of the last")
        for session in sessions.values():
            session.disconnect()


def test_who_has_just_come_for_a_session_finds_it(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with serving(path) as server, Raw(path) as raw:
        raw.open("a")
        raw.run("a", "true")
        server.agents.session("a").engine.idle_since -= 1000
        with connect("a", path, False) as session:
            assert session.idle < 500


def test_one_that_somebody_holds_is_not_closed_for_being_idle(tmp_path: Path) -> None:
    with running(tmp_path / "daemon") as daemon, Raw(daemon.socket) as raw:
        with Raw(daemon.socket) as holder:
            raw.open("held")
            holder.ask("hold", agent="held", holder="me")
            raw.open("held", idle_ttl=0.05)
            for _ in range(2):  # the second one is closed later than the first look at the one that is held
                raw.open("later", idle_ttl=0.05)
                wait_until(lambda: len(raw.agents()) == 1, "the end of the other")
            assert "held" in [info["agent"] for info in raw.agents()]
        wait_until(lambda: raw.agents() == [], "the end of all, once he has left")
