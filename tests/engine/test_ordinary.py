"""The fast path for an ordinary command, in one short write and read, has the same result as the general one."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from zlib import crc32

import pytest
from conftest import emptied
from hypothesis import assume, given
from reference import ENVIRONMENT
from scripts import Script, corpus
from system import wait_until
from writing import calls, texts

from shellsession import Result, Session
from shellsession.engine.verbs.ordinary import Ordinary

pytestmark = pytest.mark.usefixtures("company")
ON_TERMINAL = pytest.mark.parametrize("on_terminal", [True, False], ids=["terminal", "pipe"])
# What differs from run to run, or is a process id.
UNLIKE = ("duration", "killed", "background")
# What runs in the background, or in a substitution, prints and ends when it gets to it.
BACKGROUND = re.compile(rb"[^&>]&(?![&>\d])|coproc|wait|[<>]\(")
PROCESS = re.compile(rb"\d{3,}")


def results(session: Session, texts: tuple[bytes, ...]) -> Iterator[dict[str, Any]]:
    for text in (b":", b":", *texts):
        result = session.run(text)
        fields = {name: value for name, value in vars(result).items() if name not in UNLIKE}
        for name in ("stdout_bytes", "stderr_bytes"):
            fields[name] = PROCESS.sub(b"PID", fields[name])
        yield fields | {name: len(getattr(result, name)) for name in UNLIKE[1:]}
        if not result.state_kept:
            return


def both(texts: tuple[bytes, ...], place: Path, on_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"env": ENVIRONMENT, "agent_env": False, "tty": on_terminal, "timeout": 20.0}
    with Session(cwd=emptied(place), **options) as sh:  # type: ignore[arg-type]
        ours = list(results(sh, texts))
    with monkeypatch.context() as patch:
        patch.setattr(Ordinary, "after", classmethod(lambda *_: None))
        with Session(cwd=emptied(place), **options) as sh:  # type: ignore[arg-type]
            assert list(results(sh, texts)) == ours


@pytest.mark.parametrize(
    ("script", "on_terminal"),
    [(script, crc32(script.text) % 2 == 0) for script in corpus() if not BACKGROUND.search(script.text)],
    ids=str,
)
def test_a_script(script: Script, on_terminal: bool, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each script runs on a terminal or through pipes, not both: `test_differential` covers both."""
    both(script.calls, place, on_terminal, monkeypatch)


@given(text=texts())
@ON_TERMINAL
def test_a_generated_script(text: bytes, on_terminal: bool, place: Path) -> None:
    assume(not BACKGROUND.search(text))
    with pytest.MonkeyPatch.context() as monkeypatch:
        both(tuple(text.split(b"\n")), place, on_terminal, monkeypatch)


@given(lines=calls())
def test_calls_that_end_in_any_way_in_any_state(lines: tuple[bytes, ...], place: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        both(lines, place, True, monkeypatch)


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


@pytest.mark.parametrize("before", [":", "PS1='(venv) '", ": trap", "PS1='(venv) '; : trap", "set -e", "cd /tmp"])
def test_in_these_shells_commands_are_ordinary(
    before: str, new_session: Callable[..., Session], is_ordinary: Callable[[Session, str], bool]
) -> None:
    sh = new_session()
    for text in (before, ":", ":", ":"):  # a prompt is known once it has come twice
        sh.run(text)
    if before == "set -e":
        assert is_ordinary(sh, "true")
    else:
        assert [text for text in PLAIN if is_ordinary(sh, text)] == list(PLAIN)


@pytest.mark.parametrize(
    "text",
    ["exec 9>&1", "trap : USR1", "set -u", "eval true", ". /dev/null", "", "# a", "ulimit -n 100"],
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
    counts = {"call": 0, "c_call": 0}

    def count(_: FrameType, event: str, argument: object) -> None:
        # To look again and again for the mark takes as many calls as bash takes time.
        if event in counts and getattr(argument, "__name__", "") not in ("sched_yield", "poll", "monotonic"):
            counts[event] += 1

    sys.setprofile(count)
    try:
        sh.run("true")
    finally:
        sys.setprofile(None)
    assert counts["call"] <= 50
    assert counts["c_call"] <= 60


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
