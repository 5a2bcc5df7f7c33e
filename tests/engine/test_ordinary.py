"""Which commands take the fast path, in one short write and read. `test_differential` has their results."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from system import wait_until

from shellsession import Result, Session
from shellsession.engine.verbs.ordinary import Ordinary

pytestmark = pytest.mark.usefixtures("company")


@pytest.fixture
def is_ordinary(monkeypatch: pytest.MonkeyPatch) -> Callable[[Session, str], bool]:
    """Was the command typed as an ordinary one?"""
    send = Ordinary.send
    came: list[object] = []

    def spy(*arguments: Any) -> Any:
        came.append(send(*arguments))
        return came[-1]

    monkeypatch.setattr(Ordinary, "send", spy)

    def ask(session: Session, text: str) -> bool:
        came.clear()
        session.run(text)
        return came != [] and came[0] is not None

    return ask


PLAIN = ("true", "X=1", "echo hi", "false", "cd /", "/bin/true", "f() { return 3; }; f", "seq 100", "echo $(id)")


@pytest.mark.parametrize("before", [":", "PS1='(venv) '", ": trap", "PS1='(venv) '; : trap", "cd /tmp"])
def test_in_these_shells_commands_are_ordinary(
    before: str, new_session: Callable[..., Session], is_ordinary: Callable[[Session, str], bool]
) -> None:
    sh = new_session()
    for text in (before, ":", ":", ":"):  # a prompt is known once it has come twice
        sh.run(text)
    assert [text for text in PLAIN if is_ordinary(sh, text)] == list(PLAIN)


def test_the_mark_behind_a_prompt_is_read_on_the_ordinary_path(
    new_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Ordinary.read
    results: list[object] = []

    def spy(*arguments: Any) -> Any:
        results.append(read(*arguments))
        return results[-1]

    monkeypatch.setattr(Ordinary, "read", spy)
    sh = new_session()
    for text in ("PS1='(venv) '", *[":"] * 20):
        sh.run(text)
    assert any(results)  # a busy machine may be too slow for some


@pytest.mark.parametrize(
    "text", ["exec 9>&1", "trap : USR1", "set -u", "eval true", ". /dev/null", "", "# a", "ulimit -n 100"]
)
def test_these_commands_are_not(
    text: str, new_session: Callable[..., Session], is_ordinary: Callable[[Session, str], bool]
) -> None:
    sh = new_session()
    sh.run(":")
    sh.run(":")
    assert not is_ordinary(sh, text)
    assert sh.run("echo $((1 + 1))").stdout == "2\n"


def test_it_takes_few_calls(new_session: Callable[..., Session]) -> None:
    """Python's and C's: each distinct function that a command runs through costs it more than a system call does."""
    sh = new_session()
    for _ in range(3):
        sh.run("true")
    counts: dict[str, int] = {}

    def count(_: FrameType, event: str, argument: object) -> None:
        # To look again and again for the mark takes as many calls as bash takes time.
        if event in counts and getattr(argument, "__name__", "") not in ("sched_yield", "poll", "monotonic"):
            counts[event] += 1

    def few() -> bool:
        counts.update(call=0, c_call=0)
        sys.setprofile(count)
        try:
            sh.run("true")
        finally:
            sys.setprofile(None)
        return counts["call"] <= 52 and counts["c_call"] <= 60

    assert any(few() for _ in range(10)), counts  # on a busy machine some are waited for


def test_another_thread_interrupts_it_and_gets_its_result(new_session: Callable[..., Session], place: Path) -> None:
    import threading

    sh = new_session()
    sh.run(":")
    came: list[Result] = []
    thread = threading.Thread(target=lambda: came.append(sh.run(f"echo begun; touch {place}/begun; sleep 100")))
    thread.start()
    wait_until((place / "begun").exists, "it runs")
    told = sh.interrupt()
    thread.join()
    assert (told.outcome, told.stdout) == ("interrupted", "begun\n")
    assert came == [told]
