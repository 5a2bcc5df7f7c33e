"""How much output is kept, where the rest goes, and live output."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from system import unique_seconds, with_argument

from shellsession import TTY, CommandFailed, InvalidRequest, Limits, Result, Session, SessionBusy

pytestmark = pytest.mark.usefixtures("company")

Make = Callable[..., Session]
STREAMS = pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])

NUMBERS = "".join(f"{i}\n" for i in range(1, 20001)).encode()


@pytest.mark.sampled
@STREAMS
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 10, 1001, len(NUMBERS) - 1, len(NUMBERS), len(NUMBERS) + 1])
def test_the_middle_is_dropped_and_counted(sh: Session, limit: int, tty: bool) -> None:
    result = sh.run("seq 20000; seq 20000 >&2", limits=Limits(max_output=limit), tty=tty)
    front, back = (limit + 1) // 2, limit // 2
    omitted = max(0, len(NUMBERS) - limit)
    kept = NUMBERS[:front] + NUMBERS[len(NUMBERS) - back :] if omitted else NUMBERS
    assert (result.stdout_bytes, result.stdout_omitted) == (kept, omitted)
    assert (result.stderr_bytes, result.stderr_omitted) == (kept, omitted)
    assert (result.outcome, result.exit_code) == ("exited", 0)
    assert result.stdout_file is None


@pytest.mark.parametrize("limit", range(1, 25))
def test_the_text_is_never_cut_inside_a_character(sh: Session, limit: int) -> None:
    result = sh.run("printf 'é世😀é世😀é世😀é世😀'", limits=Limits(max_output=limit))
    shown = re.sub(r"\[\.\.\. \d+ bytes omitted \.\.\.\]", "", result.stdout)
    assert set(shown) <= set("é世😀")


@pytest.mark.parametrize(
    "options",
    [
        {"max_output": -1},
        {"max_output": "5"},
        {"max_output": 1.5},
        {"max_output": True},
        {"max_output": None},
        {"spill_max": -1},
        {"spill_max": None},
        {"on_overflow": "drop"},
        {"on_overflow": None},
    ],
    ids=repr,
)
def test_limits_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=rf"limits\.{next(iter(options))}"):
        Limits(**options)


def test_much_output_stays_in_bounds(sh: Session) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = sh.run("yes | head -c 50000000; sleep 1000", timeout=1, tty=False)
    assert (result.outcome, result.state_kept) == ("timed_out", True)
    assert len(result.stdout_bytes) == 1 << 20
    assert result.stdout_omitted > 1 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


@STREAMS
def test_an_overflow_can_end_the_command(sh: Session, tty: bool) -> None:
    seconds = unique_seconds()
    result = sh.run(f"X=1; sleep {seconds} & yes", limits=Limits(max_output=5000, on_overflow="kill"), tty=tty)
    assert (result.outcome, result.exit_code, result.state_kept) == ("overflow", 130, True)
    assert len(result.stdout_bytes) == 5000
    assert result.stdout_omitted > 0
    assert "limit" in result.reason
    assert with_argument(seconds) == []
    assert sh.run("echo $X").stdout == "1\n"


def test_an_overflow_of_stderr_counts_too(sh: Session) -> None:
    result = sh.run("yes >&2", limits=Limits(max_output=5000, on_overflow="kill"))
    assert (result.outcome, result.stdout, len(result.stderr_bytes)) == ("overflow", "", 5000)


def test_an_overflow_is_the_whole_commands_however_often_it_is_looked_at(sh: Session) -> None:
    """Each piece was counted for itself. (A busy machine may need a look more for the first.)"""
    text = "while read; do printf '%900s\\n' ''; done"
    result = sh.run(text, stdin=TTY, limits=Limits(max_output=2000, on_overflow="kill"))
    pieces = 0
    while result.outcome == "input" and pieces < 5:
        result = sh.send("\n")
        pieces += 1
    assert (result.outcome, result.state_kept, pieces in (3, 4)) == ("overflow", True, True)


@pytest.mark.parametrize("limit", [1 << 20, 200, 60, 10, 0])
@pytest.mark.parametrize("said", [0, 20_000])
def test_the_last_mark_of_a_shell_is_found_within_any_limit(sh: Session, limit: int, said: int) -> None:
    """Where a command has closed bash's own descriptors it comes on the command's stderr."""
    text = f"printf '%*s\\n' {said} '' >&2; for fd in 10 11 12; do eval \"exec $fd>&-\"; done; (exit 7)"
    result = sh.run(text, limits=Limits(max_output=limit))
    whole = b" " * said + b"\nbash: 12: Bad file descriptor\n"
    assert (result.outcome, result.exit_code) == ("shell_exited", 7)
    assert len(result.stderr_bytes) == min(limit, len(whole))
    assert result.stderr_omitted == len(whole) - len(result.stderr_bytes)
    assert result.stderr_bytes == whole[: limit - limit // 2] + whole[len(whole) - limit // 2 :] or limit > len(whole)


def test_what_just_fits_is_no_overflow(sh: Session) -> None:
    limits = Limits(max_output=5, on_overflow="kill")
    assert sh.run("echo 1234", limits=limits).outcome == "exited"


def test_an_overflow_by_check_is_a_failure(sh: Session) -> None:
    with pytest.raises(CommandFailed) as caught:
        sh.run("yes", limits=Limits(max_output=5, on_overflow="kill"), check=True)
    assert caught.value.result.outcome == "overflow"


def test_a_quick_flood_is_an_overflow_too(sh: Session) -> None:
    """It was over before anybody could end it."""
    limits = Limits(max_output=10, on_overflow="kill")
    for text, outcome in (("echo 12345678901", "overflow"), ("echo 123456789", "exited")):
        assert sh.run(text, limits=limits).outcome == outcome


@STREAMS
def test_output_is_received_as_it_comes(sh: Session, place: Path, tty: bool) -> None:
    """The command goes on only when the callback has heard its first line: so it was heard live."""
    sh.run("mkfifo go")
    heard: list[tuple[str, bytes]] = []

    def hear(stream: str, data: bytes) -> None:
        heard.append((stream, data))
        if b"first" in data:
            (place / "go").write_text("\n")

    result = sh.run("echo first; read x <go; echo second >&2", on_output=hear, tty=tty, timeout=10)
    assert heard == [("stdout", b"first\n"), ("stderr", b"second\n")]
    assert (result.stdout, result.stderr) == ("first\n", "second\n")


def test_what_is_received_is_all_even_if_not_all_is_kept(sh: Session) -> None:
    heard = bytearray()
    result = sh.run("seq 20000", on_output=lambda _, data: heard.extend(data), limits=Limits(max_output=10))
    assert bytes(heard) == NUMBERS
    assert len(result.stdout_bytes) == 10


def test_a_callback_that_fails_ends_the_command_and_keeps_the_shell(sh: Session) -> None:
    seconds = unique_seconds()

    def fail(*_: object) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        sh.run(f"X=1; echo hi; sleep {seconds}", on_output=fail)
    assert with_argument(seconds) == []
    assert sh.run("echo $X").stdout == "1\n"


@pytest.mark.parametrize("command", ["seq 20000", "seq 20000 >&2", "seq 20000; sleep 100", "seq 3"])
def test_a_callback_that_fails_for_ever_leaves_nothing_for_the_next_call(sh: Session, command: str) -> None:
    def fail(*_: object) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        sh.run(command, on_output=fail)
    result = sh.run("echo next")
    assert (result.stdout_bytes[-20:], result.stderr_bytes[-20:]) == (b"next\n", b"")


def test_a_callback_cannot_use_its_own_session(sh: Session) -> None:
    with pytest.raises(SessionBusy, match="callback"):
        sh.run("echo hi; sleep 100", on_output=lambda *_: sh.run("echo never"))
    assert sh.run("echo alive").stdout == "alive\n"


@STREAMS
def test_a_stream_gives_the_output_and_then_the_result(sh: Session, place: Path, tty: bool) -> None:
    sh.run("mkfifo go")
    pieces: list[tuple[str, bytes]] = []
    last: Result | None = None
    for item in sh.stream("echo first; read x <go; echo second >&2; (exit 3)", tty=tty, timeout=10):
        assert last is None
        if isinstance(item, Result):
            last = item
            continue
        pieces.append(item)
        if item[1] == b"first\n":
            (place / "go").write_text("\n")
    assert pieces == [("stdout", b"first\n"), ("stderr", b"second\n")]
    assert last
    assert (last.exit_code, last.outcome) == (3, "exited")
    assert sh.run("echo $?").stdout == "3\n"


def test_a_stream_of_nothing_is_its_result(sh: Session) -> None:
    items = list(sh.stream("true"))
    assert [type(item) for item in items] == [Result]


def test_breaking_out_of_a_stream_interrupts_the_command(sh: Session) -> None:
    seconds = unique_seconds()
    stream = sh.stream(f"X=1; echo a; sleep {seconds}")
    assert next(stream) == ("stdout", b"a\n")
    with pytest.raises(SessionBusy):
        sh.run("echo never")
    stream.close()
    assert with_argument(seconds) == []
    assert sh.run("echo $X").stdout == "1\n"


def test_a_stream_never_begun_runs_nothing(sh: Session, place: Path) -> None:
    stream = sh.stream("touch made")
    del stream
    assert sh.run("ls").stdout == ""


def test_a_stream_ends_at_its_time_limit(sh: Session) -> None:
    *pieces, last = sh.stream("echo a; sleep 100", timeout=1)
    assert pieces == [("stdout", b"a\n")]
    assert isinstance(last, Result)
    assert (last.outcome, last.state_kept) == ("timed_out", True)
    assert sh.run("echo alive").stdout == "alive\n"


def test_a_stream_of_much_output_is_whole(sh: Session) -> None:
    parts = [item[1] for item in sh.stream("seq 20000", limits=Limits(max_output=10)) if not isinstance(item, Result)]
    assert b"".join(parts) == NUMBERS
