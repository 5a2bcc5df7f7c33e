"""Tool calls that are cancelled under asyncio, and over a daemon."""

from __future__ import annotations

import asyncio
import gc
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cancelling import OK, begun, endless
from daemons import Daemon, Raw, served
from system import PATIENCE, is_alive, wait_until

from shellsession import Agents, AsyncAgents, AsyncSession, Session, aconnect, connect
from shellsession.contracts import bashtool, strands
from shellsession.contracts.bashtool import Cancelled
from shellsession.contracts.cancel import CallCancelled, CancelToken, arun
from shellsession.daemon.client.admin import stats
from shellsession.daemon.client.exchange import Exchange
from shellsession.models import Result
from shellsession.policy.rules import Policy

_PRINTS = "X=kept; echo out; echo err >&2;"


_SAID = (
    "Bash session error: the call was cancelled; the shell, its directory and its variables are kept"
    "\n[stdout]\nout\n[stderr]\nerr"
)


def test_strands_reports_the_output_of_a_cancelled_command_and_that_state_is_kept(
    agents: Agents, pool: ThreadPoolExecutor, started: Path
) -> None:
    token, bash = CancelToken(), strands.tool(agents, agent="a1")
    call = pool.submit(bash, {"mode": "execute", **endless(started, _PRINTS)}, token)
    begun(started)
    token.cancel()
    with pytest.raises(strands.BashSessionError) as raised:
        call.result(20)
    assert str(raised.value) == _SAID
    assert (raised.value.stdout, raised.value.stderr) == ("out\n", "err\n")
    assert bash(mode="execute", command="echo $X") == {"output": "kept", "error": ""}
    with pytest.raises(strands.BashSessionError, match=r"^Bash session error: the call was cancelled$"):
        bash({"mode": "execute", "command": "true"}, token)


@pytest.mark.parametrize("where", ["session", "agents", "daemon"])
def test_so_does_it_for_asyncio(daemon: Daemon, started: Path, where: str) -> None:
    async def cancelled(bash: Any) -> None:
        token = CancelToken()
        call = asyncio.create_task(bash({"mode": "execute", **endless(started, _PRINTS)}, token))
        await asyncio.to_thread(begun, started)
        token.cancel()
        with pytest.raises(strands.BashSessionError) as raised:
            await asyncio.wait_for(call, 20)
        assert str(raised.value) == _SAID
        assert await bash(mode="execute", command="echo $X") == {"output": "kept", "error": ""}

    async def main() -> None:
        if where == "session":
            async with AsyncSession() as session:
                await cancelled(strands.tool(session))
        elif where == "agents":
            async with AsyncAgents() as agents:
                await cancelled(strands.tool(agents, agent="a1"))
        else:
            async with await aconnect("strands", socket=daemon.socket) as remote:
                await cancelled(strands.tool(remote))

    asyncio.run(main())


@pytest.mark.parametrize("where", ["session", "daemon"])
def test_a_call_that_waits_for_its_turn_ends_none_of_the_same_text(
    daemon: Daemon, pool: ThreadPoolExecutor, place: Path, where: str
) -> None:
    """Another client's, or one of another thread that uses the session without a tool."""
    text = f"touch {place}/begun; until [ -e {place}/go ]; do sleep 0.01; done; echo whole"
    token = CancelToken()
    with ExitStack() as opened:
        one: Any = opened.enter_context(Session() if where == "session" else connect("queue", daemon.socket, cwd="/"))
        two: Any = one if where == "session" else opened.enter_context(connect("queue", daemon.socket))
        raw = opened.enter_context(Raw(daemon.socket))
        first = pool.submit(one.run, text)
        wait_until((place / "begun").exists, "its start")
        second = pool.submit(bashtool.tool(two, persistent=True), {"command": text}, token)
        wait_until(lambda: len(one.line.places) == 2 if one is two else served(raw) == 3, "its place in the queue")
        token.cancel()
        with pytest.raises(Cancelled):  # its turn need not come
            second.result(PATIENCE)
        (place / "go").touch()
        assert first.result(PATIENCE).stdout == "whole\n"


def test_two_that_are_cancelled_at_once_have_each_its_own_output(
    daemon: Daemon, started: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is told of its end before the first has looked at what came of it."""
    cancel, told = Exchange.cancel, [asyncio.Event(), asyncio.Event()]

    requests: list[str] = []

    async def one_by_one(exchange: Exchange) -> str:
        me = len(requests)
        requests.append(exchange.id)
        if me:
            await told[0].wait()  # and the first made way for it
            await asyncio.to_thread(wait_until, (place / "on").exists, "the second command")
        command = await cancel(exchange)
        told[me].set()
        await told[1].wait()
        return command

    async def main() -> None:
        async with await aconnect("both", socket=daemon.socket) as session:
            tokens = CancelToken(), CancelToken()
            texts = endless(started, _PRINTS)["command"].encode(), f"echo other; touch {place}/on; sleep 1000".encode()
            first = asyncio.create_task(arun(session, texts[0], {}, tokens[0]))
            await asyncio.to_thread(begun, started)
            second = asyncio.create_task(arun(session, texts[1], {}, tokens[1]))
            await asyncio.to_thread(wait_until, lambda: stats(daemon.socket)["serving"] == 3, "the second")
            for token in tokens:
                token.cancel()
            ends = await asyncio.gather(first, second, return_exceptions=True)
            results = [end.result for end in ends if isinstance(end, CallCancelled)]
            assert [result and result.stdout for result in results] == ["out\n", "other\n"]

    monkeypatch.setattr(Exchange, "cancel", one_by_one)
    asyncio.run(main())


def kept_results() -> list[Result]:
    return [kept for kept in gc.get_objects() if isinstance(kept, Result)]


def test_what_came_of_a_cancelled_command_is_not_kept_for_nobody(daemon: Daemon, started: Path) -> None:
    async def main() -> None:
        others = kept_results()  # by earlier tests
        async with await aconnect("unkept", socket=daemon.socket) as session:
            call = asyncio.create_task(session.run(endless(started, _PRINTS)["command"]))
            await asyncio.to_thread(begun, started)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            del call
            gc.collect()
            assert [kept for kept in kept_results() if kept.stdout == "out\n" and kept not in others] == []

    asyncio.run(main())


@pytest.mark.parametrize("kind", [Agents, AsyncAgents])
def test_a_policy_masks_the_output_of_a_cancelled_command(kind: Any, started: Path) -> None:
    policy = Policy(secrets=["s3cr3t-t0ken"])

    async def main() -> None:
        agents, token = kind(), CancelToken()
        bash = strands.tool(agents, agent="a1", policy=policy)
        call = {"mode": "execute", **endless(started, "echo s3cr3t-t0ken;")}
        done = asyncio.create_task(bash(call, token) if kind is AsyncAgents else asyncio.to_thread(bash, call, token))
        await asyncio.to_thread(begun, started)
        token.cancel()
        with pytest.raises(strands.BashSessionError, match=r"\[stdout\]") as raised:
            await done
        assert "s3cr3t" not in str(raised.value)
        await agents.close() if kind is AsyncAgents else agents.close()

    asyncio.run(main())


def test_in_the_daemon(daemon: Daemon, pool: ThreadPoolExecutor, started: Path) -> None:
    with connect("cancelled", socket=daemon.socket) as session:
        token, bash = CancelToken(), bashtool.tool(session)
        call = pool.submit(bash, endless(started), token)
        pid = begun(started)
        token.cancel()
        with pytest.raises(Cancelled):
            call.result(20)
        assert not is_alive(pid)
        assert bash({"command": "echo again"}) == OK


async def _cancelled_during(bash: Any, started: Path, from_thread: bool) -> int:
    token = CancelToken()
    call = asyncio.create_task(bash(endless(started), cancel=token))
    pid = await asyncio.to_thread(begun, started)
    if from_thread:
        await asyncio.to_thread(token.cancel)
    else:
        token.cancel()
    with pytest.raises(Cancelled):
        await asyncio.wait_for(call, 20)
    return pid


@pytest.mark.parametrize("from_thread", [False, True])
def test_from_the_loop_and_from_a_thread(daemon: Daemon, started: Path, from_thread: bool) -> None:
    async def main() -> None:
        async with AsyncSession() as session, AsyncAgents() as agents:
            remote = await aconnect("cancelled", socket=daemon.socket)
            for bash in (bashtool.tool(session), bashtool.tool(agents, agent="a1"), bashtool.tool(remote)):
                assert not is_alive(await _cancelled_during(bash, started, from_thread))
                assert await bash({"command": "echo again"}) == OK
            remote.disconnect()

    asyncio.run(main())


def test_async_before_in_the_queue_and_by_the_task(started: Path, tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            bash, token, second = bashtool.tool(session), CancelToken(), CancelToken()
            token.cancel()
            with pytest.raises(Cancelled):
                await bash({"command": f"touch {tmp_path}/ran"}, token)
            running = asyncio.create_task(bash(endless(started), CancelToken()))
            await asyncio.to_thread(begun, started)
            waiting = asyncio.create_task(bash({"command": f"touch {tmp_path}/ran"}, second))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(Cancelled):
                await waiting
            assert not running.done()
            running.cancel()  # by asyncio itself: that is no cancellation of ours
            with pytest.raises(asyncio.CancelledError):
                await running
            assert await bash({"command": "echo again"}) == OK
            assert not (tmp_path / "ran").exists()

    asyncio.run(main())


def test_async_what_was_cancelled_before_is_not_even_begun() -> None:
    begun: list[object] = []

    class Watched(AsyncSession):
        async def run(self, *arguments: Any, **options: Any) -> Result:
            begun.append(arguments)
            return await super().run(*arguments, **options)

    async def main() -> None:
        async with Watched() as session:
            token = CancelToken()
            token.cancel()
            with pytest.raises(Cancelled):
                await bashtool.tool(session)({"command": "true"}, token)

    asyncio.run(main())
    assert begun == []


def test_async_just_then(tmp_path: Path) -> None:
    async def main() -> None:
        chance, told = random.Random(5), {"result": 0, "cancelled": 0}
        async with AsyncSession() as session:
            bash = bashtool.tool(session)
            await bash({"command": "KEPT=1"})
            moment = 0.02  # seconds until the cancellation: it follows the duration of the call, whatever that is
            for _ in range(100):
                token = CancelToken()
                asyncio.get_running_loop().call_later(moment * chance.uniform(0.3, 1.7), token.cancel)
                try:
                    assert await asyncio.wait_for(bash({"command": "sleep 0.01; echo again"}, token), 20) == OK
                    told["result"] += 1
                    moment *= 0.8
                except Cancelled:
                    told["cancelled"] += 1
                    moment *= 1.25
            assert await bash({"command": "echo again"}) == OK
        assert min(told.values()) > 0, told

    asyncio.run(main())


def test_async_cancelled_during_confirmation(tmp_path: Path) -> None:
    async def main() -> None:
        asked, token = asyncio.Event(), CancelToken()

        async def confirm(command: str) -> bool:
            asked.set()
            await asyncio.Event().wait()
            return True

        async with AsyncSession() as session:
            call = asyncio.create_task(bashtool.tool(session, confirm=confirm)({"command": "true"}, token))
            await asked.wait()
            token.cancel()
            with pytest.raises(Cancelled):
                await asyncio.wait_for(call, 20)

    asyncio.run(main())
