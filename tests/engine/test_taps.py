"""Taps see the begin, the output, the input and the end of each command, whichever path it takes."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path
from typing import Any, Final

import pytest
from system import wait_until

from shellsession import TTY, Limits, Result, Session
from shellsession.models import Request, Stream
from shellsession.observe import Tap


class Notes(Tap):
    """Keeps what it sees, with the pieces of a stream joined."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def begin(self, id: str, request: Request) -> None:
        self.seen.append(("begin", id, request.command))

    def output(self, id: str, stream: Stream, data: bytes) -> None:
        kind, *before = self.seen[-1]
        if kind == "output" and before[:2] == [id, stream]:
            data = before[2] + data
            del self.seen[-1]
        self.seen.append(("output", id, stream, data))

    def input(self, id: str, data: bytes) -> None:
        self.seen.append(("input", id, data))

    def resize(self, columns: int, rows: int) -> None:
        self.seen.append(("resize", columns, rows))

    def end(self, command: bytes, result: Result) -> None:
        self.seen.append(("end", command, result))


@pytest.fixture
def notes(sh: Session) -> Notes:
    sh.run("true")  # from now on commands may take the short path
    sh.engine.taps.append(notes := Notes())
    return notes


TEXT: Final = "echo out; echo err >&2; (exit 3)"


@pytest.mark.parametrize("options", [{}, {"stdin": b"x"}, {"isolated": True}, {"limits": Limits(max_output=2)}])
def test_tap_sees_each_command_on_either_path(sh: Session, notes: Notes, options: dict[str, Any]) -> None:
    result = sh.run(TEXT, **options)
    begin, *output, end = notes.seen
    assert begin == ("begin", result.id, TEXT.encode())
    assert sorted(output) == [("output", result.id, "stderr", b"err\n"), ("output", result.id, "stdout", b"out\n")]
    assert end == ("end", TEXT.encode(), result)


def test_tap_sees_input_and_size_of_a_command_with_the_terminal(sh: Session, notes: Notes) -> None:
    handed_back = sh.run("read -r line; echo got $line", stdin=TTY, echo=False)
    sh.resize(100, 30)
    result = sh.send("word\n")
    assert notes.seen == [
        ("begin", handed_back.id, b"read -r line; echo got $line"),
        ("resize", 100, 30),
        ("input", result.id, b"word\n"),
        ("output", result.id, "stdout", b"got word\n"),
        ("end", b"read -r line; echo got $line", result),
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["death", "close", "restart", "interrupt"])
def test_tap_sees_one_end_however_a_command_ends(sh: Session, notes: Notes, how: str) -> None:
    if how == "death":
        sh.run("kill -9 $$")
    else:
        sh.run("sleep 1000", timeout=0.01, on_timeout="yield")
        getattr(sh, how)()
    (begin, end) = notes.seen
    assert (begin[0], end[0]) == ("begin", "end")
    assert end[2].state_kept is (how == "interrupt")


def test_tap_sees_no_command_that_bash_did_not_get(sh: Session, notes: Notes) -> None:
    sh.run("exit 3")
    del notes.seen[:]
    assert not sh.run("true", cwd="/nowhere").ran
    assert notes.seen == []


def test_tap_sees_no_startup_and_no_shutdown_command() -> None:
    with Session(startup=["echo a"], shutdown=["echo b"]) as sh:
        sh.engine.taps.append(notes := Notes())
        sh.run("true")
        sh.run("kill -9 $$")
        sh.run("true")
    assert [what[0] for what in notes.seen] == ["begin", "end"] * 3


def test_tap_that_raises_at_output_ends_the_command(sh: Session) -> None:
    class Full(Tap):
        def output(self, id: str, stream: Stream, data: bytes) -> None:
            raise OSError("no space left")

    sh.run("x=1")
    sh.engine.taps.append(Full())
    for options in ({}, {"stdin": b"x"}):
        with pytest.raises(OSError, match="no space left"):
            sh.run("echo out; sleep 1000", **options)  # type: ignore[arg-type]
    del sh.engine.taps[:]
    assert sh.run("echo $x").stdout == "1\n"


@pytest.mark.parametrize("options", [{}, {"stdin": b"x"}])
def test_tap_sees_the_end_of_a_command_whose_callback_raises(
    sh: Session, notes: Notes, options: dict[str, Any]
) -> None:
    def fail(stream: Stream, data: bytes) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        sh.run("echo out", on_output=fail, **options)
    assert [what[0] for what in notes.seen] == ["begin", "output", "end"]


def test_tap_sees_what_is_printed_between_two_verbs(sh: Session, notes: Notes, place: Path) -> None:
    os.mkfifo(go := place / "go")
    sh.run("read x <go; echo late; sleep 1000", timeout=0.01, on_timeout="yield")
    go.write_text("\n")
    wait_until(lambda: notes.seen[-1][0] == "output", "the output")
    assert notes.seen[-1][2:] == ("stdout", b"late\n")
    assert sh.interrupt().stdout == "late\n"
    assert [what[0] for what in notes.seen] == ["begin", "output", "end"]


def test_engine_of_a_closed_session_is_freed_although_an_observer_masks_by_it() -> None:
    gc.disable()
    try:
        with Session() as sh:
            sh.observe(lambda agent, text, result: None)
            sh.run("true")
            engine = weakref.ref(sh.engine)
        del sh
        assert engine() is None
    finally:
        gc.enable()
