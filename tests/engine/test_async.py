"""The asyncio side, except cancellation: gather, a change of loop, and a loop that stays free and clean."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import aclosing
from pathlib import Path

import pytest
from loops import seen, session
from system import PATIENCE, unique_seconds, until, wait_until, with_argument

from shellsession import TTY, AsyncSession, Result, SessionBusy
from shellsession.engine.io.streams import Streams


def test_tasks_on_one_session_are_served_one_after_the_other(place: Path) -> None:
    async def main() -> None:
        async with session(place) as sh:
            await sh.run("n=0")
            results = await asyncio.gather(*(sh.run(f"m=$n; /bin/true; n=$((m + 1)); echo {i}") for i in range(20)))
            assert [result.stdout for result in results] == [f"{i}\n" for i in range(20)]
            assert (await sh.run("echo $n")).stdout == "20\n"

    asyncio.run(main())


def test_many_sessions_run_side_by_side(place: Path) -> None:
    """Each waits for all others, so one after the other would never end."""

    async def main() -> None:
        sessions = [AsyncSession(cwd=place, timeout=PATIENCE) for _ in range(8)]
        command = "touch {0}; until [ $(ls | wc -l) = 8 ]; do sleep 0.01; done; echo {0}"
        async with asyncio.timeout(PATIENCE):
            results = await asyncio.gather(*(sh.run(command.format(i)) for i, sh in enumerate(sessions)))
            await asyncio.gather(*(sh.close() for sh in sessions))
        assert [result.stdout for result in results] == [f"{i}\n" for i in range(8)]

    asyncio.run(main())


def test_the_loop_goes_on_while_a_command_runs(place: Path) -> None:
    async def main() -> None:
        async with session(place) as sh:
            task = asyncio.create_task(sh.run("read x <go; echo $x"))
            while not (place / "go").exists():
                os.mkfifo(place / "go")
                await asyncio.sleep(0)
            await asyncio.to_thread((place / "go").write_text, "went\n")
            assert (await task).stdout == "went\n"

    asyncio.run(main())


def test_breaking_out_of_a_stream(place: Path) -> None:
    async def main() -> None:
        seconds = unique_seconds()
        async with session(place) as sh:
            async with aclosing(sh.stream(f"echo a; sleep {seconds}")) as stream:
                async for item in stream:
                    assert item == ("stdout", b"a\n")
                    with pytest.raises(SessionBusy):
                        await sh.run("echo never")
                    break
            assert with_argument(seconds) == []
            assert (await sh.run("echo free")).stdout == "free\n"

    asyncio.run(main())


def test_a_close_from_another_task_ends_a_running_call(place: Path) -> None:
    async def main() -> None:
        seconds = unique_seconds()
        async with session(place) as sh:
            task = asyncio.create_task(sh.run(f"echo partial; sleep {seconds}"))
            await seen(seconds)
            await sh.close()
            result: Result = await task
            assert (result.stdout, result.outcome, result.state_kept) == ("partial\n", "shell_exited", False)
            assert "closed" in result.reason
            assert with_argument(seconds) == []

    asyncio.run(main())


def test_a_restart_from_another_task_ends_a_running_call(place: Path) -> None:
    async def main() -> None:
        seconds = unique_seconds()
        async with session(place) as sh:
            task = asyncio.create_task(sh.run(f"sleep {seconds}"))
            await seen(seconds)
            await sh.restart()
            result = await task
            assert (result.outcome, result.state_kept) == ("shell_exited", False)
            assert "restarted" in result.reason
            assert (await sh.run("echo fresh")).stdout == "fresh\n"

    asyncio.run(main())


def test_a_session_may_move_to_another_loop(place: Path) -> None:
    sh = AsyncSession(cwd=place, timeout=PATIENCE)

    async def first() -> None:
        await sh.run("X=1")
        await sh.run("sleep 1000 &")

    async def second() -> str:
        said = (await sh.run("echo $X")).stdout
        await sh.close()
        return said

    asyncio.run(first())
    assert asyncio.run(second()) == "1\n"


def test_no_thread_is_started(place: Path) -> None:
    async def main() -> None:
        async with session(place) as sh:
            before = set(threading.enumerate())
            await sh.run("sleep 1000 & echo hi")
            await sh.run("read x", stdin=TTY)
            assert set(threading.enumerate()) <= before

    asyncio.run(main())


def test_close_gives_every_descriptor_back(place: Path) -> None:
    async def main() -> None:
        await asyncio.sleep(0)
        before = set(os.listdir("/proc/self/fd"))
        for _ in range(5):
            async with session(place) as sh:
                await sh.run("sleep 1000 & echo hi; echo >&2", timeout=5)
                await sh.run("read x", stdin=TTY)
        assert set(os.listdir("/proc/self/fd")) == before

    asyncio.run(main())


def test_a_forgotten_session_is_ended_with_its_loop_closed(place: Path) -> None:
    seconds = unique_seconds()

    async def main() -> None:
        await AsyncSession(cwd=place, timeout=PATIENCE).run(f"sleep {seconds} &")

    asyncio.run(main())
    import gc

    gc.collect()
    wait_until(lambda: not with_argument(seconds), "the end of the job")


def test_an_idle_loop_is_left_alone(place: Path) -> None:
    """With nothing to do the loop sleeps: a job that talks, then falls silent, must not make it spin."""

    async def main() -> None:
        async with session(place) as sh:
            await sh.run("{ echo noise; sleep 1000; } &")
            await sh.run("echo hi")
            before = time.process_time()
            await sh.run("sleep 0.3")
            assert time.process_time() - before < 0.15

    asyncio.run(main())


def watched_by(epoll: int) -> set[int]:
    """What the kernel looks at for it, by the number it had then."""
    told = Path(f"/proc/self/fdinfo/{epoll}").read_text(encoding="utf-8")
    return {int(line.split()[1]) for line in told.splitlines() if line.startswith("tfd:")}


def test_a_job_that_has_ended_leaves_the_loop_alone_though_a_fork_holds_its_streams(place: Path) -> None:
    """A closed descriptor stays in epoll as long as anybody has the file: it told of its end again and again."""

    async def main() -> None:
        async with session(place) as sh:
            await sh.run("mkfifo go; read x <go &", tty=False)
            (job,) = sh.jobs()
            held = [os.dup(stream.fd) for stream, *_ in job._open.values()]  # as a fork of the host has them
            await sh.run("echo >go; wait", tty=False)
            await until(lambda: not job.running)
            selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
            watched = watched_by(selector.fileno())
            for fd in held:
                os.close(fd)
            assert held
            assert watched <= {key.fd for key in selector.get_map().values()}

    asyncio.run(main())


def test_a_callback_that_may_not_end_its_session_ends_nothing(place: Path) -> None:
    async def main() -> None:
        async with session(place) as sh:
            await sh.run("kept=1")
            refused = []

            async def ends_it(*_: object) -> None:
                for end in (sh.restart, sh.close):
                    with pytest.raises(SessionBusy):
                        await end()
                    refused.append(end)

            result = await sh.run("echo one", on_output=ends_it)
            assert (result.outcome, len(refused)) == ("exited", 2)
            assert (await sh.run("echo $kept")).stdout == "1\n"

    asyncio.run(main())


def test_what_is_closed_with_a_lost_stream_is_put_out_of_the_loop(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What replaces it may get the descriptor of any of them, and would not be heard of."""

    async def main() -> None:
        async with session(place) as sh:
            await sh.run("true", tty=True)
            monkeypatch.setattr(Streams, "misplaced", lambda self: [])  # it goes just after it was looked at
            forgotten, forget = list[int](), sh.engine.host.forget_fd

            def note(fd: int) -> None:
                forgotten.append(fd)
                forget(fd)

            sh.engine.host = sh.engine.host._replace(forget_fd=note)
            streams = sh.engine.live().streams
            before, lost = [stream.fd for stream in streams], streams.get("err")
            os.unlink(lost.path)
            os.mkdir(lost.path)
            assert (await sh.run("echo one", tty=False)).stdout == "one\n"
            assert lost not in streams
            assert set(before) <= set(forgotten)

    asyncio.run(main())
