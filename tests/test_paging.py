"""Pages of a long output: none is too long, and their marks lead through all of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from shellsession import InvalidRequest, paging
from shellsession.models import exited
from shellsession.paging import Piece, page, query_for
from shellsession.policy.secrets import Secrets
from shellsession.text import clean


def read(data: bytes, more: int = 0, **arguments: Any) -> str:
    """What a session would return that keeps this stream. ``more``: how many bytes it has not kept."""
    pages = page(query_for("c1", **arguments))
    begin, size = next(pages)
    try:
        while True:
            assert size <= paging.PIECE
            begin, size = pages.send(Piece("c1", data[begin : begin + size], len(data), len(data) + more))
    except StopIteration as end:
        return str(end.value)


def following(shown: str) -> tuple[str, dict[str, Any]]:
    """What a page shows, and the arguments of the call that its mark names, word by word; {} if it has none."""
    text, _, mark = shown.partition("[... ")
    if found := re.search(r"more follows, of .* bytes in all; (read_output.*) shows the next \.\.\.]$", mark):
        return text, eval(found[1], {"read_output": lambda id, **given: given})
    if found := re.search(r"more follows: the same call with (.*?)( instead of lines)? \.\.\.]$", mark):
        return text, eval(f"dict({found[1]})") | ({"lines": None} if found[2] else {})
    return text, {}


def pages(data: bytes, max_chars: int, mask: Any = None, **first: Any) -> list[str]:
    """All pages, without their marks, for one who obeys the marks and knows nothing else."""
    found, part = list[str](), first
    while True:
        shown = read(data, max_chars=max_chars, mask=mask, **part)
        assert len(shown) <= max_chars
        text, after = following(shown)
        found.append(text)
        if not after:
            return found
        assert text
        part = part | after if "same call" in shown else after


lines = st.lists(st.text("aä€x", max_size=40) | st.integers(0, 600).map("aä€x".__mul__), min_size=1, max_size=60).map(
    "\n".join
)
limits = st.sampled_from([paging.LEAST_CHARS, 250, 1000, 30_000])


@given(lines, limits)
def test_one_who_obeys_the_marks_sees_all_lines(text: str, most: int) -> None:
    """A line that is too long for a page is read by bytes, to the end of the output."""
    assert "".join(pages(text.encode(), most, lines=(1, None))) == text
    assert "".join(pages(text.encode(), most, bytes=(0, None))) == text


@given(lines, limits)
def test_one_who_obeys_the_marks_sees_all_that_matches(text: str, most: int) -> None:
    seen = "".join(pages(text.encode(), most, grep="x")).splitlines()
    expected = [f"{number}:{line}" for number, line in enumerate(text.split("\n"), 1) if "x" in line]
    assert len(seen) == len(expected)
    for one, whole in zip(seen, expected, strict=True):
        number, _, excerpt = one.partition(":")
        assert whole.startswith(f"{number}:")
        assert excerpt.replace("[...]", "") in whole
        assert "x" in excerpt


def test_the_check_of_a_pattern_searches_nothing() -> None:
    endless = "(?:(?=)|(?=)){99}(?!)"  # even in an empty text
    assert query_for("c1", grep=endless).grep == re.compile(endless)
    with pytest.raises(InvalidRequest, match="is not a regular expression for text: it is one for bytes"):
        query_for("c1", grep=re.compile(b"x"))


def test_many_pages_of_short_lines_are_all_seen() -> None:
    data = "".join(f"line {number}\n" for number in range(20_000)).encode()
    for most in (250, 1000, 30_000):
        assert "".join(pages(data[: 20 * most], most, lines=(1, None))).encode() == data[: 20 * most]
    assert read(data, lines=(3, 4)) == "line 2\nline 3\n"
    assert read(data, lines=(100, 9000), max_chars=300).endswith(
        'read_output("c1", lines=(122, 9000)) shows the next ...]'
    )


def test_a_long_line_is_shown_around_its_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PIECE", 1000)
    data = b"a\n" + b"-" * 50_000 + b"x" + b"-" * 50_000 + b"\nx\n"
    shown = read(data, grep="x")
    mark = '[... read_output("c1", lines=(2, 2)) shows all of line 2 ...]'
    assert shown == f"2:[...]{'-' * 250}x{'-' * 749}[...]\n3:x\n{mark}"
    assert read(data, lines=(3, None)) == "x\n"
    small = read(data, grep="x", max_chars=250)
    assert re.match(r"2:\[\.\.\.\]-+x-+\[\.\.\.\]\n3:x\n\[\.\.\. ", small)
    assert "more follows" not in small
    assert "more follows" not in read(data[:-2], grep="x", max_chars=250)


def test_a_line_of_many_parts_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "_LONGEST_LINE", 1000)
    monkeypatch.setattr(paging, "PIECE", 1000)
    data = b"x-" * 5000 + b"\nx\n"
    assert [one.split("[...]")[0] for one in "".join(pages(data, 200, grep="x")).splitlines()][1:] == ["2:x"]


def test_a_pattern_that_is_too_long_for_a_mark_is_not_repeated() -> None:
    data = b"x" * 50 + b"\n"
    shown = read(data * 30, grep="x|" * 200 + "x", max_chars=250)
    assert shown.endswith("[... more follows: the same call with lines=(4, None) ...]")
    assert len(pages(data * 30, 250, grep="x|" * 200 + "x")) == 10


def test_the_marks_of_all_pages_have_one_form() -> None:
    """Also where the number of the next line has more digits."""
    for size in range(20):
        shown = [read(b"x\n" * 1200, grep="x" + "|" * size, lines=(n, None), max_chars=250) for n in (1, 990)]
        assert len({"the same call" in one for one in shown}) == 1


def test_a_mask_comes_before_all_else() -> None:
    """Neither a pattern nor a part of a line, or of the bytes, reveals what is masked."""
    data = b"a\nkey=(1234\n5678) end\n" + b"-" * 500 + b"(1234\n5678)" + b"-" * 500

    def hide(text: str) -> str:
        return re.sub(r"\(\d+\n\d+\)", "***", text)

    assert read(data, grep="1", mask=hide) == ""
    assert read(data, grep="key", mask=hide) == "2:key=*** end\n"
    assert "".join(pages(hide(data.decode()).encode(), 250, lines=(1, None))) == hide(data.decode())
    assert "".join(pages(data, 250, mask=hide, lines=(2, None))) == "key=*** end\n" + "-" * 500 + "***" + "-" * 500
    assert read(data, bytes=(2, 9), mask=hide) == "key=***"
    assert read(data[:17], 9, lines=(2, None), mask=hide) == (
        "key=***[... the kept part ends here: the first 9 of 18 bytes ...]"
    )


@pytest.mark.parametrize("few", [0, 5, paging.LEAST_CHARS - 1, True, "x"])
def test_a_limit_that_no_mark_fits_in_is_refused(few: Any) -> None:
    with pytest.raises(InvalidRequest, match="max_chars must be a number of characters, 200 or more, not "):
        query_for("c1", max_chars=few)
    with pytest.raises(InvalidRequest, match="200 or more"):
        exited(b"x", b"", 0, "/", 0.1, "c1", b"true").for_model(max_chars=few)


def test_lines_are_matched_as_they_are_shown() -> None:
    data = b"10%\r99% \x1b[31mred\x1b[0m line\nother\n"
    assert read(data, grep="^99% red line$") == "1:99% red line\n"
    assert read(data) == "99% red line\nother\n"
    assert (read(data, bytes=(0, 4)), read(data, bytes=(3, 3)), read(data, bytes=(99, None))) == ("10%\r", "", "")
    assert (read(b""), read(data, lines=(9, 10)), read(data, grep="y")) == ("", "", "")


@pytest.mark.parametrize("lines", [(-5, None), [-5, -1], -5])
def test_lines_from_the_end_are_refused_with_the_name_of_tail(lines: object) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(f"; not {lines}; tail names the last lines")):
        query_for("c1", lines=lines)


def newest(data: bytes, since: int, grows: bool = True, mask: Any = None, gap: tuple[int, int] = (0, 0)) -> str:
    """What a session shows of a job. ``gap``: how many bytes are missing, and where."""
    pages = page(query_for("j1", since=since, mask=mask))
    next(pages)
    try:
        pages.send(Piece("j1", data, len(data), len(data) + gap[0], gap[1], grows))
    except StopIteration as end:
        return str(end.value)
    raise AssertionError("a job comes in one piece")


_pieces = st.sampled_from([*"aä€\n", "\x1b[31m", "\x1b[?25l", "\x1b]0;ä\x07", "\x1b]0;b\x1b\\", "\x1b(B", "\x1bc"])


@given(st.lists(_pieces, max_size=60).map("".join), st.lists(st.integers(0, 200)))
def test_since_shows_each_byte_once(text: str, ends: list[int]) -> None:
    data, since, seen = text.encode(), 0, ""
    for end in sorted(ends):
        shown, _, number = newest(data[:end], since).rpartition("since=")
        seen += shown.removesuffix("[nothing new; ").removesuffix("[")
        since = int(number.partition(" ")[0])
    seen += newest(data, since, grows=False)
    assert seen.replace("\n", "") == clean(text).replace("\n", "")


@given(st.integers(0, 40), st.booleans())
def test_since_shows_no_part_of_a_secret(since: int, has_gap: bool) -> None:
    data, gap = b"one SECRET12345\ntwo SECRET777 end\n", (10, 16) if has_gap else (0, 0)
    shown = newest(data, since, False, lambda text: re.sub(r"SECRET\d+", "***", text), gap)
    assert not re.search(r"[SECRT0-9]{2}", re.sub(r"\[\.\.\. \d+ bytes omitted \.\.\.]", "", shown))


@pytest.mark.parametrize("part", [{"since": 0}, {"tail": 3}, {"lines": (1, None)}])
def test_secret_that_a_gap_has_split_is_shown_nowhere(part: dict[str, Any]) -> None:
    secret = "s3cr3tABCDEFGHIJ"
    secrets = Secrets({}, named=[secret])
    data = f"a\n{secret[:9]}".encode() + f"{secret[12:]}b\nc\n".encode()
    reading = page(query_for("j1", **part)._replace(mask=secrets.mask, starred=secrets.starred))
    text, reply = "", None
    while not text:
        try:
            reading.send(reply)  # type: ignore[arg-type]
            reply = Piece("j1", data if reply is None else b"", len(data), len(data) + 500, cut=11)
        except StopIteration as end:
            text = end.value
    assert "bytes omitted" in text
    assert secret[:4] not in text
    assert secret[-3:] not in text


def test_masked_output_that_grows_ends_at_a_line() -> None:
    secrets = Secrets({}, named=["s3cr3tABCDEF"])
    query = query_for("j1", since=0)._replace(mask=secrets.mask)
    data = b"one\ntok=s3cr3t"
    growing = paging.newest(query, Piece("j1", data, len(data), len(data), grows=True))
    assert growing == "one\n[since=4 shows only what is new]"
    assert paging.newest(query, Piece("j1", data, len(data), len(data))) == "one\ntok=s3cr3t", "it is all that came"


def test_newest_of_a_growing_output_tells_what_is_not_kept() -> None:
    piece = Piece("c1", b"1\n2\n", 4, 1000, grows=True)
    assert "the first 4 of 1 000 bytes" in paging.newest(query_for("c1", tail=1), piece)


@given(st.lists(_pieces, max_size=60).map("".join), st.lists(st.tuples(st.integers(0, 200), st.booleans())))
def test_output_that_grows_is_printed_once(text: str, looks: list[tuple[int, bool]]) -> None:
    data, since, seen = text.encode(), 0, ""
    for end, in_lines in [*sorted(looks), (len(data), False)]:
        reading = paging.grown(query_for("c1", since=since), in_lines)
        begin, _ = next(reading)
        is_last = end >= len(data)
        try:
            reading.send(Piece("c1", data[begin:end], min(end, len(data)), min(end, len(data)), grows=not is_last))
        except StopIteration as stop:
            growth = stop.value
        seen, since = seen + growth.text, growth.end
    assert seen == clean(text)
