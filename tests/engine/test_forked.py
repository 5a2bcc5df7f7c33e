"""A forked child of the host cannot affect its parent's session."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from escapes import of_host
from forks import Fork, fork, in_child
from system import descriptors, unique_seconds, until, with_argument

from shellsession import Agents, AsyncSession, Result, Session, SessionClosed
from shellsession.engine.bash import spawn, watcher as runtime
from shellsession.engine.io.loop import LoopDrainer
from shellsession.engine.kernel import vfork


def test_a_forked_child_of_the_host_never_harms_its_parent(place: Path) -> None:
    sessions = [Session(cwd=place)]

    def work() -> None:
        sessions[0].close()
        with pytest.raises(SessionClosed, match="forked child"):
            sessions[0].run("true")
        with Session(cwd=place) as own:
            assert own.run("echo mine").stdout == "mine\n"
        sessions.clear()
        gc.collect()

    with sessions[0] as session:
        session.run(f"X=1; sleep {(seconds := unique_seconds())} &")
        child = in_child(work)
        assert session.run("echo $X").stdout == "1\n"
        assert len(with_argument(seconds)) == 1
        assert of_host(child) == set()


@pytest.mark.parametrize("kind", [Session, AsyncSession])
def test_pickling_a_session_is_refused_in_words(kind: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(kind())


def test_a_forked_child_lets_go_of_its_parents_sessions_without_delay(place: Path) -> None:
    """Each of them took 0.1 s: ptyprocess signals, waits and sleeps at its end."""
    sessions, agents = [Session(cwd=place), Session(cwd=place)], Agents(cwd=place)
    done: list[object] = []

    def note(what: object, *_: object) -> None:
        done.append(what)

    def let_go() -> None:
        time.sleep, os.kill, os.waitpid = note, note, note  # type: ignore[assignment]
        opened = descriptors()
        sessions.clear()
        gc.collect()
        assert not any(done)
        assert len([name for _, name in opened - descriptors() if "ptmx" in name]) == 2
        assert of_agent() is None  # since the fork, or just now

    with agents:
        assert all(session.run("X=1").ok for session in sessions)
        agents.run("a", "X=1")
        of_agent = weakref.ref(agents.session("a"))
        in_child(let_go)
        told = [agents.run("a", "echo $X"), *(session.run("echo $X") for session in sessions)]
        assert [result.stdout for result in told] == ["1\n"] * 3
    for session in sessions:
        session.close()


def test_a_forked_child_that_ends_by_itself_harms_nobody(place: Path) -> None:
    with Session(cwd=place) as session:
        session.run("X=1")
        if (child := fork()) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        assert session.run("echo $X").stdout == "1\n"


def test_a_stream_is_the_parents_to_follow_and_to_end(place: Path) -> None:
    with Session(cwd=place) as session:
        streams = [session.stream("X=1; echo a; until [ -e go ]; do sleep 0.05; done; echo b", tty=False)]
        assert next(streams[0]) == ("stdout", b"a\n")

        def work() -> None:
            with pytest.raises(SessionClosed, match="forked child"):
                next(streams[0])
            streams.clear()
            gc.collect()

        in_child(work)
        in_child(streams.clear)
        (place / "go").touch()
        rest = list(streams[0])
        assert rest[0] == ("stdout", b"b\n")
        assert session.run("echo $X").stdout == "1\n"


def stay(session: Session, place: Path, command: str) -> Result:
    session.run(f"until [ -e begin ]; do sleep 0.01; done; {command}", timeout=0.01, on_timeout="yield")
    (place / "begin").touch()
    return session.wait()


def follow(session: Session, _: Path, command: str) -> Result:
    *_pieces, result = session.stream(command)
    assert isinstance(result, Result)
    return result


VERBS: dict[str, Callable[[Session, Path, str], Result]] = {
    "run": lambda session, _, command: session.run(command),
    "wait": stay,
    "stream": follow,
}
LEAVES: Final = pytest.mark.parametrize("leaves_by", [SystemExit, SessionClosed], ids=["leaves", "goes on"])
# It prints all the time, so that a child that goes on has something to take from its parent.
COUNTS: Final = "n=0; until [ -e go ]; do echo $((n++)); sleep 0.01; done; echo end"


def assert_is_whole(result: Result) -> None:
    *numbers, end = result.stdout.split()
    assert (result.outcome, result.exit_code, result.reason, end) == ("exited", 0, "", "end")
    assert numbers == [str(number) for number in range(len(numbers))]


@contextmanager
def forked_while_it_counts(
    place: Path, leaves_by: type[BaseException]
) -> Iterator[tuple[Session, Callable[..., None]]]:
    """A session, and what forks the host, whereupon COUNTS ends; what it did before is still there afterwards."""
    with Fork(leaves_by) as fork, Session(cwd=place) as session:

        def work(*_: object) -> None:
            if not fork():
                (place / "go").touch()

        session.run("X=1")
        yield session, work
        assert session.run("echo $X").stdout == "1\n"


@LEAVES
@pytest.mark.parametrize("verb", VERBS)
def test_a_child_that_a_signal_handler_forks_in_the_middle_of_a_verb(
    place: Path, verb: str, leaves_by: type[BaseException]
) -> None:
    """A worker of a server that forks them beforehand."""
    with forked_while_it_counts(place, leaves_by) as (session, work):
        before = signal.signal(signal.SIGUSR1, work)
        try:
            assert_is_whole(VERBS[verb](session, place, f"kill -USR1 {os.getpid()}; {COUNTS}"))
        finally:
            signal.signal(signal.SIGUSR1, before)


@LEAVES
@pytest.mark.parametrize(
    ("where", "name"),
    [(runtime, "make_private"), (vfork, "spawn"), (spawn, "Shell")],
    ids=["its directory", "its process", "what is known of it"],
)
def test_a_child_that_a_signal_handler_forks_as_bash_starts(
    place: Path, monkeypatch: pytest.MonkeyPatch, where: object, name: str, leaves_by: type[BaseException]
) -> None:
    """In a host with threads, where no signal can be put off."""
    with Fork(leaves_by) as fork, Session(cwd=place) as session:
        real = getattr(where, name)

        def interrupts(*given: object, **named: object) -> Any:
            came = real(*given, **named)
            fork()
            return came

        monkeypatch.setattr(where, name, interrupts)
        assert session.run("X=1; echo mine").stdout == "mine\n"
        assert session.run("echo $X >file; cat file", tty=False).stdout == "1\n"


@LEAVES
def test_a_child_that_a_callback_forks(place: Path, leaves_by: type[BaseException]) -> None:
    with forked_while_it_counts(place, leaves_by) as (session, work):
        assert_is_whole(session.run(COUNTS, on_output=work))


def test_a_child_that_one_task_forks_while_another_is_in_a_verb(place: Path) -> None:
    async def main(fork: Fork) -> None:
        async with AsyncSession(cwd=place) as session:
            await session.run("X=1")
            task = asyncio.create_task(session.run(COUNTS))
            await until(lambda: session.state == "running")
            fork()
            (place / "go").touch()
            assert_is_whole(await task)
            assert (await session.run("echo $X")).stdout == "1\n"

    with Fork(ZeroDivisionError) as fork:
        asyncio.run(main(fork))


def test_what_a_loop_reads_between_two_verbs_is_the_parents() -> None:
    heard = list[bytes]()
    drainer, loop, (reading, writing) = LoopDrainer(), asyncio.new_event_loop(), os.pipe()

    def hear() -> bool:
        heard.append(os.read(reading, 99))
        return True

    def go_on() -> None:
        loop.run_until_complete(asyncio.sleep(0))
        assert heard == []
        drainer.remove(reading, hear)

    try:
        drainer.enter(loop)
        drainer.add(reading, hear)
        os.write(writing, b"precious")
        in_child(go_on)
        loop.run_until_complete(asyncio.sleep(0))
        assert heard == [b"precious"]
        drainer.remove(reading, hear)
    finally:
        loop.close()
        os.close(reading)
        os.close(writing)


def test_what_a_job_has_printed_is_the_parents_to_look_at(place: Path) -> None:
    """Somebody may just be reading for it at the fork, and has its lock for ever then."""
    with Session(cwd=place, tty=False) as session:
        session.run("sleep 100 &")
        (job,) = session.jobs()

        def look() -> None:
            for ask in (lambda: job.stdout, lambda: job.output("stderr"), job.kill):
                with pytest.raises(SessionClosed, match="forked child"):
                    ask()

        with job._lock, ThreadPoolExecutor(1) as thread:
            thread.submit(in_child, look).result()


def test_the_same_in_a_loop(place: Path) -> None:
    async def main() -> None:
        async with AsyncSession(cwd=place) as session:
            stream = session.stream("echo a; until [ -e go ]; do sleep 0.05; done; echo b", tty=False)
            assert await anext(stream) == ("stdout", b"a\n")

            async def leave() -> None:
                with pytest.raises(SessionClosed, match="forked child"):
                    await anext(stream)

            with ThreadPoolExecutor(1) as thread:  # one without a loop
                thread.submit(in_child, lambda: asyncio.run(leave())).result()
            (place / "go").touch()
            assert await anext(stream) == ("stdout", b"b\n")
            last = await anext(stream)
            assert isinstance(last, Result)
            assert last.exit_code == 0

    asyncio.run(main())
