"""The verbs as models call them: a cancelled call leaves nothing running, and loses no report."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from daemons import Daemon, Raw, served
from system import until

from shellsession import RemoteSession, aconnect
from shellsession.integrations.toolbox import PROGRESS, Toolbox

AT_ONCE_OR_LATER = pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])


async def wait_and_leave(tools: Toolbox, raw: Raw, later: bool, beside: int = 0) -> None:
    """A call of ``wait`` is cancelled, as it has come to its first result, or before; so many others wait, too."""
    waits = asyncio.Event()

    async def waiting(_: float, __: str) -> None:
        waits.set()

    PROGRESS.set(waiting)
    tools._patience, tools._tick = 1000, 0.05 if later else 1000
    call = asyncio.create_task(tools.wait())
    if later:
        await waits.wait()
        tools._tick = 1000
    await until(lambda: served(raw) == beside + 2)  # it, and that question
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert tools._limit._alarm is None


@AT_ONCE_OR_LATER
def test_a_call_that_is_cancelled_ends_its_command_though_another_client_stays_with_that(
    daemon: Daemon, remote: RemoteSession, later: bool
) -> None:
    async def main() -> None:
        async with aconnect(remote.agent, daemon.socket, False) as session:
            with Raw(daemon.socket) as raw, Raw(daemon.socket) as another:
                await until(lambda: served(raw) == 1)  # what other tests have left may be ending
                tools = Toolbox(session, patience=0.1)
                assert "still running" in await tools.bash("sleep 1000")
                another.say("wait", agent=remote.agent, timeout=None)
                await until(lambda: served(raw) == 2)
                await wait_and_leave(tools, raw, later, beside=1)
                assert another.receive().header["result"]["outcome"] == "interrupted"
            assert await tools.bash("echo on") == "on"

    asyncio.run(main())


@AT_ONCE_OR_LATER
def test_the_call_after_a_cancelled_one_reports_that_the_shell_was_lost(
    daemon: Daemon, remote: RemoteSession, place: Path, later: bool
) -> None:
    async def main() -> None:
        async with aconnect(remote.agent, daemon.socket, False) as session:
            with Raw(daemon.socket) as raw:
                await until(lambda: served(raw) == 1)  # what other tests have left may be ending
                tools = Toolbox(session, patience=0.1)
                line = f"trap 'kill -9 $$' INT; touch {place}/begun; sleep 1000"
                assert "still running" in await tools.bash(line)
                await until((place / "begun").exists)
                await wait_and_leave(tools, raw, later)
            assert (await tools.bash("echo on")).startswith("[not run: the shell had ended")
            assert await tools.bash("echo on") == "on"

    asyncio.run(main())
