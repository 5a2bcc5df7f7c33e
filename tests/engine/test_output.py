"""What is kept of a stream equals a simple model: keep all, then cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from shellsession import Result
from shellsession.engine.io.output import Capture
from shellsession.text import decoded

LIMITS = st.integers(0, 70)
CHUNKS = st.lists(st.binary(max_size=40), max_size=12)


def captured(limit: int, chunks: list[bytes]) -> Capture:
    capture = Capture(limit)
    for chunk in chunks:
        capture.feed(chunk)
    return capture


def model(limit: int, data: bytes) -> tuple[bytes, int, int]:
    """The bytes kept, the number omitted, the place of the gap."""
    front, back = (limit + 1) // 2, limit // 2
    if len(data) <= limit:
        return data, 0, min(len(data), front)
    return data[:front] + data[len(data) - back :], len(data) - limit, front


@given(LIMITS, CHUNKS)
def test_it_keeps_what_the_model_keeps(limit: int, chunks: list[bytes]) -> None:
    assert captured(limit, chunks).peek() == model(limit, b"".join(chunks))


@given(LIMITS, CHUNKS)
def test_kept_and_omitted_make_the_total(limit: int, chunks: list[bytes]) -> None:
    capture = Capture(limit)
    total = 0
    for chunk in chunks:
        capture.feed(chunk)
        total += len(chunk)
        kept, omitted, cut = capture.peek()
        assert len(kept) + omitted == capture.total == total
        assert len(kept) <= limit
        assert 0 <= cut <= len(kept)
        assert capture.overflowed == (total > limit)


@given(LIMITS, st.lists(st.sampled_from([1, 5, 3000, 20_000]), max_size=9))
def test_the_lines_of_what_is_omitted_are_counted(limit: int, sizes: list[int]) -> None:
    """The number is exact, as all lines have the same length."""
    capture = captured(limit, [b"\n" * size for size in sizes])
    kept, _, _ = capture.take()
    assert len(kept) + capture.omitted_lines == sum(sizes)
    capture.take()
    assert capture.omitted_lines == 0


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 7, 8, 9])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 7, 8, 9, 10, 30])
def test_small_limits_one_byte_at_a_time(limit: int, size: int) -> None:
    data = bytes(range(65, 65 + size))
    assert captured(limit, [data[i : i + 1] for i in range(size)]).peek() == model(limit, data)


@given(LIMITS, CHUNKS, CHUNKS)
def test_after_a_take_it_begins_anew(limit: int, first: list[bytes], second: list[bytes]) -> None:
    capture = captured(limit, first)
    assert capture.take()[:2] == model(limit, b"".join(first))[:2]
    for chunk in second:
        capture.feed(chunk)
    assert capture.take()[:2] == model(limit, b"".join(second))[:2]


@given(st.integers(0, 9), st.text(st.sampled_from("aé世😀"), max_size=20), st.data())
def test_pieces_tell_each_byte_where_it_was(limit: int, text: str, data: st.DataObject) -> None:
    whole = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    capture, at = Capture(limit), 0
    for begin, end in itertools.pairwise([0, *cuts, len(whole)]):
        capture.feed(whole[begin:end])
        kept, omitted, cut = capture.take(final=end == len(whole))
        head, tail = kept[:cut], kept[cut:]
        assert whole[at:].startswith(head)
        at += cut + omitted
        assert whole[at:].startswith(tail)
        at += len(tail)
    assert at == len(whole)


@pytest.mark.parametrize("limit", range(3, 10))
def test_a_piece_with_the_rest_of_a_character_is_within_the_limit(limit: int) -> None:
    capture = Capture(limit)
    capture.feed(b"\xf0\x9f\x98")
    assert capture.take(final=False)[:2] == (b"", 0)
    capture.feed(b"\x80 and more")
    kept, omitted, cut = capture.take()
    assert (len(kept), kept[:cut][:3]) == (limit, b"\xf0\x9f\x98")
    assert len(kept) + omitted == len(b"\xf0\x9f\x98\x80 and more")


def test_memory_stays_bounded_in_a_flood() -> None:
    capture = Capture(100_000)
    for _ in range(5000):
        capture.feed(b"x" * 33_333)
        assert len(capture._head) + len(capture._tail) <= 200_000


@given(LIMITS, CHUNKS)
def test_the_spill_gets_everything_exactly_once(limit: int, chunks: list[bytes]) -> None:
    spilled = bytearray()
    capture = Capture(limit, spilled.extend)
    for chunk in chunks:
        capture.feed(chunk)
    data = b"".join(chunks)
    assert bytes(spilled) == (data if len(data) > limit else b"")


@given(LIMITS, st.lists(CHUNKS, max_size=4))
def test_the_spill_is_whole_when_the_output_was_taken_in_pieces(limit: int, pieces: list[list[bytes]]) -> None:
    spilled = bytearray()
    capture = Capture(limit, spilled.extend)
    omitted = 0
    for piece in pieces:
        for chunk in piece:
            capture.feed(chunk)
        omitted += capture.take()[1]
    if omitted:
        assert bytes(spilled) == b"".join(chunk for piece in pieces for chunk in piece)


@given(st.binary(max_size=30), st.binary(max_size=30), st.integers(10, 200))
def test_a_mark_and_what_follows_can_be_cut_off(before: bytes, after: bytes, limit: int) -> None:
    capture = captured(limit, [before, b"<<mark>>" + after])
    expected = b"<<mark>>" + after if len(before + after) + 8 <= (limit + 1) // 2 else None
    gone = capture.cut_after(b"<<mark>>")
    if expected is not None:
        assert gone == expected
        assert capture.peek()[0] == before
    kept, omitted, _ = capture.peek()
    assert len(kept) + omitted == capture.total


def test_cutting_at_a_mark_that_is_not_there_changes_nothing() -> None:
    capture = captured(100, [b"one\ntwo"])
    assert capture.cut_after(b"mark") == b""
    assert capture.peek()[0] == b"one\ntwo"


@pytest.mark.parametrize(
    ("data", "left"), [(b"one\ntwo", b"one\n"), (b"one\n", b"one\n"), (b"two", b""), (b"", b"")], ids=range(4)
)
def test_an_unfinished_line_can_be_cut_off(data: bytes, left: bytes) -> None:
    capture = captured(100, [data])
    capture.cut_line()
    assert (capture.peek()[0], capture.total) == (left, len(left))


@given(LIMITS, st.text(st.sampled_from("aé世😀")))
def test_the_text_never_holds_half_a_character(limit: int, text: str) -> None:
    kept, omitted, cut = captured(limit, [text.encode()]).peek()
    seen = decoded(kept, omitted, cut)
    assert "�" not in seen
    if not omitted:
        assert seen == text
    else:
        assert any(seen == text[:n] + text[len(text) - (len(seen) - n) :] for n in range(len(seen) + 1))
        assert len(seen.encode()) >= len(kept) - 6  # at most three bytes of a character on either side


@given(st.binary(max_size=100), LIMITS)
def test_any_bytes_have_a_text(data: bytes, limit: int) -> None:
    kept, omitted, cut = captured(limit, [data]).peek()
    seen = decoded(kept, omitted, cut)
    if not omitted:
        assert seen == data.decode("utf-8", "replace")


@given(st.binary(max_size=60))
def test_foreign_bytes_are_not_swallowed_with_the_gap(data: bytes) -> None:
    """What is no UTF-8 at all shows as U+FFFD on either side of a gap, save for what may be half a character."""
    latin = bytes(byte | 0xC0 for byte in data)  # lead bytes only: none is whole
    seen = decoded(latin, 5, len(latin) // 2)
    assert len(seen) >= len(latin) - 1


def test_a_result_has_both_views() -> None:
    result = Result("aé".encode(), b"\xff", 0, None, "/", 0.0, "exited", stdout_omitted=3, stdout_cut=2)
    assert (result.stdout, result.stdout_bytes) == ("a[... 5 bytes omitted ...]", b"a\xc3\xa9")
    assert (result.stderr, result.stderr_bytes) == ("�", b"\xff")


@pytest.mark.parametrize("byte", [b"\xc0", b"\xc1", b"\xf5", b"\xff"])
def test_what_begins_no_character_is_none_that_a_gap_has_cut(byte: bytes) -> None:
    assert decoded(byte + b"z", 5, 1) == "\ufffdz"
    capture = captured(100, [byte])
    assert capture.take(final=False) == (byte, 0, 1)
