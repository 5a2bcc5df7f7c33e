"""One session per agent: made on demand, isolated, limited in number, and closed when idle."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from system import PATIENCE, is_alive, stat_fields, unique_seconds, until, wait_until, with_argument

from shellsession import (
    Agents,
    AsyncAgents,
    InvalidRequest,
    LimitReached,
    NoSuchAgent,
    SessionClosed,
    ShellUnavailable,
    TooManySessions,
)
from shellsession.engine.io.line import ThreadPlace
from shellsession.inner import InnerAgents

NewAgents = Callable[..., Agents]


class Agent:
    """Any object may be an agent."""


def test_a_session_that_cannot_be_opened_does_not_count() -> None:
    with Agents(max_sessions=1, bash="/nonexistent/bash") as agents:
        for name in ("one", "two"):
            with pytest.raises(ShellUnavailable, match="bash"):
                agents.run(name, "true")
            with pytest.raises(ShellUnavailable, match="bash"):
                agents.restart(name)
        assert agents.list() == []


def test_a_session_that_another_caller_is_opening_is_kept(new_agents: NewAgents, tmp_path: Path) -> None:
    fails_once = f"if mkdir {tmp_path}/first; then until [ -e {tmp_path}/go ]; do sleep 0.01; done; exit; fi"
    agents = new_agents(startup=[fails_once])
    with ThreadPoolExecutor() as pool:
        first = pool.submit(agents.run, "a", "true")
        wait_until((tmp_path / "first").exists, "its start")
        session = agents.session("a")
        second = pool.submit(agents.run, "a", "X=kept")
        wait_until(lambda: len(session.line.places) == 2, "both of them")
        (tmp_path / "go").touch()
        assert isinstance(first.exception(PATIENCE), ShellUnavailable)
        assert second.result(PATIENCE).ok
    assert agents.session("a") is session


def test_each_agent_has_a_session_of_its_own(new_agents: NewAgents) -> None:
    agents = new_agents()
    agents.run("a", "cd /; X=a")
    agents.run("b", "X=b")
    assert [agents.run(name, "echo $X $PWD").stdout.split()[0] for name in ("a", "b", "a")] == ["a", "b", "a"]
    assert agents.session("a") is agents.session("a")
    assert agents.session("a").pid != agents.session("b").pid


def test_bash_starts_at_the_first_command(new_agents: NewAgents) -> None:
    agents = new_agents()
    agents.session("a")
    (info,) = agents.list()
    assert (info.agent, info.state, info.pid, info.command, info.jobs) == ("a", "new", None, "", 0)
    agents.run("a", "true")
    assert agents.list()[0].state == "idle"


def test_what_runs_is_listed(new_agents: NewAgents, place: Path) -> None:
    agents = new_agents()
    seconds = unique_seconds()
    agents.run("jobs", f"cd /; sleep {seconds} &")
    agents.run("back", "sleep 100", on_timeout="yield", timeout=0.05)
    thread = threading.Thread(target=agents.run, args=("busy", f"sleep {int(seconds) + 1}"))
    thread.start()
    wait_until(lambda: len(agents.list()) == 3 and agents.list()[2].state == "running", "the command")
    infos = {info.agent: info for info in agents.list()}
    assert (infos["jobs"].state, infos["jobs"].jobs, infos["jobs"].cwd) == ("idle", 1, "/")
    assert (infos["back"].state, infos["back"].command, infos["back"].cwd) == ("running", "sleep 100", str(place))
    assert (infos["busy"].state, infos["busy"].idle) == ("running", 0.0)
    assert infos["busy"].command.startswith("sleep ")
    assert infos["busy"].pid is not None
    assert infos["jobs"].age >= infos["jobs"].idle > 0
    agents.close()
    thread.join()


def test_an_agent_that_is_an_object_is_held_weakly(new_agents: NewAgents) -> None:
    agents, agent, other = new_agents(), Agent(), Agent()
    agents.run(agent, "X=1")
    assert (agents.run(agent, "echo $X").stdout, agents.run(other, "echo [$X]").stdout) == ("1\n", "[]\n")
    pid = agents.session(agent).pid
    assert pid is not None
    assert len({info.agent for info in agents.list()}) == 2
    del agent
    gc.collect()
    assert not is_alive(pid)
    assert len(agents.list()) == 1


def test_an_object_is_watched_once_however_often_its_session_is_made(new_agents: NewAgents) -> None:
    """And is forgotten with the last one."""
    agents, agent = new_agents(), Agent()
    for _ in range(3):
        agents.session(agent)
        agents.close(agent)
    assert weakref.getweakrefcount(agent) == 0
    agents.session(agent)
    assert weakref.getweakrefcount(agent) == 1


@pytest.mark.parametrize("agent", [1, ("a",), None], ids=repr)
def test_what_cannot_be_an_agent_is_refused(new_agents: NewAgents, agent: Any) -> None:
    agents = new_agents()
    with pytest.raises(InvalidRequest, match="agent"):
        agents.run(agent, "true")
    assert agents.list() == []


def test_at_the_limit_the_idle_ones_are_named(new_agents: NewAgents) -> None:
    agents = new_agents(3)
    agents.run("idle", "true")
    agents.run("busy", "sleep 100", on_timeout="yield", timeout=0.05)
    agents.run("jobs", "sleep 100 &")
    with pytest.raises(TooManySessions, match=r"3 agents .*idle") as refused:
        agents.run("more", "true")
    assert refused.value.idle == ("idle",)
    assert isinstance(refused.value, LimitReached)
    assert [info.agent for info in agents.list()] == ["idle", "busy", "jobs"]
    agents.close("idle")
    assert agents.run("more", "echo in").stdout == "in\n"


def test_idle_ones_expire_and_busy_ones_do_not(new_agents: NewAgents) -> None:
    agents = new_agents(idle_ttl=2.0)
    agents.run("busy", "sleep 100", on_timeout="yield", timeout=0.02)
    agents.run("jobs", "sleep 100 &")
    agents.run("idle", "X=1")
    held = agents.session("idle")
    pid = held.pid
    wait_until(lambda: len(agents.list()) == 2, "the end of the idle one")
    assert pid is not None
    wait_until(lambda: not is_alive(pid), "the end of its shell: it leaves the list first")
    with pytest.raises(SessionClosed):
        held.run("true")
    first, second = (agents.run("idle", "echo [$X]") for _ in range(2))
    assert (first.stdout, second.reason) == ("[]\n", "")
    assert "closed after being idle for too long, and its state is lost" in first.reason
    assert first.for_model() == f"[]\n[{first.reason}]"
    assert [info.agent for info in agents.list()] == ["busy", "jobs", "idle"]


def test_one_that_is_used_never_expires_under_a_command(new_agents: NewAgents) -> None:
    agents = new_agents(idle_ttl=0.02)
    for number in range(60):
        result = agents.run("a", f"sleep 0.0{number % 4}; echo {number}")
        assert (result.stdout, result.outcome) == (f"{number}\n", "exited")


def test_restart_and_close(new_agents: NewAgents) -> None:
    agents = new_agents()
    agents.run("a", "X=1")
    agents.restart("a")
    assert agents.run("a", "echo [$X]").stdout == "[]\n"
    pid = agents.session("a").pid
    agents.close("a")
    assert pid is not None
    assert not is_alive(pid)
    with pytest.raises(NoSuchAgent, match="'a'"):
        agents.close("a")
    agents.run("b", "X=kept")
    with pytest.raises(InvalidRequest, match="an agent must be"):  # a variable that nobody has set is not all of them
        agents.close(None)
    assert agents.run("b", "echo $X").stdout == "kept\n"
    agents.close()
    agents.close()
    assert agents.list() == []
    with pytest.raises(SessionClosed):
        agents.run("b", "true")


def test_options_are_the_sessions(new_agents: NewAgents) -> None:
    agents = new_agents(cwd="/", extra_env={"A": "1", "B": "2"})
    agents.session("own", cwd="/tmp", extra_env={"A": "3"})
    assert agents.run("own", "echo $A$B $PWD").stdout == "3 /tmp\n"
    assert agents.run("all", "echo $A$B $PWD").stdout == "12 /\n"


@pytest.mark.parametrize(
    "options",
    [{"max_sessions": 0}, {"max_sessions": True}, {"idle_ttl": 0}, {"timeout": -1}, {"cwd": "/dev/null/none"}],
)
def test_bad_options_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Agents(**options)


def test_many_threads_share_many_agents(new_agents: NewAgents) -> None:
    agents = new_agents()
    wrong: list[str] = []

    def work(worker: int) -> None:
        for number in range(40):
            name = f"agent{(worker + number) % 5}"
            said = agents.run(name, f"echo {worker}-{number}; N=$((N+1))").stdout
            if said != f"{worker}-{number}\n":
                wrong.append(said)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(int(agents.run(f"agent{n}", "echo $N").stdout) for n in range(5)) == 8 * 40


def test_a_command_that_begins_as_a_session_is_to_expire_is_not_waited_for(new_agents: NewAgents) -> None:
    """Or nobody would look at the others meanwhile."""
    agents = new_agents()
    agents.run("a1", "X=1")
    session = agents.session("a1")

    class Places(list[ThreadPlace]):
        def append(self, place: ThreadPlace) -> None:
            if runner.ident is None:  # somebody comes just before who looks
                runner.start()
                wait_until(lambda: session.state == "running", "the command")
            super().append(place)

    with ThreadPoolExecutor(1) as threads:
        runner = threading.Thread(target=session.run, args=("until [ -e go ]; do sleep 0.05; done",))
        session.line.places = Places()
        retired = threads.submit(session.close_if_idle, 0.0)
        try:
            retired.result(PATIENCE)
        finally:
            Path(session.cwd, "go").touch()
            runner.join()
    assert session.run("echo $X").stdout == "1\n"


def test_agents_that_are_collected_leave_nothing(place: Path) -> None:
    others = set(threading.enumerate())
    agents = Agents(cwd=place)
    seconds = unique_seconds()
    agents.run("a", f"sleep {seconds} &")
    pid = agents.session("a").pid
    before = [one for one in set(threading.enumerate()) - others if one.name == "shellsession-alarm"]
    assert len(before) == 1
    del agents
    gc.collect()
    assert pid is not None
    assert stat_fields(pid) == []
    assert with_argument(seconds) == []
    wait_until(lambda: not before[0].is_alive(), "the end of the alarm's thread")


def test_the_same_for_asyncio(place: Path) -> None:
    async def main() -> None:
        async with AsyncAgents(2, idle_ttl=0.2, cwd=place) as agents:
            first = await asyncio.gather(*(agents.run("ab"[n % 2], f"X{n}=1; echo {n}") for n in range(20)))
            assert [result.stdout for result in first] == [f"{n}\n" for n in range(20)]
            with pytest.raises(TooManySessions):
                await agents.run("c", "true")
            await agents.run("a", "sleep 100 &")
            await until(lambda: len(agents.list()) == 1)
            assert [info.agent for info in agents.list()] == ["a"]
            await agents.restart("a")
            assert (await agents.run("a", "echo [$X0]")).stdout == "[]\n"
            await agents.close("a")
            with pytest.raises(NoSuchAgent):
                await agents.close("a")
            with pytest.raises(InvalidRequest):
                await agents.close(None)
        with pytest.raises(SessionClosed):
            await agents.run("a", "true")

    asyncio.run(main())


def test_both_kinds_have_the_same_verbs() -> None:
    sync, loop = (
        {
            name: inspect.signature(value).parameters
            for name, value in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }
        for kind in (Agents, AsyncAgents)
    )
    assert sync == loop
    assert sorted(sync.keys() - set(dir(InnerAgents))) == ["close", "list", "restart", "run", "session"]
