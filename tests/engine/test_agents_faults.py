"""Agents whose sessions fail to close, or end as a verb begins, and agents in a forked child."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forks import in_child
from system import PATIENCE, in_thread, until, wait_until

from shellsession import Agents, AsyncAgents, AsyncSession, Session, SessionClosed, TooManySessions

NewAgents = Callable[..., Agents]


def fault() -> None:
    raise ZeroDivisionError("a defect of ours")


async def async_fault() -> None:
    fault()


@pytest.mark.parametrize("faulty", ["a", "b", "c"])
def test_one_that_fails_to_end_keeps_no_other_from_it(
    new_agents: NewAgents, place: Path, monkeypatch: pytest.MonkeyPatch, faulty: str
) -> None:
    async def main() -> dict[str, bool]:
        agents = AsyncAgents(cwd=place)
        sessions = {name: await agents.session(name).open() for name in "abc"}
        with monkeypatch.context() as patch:
            patch.setattr(sessions[faulty], "close", async_fault)
            with pytest.raises(ZeroDivisionError):
                await agents.close()
        closed = {name: session.closed for name, session in sessions.items()}
        await sessions[faulty].close()
        return closed

    expected = {name: name != faulty for name in "abc"}
    assert asyncio.run(main()) == expected
    agents = new_agents()
    sessions = {name: agents.session(name).open() for name in "abc"}
    with monkeypatch.context() as patch:
        patch.setattr(sessions[faulty], "close", fault)
        with pytest.raises(ZeroDivisionError):
            agents.close()
    assert {name: session.closed for name, session in sessions.items()} == expected
    sessions[faulty].close()


@pytest.mark.parametrize("named", [("a",), ()], ids=["one", "all"])
def test_a_cancelled_close_still_closes_all(place: Path, named: tuple[str, ...]) -> None:
    async def main() -> list[bool]:
        agents = AsyncAgents(cwd=place)
        sessions = [await agents.session(name).open() for name in "ab"]
        closing = asyncio.create_task(agents.close(*named))
        await asyncio.sleep(0)  # it has begun
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        left = [session.closed for session in sessions]
        await agents.close()
        return left

    assert asyncio.run(main()) == [True, not named]


def retire_badly(idle: float | None) -> None:
    raise OSError(28, f"a defect of ours, after {idle} s")


async def retire_badly_async(idle: float | None) -> None:
    retire_badly(idle)


@pytest.mark.parametrize("faulty", ["a", "b", "c"])
def test_one_that_cannot_expire_keeps_no_other_from_it(
    new_agents: NewAgents, monkeypatch: pytest.MonkeyPatch, faulty: str
) -> None:
    told: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda of: told.append(of.exc_type))
    agents = new_agents(idle_ttl=0.2)
    with monkeypatch.context() as patch:
        patch.setattr(agents.session(faulty), "close_if_idle", retire_badly)
        for name in "abc":
            agents.run(name, "true")
        wait_until(lambda: [info.agent for info in agents.list()] == [faulty], "the end of the others")
        wait_until(lambda: len(told) > 1, "it is told, and tried again")
    wait_until(lambda: agents.list() == [], "its end")
    assert set(told) == {OSError}


@pytest.mark.parametrize("faulty", ["a", "b", "c"])
def test_one_that_cannot_expire_keeps_no_other_from_it_in_a_loop(
    place: Path, monkeypatch: pytest.MonkeyPatch, faulty: str
) -> None:
    async def main() -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context.get("exception")))
        async with AsyncAgents(idle_ttl=0.2, cwd=place) as agents:
            with monkeypatch.context() as patch:
                patch.setattr(agents.session(faulty), "close_if_idle", retire_badly_async)
                for name in "abc":
                    await agents.run(name, "true")
                await until(lambda: [info.agent for info in agents.list()] == [faulty])
                await until(lambda: told)
            await until(lambda: agents.list() == [])
            assert {type(fault) for fault in told} == {OSError}

    asyncio.run(main())


@pytest.mark.parametrize("verb", [("run", "true"), ("restart",)], ids=lambda verb: verb[0])
def test_one_that_expires_as_a_verb_begins_is_made_anew(new_agents: NewAgents, verb: tuple[str, ...]) -> None:
    """And a restart makes up for what it had kept, as the fresh one has nothing of it."""
    agents, (name, *given) = new_agents(), verb
    agents.run("a", "true")
    session = agents.session("a")
    session.relied_on = True
    proper = getattr(session, name)

    def expires(*given: str) -> Any:
        session.close_if_idle(0.0)
        return proper(*given)

    setattr(session, name, expires)
    getattr(agents, name)("a", *given)
    assert session.closed
    assert agents.run("a", "echo on").stdout == "on\n"
    assert agents.registry.take_loss("a") is (name == "run")


@pytest.mark.parametrize("verb", [("run", "true"), ("restart",)], ids=lambda verb: verb[0])
def test_and_with_asyncio(place: Path, verb: tuple[str, ...]) -> None:
    async def main() -> None:
        name, *given = verb
        async with AsyncAgents(cwd=place) as agents:
            await agents.run("a", "true")
            session = agents.session("a")
            session.relied_on = True
            proper = getattr(session, name)

            async def expires(*given: str) -> Any:
                await session.close_if_idle(0.0)
                return await proper(*given)

            setattr(session, name, expires)
            await getattr(agents, name)("a", *given)
            assert session.closed
            assert (await agents.run("a", "echo on")).stdout == "on\n"
            assert agents.registry.take_loss("a") is (name == "run")

    asyncio.run(main())


def is_in(thread: threading.Thread, name: str) -> bool:
    """Is it in a function of that name?"""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None


def test_close_waits_for_a_session_that_is_expiring(new_agents: NewAgents, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go, done = threading.Event(), threading.Event(), threading.Event()
    retire = Session.close_if_idle

    def slowly(session: Session, idle: float | None) -> None:
        begun.set()
        go.wait(PATIENCE)
        retire(session, idle)
        done.set()

    monkeypatch.setattr(Session, "close_if_idle", slowly)  # as a session with much to end
    agents = new_agents(idle_ttl=0.05)
    agents.run("a", "true")
    assert begun.wait(PATIENCE)
    closing, _ = in_thread(agents.close)
    wait_until(lambda: is_in(closing, "finish"), "who waits")
    go.set()
    closing.join(PATIENCE)
    assert done.is_set()


def test_the_same_in_a_loop(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        begun, done = asyncio.Event(), asyncio.Event()
        retire = AsyncSession.close_if_idle

        async def slowly(session: AsyncSession, idle: float | None) -> None:
            begun.set()
            await until(lambda: session.closed)
            await retire(session, idle)
            done.set()

        monkeypatch.setattr(AsyncSession, "close_if_idle", slowly)  # as a session with much to end
        async with AsyncAgents(idle_ttl=0.05, cwd=place) as agents:
            await agents.run("a", "true")
            await asyncio.wait_for(begun.wait(), PATIENCE)
        assert done.is_set()

    asyncio.run(main())


def test_an_agent_has_a_session_of_its_own_in_a_forked_child(new_agents: NewAgents) -> None:
    agents = new_agents(2, idle_ttl=100)
    agents.run("a", "X=parents")
    agents.run("b", "X=parents")
    pids = [info.pid for info in agents.list()]

    def work() -> None:
        assert agents.list() == []
        assert agents.run("a", "echo [$X]; X=childs").stdout == "[]\n"
        assert agents.run("c", "echo [$X]").stdout == "[]\n"
        assert [info.agent for info in agents.list()] == ["a", "c"]
        assert not {info.pid for info in agents.list()} & set(pids)
        with pytest.raises(TooManySessions, match="2 agents"):
            agents.run("b", "true")
        agents.close("c")
        in_child(lambda: agents.run("b", "true"))
        assert agents.run("a", "echo $X").stdout == "childs\n"
        agents.close()
        with pytest.raises(SessionClosed):
            agents.run("a", "true")

    in_child(work)
    assert [info.pid for info in agents.list()] == pids
    assert [agents.run(name, "echo $X").stdout for name in "ab"] == ["parents\n"] * 2


def test_they_expire_in_a_forked_child_too(new_agents: NewAgents) -> None:
    agents = new_agents(idle_ttl=0.5)
    agents.run("a", "sleep 100 &")  # which keeps it, and the alarm set

    def work() -> None:
        agents.run("b", "true")
        wait_until(lambda: agents.list() == [], "its end")
        agents.close()

    in_child(work)


def test_a_fork_while_another_thread_is_at_the_list_of_sessions(new_agents: NewAgents) -> None:
    agents = new_agents()
    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with agents.registry.lock:
            held.set()
            forked.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def work() -> None:
        assert agents.run("a", "echo in").stdout == "in\n"
        agents.close()

    try:
        in_child(work)
    finally:
        forked.set()
        thread.join()


def test_closed_ones_are_closed_in_a_forked_child(new_agents: NewAgents) -> None:
    agents = new_agents()
    agents.close()

    def work() -> None:
        with pytest.raises(SessionClosed):
            agents.run("a", "true")

    in_child(work)


def test_the_same_in_a_loop_of_a_forked_child(place: Path) -> None:
    agents = AsyncAgents(idle_ttl=0.5, cwd=place)

    async def first() -> None:
        await agents.run("a", "X=1")

    async def second() -> None:
        assert (await agents.run("a", "echo [$X]")).stdout == "[]\n"
        await until(lambda: agents.list() == [])

    async def last() -> None:
        assert (await agents.run("a", "echo [$X]")).stdout == "[1]\n"
        await agents.close()

    asyncio.run(first())
    in_child(lambda: asyncio.run(second()))
    asyncio.run(last())
