"""A tool call that is cancelled before, during or after its command."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cancelling import OK, begun, endless, helpers
from system import is_alive

from shellsession import Agents, Session, ShellSessionError
from shellsession.contracts import bashtool, spec, strands
from shellsession.contracts.bashtool import Cancelled, Failed
from shellsession.contracts.cancel import CancelToken
from shellsession.integrations import anthropic
from shellsession.models import Result


def test_a_call_cancelled_before_runs_nothing_and_reports_earlier_errors_first(agents: Agents, tmp_path: Path) -> None:
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


def test_a_call_cancelled_during_confirmation_does_not_run(agents: Agents, tmp_path: Path) -> None:
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
    moment = 0.02  # seconds until the cancellation: it follows the duration of the call, whatever that is
    for _ in range(100):
        token = CancelToken()
        call = pool.submit(bash, {"command": "sleep 0.01; echo again"}, token)
        threading.Event().wait(moment * chance.uniform(0.3, 1.7))
        token.cancel()
        try:
            assert call.result(20) == OK
            told["result"] += 1
            moment *= 0.8
        except Cancelled:
            told["cancelled"] += 1
            moment *= 1.25
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


def test_a_late_listener_is_called_at_once() -> None:
    token, told = CancelToken(), list[str]()
    with token.calling(lambda: told.append("first")):
        token.cancel()
        token.cancel()
    with token.calling(lambda: told.append("second")):
        pass
    with CancelToken().calling(lambda: told.append("never")):
        pass
    assert told == ["first", "second"]


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


def test_a_call_from_a_signal_handler_within_a_call_is_refused_as_busy(agents: Agents, started: Path) -> None:
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


def test_a_contract_without_cancellation_reports_it_as_an_error(agents: Agents) -> None:
    token = CancelToken()
    token.cancel()
    error = {"error": "Failed to execute: the call was cancelled"}
    assert spec.tool(agents, agent="a1")({"command": "true"}, cancel=token) == error


def test_an_interrupt_without_the_token_gives_a_result(pool: ThreadPoolExecutor, started: Path) -> None:
    with Session() as session:
        call = pool.submit(bashtool.tool(session), endless(started), CancelToken())
        begun(started)
        session.interrupt()
        assert call.result(20)["details"]["success"] is False


@pytest.mark.parametrize(
    ("contract", "run", "restart"),
    [
        (strands, lambda command: {"mode": "execute", "command": command}, {"mode": "restart"}),
        (anthropic, lambda command: {"command": command}, {"restart": True}),
    ],
    ids=["strands", "anthropic"],
)
def test_a_restart_that_was_cancelled_before_leaves_the_state(
    agents: Agents, contract: Any, run: Callable[[str], object], restart: object
) -> None:
    bash, token = contract.tool(agents, agent="a1"), CancelToken()
    bash(run("X=kept"))
    token.cancel()
    with pytest.raises(ShellSessionError, match="the call was cancelled"):
        bash(restart, token)
    assert "kept" in str(bash(run("echo $X")))
