"""What is collected: a session that nobody has any more, also where a callback of its own had it."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from kinds import in_a_loop
from support import in_thread, is_alive, wait_until

from shellsession import TTY, Agents, AsyncSession, Limits, Result, Session, base
from shellsession.engine.steps import Engine
from shellsession.engine.waiting import Steps, drive


class Owner:
    """It has a session, and listens to it itself."""

    def __init__(self, place: Path) -> None:
        self.session = Session(cwd=place)
        self.heard = b""

    def hear(self, _: str, data: bytes) -> None:
        self.heard += data

    def fail(self, _: str, data: bytes) -> None:
        raise ZeroDivisionError


def to_its_end(owner: Owner) -> None:
    owner.session.run("echo hi", on_output=owner.hear)
    assert owner.heard == b"hi\n"


def with_its_shell(owner: Owner) -> None:
    assert not owner.session.run("echo hi; exit 3", on_output=owner.hear).state_kept
    owner.session.open()


def ended_by_us(owner: Owner) -> None:
    result = owner.session.run("echo hi; read x </dev/tty; echo $x", on_output=owner.hear, timeout=20)
    assert result.outcome == "interrupted"


def faulty(owner: Owner) -> None:
    with pytest.raises(ZeroDivisionError):
        owner.session.run("echo hi; sleep 100", on_output=owner.fail)


ENDS = [to_its_end, with_its_shell, ended_by_us, faulty]


@pytest.mark.parametrize("end", ENDS, ids=[end.__name__ for end in ENDS])
def test_a_session_whose_callback_had_it_is_collected(place: Path, end: Callable[[Owner], None]) -> None:
    owner = Owner(place)
    end(owner)
    pid = owner.session.pid
    assert pid is not None
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
    wait_until(lambda: not is_alive(pid), "the end of bash")


def test_an_agent_whose_callback_it_was_is_collected(place: Path) -> None:
    class Agent:
        def hear(self, _: str, data: bytes) -> None:
            pass

    with Agents(cwd=place) as agents:
        agent = Agent()
        agents.run(agent, "echo hi", on_output=agent.hear)
        assert len(agents.list()) == 1
        del agent
        gc.collect()
        assert agents.list() == []


def test_the_session_of_a_collected_agent_ends_while_the_others_go_on(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Agent:
        pass

    was_free, end = list[bool](), base._end

    def look() -> bool:
        if is_free := agents._registry.lock.acquire(blocking=False):
            agents._registry.lock.release()
        return is_free

    def look_and_end(engine: Engine, owner: int) -> None:
        thread, told = in_thread(look)
        thread.join()
        was_free.extend(told)
        end(engine, owner)

    with Agents(cwd=place) as agents:
        monkeypatch.setattr(base, "_end", look_and_end)
        agent = Agent()
        agents.run(agent, "true")
        monkeypatch.undo()
        del agent
        gc.collect()
        assert was_free == [True]


def test_the_same_with_asyncio(place: Path) -> None:
    class AsyncOwner:
        def __init__(self) -> None:
            self.session = AsyncSession(cwd=place)

        async def hear(self, _: str, data: bytes) -> None:
            pass

    async def work() -> tuple[weakref.ref[AsyncOwner], int | None]:
        owner = AsyncOwner()
        await owner.session.run("echo hi", on_output=owner.hear)
        return weakref.ref(owner), owner.session.pid

    async def main() -> None:
        gone, pid = await work()
        gc.collect()
        assert gone() is None
        assert pid is not None

    asyncio.run(main())


LARGE = "head -c 1M /dev/zero; echo failed >&2; (exit 3)"


def by_run(sh: Session) -> Result:
    return sh.run(LARGE)


def by_stream(sh: Session) -> Result:
    *_, result = sh.stream(LARGE)
    assert isinstance(result, Result)
    return result


def by_wait(sh: Session) -> Result:
    sh.run(f"read line; {LARGE}", stdin=TTY)
    return sh.send("on\n")


def by_interrupt(sh: Session) -> Result:
    sh.run(f"{LARGE}; sleep 1000", timeout=0.05, on_timeout="yield", limits=Limits(max_output=100))
    return sh.interrupt()


@pytest.mark.parametrize("get", [by_run, by_stream, by_wait, by_interrupt])
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_large_result_is_held_by_who_asked_and_by_nobody_else(kind: str, get: Callable[[Session], Result]) -> None:
    with in_a_loop(AsyncSession) if kind == "asyncio" else Session() as sh:
        held = weakref.ref(get(sh))
        wait_until(lambda: gc.collect() >= 0 and (held() is None or len(held().stdout) < 4096), "its end")  # type: ignore[union-attr]
        assert sh.run("echo $?").stdout == "3\n" or get is by_interrupt


class Struck(Exception):
    """What a signal's handler raises, in a host that has one."""


def test_a_signal_at_its_collection_leaves_nothing_of_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Steps[object]] = []

    def strike_first(steps: Steps[object]) -> object:
        ends.append(steps)
        if len(ends) == 1:
            raise Struck
        return drive(steps)

    session = Session(cwd=place).open()
    pid = session.pid
    assert pid is not None
    with monkeypatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda _: None)  # nobody hears of what is raised in a finalizer
        patch.setattr(base, "drive", strike_first)
        del session
        gc.collect()
    assert len(ends) == 2
    assert not is_alive(pid)
