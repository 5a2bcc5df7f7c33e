"""The wire format, for every cut of its input and for garbage: what is read equals what was written."""

from __future__ import annotations

import functools
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from shellsession.daemon.protocol.wire import HEADER_MAX, PARTS_COUNT, PARTS_MAX, Decoder, Message, encode
from shellsession.errors import InvalidRequest, ProtocolError

MESSAGES = [
    Message({}, ()),
    Message({"verb": "run", "id": "5f.1.7"}, (b"echo hi", b"hi")),
    Message({"cwd": "/caf\udce9/世/\n"}, ()),
    Message({"empty": None}, (b"",)),
    Message({"deep": {"a": [1.5, True, "}\n"]}}, (b"", b"\n{}\n", b"", bytes(range(256)))),
    Message({"last": -1}, ()),
]
WIRES = [encode(header, *parts) for header, parts in MESSAGES]
STREAM = b"".join(WIRES)
ENDS = [len(b"".join(WIRES[:count])) for count in range(len(WIRES) + 1)]
PIECE = 1 << 16
LIMITS = {"usual limits": (), "small limits": (60, 40, 3)}


def outcome(pieces: list[bytes], *limits: int) -> tuple[list[Message], str]:
    """The messages that come out of these pieces, and the error that ended them, if any did."""
    decoder = Decoder(*limits)
    messages: list[Message] = []
    try:
        for piece in pieces:
            messages += decoder.feed(piece)
        decoder.end()
    except ProtocolError as error:
        return messages, str(error)
    return messages, ""


def singly(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize(
    "rest",
    [b"", b"nothing\n" + STREAM, b'{"sizes":[-1]}\n', b"{"],
    ids=["no more", "no JSON", "bad sizes", "half a line"],
)
def test_any_cut_gives_the_same_messages_and_the_same_error(rest: bytes, limits: tuple[int, ...]) -> None:
    stream = STREAM + rest
    whole = outcome([stream], *limits)
    assert whole[0] == (MESSAGES[:4] if limits else MESSAGES)
    assert bool(whole[1]) == bool(rest or limits)
    assert outcome(singly(stream), *limits) == whole
    for at in range(len(stream)):
        assert outcome([stream[:at], stream[at:]], *limits) == whole, at


def test_a_message_is_there_with_its_last_byte_and_not_before() -> None:
    decoder = Decoder()
    heard = [len(decoder.feed(byte)) for byte in singly(STREAM)]
    assert [at for at, count in enumerate(heard, 1) if count] == ENDS[1:]


def test_a_stream_may_end_between_messages_only() -> None:
    for at in range(len(STREAM) + 1):
        error = outcome([STREAM[:at]])[1]
        assert error == "" if at in ENDS else "in the middle of a message" in error, at


def test_what_is_written_is_a_line_of_ascii_and_the_parts() -> None:
    assert encode({"verb": "é\udcff"}, b"\xff", b"", b"\n") == b'{"verb":"\\u00e9\\udcff","sizes":[1,0,1]}\n\xff\n'
    assert encode({"a": [1, None]}) == b'{"a":[1,null]}\n'


def test_a_header_may_be_written_by_somebody_else() -> None:
    assert Decoder().feed('  {"é": 1,\t"sizes": []} \r\n'.encode()) == [Message({"é": 1}, ())]


# Text as decoding makes it: with lone surrogates for bytes that are no UTF-8, and no others.
texts = st.text(st.characters(exclude_categories=["Cs"]) | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF))
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
headers = st.dictionaries(texts.filter(lambda key: key != "sizes"), values, max_size=5)
conversations = st.lists(st.tuples(headers, st.lists(st.binary(max_size=60), max_size=PARTS_COUNT)), max_size=4)
edits = st.tuples(
    st.integers(0, len(STREAM)), st.integers(0, 3), st.binary(max_size=3) | st.sampled_from([b"\n", b"["])
)


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """A good stream with a few bytes put in, left out or changed."""
    data = STREAM
    for at, gone, new in draw(st.lists(edits, max_size=4)):
        data = data[:at] + new + data[at + gone :]
    return data


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(conversations, st.data())
def test_messages_come_out_as_they_went_in(sent: list[tuple[dict[str, Any], list[bytes]]], data: st.DataObject) -> None:
    stream = b"".join(encode(header, *parts) for header, parts in sent)
    expected = [Message(header, tuple(parts)) for header, parts in sent]
    assert repr(outcome(data.draw(cut(stream)))) == repr((expected, ""))  # in repr, 1 and 1.0 and True differ


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@given(st.binary(max_size=300) | mutants(), st.data())
def test_garbage_gives_messages_or_one_error(limits: tuple[int, ...], stream: bytes, data: st.DataObject) -> None:
    messages, error = outcome(data.draw(cut(stream)), *limits)
    assert (messages, error) == outcome([stream], *limits)
    assert all(type(header) is dict and "sizes" not in header for header, _ in messages)


DIGITS = b"9" * 4300  # as long as an integer may be for Python
MALFORMED = {
    "an empty line": (b"\n", "not JSON"),
    "no JSON": (b"hello\n", "not JSON"),
    "half an object": (b'{"a":1\n', "not JSON"),
    "two objects": (b"{}{}\n", "not JSON"),
    "a newline inside": (b'{"a":\n1}\n', "not JSON"),
    "a byte order mark": (b"\xef\xbb\xbf{}\n", "not JSON"),
    "UTF-16": ('{"a":1}'.encode("utf-16") + b"\n", "not JSON"),
    "no UTF-8": (b'{"a":"\xff"}\n', "not JSON.*utf-8"),
    "a surrogate as bytes": (b'{"a":"\xed\xa0\x80"}\n', "not JSON.*utf-8"),
    "a list": (b"[]\n", "not a JSON object"),
    "a text": (b'"sizes"\n', "not a JSON object"),
    "null": (b"null\n", "not a JSON object"),
    "NaN": (b'{"a":NaN}\n', "NaN is not JSON"),
    "Infinity": (b'{"a":[-Infinity]}\n', "-Infinity is not JSON"),
    "infinity in digits": (b'{"a":-1e999}\n', "too large for a float"),
    "an endless integer": (b'{"a":9' + DIGITS + b"}\n", "integer string conversion"),
    "deep lists": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "nested too deeply"),
    "deep objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n", "nested too deeply"),
    "sizes as a number": (b'{"sizes":1}\n', "not a list of byte counts"),
    "sizes as null": (b'{"sizes":null}\n', "not a list of byte counts"),
    "sizes as an object": (b'{"sizes":{"1":1}}\n', "not a list of byte counts"),
    "a size below zero": (b'{"sizes":[1,-1]}\n', "not a list of byte counts"),
    "a size as a float": (b'{"sizes":[1.0]}\n', "not a list of byte counts"),
    "a size as a text": (b'{"sizes":["1"]}\n', "not a list of byte counts"),
    "a size as a truth": (b'{"sizes":[true]}\n', "not a list of byte counts"),
    "a part too many": (b'{"sizes":[0,0,0,0,0,0,0,0,0]}\n', "over 8 parts"),
    "a part too large": (b'{"sizes":[268435457]}\n', "over 268435456 bytes"),
    "parts too large together": (b'{"sizes":[268435456,0,1]}\n', "over 268435456 bytes"),
    "sizes whose sum cannot be written": (b'{"sizes":[%b,%b]}\n' % (DIGITS, DIGITS), "over 268435456 bytes"),
    "a line too long": (b'{"a":"' + b"x" * HEADER_MAX + b'"}\n', "a line of more than 1048576 bytes"),
    "a line too long before its end": (b"x" * (HEADER_MAX + 1), "a line of more than 1048576 bytes"),
}


@pytest.mark.parametrize(("data", "reason"), MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_message_is_refused_from_then_on(data: bytes, reason: str) -> None:
    decoder = Decoder()
    with pytest.raises(ProtocolError, match=f"invalid message .*{reason}") as first:
        decoder.feed(data)
    for again in (lambda: decoder.feed(STREAM), lambda: decoder.feed(b""), decoder.end):
        with pytest.raises(ProtocolError) as later:
            again()
        assert str(later.value) == str(first.value)


def test_what_is_just_within_the_limits_is_taken() -> None:
    wire = encode({"a": "xxx"}, b"12345", b"67")
    limits = (wire.index(b"\n"), 7, 2)
    assert outcome([wire], *limits) == ([Message({"a": "xxx"}, (b"12345", b"67"))], "")
    for tighter in range(3):
        assert outcome([wire], *(limit - (number == tighter) for number, limit in enumerate(limits)))[1]


def test_the_most_that_may_be_sent_may_be_read() -> None:
    most = Message({"a": "x" * (HEADER_MAX - len('{"a":"","sizes":[1,1,1,1,1,1,1,1]}'))}, (b"x",) * PARTS_COUNT)
    assert Decoder().feed(encode(most.header, *most.parts)) == [most]


def deep() -> list[Any]:
    return functools.reduce(lambda inner, _: [inner], range(100_000), list[Any]())


# Made when they are needed: each fork of the other tests would take longer beside what is so large.
NOT_SENT: dict[str, Callable[[], tuple[dict[str, object], tuple[bytes, ...]]]] = {
    '"sizes"': lambda: ({"sizes": []}, ()),
    f"over the limit of {HEADER_MAX}": lambda: ({"a": "x" * (HEADER_MAX - 7)}, ()),
    f"{PARTS_COUNT + 1} parts": lambda: ({}, (b"",) * (PARTS_COUNT + 1)),
    f"2 parts of {PARTS_MAX + 2} bytes": lambda: ({}, (bytes(PARTS_MAX // 2 + 1),) * 2),
    "not JSON: .*not JSON compliant": lambda: ({"a": [float("-inf")]}, ()),
    "not JSON: .*not JSON serializable": lambda: ({"a": b"bytes"}, ()),
    "not JSON: nested too deeply": lambda: ({"a": deep()}, ()),
}


@pytest.mark.parametrize("reason", NOT_SENT)
def test_what_could_not_be_read_is_not_sent(reason: str) -> None:
    header, parts = NOT_SENT[reason]()
    with pytest.raises(InvalidRequest, match=reason):
        encode(header, *parts)


@pytest.fixture
def traced() -> Iterator[None]:
    """Memory is counted; tracemalloc tells what is in use, and the most that ever was."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_an_endless_line_is_refused_at_the_limit() -> None:
    decoder = Decoder()
    for _ in range(HEADER_MAX // PIECE):
        assert decoder.feed(b"x" * PIECE) == []
    with pytest.raises(ProtocolError, match="a line of more than"):
        decoder.feed(b"x")
    assert tracemalloc.get_traced_memory()[1] < 1.5 * HEADER_MAX
    assert tracemalloc.get_traced_memory()[0] < 4 * PIECE  # what it held is gone with the error


@pytest.mark.usefixtures("traced")
def test_memory_is_for_what_came_and_not_for_what_was_announced() -> None:
    decoder = Decoder()
    decoder.feed(b'{"sizes":[%d,%d]}\n' % (PIECE, PARTS_MAX // 2))
    for _ in range(PIECE):
        assert decoder.feed(b"ab") == []
    assert tracemalloc.get_traced_memory()[1] < 4 * PIECE


def test_a_large_part_in_pieces_is_whole() -> None:
    message = Message({}, (b"first", bytes(range(256)) * PIECE, b"last"))
    stream = encode({}, *message.parts)
    pieces = [stream[at : at + PIECE] for at in range(0, len(stream), PIECE)]
    assert outcome(pieces) == ([message], "")
