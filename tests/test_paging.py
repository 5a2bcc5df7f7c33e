"""Pages of a long output: none is too long, and their marks lead through all of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from shellsession import paging
from shellsession.paging import Piece, page, query_for


def read(data: bytes, **arguments: Any) -> str:
    """What a session would return that keeps this stream."""
    pages = page(query_for("c1", **arguments))
    begin, size = next(pages)
    try:
        while True:
            assert size <= paging.PIECE
            begin, size = pages.send(Piece("c1", data[begin : begin + size], len(data), len(data)))
    except StopIteration as end:
        return str(end.value)


lines = st.lists(st.text("aä€x", max_size=300), min_size=1, max_size=30).map("\n".join)


@given(lines, st.integers(150, 700))
def test_the_pages_make_the_whole(text: str, most: int) -> None:
    """A line that is too long for a page is read by bytes, to the end of the output."""
    seen, part = "", {"lines": (1, None)}
    while part:
        shown = read(text.encode(), max_chars=most, **part)
        assert len(shown) <= most
        found = re.search(
            r"\[\.\.\. more follows, .*; read_output\(\"c1\", (\w+)=\((\d+), \d+\)\) shows the next \.\.\.\]$", shown
        )
        seen += shown[: found.start()] if found else shown
        part = {found[1]: (int(found[2]), None)} if found else {}
    assert seen == text


@given(lines, st.integers(100, 700))
def test_the_pages_make_all_that_matches(text: str, most: int) -> None:
    seen, first = list[str](), 1
    while first:
        shown = read(text.encode(), max_chars=most, lines=(first, None), grep="x")
        assert len(shown) <= most
        found = re.search(r"\[\.\.\. more lines match.* lines=\((\d+), None\) shows the next \.\.\.\]$", shown)
        seen += (shown[: found.start()] if found else shown).splitlines()
        first = int(found[1]) if found else 0
    expected = [f"{number}:{line}" for number, line in enumerate(text.split("\n"), 1) if "x" in line]
    assert len(seen) == len(expected)
    assert all(whole.startswith(one) for one, whole in zip(seen, expected, strict=True))


def test_a_long_line_is_shown_around_its_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PIECE", 1000)
    data = b"a\n" + b"-" * 50_000 + b"x" + b"-" * 50_000 + b"\nx\n"
    shown = read(data, grep="x")
    assert re.fullmatch(r"2:\[\.\.\.\]-{250}x-{749}\[\.\.\.\]\n3:x\n", shown)
    assert read(data, lines=(3, None)) == "x\n"


def test_lines_are_matched_as_they_are_shown() -> None:
    data = b"10%\r99% \x1b[31mred\x1b[0m line\nother\n"
    assert read(data, grep="^99% red line$") == "1:99% red line\n"
    assert read(data) == "99% red line\nother\n"
    assert (read(data, bytes=(0, 4)), read(data, bytes=(3, 3)), read(data, bytes=(99, None))) == ("10%\r", "", "")
    assert (read(b""), read(data, lines=(9, 10)), read(data, grep="y")) == ("", "", "")
