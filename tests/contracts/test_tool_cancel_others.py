"""A cancelled tool call ends its own command, and no earlier, parallel or later one."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cancelling import OK, begun, endless
from system import PATIENCE, is_alive, wait_until

from shellsession import Agents, Session
from shellsession.contracts import bashtool, strands
from shellsession.contracts.bashtool import Cancelled
from shellsession.contracts.cancel import CallCancelled, CancelToken, run
from shellsession.models import Result


def test_one_in_the_queue_does_not_end_the_one_before(
    agents: Agents, pool: ThreadPoolExecutor, started: Path, tmp_path: Path
) -> None:
    bash = bashtool.tool(agents, agent="a1")
    first, second = CancelToken(), CancelToken()
    call = endless(started)
    running = pool.submit(bash, call, first)
    pid = begun(started)
    waiting = pool.submit(bash, call, second)
    second.cancel()
    with pytest.raises(Cancelled):
        waiting.result(20)
    assert not running.done()
    assert is_alive(pid)
    first.cancel()
    with pytest.raises(Cancelled):
        running.result(20)


def test_it_does_not_end_what_others_run_in_the_session(pool: ThreadPoolExecutor, started: Path) -> None:
    with Session() as session:
        theirs: Future[Result] = pool.submit(session.run, f"echo $$ >{started}; read line <{started}; echo $line")
        begun(started)
        token = CancelToken()
        ours = pool.submit(bashtool.tool(session), {"command": "sleep 1000"}, token)
        token.cancel()
        started.write_text("mine\n")
        assert theirs.result(20).stdout == "mine\n"
        with pytest.raises(Cancelled):
            ours.result(20)


def test_it_does_not_end_an_equal_command_of_one_letter(pool: ThreadPoolExecutor, started: Path) -> None:
    with Session() as session:
        session.run("w() { echo who; }")
        running = pool.submit(session.run, f"echo $$ >{started}; read line <{started}")
        begun(started)
        token, other = CancelToken(), CancelToken()
        ours = pool.submit(run, session, b"w", {}, token)
        theirs = pool.submit(run, session, b"w", {}, other)
        wait_until(lambda: len(session.line.places) == 3, "the line")
        token.cancel()
        with pytest.raises(CallCancelled):
            ours.result(20)
        started.write_text("\n")
        running.result(20)
        assert theirs.result(20).stdout == "who\n"


class Late(Session):
    """A session that thinks before it interrupts."""

    def interrupt(self) -> Result:
        threading.Event().wait(0.3)
        return super().interrupt()


def test_the_next_command_is_not_ended_instead(monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor) -> None:
    """Whoever has started the thread that ends a command may be slow to come back from that."""
    start = threading.Thread.start

    def slow(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "shellsession-cancel":
            threading.Event().wait(0.6)

    monkeypatch.setattr(threading.Thread, "start", slow)
    with Late() as session:
        bash, token = bashtool.tool(session), CancelToken()
        first = pool.submit(bash, {"command": "sleep 0.2; echo again"}, token)
        threading.Event().wait(0.1)
        cancelled = pool.submit(token.cancel)
        with suppress(Cancelled):
            first.result(20)
        assert bash({"command": "sleep 0.5; echo again"}) == OK
        cancelled.result(20)


def test_the_queue_goes_on_when_the_next_call_is_cancelled_at_that_moment(
    agents: Agents, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    bash, token, go = bashtool.tool(agents, agent="a1"), CancelToken(), tmp_path / "go"
    calls = [pool.submit(bash, {"command": f"until [[ -e {go} ]]; do sleep 0.01; done; echo again"})]
    line = agents.session("a1").line
    for number, cancel in enumerate((token, None), 1):
        wait_until(lambda number=number: len(line.places) == number, "its place in the line")  # type: ignore[misc]
        calls.append(pool.submit(bash, {"command": "echo again"}, cancel))
    wait_until(lambda: len(line.places) == 3, "the line")
    token.cancel()
    go.touch()
    assert calls[0].result(PATIENCE) == calls[2].result(PATIENCE) == OK
    with pytest.raises(Cancelled):
        calls[1].result(PATIENCE)


def test_a_cancel_that_comes_late_ends_no_later_command(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """Who cancels looks whether the call's own command runs, and may be held up before it acts on that."""
    looked, theirs = threading.Event(), threading.Event()

    def wait_for(name: str) -> str:
        return f"until [ -e {tmp_path / name} ]; do sleep 0.01; done"

    with Session() as session:
        interrupt = session.interrupt_command

        def late(meant: Any) -> Result:
            looked.set()
            assert theirs.wait(PATIENCE)
            return interrupt(meant)

        monkeypatch.setattr(session, "interrupt_command", late)
        token = CancelToken()
        ours = pool.submit(strands.tool(session), {"mode": "execute", "command": wait_for("ours")}, cancel=token)
        wait_until(lambda: session.command, "our command")
        token.cancel()
        assert looked.wait(PATIENCE)
        (tmp_path / "ours").touch()
        later = pool.submit(session.run, f"echo begun; {wait_for('later')}", on_output=lambda *_: theirs.set())
        assert ours.result(PATIENCE) == {"output": "", "error": ""}
        (tmp_path / "later").touch()
        assert later.result(PATIENCE).outcome == "exited"
