"""The wire is tested on every cut of its input, then on garbage; what crosses it comes out as it went in."""

from __future__ import annotations

import functools
import gc
import pickle
import tracemalloc
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given, strategies as st

from shellsession.daemon.wire import (
    HEADER_MAX,
    PARTS_COUNT,
    PARTS_MAX,
    Decoder,
    Message,
    encode,
    from_error,
    from_result,
    to_error,
    to_result,
)
from shellsession.errors import CommandError, InvalidRequest, ProtocolError, ShellSessionError, TooManySessions
from shellsession.models import Outcome, Result

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
    "an empty line": (b"\n", "no JSON"),
    "no JSON": (b"hello\n", "no JSON"),
    "half an object": (b'{"a":1\n', "no JSON"),
    "two objects": (b"{}{}\n", "no JSON"),
    "a newline inside": (b'{"a":\n1}\n', "no JSON"),
    "a byte order mark": (b"\xef\xbb\xbf{}\n", "no JSON"),
    "UTF-16": ('{"a":1}'.encode("utf-16") + b"\n", "no JSON"),
    "no UTF-8": (b'{"a":"\xff"}\n', "no JSON.*utf-8"),
    "a surrogate as bytes": (b'{"a":"\xed\xa0\x80"}\n', "no JSON.*utf-8"),
    "a list": (b"[]\n", "no JSON object"),
    "a text": (b'"sizes"\n', "no JSON object"),
    "null": (b"null\n", "no JSON object"),
    "NaN": (b'{"a":NaN}\n', "NaN is no JSON"),
    "Infinity": (b'{"a":[-Infinity]}\n', "-Infinity is no JSON"),
    "infinity in digits": (b'{"a":-1e999}\n', "too large for a float"),
    "an endless integer": (b'{"a":9' + DIGITS + b"}\n", "integer string conversion"),
    "deep lists": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "recursion"),
    "deep objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n", "recursion"),
    "sizes as a number": (b'{"sizes":1}\n', "no list of byte counts"),
    "sizes as null": (b'{"sizes":null}\n', "no list of byte counts"),
    "sizes as an object": (b'{"sizes":{"1":1}}\n', "no list of byte counts"),
    "a size below zero": (b'{"sizes":[1,-1]}\n', "no list of byte counts"),
    "a size as a float": (b'{"sizes":[1.0]}\n', "no list of byte counts"),
    "a size as a text": (b'{"sizes":["1"]}\n', "no list of byte counts"),
    "a size as a truth": (b'{"sizes":[true]}\n', "no list of byte counts"),
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
    with pytest.raises(ProtocolError, match=f"no message .*{reason}") as first:
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


HALF = bytes(PARTS_MAX // 2 + 1)
NOT_SENT: dict[str, tuple[dict[str, object], tuple[bytes, ...]]] = {
    '"sizes"': ({"sizes": []}, ()),
    f"over {HEADER_MAX}": ({"a": "x" * (HEADER_MAX - 7)}, ()),
    f"{PARTS_COUNT + 1} parts": ({}, (b"",) * (PARTS_COUNT + 1)),
    f"2 parts of {PARTS_MAX + 2} bytes": ({}, (HALF, HALF)),
    "no JSON: .*not JSON compliant": ({"a": [float("-inf")]}, ()),
    "no JSON: .*not JSON serializable": ({"a": b"bytes"}, ()),
    "no JSON: .*recursion": ({"a": functools.reduce(lambda inner, _: [inner], range(100_000), list[Any]())}, ()),
}


@pytest.mark.parametrize("reason", NOT_SENT)
def test_what_could_not_be_read_is_not_sent(reason: str) -> None:
    header, parts = NOT_SENT[reason]
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


counts = st.integers(0, 1 << 60)
results = st.builds(
    Result,
    exit_code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    cwd=texts,
    duration=st.floats(0, 1e9),
    outcome=st.sampled_from(get_args(Outcome)),
    reason=texts,
    killed=st.lists(counts).map(tuple),
    background=st.lists(counts).map(tuple),
    stdout_omitted=counts,
    stderr_omitted=counts,
    stdout_file=st.none() | texts,
    stderr_file=st.none() | texts,
    stdout_cut=counts,
    stderr_cut=counts,
    state_kept=st.booleans(),
)
RESULT = Result(
    b"out\xff", b"err", 1, None, "/caf\udce9", 0.25, "exited", killed=(7, 8), stdout_omitted=9, stdout_cut=2
)
FIELDS = sorted({field.name for field in fields(Result)} - {"stdout_bytes", "stderr_bytes"})
STRANGE: list[object] = [{}, [True], ["1"], True]


def crossed(header: dict[str, Any], parts: tuple[bytes, ...]) -> Message:
    """What arrives when this is sent."""
    (message,) = Decoder().feed(encode(header, *parts))
    return message


@given(results)
def test_a_result_comes_out_as_it_went_in(result: Result) -> None:
    assert repr(to_result(*crossed(*from_result(result)))) == repr(result)
    error = to_error(*crossed(*from_error(CommandError("failed", result))))
    assert isinstance(error, CommandError)
    assert error.result == result  # repr leaves the cuts out


@pytest.mark.parametrize("name", FIELDS)
def test_a_result_with_a_field_missing_or_wrong_is_refused(name: str) -> None:
    header, parts = from_result(RESULT)
    broken = [header | {name: value} for value in STRANGE if (name, value) != ("state_kept", True)]
    del header[name]
    for one in [header, *broken]:
        with pytest.raises(ProtocolError, match=f"'{name}'"):
            to_result(one, parts)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_result_has_two_parts(count: int) -> None:
    with pytest.raises(ProtocolError, match=f"{count} parts"):
        to_result(from_result(RESULT)[0], (b"",) * count)


def test_what_no_result_has_is_left_alone() -> None:
    header, parts = from_result(RESULT)
    assert to_result(header | {"stdout": "x", "__class__": "y"}, parts) == RESULT


def all_errors(root: type[ShellSessionError] = ShellSessionError) -> list[ShellSessionError]:
    """One of each class, with all that it carries."""
    error: ShellSessionError
    if issubclass(root, CommandError):
        error = root("said\udcff", RESULT)
    elif issubclass(root, TooManySessions):
        error = root("said\udcff", ("one", "\udcfe"))
    else:
        error = root("said\udcff")
    return [error, *(below for child in root.__subclasses__() for below in all_errors(child))]


def told(error: ShellSessionError) -> tuple[object, ...]:
    return type(error), str(error), vars(error)


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: error.code)
def test_an_error_comes_out_as_it_went_in(error: ShellSessionError) -> None:
    assert told(to_error(*crossed(*from_error(error)))) == told(error)
    assert told(pickle.loads(pickle.dumps(error))) == told(error)


@pytest.mark.parametrize("code", ["unheard_of", "", "ShellSessionError", "os.system"])
def test_an_unknown_code_is_told_in_the_message(code: str) -> None:
    error = to_error({"code": code, "message": "what happened"}, ())
    assert told(error) == (ShellSessionError, f"what happened (the peer calls this {code!r})", {})


def test_a_peer_makes_no_error_of_a_class_of_the_program() -> None:
    mine = type("Mine", (ShellSessionError,), {"code": "mine"})
    assert type(to_error({"code": "mine", "message": ""}, ())) is ShellSessionError
    del mine
    gc.collect()  # other tests look at the tree of errors


BROKEN_ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "no code": ({"message": "x"}, "without a code"),
    "no message": ({"code": "busy"}, "without a message"),
    "a code that is no text": ({"code": ["busy"], "message": "x"}, "without a code"),
    "a message that is no text": ({"code": "busy", "message": 1}, "without a message"),
    "no result": ({"code": "command_failed", "message": "x"}, "without its result"),
    "a result that is none": ({"code": "command_failed", "message": "x", "result": []}, "without its result"),
    "half a result": ({"code": "command", "message": "x", "result": {"exit_code": 1}}, "without a proper 'signal'"),
    "no names": ({"code": "too_many_sessions", "message": "x"}, "'idle'"),
    "names as a text": ({"code": "too_many_sessions", "message": "x", "idle": "names"}, "'idle'"),
    "names as numbers": ({"code": "too_many_sessions", "message": "x", "idle": [1]}, "'idle'"),
}


@pytest.mark.parametrize(("header", "reason"), BROKEN_ERRORS.values(), ids=BROKEN_ERRORS)
def test_what_is_no_error_is_refused(header: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        to_error(header, (b"", b""))
