"""Garbage collection of sessions, including a session that its own callback refers to."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import pytest
from daemons import serving
from escapes import of_host
from kinds import in_a_loop
from system import in_thread, is_alive, wait_until

from shellsession import TTY, Agents, AsyncSession, Limits, Result, Session, base, connect
from shellsession.engine.io.threads import Steps, drive
from shellsession.engine.verbs.on_branch import BranchEngine


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
        if is_free := agents.registry.lock.acquire(blocking=False):
            agents.registry.lock.release()
        return is_free

    def look_and_end(engine: BranchEngine, owner: int) -> None:
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


@pytest.mark.sampled
@pytest.mark.parametrize("get", [by_run, by_stream, by_wait, by_interrupt])
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_large_result_is_held_by_who_asked_and_by_nobody_else(kind: str, get: Callable[[Session], Result]) -> None:
    with in_a_loop(AsyncSession) if kind == "asyncio" else Session() as sh:
        held = weakref.ref(get(sh))
        wait_until(lambda: gc.collect() >= 0 and (held() is None or len(held().stdout) < 4096), "its end")  # type: ignore[union-attr]
        assert sh.run("echo $?").stdout == "3\n" or get is by_interrupt


def given(size: int) -> bytes:
    """Made by each who wants it: one that a test's code has as a constant is held by that."""
    return b"x" * size


def fed(sh: Session, size: int) -> None:
    assert sh.run("wc -c", stdin=given(size)).stdout == f"{size}\n"


def fed_apart(sh: Session, size: int) -> None:
    assert sh.run("wc -c", stdin=given(size), isolated=True).stdout == f"{size}\n"


def fed_by_stream(sh: Session, size: int) -> None:
    *_, result = sh.stream("echo begun; wc -c", stdin=given(size))
    assert isinstance(result, Result)


def fed_in_vain(sh: Session, size: int) -> None:
    assert sh.run("read -rn1; sleep 1000", stdin=given(size), timeout=0.2).outcome == "timed_out"


def fed_to_a_lost_shell(sh: Session, size: int) -> None:
    assert not sh.run("exit 3", stdin=given(size)).state_kept


def told_of_a_lost_shell(sh: Session, size: int) -> None:
    assert sh.run("true").ok
    pid = sh.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "the shell's end")
    assert not sh.run("true", stdin=given(size)).ran


def fed_to_what_runs_on(sh: Session, size: int) -> None:
    """Once bash has opened it: what comes back before that may have to be typed again."""
    assert sh.run("read -rn1; sleep 1000", stdin=given(size), timeout=0.05, on_timeout="yield").runs_on


def fed_to_what_runs_on_apart(sh: Session, size: int) -> None:
    options = {"timeout": 0.05, "on_timeout": "yield", "isolated": True}
    assert sh.run("read -rn1; sleep 1000", stdin=given(size), **options).runs_on  # type: ignore[arg-type]


def named(sh: Session, size: int) -> None:
    assert sh.run(b"echo " + given(size) + b" | wc -c").stdout == f"{size + 1}\n"


GIVEN = [
    *(fed, fed_apart, fed_by_stream, fed_in_vain, fed_to_a_lost_shell, told_of_a_lost_shell),
    *(fed_to_what_runs_on, fed_to_what_runs_on_apart, named),
]


@contextmanager
def one_of(kind: str, place: Path) -> Iterator[Session]:
    with ExitStack() as stack:
        if kind == "threads":
            yield stack.enter_context(Session(cwd=place))
        elif kind == "asyncio":
            yield stack.enter_context(in_a_loop(lambda: AsyncSession(cwd=place)))
        else:  # its server is in this process, too
            stack.enter_context(serving(str(place / "socket")))
            yield cast(Session, stack.enter_context(connect("a", str(place / "socket"), False, cwd=place)))


@pytest.mark.sampled
@pytest.mark.parametrize("give", GIVEN, ids=[give.__name__ for give in GIVEN])
@pytest.mark.parametrize("kind", ["threads", "asyncio", "daemon"])
def test_what_a_command_was_given_is_not_held_once_bash_has_it(
    kind: str, give: Callable[[Session, int], None], place: Path
) -> None:
    """Neither in memory, nor, once the command has ended, in a file that is in memory, too."""
    size = 4 << 20
    with one_of(kind, place) as sh:
        give(sh, 10)
        sh.restart()
        sh.run("true")
        gc.collect()
        tracemalloc.start()
        try:
            give(sh, size)
            wait_until(lambda: still_held(sh) < size // 4, "that it is let go")
        finally:
            tracemalloc.stop()
        files = [os.stat(found) for top in of_host(os.getpid()) for found in Path(top).rglob("*") if found.is_file()]
        assert sh.state == "running" or sum(file.st_size for file in files) < size // 4


def still_held(sh: Session) -> int:
    """Bytes that were taken since the counting began, and not given back. (What runs on is looked at when asked.)"""
    if sh.state == "running":
        sh.poll()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


class Interrupted(Exception):
    """What a signal's handler raises, in a host that has one."""


def test_a_signal_at_its_collection_leaves_nothing_of_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Steps[object]] = []

    def strike_first(steps: Steps[object]) -> object:
        ends.append(steps)
        if len(ends) == 1:
            raise Interrupted
        return drive(steps)

    gc.collect()  # sessions of earlier tests
    session = Session(cwd=place).open()
    pid = session.pid
    assert pid is not None
    gc.collect()  # those of earlier tests
    with monkeypatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda _: None)  # nobody hears of what is raised in a finalizer
        patch.setattr(base, "drive", strike_first)
        del session
        gc.collect()
    assert len(ends) == 2
    assert not is_alive(pid)
