"""The verbs as models call them: whatever comes in between, a command's time limit holds and its end is told."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, Raw
from support import PATIENCE, in_thread, until, wait_until

from shellsession import (
    AsyncSession,
    InvalidRequest,
    NotRunning,
    RemoteSession,
    SessionBusy,
    ShellSessionError,
    aconnect,
)
from shellsession.integrations.telling import told
from shellsession.integrations.toolbox import Toolbox
from shellsession.integrations.turn import PROGRESS
from shellsession.models import Result

Story = Callable[[AsyncSession, Toolbox], Awaitable[None]]


def play(story: Story) -> None:
    """With a session in which a command runs that was handed back, and has about 0.6 seconds."""

    async def main() -> None:
        async with AsyncSession() as session:
            tools = Toolbox(session, patience=0.2, timeout=0.6, tick=0.05)
            assert "still running" in await tools.bash("echo begun; sleep 0.3; echo more; sleep 1000")
            await story(session, tools)

    asyncio.run(main())


async def ended(session: AsyncSession) -> None:
    await asyncio.to_thread(wait_until, lambda: session.state != "running", "the end that its time limit gives it")


def test_a_call_that_is_refused_leaves_the_time_limit() -> None:
    async def story(session: AsyncSession, tools: Toolbox) -> None:
        with pytest.raises(SessionBusy):
            await tools.bash("echo never", timeout=1000)
        with pytest.raises(ShellSessionError, match="not given the terminal"):
            await tools.send("x")
        await ended(session)

    play(story)


def test_a_call_that_is_given_up_leaves_the_time_limit() -> None:
    async def fail(_: float) -> None:
        raise ConnectionError("nobody listens")

    async def story(session: AsyncSession, tools: Toolbox) -> None:
        token = PROGRESS.set(fail)
        with pytest.raises(ConnectionError):
            await tools.wait()
        PROGRESS.reset(token)
        assert session.state == "running"
        await ended(session)

    play(story)


@pytest.mark.parametrize("verb", ["wait", "interrupt"])
def test_who_comes_late_is_told_of_the_end(verb: str) -> None:
    async def story(session: AsyncSession, tools: Toolbox) -> None:
        await ended(session)
        said = await getattr(tools, verb)()
        assert said.startswith("more\n[ended by its time limit after ")
        with pytest.raises(NotRunning):
            await tools.wait()
        assert await tools.bash("echo on") == "on"

    play(story)


def test_who_asks_for_the_jobs_of_a_daemon_leaves_the_loop_to_others(
    daemon: Daemon, remote: RemoteSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, ask = threading.Event(), RemoteSession.ask

    def slowly(*words: Any) -> Any:
        assert others.wait(PATIENCE)
        return ask(*words)

    async def main() -> None:
        async with aconnect(remote.agent, daemon.socket, False) as session:
            tools = Toolbox(session)
            assert await tools.jobs() == "[no jobs]"
            later = f"until [ -e {place / 'go'} ]; do sleep 0.01; done"
            await tools.bash(f"({later}; echo out; echo err >&2; echo on the terminal >/dev/tty; sleep 1000) &")
            (place / "go").touch()
            await until(lambda: "on the terminal" in remote.jobs()[0].stdout)
            monkeypatch.setattr(RemoteSession, "ask", slowly)
            asking = asyncio.create_task(tools.jobs())
            await asyncio.sleep(0)
            others.set()
            assert re.search(r"^\[running: process \d+: .*\]\nout\non the terminal\nerr$", await asking)
            remote.jobs()[0].kill()

    asyncio.run(main())


class Others:
    """Another client of the same agent, with a command that prints "theirs" when it is let go."""

    def __init__(self, remote: RemoteSession, place: Path) -> None:
        self._begun, self._go = place / "begun", place / "go"
        self._remote, self.is_queued = remote, threading.Event()
        remote.on_wait = lambda _: self.is_queued.set()

    def ask(self) -> None:
        line = f"touch {self._begun}; until [ -e {self._go} ]; do sleep 0.01; done; echo theirs"
        self._thread, self._results = in_thread(lambda: self._remote.run(line))

    async def begun(self) -> None:
        await until(self._begun.exists)

    async def is_whole(self) -> bool:
        """Did it come to its own end?"""
        self._go.touch()
        await asyncio.to_thread(self._thread.join)
        return self._results[0].stdout == "theirs\n"


def test_a_call_that_is_cancelled_ends_no_other_clients_command(
    daemon: Daemon, remote: RemoteSession, place: Path
) -> None:
    async def main() -> None:
        waits, others = asyncio.Event(), Others(remote, place)

        async def waiting(_: float) -> None:
            waits.set()

        async with aconnect(remote.agent, daemon.socket, False) as session:
            PROGRESS.set(waiting)
            tools = Toolbox(session, patience=1000, tick=1000)
            tools._brief = 0.05
            call = asyncio.create_task(tools.bash("sleep 1000"))
            await waits.wait()
            await asyncio.to_thread(wait_until, lambda: "stays with it" in remote.poll().reason, "its second tick")
            others.ask()
            await until(others.is_queued.is_set)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await others.begun()
            assert await others.is_whole()

    asyncio.run(main())


@pytest.mark.parametrize("verb", ["wait", "interrupt"])
def test_the_alarm_of_a_command_that_has_ended_ends_no_other_clients(
    daemon: Daemon, remote: RemoteSession, place: Path, verb: str
) -> None:
    async def main() -> None:
        others = Others(remote, place)
        async with aconnect(remote.agent, daemon.socket, False) as session:
            tools = Toolbox(session, patience=0.1, tick=0.05)
            assert "still running" in await tools.bash(f"until [ -e {place}/built ]; do sleep 0.01; done; echo built")
            (place / "built").touch()
            await until(lambda: session.state == "idle")
            others.ask()
            await others.begun()
            tools._strike()  # as its alarm does
            assert tools._late is not None
            await tools._late
            assert await getattr(tools, verb)() == "built"
            assert await others.is_whole()

    asyncio.run(main())


@pytest.mark.parametrize("way", ["runs", "holds"])
def test_a_call_behind_another_client_is_given_up_in_time_and_never_run(
    daemon: Daemon, remote: RemoteSession, place: Path, way: str
) -> None:
    async def main() -> None:
        others = Others(remote, place)
        async with aconnect(remote.agent, daemon.socket, False) as session:
            with Raw(daemon.socket) as raw:
                if way == "holds":
                    raw.ask("hold", agent=remote.agent, holder="me")
                else:
                    others.ask()
                    await others.begun()
                async with asyncio.timeout(PATIENCE):
                    with pytest.raises(SessionBusy, match="nothing was run"):
                        await Toolbox(session, patience=0.3, tick=0.05).bash(f"touch {place}/never")
            assert way == "holds" or await others.is_whole()
            await session.run("true")
            assert not (place / "never").exists()

    asyncio.run(main())


@pytest.mark.parametrize("handed_back", [False, True], ids=["stayed with", "handed back"])
def test_a_call_waits_for_its_turn_however_often_the_command_before_it_is_looked_at(
    daemon: Daemon, remote: RemoteSession, place: Path, handed_back: bool
) -> None:
    """As two `shellsession mcp -s AGENT` do. The time limit of the second counts from its turn."""

    async def main() -> None:
        waits, said = asyncio.Event(), list[float]()

        async def waiting(seconds: float) -> None:
            said.append(seconds)
            if len(said) == 8:
                waits.set()

        async with (
            aconnect(remote.agent, daemon.socket, False) as one,
            aconnect(remote.agent, daemon.socket, False) as other,
        ):
            theirs = Toolbox(one, patience=0.2 if handed_back else PATIENCE, tick=0.05)
            first = asyncio.create_task(theirs.bash(f"until [ -e {place}/go ]; do sleep 0.01; done; echo theirs"))
            if handed_back:
                assert "still running" in await first
            else:
                await until(lambda: other.state == "running")
            PROGRESS.set(waiting)
            second = asyncio.create_task(Toolbox(other, tick=0.05).bash("sleep 0.1; echo ours", timeout=0.3))
            await waits.wait()
            (place / "go").touch()
            assert await second == "ours"
            assert handed_back or await first == "theirs"
            assert said == sorted(said)

    asyncio.run(main())


def test_a_call_whose_turn_does_not_come_says_so_when_its_patience_ends(
    daemon: Daemon, remote: RemoteSession, place: Path
) -> None:
    async def main() -> None:
        remote.run(f"until [ -e {place}/go ]; do sleep 0.01; done", timeout=0.05, on_timeout="yield")
        async with aconnect(remote.agent, daemon.socket, False) as session:
            begun = asyncio.get_running_loop().time()
            with pytest.raises(SessionBusy, match="nothing was run, as an earlier command still runs"):
                await Toolbox(session, patience=0.5, tick=0.05).bash(f"touch {place}/never")
            assert asyncio.get_running_loop().time() - begun >= 0.44
            (place / "go").touch()
            assert remote.wait().ok
            assert not (place / "never").exists()

    asyncio.run(main())


def test_one_call_at_a_time() -> None:
    async def story(session: AsyncSession, tools: Toolbox) -> None:
        async with tools._alone():  # as another call would be
            with pytest.raises(SessionBusy, match="of another call still runs"):
                await tools.wait()

    play(story)


def test_a_command_whose_turn_comes_too_late_to_run_for_a_moment_is_not_begun() -> None:
    """It would be handed back when the patience of its client has ended."""

    async def main() -> None:
        async with AsyncSession() as session:
            tools = Toolbox(session, patience=0.6, tick=0.4)
            async with tools._alone():  # as another call would be
                late = asyncio.create_task(tools.bash("X=begun"))
                await asyncio.wait({late}, timeout=0.45)
            with pytest.raises(SessionBusy, match="of another call still runs"):
                await late
            assert await tools.bash("echo ${X-never}") == "never"

    asyncio.run(main())


def test_all_that_is_not_shown_is_counted() -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            tools = Toolbox(session, max_output=1000)
            assert "\n[2500 characters omitted]\n" in await tools.bash("printf %3500s")
            # Four bytes for each character are kept, and a line says what was not: 23 characters of it.
            assert "\n[3023 characters and 96000 bytes omitted]\n" in await tools.bash("printf %100000s")
            await tools.bash("{ sleep 0.1; printf %2000000s; echo end; } &")
            await asyncio.to_thread(wait_until, lambda: session.jobs()[0].stdout.endswith("end\n"), "its last word")
            assert " bytes omitted]\n" in await tools.jobs()

    asyncio.run(main())


@pytest.mark.parametrize("setting", ["patience", "timeout", "tick"])
@pytest.mark.parametrize("value", [0, -1, None, "3", True, float("nan")])
def test_bad_limits_are_refused_at_once(setting: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Toolbox(AsyncSession(), **{setting: value})
    assert str(refused.value) == f"{setting} is a positive number of seconds (at most 1000000000)"


@pytest.mark.parametrize("value", [-1, None, "3", True, 1.5])
def test_bad_amounts_of_output_are_refused_at_once(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="max_output is a number of characters"):
        Toolbox(AsyncSession(), max_output=value)


def test_a_model_is_not_told_that_a_command_may_have_no_limit() -> None:
    """None, which JSON calls null, is the usual one."""

    async def main() -> None:
        tools = Toolbox(AsyncSession(), timeout=90)
        said = "timeout is a positive number of seconds (at most 1000000000); where none is named it is 90"
        with pytest.raises(InvalidRequest, match=re.escape(said)):
            await tools.call("bash", {"command": "echo never", "timeout": 0})
        with pytest.raises(InvalidRequest, match=r"^seconds is a positive number of seconds \(at most 1000000000\)$"):
            await tools.call("wait", {"seconds": -1})

    asyncio.run(main())


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0004, "0.0004"), (0.04, "0.04"), (0.41, "0.4"), (9.94, "9.9"), (10.2, "10")],
)
def test_the_time_is_told_as_it_was(seconds: float, said: str) -> None:
    result = Result(b"", b"", None, None, "/", seconds, "timed_out", reason="the time limit")
    assert told([result]).startswith(f"[ended by its time limit after {said} s; ")
