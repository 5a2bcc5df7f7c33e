"""Calls of one agent's tool run in the order in which they came, from threads and from a loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from system import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import Agents, AsyncAgents, Session
from shellsession.contracts import langchain, strands
from shellsession.contracts.cancel import CancelToken
from shellsession.integrations.threads import call_in_thread
from shellsession.policy.rules import Policy

NUMBERS = list("01234567")
# Some time for another to come first, if anybody could.
SAYS = "echo {} >>log; sleep 0.01"


def execute(command: str) -> dict[str, str]:
    return {"mode": "execute", "command": command}


def queue(session: Session) -> list[int]:
    return [place.thread for place in session.line.places]


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(len(NUMBERS) + 1) as pool:
        yield pool


@pytest.mark.parametrize("gone", ["", "0", "34", "7"])
def test_of_threads(new_agents: Callable[..., Agents], pool: ThreadPoolExecutor, place: Path, gone: str) -> None:
    """Also where some of them (``gone``) are cancelled while they queue."""
    agents, tokens = new_agents(), {number: CancelToken() for number in gone}
    session = agents.session("a")
    first = pool.submit(strands.tool(session), execute("until [ -e go ]; do sleep 0.01; done"))
    calls = dict[str, Future[Any]]()
    for number in NUMBERS:
        wait_until(lambda: len(queue(session)) == len(calls) + 1, "the call before")
        bash = strands.tool(agents, agent="a")
        calls[number] = pool.submit(bash, execute(SAYS.format(number)), tokens.get(number))
    wait_until(lambda: len(queue(session)) == len(calls) + 1, "the last call")
    for number in gone:
        tokens[number].cancel()
        with pytest.raises(strands.BashSessionError, match="cancelled"):
            calls.pop(number).result(PATIENCE)
    (place / "go").touch()
    for call in (first, *calls.values()):
        assert call.result(PATIENCE) == {"output": "", "error": ""}
    assert (place / "log").read_text().split() == list(calls)
    assert queue(session) == []


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("kind", [Agents, AsyncAgents])
def test_of_tasks(kind: Any, place: Path, stateful: bool) -> None:
    """What a model asks for in one message is begun in one moment."""

    async def main() -> None:
        agents = kind(cwd=place)
        bash = langchain.tool(agents, agent="a", persistent=stateful)
        calls = [{"command": f"cd {place}; {SAYS.format(number)}"} for number in NUMBERS]
        await asyncio.gather(*(bash(call) if kind is AsyncAgents else call_in_thread(bash, call) for call in calls))
        await agents.close() if kind is AsyncAgents else agents.close()

    asyncio.run(main())
    assert (place / "log").read_text().split() == NUMBERS


def test_a_task_that_is_cancelled_in_the_queue_asks_nobody_and_lets_the_next_one_come(place: Path) -> None:
    asked = list[str]()

    def confirm(command: str, *_: str) -> bool:
        asked.append(command)
        return True

    async def main() -> None:
        with Agents(cwd=place) as agents:
            bash = strands.tool(agents, agent="a", policy=Policy(confirm=confirm))
            calls = [execute("until [ -e go ]; do sleep 0.01; done"), execute("echo no"), execute("echo yes")]
            first, second, third = (asyncio.create_task(call_in_thread(bash, call)) for call in calls)
            await asyncio.to_thread(wait_until, lambda: asked, "the first call")
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            (place / "go").touch()
            assert (await third, await first) == ({"output": "yes", "error": ""}, {"output": "", "error": ""})

    asyncio.run(main())
    assert [said.rpartition(" ")[2] for said in asked] == ["done", "yes"]


@pytest.mark.parametrize("call", [execute("echo no"), {"mode": "restart"}], ids=["execute", "restart"])
def test_a_queued_call_that_is_cancelled_reports_it_at_once_in_the_words_of_its_contract(
    place: Path, call: dict[str, str]
) -> None:
    asked = list[str]()

    def confirm(command: str, *_: str) -> bool:
        asked.append(command)
        return True

    async def main() -> None:
        with Agents(cwd=place) as agents:
            bash = strands.tool(agents, agent="a", policy=Policy(confirm=confirm))
            seconds, told = unique_seconds(), threading.Event()
            first = asyncio.create_task(call_in_thread(bash, execute(f"sleep {seconds}")))
            await asyncio.to_thread(wait_until, lambda: with_argument(seconds), "the first call")
            second = asyncio.create_task(call_in_thread(bash, call, told.is_set))
            told.set()
            with pytest.raises(strands.BashSessionError, match="cancelled"):
                await second
            assert not first.done()
            assert len(asked) == 1, "nobody is asked about what was cancelled"
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first

    asyncio.run(main())


def test_a_signal_handler_in_the_queue_comes_before_its_thread(sh: Session, pool: ThreadPoolExecutor) -> None:
    bash, came, in_handler = strands.tool(sh), list[str](), threading.Event()

    def handle(*_: object) -> None:
        in_handler.set()
        came.append(bash(execute("echo handler"))["output"])  # type: ignore[index]

    def ctrl_c(main: int) -> None:
        wait_until(lambda: main in queue(sh), "the main thread in the queue")
        signal.pthread_kill(main, signal.SIGALRM)
        assert in_handler.wait(PATIENCE)
        Path(sh.cwd, "go").touch()

    before = signal.signal(signal.SIGALRM, handle)
    try:
        first = pool.submit(bash, execute("until [ -e go ]; do sleep 0.01; done"))
        wait_until(lambda: sh.state == "running", "the first command")
        sending = pool.submit(ctrl_c, threading.get_ident())
        came.append(bash(execute("echo thread"))["output"])  # type: ignore[index]
        sending.result(PATIENCE)
        first.result(PATIENCE)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert came == ["handler", "thread"]
    assert queue(sh) == []
