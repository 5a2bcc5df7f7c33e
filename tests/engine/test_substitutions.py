"""A call waits for its process substitutions (``> >(tee log)``): the result has their last output."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bashes import SUBSTITUTION_HEEDS_INTERRUPT
from system import PATIENCE, unique_seconds

from shellsession import Result, Session
from shellsession.engine.verbs import substitutions
from shellsession.engine.verbs.substitutions import LEFT_RUNNING

Make = Callable[..., Session]

TOLD_APART = pytest.mark.skipif(not SUBSTITUTION_HEEDS_INTERRUPT, reason="it ignores SIGINT, as a job does")

# Each is run often, as its reader may come to its end before our look, at it, or behind it: 30 to 96 of 100 went wrong.
_ROUNDS = 15
_READERS = {
    "a log of all": ("exec > >(tee log) 2>&1; echo one; echo two", "one\ntwo\n", ""),
    "a filter": ("seq 3 > >(sed s/^/a/)", "a1\na2\na3\n", ""),
    "a second reader": ("echo x | tee >(sed s/x/y/) >/dev/null", "y\n", ""),
    "a pipeline": ("seq 9000 > >(tee log | tail -1)", "9000\n", ""),
    "of errors": ("{ echo oops >&2; } 2> >(sed s/^/E:/ >&2)", "", "E:oops\n"),
    "of both": ("{ echo a; echo b >&2; } > >(cat) 2> >(cat >&2)", "a\n", "b\n"),
    "in a subshell": ("(exec > >(tee log); echo sub)", "sub\n", ""),
    "more than a pipe holds": ("printf %0200000d 0 > >(cat)", "0" * 200_000, ""),
}


@pytest.mark.sampled
@pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("command", _READERS)
def test_its_last_words_are_in_the_result(new_session: Make, command: str, tty: bool) -> None:
    text, stdout, stderr = _READERS[command]
    sh = new_session(tty=tty)
    for _ in range(_ROUNDS):
        result = sh.run(text)
        assert (result.stdout, result.stderr, result.exit_code) == (stdout, stderr, 0)
        assert sh.run("echo next").stdout == "next\n"


def test_a_silent_one_is_waited_for(new_session: Make) -> None:
    assert new_session(tty=False).run("echo x > >(sleep 0.5; cat)").stdout == "x\n"


@pytest.mark.parametrize("options", [{"timeout": 1}, {"idle_timeout": 1}])
def test_at_a_limit_it_is_left_running(new_session: Make, options: dict[str, Any]) -> None:
    sh = new_session()
    result = sh.run("echo x > >(sleep 1000; cat)", **options)
    assert (result.outcome, result.exit_code, result.reason) == ("exited", 0, LEFT_RUNNING)
    assert [job.pids for job in sh.jobs()] == [result.background]


@pytest.mark.parametrize("fed", ["", pytest.param("echo x |", marks=TOLD_APART), "sleep 1000 |"])
def test_a_job_is_not_waited_for(new_session: Make, fed: str) -> None:
    result = new_session().run(f"{fed} sleep {unique_seconds()} &")
    assert len(result.background) == 1 + fed.startswith("sleep")
    assert result.reason == ""


def test_nor_is_who_cannot_say_anything(new_session: Make) -> None:
    sh = new_session()
    assert sh.run("echo x > >(exec sleep 1000 >/dev/null 2>&1)", timeout=60).reason == ""


@TOLD_APART
def test_isolated_it_is_killed_at_the_time_limit(new_session: Make) -> None:
    result = new_session().run("echo said; echo x > >(sleep 1000; cat)", isolated=True, timeout=1)
    assert (result.outcome, result.stdout, result.state_kept) == ("timed_out", "said\n", True)
    assert len(result.killed) == 2
    assert result.background == ()


def test_isolated_a_job_has_a_moment(new_session: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(substitutions, "_JOBS", 2.0)
    sh = new_session()
    result = sh.run("(sleep 0.1; echo late) & sleep 1000 & echo x", isolated=True)
    assert (result.outcome, result.stdout, result.reason) == ("exited", "x\nlate\n", LEFT_RUNNING)
    assert sh.jobs()[-1].running


def test_isolated_a_time_limit_within_that_ends_no_job(new_session: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(substitutions, "_JOBS", PATIENCE)
    result = new_session().run("sleep 1000 & echo x", isolated=True, timeout=1)
    assert (result.outcome, result.stdout, len(result.background)) == ("exited", "x\n", 1)


@TOLD_APART
def test_isolated_it_is_handed_back_and_waited_for(new_session: Make, place: Path) -> None:
    sh = new_session()
    sh.run("mkfifo go")
    forks = "for i in {1..200}; do (:); done"  # a new fork is not told apart yet
    for reader in ("read x <go", f"read x <go; {forks}"):
        result = sh.run(f"echo x > >({reader}; cat)", isolated=True, timeout=0.3, on_timeout="yield")
        assert result.runs_on
        (place / "go").write_text("\n")
        assert sh.wait(None).stdout == "x\n"


def test_a_stream_leaves_it_running_at_the_limit(new_session: Make) -> None:
    *_, last = new_session().stream("echo x > >(sleep 1000; cat)", timeout=1)
    assert isinstance(last, Result)
    assert (last.outcome, last.reason) == ("exited", LEFT_RUNNING)


@TOLD_APART
def test_isolated_it_can_be_interrupted(new_session: Make) -> None:
    sh = new_session()
    sh.run("X=kept; echo x > >(sleep 1000; cat)", isolated=True, timeout=0.05, on_timeout="yield")
    assert sh.interrupt().outcome == "interrupted"
    assert sh.jobs() == []


def test_a_stream_has_its_pieces_as_they_come(new_session: Make, place: Path) -> None:
    os.mkfifo(place / "go")
    pieces = new_session(tty=False).stream("echo 2 > >(echo 1; read x <go; cat)")
    assert next(pieces) == ("stdout", b"1\n")
    (place / "go").write_text("\n")
    assert [piece for piece in pieces if isinstance(piece, tuple)] == [("stdout", b"2\n")]


def test_who_speaks_without_end_is_left_running(new_session: Make) -> None:
    sh = new_session(tty=False)
    result = sh.run("echo x > >(cat; yes)", timeout=0.2)
    assert result.stdout.startswith("x\ny\ny\n")
    assert result.background
    sh.jobs()[-1].kill()
