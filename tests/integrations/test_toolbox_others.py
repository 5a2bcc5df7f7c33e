"""The verbs as models call them, beside other clients of the daemon: no call ends a command of another client."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, Raw
from gates import Gate
from system import PATIENCE, in_thread, until, wait_until

from shellsession import RemoteSession, Session, SessionBusy, aconnect
from shellsession.integrations.toolbox import PROGRESS, Toolbox


def test_listing_the_jobs_of_a_daemon_does_not_block_the_loop(
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
            assert re.search(r"^\[j1, running: process \d+: .*\]\nout\non the terminal\nerr$", await asking)
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

        async def waiting(_: float, __: str) -> None:
            waits.set()

        async with aconnect(remote.agent, daemon.socket, False) as session:
            PROGRESS.set(waiting)
            tools = Toolbox(session, patience=1000, tick=1000)
            tools._first_wait = 0.05
            call = asyncio.create_task(tools.bash("sleep 1000"))
            await waits.wait()
            await asyncio.to_thread(wait_until, lambda: "waits on" in remote.poll().reason, "its second tick")
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
            tools._limit.go_off(tools._end)  # as its alarm does
            assert tools._limit._ending is not None
            await tools._limit._ending
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


@pytest.mark.parametrize("others", ["wait", "refuse"])
@pytest.mark.parametrize(("verb", "said"), [("bash", {"command": "true"}), ("send", {"text": "y"})])
@pytest.mark.parametrize("runs", [False, True], ids=["nothing runs", "his own runs"])
def test_a_call_while_a_person_is_attached_says_so_and_reports_no_earlier_command(
    daemon: Daemon, remote: RemoteSession, others: str, verb: str, said: dict[str, str], runs: bool
) -> None:
    """A model that is told of one, and finds none to wait for, restarts the shell."""

    async def main() -> None:
        async with aconnect(remote.agent, daemon.socket, False) as session:
            with Raw(daemon.socket) as raw:
                raw.ask("hold", agent=remote.agent, holder="me", others=others)
                if runs:
                    raw.run(remote.agent, "sleep 1000", holder="me", timeout=0.01, on_timeout="yield")
                with pytest.raises(SessionBusy, match=r"a person holds this session .*nothing was run") as told:
                    await Toolbox(session, patience=0.3, tick=0.05).call(verb, said)
                assert "earlier command" not in str(told.value)

    asyncio.run(main())


@pytest.mark.parametrize("handed_back", [False, True], ids=["stayed with", "handed back"])
def test_a_call_stays_queued_while_the_command_before_it_is_polled(
    daemon: Daemon, remote: RemoteSession, place: Path, handed_back: bool
) -> None:
    """As two `shellsession mcp -s AGENT` do. The time limit of the second counts from its turn."""
    os.mkfifo(fifo := place / "fifo")

    async def main() -> None:
        waits, said = asyncio.Event(), list[float]()

        async def waiting(seconds: float, __: str) -> None:
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
            ours = Toolbox(other, tick=0.05)
            second = asyncio.create_task(ours.bash(f"cat {fifo}", timeout=PATIENCE))
            await waits.wait()
            before = time.monotonic()
            (place / "go").touch()
            await until(lambda: ours._limit.deadline is not None)
            assert ours._limit.deadline is not None
            assert ours._limit.deadline >= before + PATIENCE
            await asyncio.to_thread(fifo.write_text, "ours\n")
            assert await second == "ours"
            assert handed_back or await first == "theirs"
            assert said == sorted(said)

    asyncio.run(main())


def test_a_queued_call_fails_when_its_patience_ends(daemon: Daemon, remote: RemoteSession, place: Path) -> None:
    async def main() -> None:
        remote.run(f"until [ -e {place}/go ]; do sleep 0.01; done", timeout=0.05, on_timeout="yield")
        async with aconnect(remote.agent, daemon.socket, False) as session:
            begun = asyncio.get_running_loop().time()
            with pytest.raises(SessionBusy, match="an earlier command is still running, so nothing was run"):
                await Toolbox(session, patience=0.5, tick=0.05).bash(f"touch {place}/never")
            assert asyncio.get_running_loop().time() - begun >= 0.44
            (place / "go").touch()
            assert remote.wait().ok
            assert not (place / "never").exists()

    asyncio.run(main())


def test_a_call_beside_another_thread_fails_when_its_patience_ends(place: Path, gate: Gate) -> None:
    with Session(cwd=place) as session:
        thread, results = in_thread(lambda: session.run(gate.text))
        gate.until_begun()
        with pytest.raises(SessionBusy, match="still running, so nothing was run"):
            asyncio.run(Toolbox(session, patience=0.5).bash("touch never"))
        gate.open()
        thread.join()
        assert results[0].ok
        assert session.run("echo *").stdout == "count open\n"
