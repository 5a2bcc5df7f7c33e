"""A tool call that is cancelled: before it runs, while it does, after it has ended, and just then."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cancelling import OK, begun, endless, helpers
from support import PATIENCE, is_alive, wait_until

from shellsession import Agents, Session
from shellsession.contracts import bashtool, spec, strands
from shellsession.contracts.bashtool import Cancelled, Failed
from shellsession.contracts.waiting import CancelToken
from shellsession.models import Result


def test_before_nothing_runs_and_what_comes_first_is_told_first(agents: Agents, tmp_path: Path) -> None:
    token = CancelToken()
    token.cancel()
    assert token.cancelled
    answers = [True, False]
    bash = bashtool.tool(agents, agent="a1", deny_patterns=["sudo"], confirm=lambda command: answers.pop(0))
    call = {"command": f"touch {tmp_path}/ran"}
    with pytest.raises(Failed, match="blocked"):
        bash({"command": "sudo"}, cancel=token)
    with pytest.raises(Cancelled, match="cancelled") as raised:
        bash(call, cancel=token)
    assert raised.value.code == "bashtool_cancelled"
    with pytest.raises(Failed, match="not confirmed"):
        bash(call, cancel=token)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("more", ["", "trap '' INT TERM;", "trap 'echo no' INT;"])
@pytest.mark.parametrize("persistent", [False, True])
def test_during_the_command_is_ended(
    agents: Agents, pool: ThreadPoolExecutor, started: Path, more: str, persistent: bool
) -> None:
    bash = bashtool.tool(agents, agent="a1", persistent=persistent)
    bash({"command": "KEPT=1"})
    token = CancelToken()
    call = pool.submit(bash, {"command": f"({endless(started, more)['command']})"}, token)
    pid = begun(started)
    token.cancel()
    with pytest.raises(Cancelled):
        call.result(20)
    assert not is_alive(pid)
    assert helpers() == []
    assert bash({"command": "echo again"}) == OK
    if persistent:
        assert bash({"command": "echo $KEPT"})["content"][0]["text"] == "Exit code: 0\n1\n"


def test_after_the_result_stands(agents: Agents) -> None:
    token = CancelToken()
    bash = bashtool.tool(agents, agent="a1")
    assert bash({"command": "echo again"}, token) == OK
    token.cancel()
    token.cancel()
    assert bash({"command": "echo again"}) == OK
    with pytest.raises(Cancelled):
        bash({"command": "echo again"}, token)


def test_cancelled_while_somebody_is_asked_it_does_not_run(agents: Agents, tmp_path: Path) -> None:
    token = CancelToken()

    def confirm(command: str) -> bool:
        token.cancel()
        return True

    bash = bashtool.tool(agents, agent="a1", confirm=confirm)
    with pytest.raises(Cancelled):
        bash({"command": f"touch {tmp_path}/ran"}, token)
    assert not (tmp_path / "ran").exists()


def test_just_then_it_is_one_or_the_other(agents: Agents, pool: ThreadPoolExecutor, tmp_path: Path) -> None:
    """Whatever the moment: the result or the cancellation, and a session that goes on."""
    bash = bashtool.tool(agents, agent="a1", persistent=True)
    chance, told = random.Random(3), {"result": 0, "cancelled": 0}
    bash({"command": "KEPT=1"})
    since = time.monotonic()
    bash({"command": "sleep 0.01"})
    usual = 2 * (time.monotonic() - since)
    for _ in range(100):
        token = CancelToken()
        call = pool.submit(bash, {"command": "sleep 0.01; echo again"}, token)
        threading.Event().wait(chance.random() * usual)
        token.cancel()
        try:
            assert call.result(20) == OK
            told["result"] += 1
        except Cancelled:
            told["cancelled"] += 1
    assert min(told.values()) > 0, told
    assert helpers() == []
    assert bash({"command": "echo $KEPT"})["content"][0]["text"] == "Exit code: 0\n1\n"


class Slow(Session):
    """A session that cancels a call when its command has ended, and takes its time to interrupt."""

    token: CancelToken | None = None

    def run(self, *arguments: Any, **options: Any) -> Result:
        result = super().run(*arguments, **options)
        if self.token is not None:
            self.token.cancel()
        return result

    def interrupt(self) -> Result:
        try:
            return super().interrupt()
        finally:
            threading.Event().wait(0.2)


def test_a_command_that_has_ended_has_its_result() -> None:
    with Slow() as session:
        session.token = CancelToken()
        assert bashtool.tool(session)({"command": "echo again"}, session.token) == OK
        assert session.token.cancelled


def test_no_thread_of_ours_goes_on_after_the_call(pool: ThreadPoolExecutor, started: Path) -> None:
    with Slow() as session:
        token = CancelToken()
        call = pool.submit(bashtool.tool(session), endless(started), token)
        begun(started)
        token.cancel()
        with pytest.raises(Cancelled):
            call.result(20)
        assert helpers() == []


def test_who_listens_too_late_is_told_all_the_same() -> None:
    token, told = CancelToken(), list[str]()
    with token.calling(lambda: told.append("first")):
        token.cancel()
        token.cancel()
    with token.calling(lambda: told.append("second")):
        pass
    with CancelToken().calling(lambda: told.append("never")):
        pass
    assert told == ["first", "second"]


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


def test_from_a_signal_handler(agents: Agents, started: Path) -> None:
    token, bash = CancelToken(), bashtool.tool(agents, agent="a1")

    def watch() -> None:
        begun(started)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: token.cancel())
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(Cancelled):
            bash(endless(started), token)
    finally:
        signal.signal(signal.SIGUSR1, before)
        watcher.join()
    assert bash({"command": "echo again"}) == OK


def test_a_signal_handler_within_a_call_is_told_that_the_session_is_busy(agents: Agents, started: Path) -> None:
    token, bash = CancelToken(), bashtool.tool(agents, agent="a1")
    told: list[str] = []

    def handle(*_: object) -> None:
        try:
            bash({"command": "true"}, CancelToken())
        except Failed as error:
            told.append(str(error))
        token.cancel()

    def watch() -> None:
        begun(started)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(Cancelled):
            bash(endless(started), token)
    finally:
        signal.signal(signal.SIGUSR1, before)
        watcher.join()
    assert [text.startswith("Failed to execute: a callback") for text in told] == [True]


def test_one_token_cancels_many_calls(agents: Agents, pool: ThreadPoolExecutor, tmp_path: Path) -> None:
    token, calls = CancelToken(), []
    for number in range(4):
        os.mkfifo(fifo := tmp_path / f"fifo{number}")
        bash = bashtool.tool(agents, agent=f"a{number}")
        calls.append(pool.submit(bash, endless(fifo), token))
        begun(fifo)
    token.cancel()
    for call in calls:
        with pytest.raises(Cancelled):
            call.result(20)


def test_a_contract_that_knows_no_cancellation_tells_it_as_an_error(agents: Agents) -> None:
    token = CancelToken()
    token.cancel()
    error = {"error": "Failed to execute: the call was cancelled"}
    assert spec.tool(agents, agent="a1")({"command": "true"}, cancel=token) == error


def test_who_interrupts_without_the_token_gets_a_result(pool: ThreadPoolExecutor, started: Path) -> None:
    with Session() as session:
        call = pool.submit(bashtool.tool(session), endless(started), CancelToken())
        begun(started)
        session.interrupt()
        assert call.result(20)["details"]["success"] is False


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


class Unheard(CancelToken):
    """Its bell has not rung yet when somebody looks: the moment between the two is long here."""

    def cancel(self) -> None:
        self._cancelled = True


def test_a_turn_is_not_lost_with_who_was_cancelled_just_then(
    agents: Agents, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    bash, token, go = bashtool.tool(agents, agent="a1"), Unheard(), tmp_path / "go"
    calls = [pool.submit(bash, {"command": f"until [[ -e {go} ]]; do sleep 0.01; done; echo again"})]
    for cancel in (token, None):
        threading.Event().wait(0.1)
        calls.append(pool.submit(bash, {"command": "echo again"}, cancel))
    threading.Event().wait(0.1)
    token.cancel()
    go.touch()
    assert calls[0].result(20) == calls[2].result(5) == OK
    with pytest.raises(Cancelled):
        calls[1].result(5)


def test_a_cancel_that_comes_late_ends_no_later_command(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """Who cancels looks whether the call's own command runs, and may be held up before it acts on that."""
    looked, theirs = threading.Event(), threading.Event()

    def wait_for(name: str) -> str:
        return f"until [ -e {tmp_path / name} ]; do sleep 0.01; done"

    with Session() as session:
        interrupt = session._interrupt

        def late(meant: Any) -> Result:
            looked.set()
            assert theirs.wait(PATIENCE)
            return interrupt(meant)

        monkeypatch.setattr(session, "_interrupt", late)
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
