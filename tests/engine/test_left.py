"""What every session promises after a caller has stopped iterating over a command's output."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Generator
from typing import Any, cast

import kinds
import pytest
from system import PATIENCE, is_alive, unique_seconds, until, wait_until, with_argument

from shellsession import AsyncSession, NotRunning, Session
from shellsession.errors import GONE

sh = kinds.sh

pytestmark = pytest.mark.usefixtures("company")


def leave(sh: Session, command: str, once: Callable[[], Any] = lambda: None) -> None:
    """Its first piece is enough for us."""
    pieces = cast(Generator[Any], sh.stream(command))
    assert next(pieces) == ("stdout", b"begun\n")
    wait_until(lambda: once() is not False, "what it does then")
    pieces.close()


@pytest.mark.sampled
@pytest.mark.parametrize("verb", ["wait", "poll", "interrupt"])
@pytest.mark.parametrize("rest", ["", "; echo more >&2", "; sleep 100"], ids=["ended", "said more", "runs"])
def test_nobody_is_notified_how_it_ended(sh: Session, rest: str, verb: str) -> None:
    sh.run("X=kept")
    leave(sh, "echo begun" + rest)
    with pytest.raises(NotRunning):
        getattr(sh, verb)()
    assert sh.run("echo $X").stdout == "kept\n"


@pytest.mark.parametrize("end", ["kill -9 $$", "sleep 0.1; kill -9 $$", "trap '' INT; while :; do :; done"])
def test_but_that_it_cost_the_shell(new_session: Callable[..., Session], end: str) -> None:
    sh = new_session()
    sh.run("X=1")
    pid = sh.pid
    assert pid is not None
    leave(sh, f"echo begun; {end}", lambda: "kill" not in end or not is_alive(pid))
    lost = sh.run("echo [$X]")
    assert (lost.outcome, lost.ran, lost.reason.startswith(GONE)) == ("shell_exited", False, True)
    assert sh.run("echo [$X]").stdout == "[]\n"


@pytest.mark.parametrize("verb", ["wait", "poll"])
def test_with_asyncio_a_loop_that_was_left_by_break_keeps_nobody_waiting(verb: str) -> None:
    async def main() -> None:
        async with AsyncSession(timeout=PATIENCE) as sh:
            seconds = unique_seconds()
            async for _ in sh.stream(f"echo begun; sleep {seconds}"):
                break
            with pytest.raises(NotRunning):
                await getattr(sh, verb)()
            assert with_argument(seconds) == []

    asyncio.run(main())


@pytest.mark.parametrize("steps", range(6))
def test_with_asyncio_who_leaves_it_and_closes_the_session_hears_nothing(steps: int) -> None:
    async def main() -> list[Any]:
        told, before = list[Any](), asyncio.all_tasks()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        sh = AsyncSession()
        async for _ in sh.stream("echo begun; sleep 100"):
            break
        for _ in range(steps):  # of the loop: how far what ends the command has come
            await asyncio.sleep(0)
        await sh.close()
        await until(lambda: asyncio.all_tasks() <= before)
        gc.collect()
        return told

    assert asyncio.run(main()) == []
