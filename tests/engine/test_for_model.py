"""The text of a result for a model: never longer than requested, and only lines that were printed."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from shellsession import InvalidRequest, Limits, Result, Session
from shellsession.text import clean, fitted

_MARK = re.compile(
    r"\[\.\.\. ([\d ]+) bytes(?: \((?:about )?[\d ]+ lines?\))? omitted(?:; read_output.* shows them)? \.\.\.\]\n?"
)


def made(stdout: bytes = b"", stderr: bytes = b"", **fields: Any) -> Result:
    values: dict[str, Any] = {"exit_code": 0, "signal": None, "cwd": "/", "duration": 0.5, "outcome": "exited"}
    return Result(stdout, stderr, **{**values, **fields})


def test_a_short_result_is_what_was_printed() -> None:
    assert made(b"one\ntwo\n").for_model() == "one\ntwo"
    assert made().for_model() == "[no output]"
    assert made(b"out\n", b"err\n", exit_code=2).for_model() == "[stdout]\nout\n[stderr]\nerr\n[exit status 2]"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"exit_code": 139}, "exit status 139 (128 + SIGSEGV)"),
        ({"exit_code": 255}, "exit status 255"),
        ({"exit_code": None, "outcome": "running"}, "still running after 0.5 s"),
        (
            {"exit_code": None, "outcome": "running", "matched": True, "reason": "the output matches 'x'"},
            "the output matches 'x'; still running after 0.5 s",
        ),
        ({"exit_code": None, "outcome": "input"}, "waits for input after 0.5 s"),
        (
            {"exit_code": 130, "outcome": "timed_out"},
            "ended by its time limit after 0.5 s; the shell, its directory and its variables are kept",
        ),
        (
            {"exit_code": 3, "outcome": "shell_exited", "state_kept": False, "reason": "bash exited with 3"},
            "bash exited with 3; its state is lost, the next command starts in a fresh one",
        ),
        ({"exit_code": None, "ran": False, "reason": "the shell was gone"}, "not run: the shell was gone"),
        ({"background": (7, 8)}, "left running in the background: process 7, 8"),
    ],
)
def test_how_it_ended_is_said_in_words(fields: dict[str, Any], said: str) -> None:
    assert str(made(b"x\n", **fields)) == f"x\n[{said}]"


def test_a_cut_result_shows_only_lines_that_were_printed() -> None:
    with Session(timeout=20) as session:
        result = session.run("seq 1 100000", limits=Limits(max_output=60))
        shown = result.for_model()
        assert "9996" not in shown.splitlines()
        assert set(_MARK.sub("", shown).splitlines()) < {str(number) for number in range(1, 100001)}
        assert re.search(r"\[\.\.\. [\d ]+ bytes omitted \.\.\.\]9996\n", result.stdout)


def test_a_mark_says_about_how_many_lines_were_dropped() -> None:
    with Session(timeout=20) as session:
        shown = session.run("seq 1 1000000", tty=False).for_model()
        found = re.search(r" bytes \(about ([\d ]+) lines\) omitted; ", shown)
        assert found
        assert 960_000 <= int(found[1].replace(" ", "")) + shown.count("\n") <= 1_010_000
        assert "lines" not in session.run("printf %2000000s; seq 9", tty=False).for_model()


# Also long ones, which no room holds, and those that are short without their escape sequences.
lines = st.lists(
    st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))
    | st.integers(0, 900).map(b"x".__mul__)
    | st.integers(0, 200).map(b"\x1b[1m".__mul__),
    max_size=200,
)


@given(lines, st.integers(200, 700), st.booleans())
def test_it_is_never_longer_than_asked_for(printed: list[bytes], most: int, cleaned: bool) -> None:
    result = made(b"\n".join(printed), b"\n".join(reversed(printed)), exit_code=1)
    assert len(result.for_model(most, cleaned)) <= most


@pytest.mark.parametrize("room", [150, 200, 400])
@pytest.mark.parametrize("data", [b"a\n" + b"x" * 1000, b"x" * 1000 + b"\na", b"\x1b[1m" * 1000 + b"a\n" + b"x" * 1000])
@pytest.mark.parametrize("cleaned", [True, False])
def test_a_short_line_beside_a_long_one_fits(data: bytes, room: int, cleaned: bool) -> None:
    for size in range(2, len(data), 7):
        for part in (data[:size], data[-size:]):
            assert len(shown := fitted(part, 0, 0, room, cleaned)) <= room
            assert "-" not in shown


def test_long_output_with_the_longest_mark_fits() -> None:
    data = b"".join(b"%d\n" % number for number in range(110_000))  # its lines are estimated, and have as many digits
    assert [room for room in range(300, 400) if len(fitted(data, 0, 0, room)) > room] == []


@given(st.lists(st.text(max_size=40) | st.integers(0, 900).map("x".__mul__), max_size=200), st.integers(100, 700))
def test_what_is_shown_and_what_is_omitted_is_all(printed: list[str], room: int) -> None:
    data = "\n".join(printed).encode("utf-8", "replace")
    shown = fitted(data, 0, 0, room, cleaned=False)
    if not (mark := _MARK.search(shown)):
        assert shown.encode() == data
        return
    head, tail = shown[: mark.start()].encode(), shown[mark.end() :].encode()
    assert data.startswith(head)
    assert data.endswith(tail)
    assert len(head) + len(tail) + int(mark[1].replace(" ", "")) == len(data)


@pytest.mark.parametrize("omitted", [1, 10**6])
@given(st.binary(max_size=300), st.integers(0, 300), st.integers(1, 400))
def test_what_was_lost_before_is_counted_too(omitted: int, data: bytes, cut: int, room: int) -> None:
    shown = fitted(data, omitted, min(cut, len(data)), room)
    assert len(shown) <= room
    if room >= 40 or _MARK.search(shown):  # with less there is no number, rather than a part of one
        assert (mark := _MARK.search(shown))
        assert int(mark[1].replace(" ", "")) >= omitted
    else:
        assert not re.search(r"[.] \d", shown)


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("10%\r20%\r100%\n", "100%\n"),
        ("long line\rshort\n", "short\n"),
        ("total 12345678\rtotal 9\n", "total 9\n"),
        ("done\r\r\n", "done\n"),
        ("price 100\x1b[1D\x1b[1D5\n", "price 150\n"),
        ("50%\x1b[1G100%\n", "100%\n"),
        ("long line\r\x1b[Kshort\n", "short\n"),
        ("long line\x1b[2K\rshort\n", "short\n"),
        ("abc\x1b[1K\rx", "x"),
        ("abc\b\x1b[1K", ""),
        ("abcd\b\b\x1b[1K\by", " y d"),
        ("ab\b\bX\n", "Xb\n"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        (
            "\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x1b(B\x1b=end",
            "red link end",
        ),
        ("bell\x07 nul\0 tab\t\x7f", "bell nul tab\t"),
        ("\x1b]never ended\nnext", "\nnext"),
        ("\x1b", ""),
    ],
)
def test_text_is_cleaned_as_a_terminal_would_show_it(printed: str, shown: str) -> None:
    assert clean(printed) == shown


@given(st.text(st.sampled_from("ab\r\b\n\x1b[]KmÄ0;\x07\x1c\x1d\x1e"), max_size=60))
def test_cleaning_keeps_the_lines_and_leaves_no_control(printed: str) -> None:
    shown = clean(printed)
    assert shown.count("\n") == printed.count("\n")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", shown)


@pytest.mark.parametrize(
    "printed",
    [
        "\x1b[1m" + "x" * 300_000,
        "x" * 500_000 + "\b\ba" * 200_000,
        "\x1b[" + "1" * 300_000,
        "\x1b" + " " * 300_000,
        "x\x1b[999D" * 10_000,
    ],
)
def test_no_line_takes_more_than_its_length_to_clean(printed: str) -> None:
    begun = time.process_time()
    clean(printed)
    assert time.process_time() - begun < 10  # 0.2 s; if it grew with the square, up to minutes


whole = st.integers(0, 10**9)


@given(st.binary(max_size=50), st.binary(max_size=50), whole, st.lists(whole), st.sampled_from(["exited", "running"]))
def test_a_result_survives_json(stdout: bytes, stderr: bytes, omitted: int, pids: list[int], outcome: str) -> None:
    result = made(
        stdout, stderr, stdout_omitted=omitted, stdout_cut=len(stdout) // 2, killed=tuple(pids), outcome=outcome
    )
    told = json.loads(result.to_json())
    assert told == result.to_dict()
    assert Result.from_json(result.to_json()) == Result.from_dict(told) == result
    if not omitted and stdout.isascii():
        assert "stdout_base64" not in told


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stdout": 1, "stderr": ""}', "null", "[" * 200_000])
def test_what_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Result.from_json(text)
    wrong = made().to_dict()
    wrong["exit_code"] = "0"
    with pytest.raises(InvalidRequest, match="exit_code"):
        Result.from_dict(wrong)
    with pytest.raises(InvalidRequest, match="killed"):
        Result.from_dict({**made().to_dict(), "killed": [1, "2"]})


def test_many_processes_in_the_background_leave_room_for_the_output() -> None:
    shown = made(b"printed\n", background=tuple(range(1, 10001))).for_model(500)
    assert shown.startswith("printed\n[left running in the background: process 1, 2,")
    assert shown.endswith(" and 9 980 more]")


def test_repr_is_short() -> None:
    result = made(b"x" * 10**6, exit_code=1)
    assert repr(result) == "<Result exited, exit status 1, stdout 1000000 bytes, stderr 0 bytes, 0.5 s>"
    assert repr(made(exit_code=None, outcome="running")).startswith("<Result running, stdout")
