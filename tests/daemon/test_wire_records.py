"""Results and errors cross the wire unchanged, and anything else is refused."""

from __future__ import annotations

import gc
import pickle
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given, strategies as st

from shellsession.daemon.protocol.messages import from_error, from_result, to_error, to_result
from shellsession.daemon.protocol.wire import Decoder, Message, encode
from shellsession.errors import ProtocolError, ShellSessionError, TooManySessions
from shellsession.models import CommandError, Outcome, Result

texts = st.text(st.characters(exclude_categories=["Cs"]) | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF))
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
    stdout_omitted_lines=counts,
    stderr_omitted_lines=counts,
    state_kept=st.booleans(),
    ran=st.booleans(),
    matched=st.booleans(),
)
RESULT = Result(
    b"out\xff", b"err", 1, None, "/caf\udce9", 0.25, "exited", killed=(7, 8), stdout_omitted=9, stdout_cut=2
)
FIELDS = sorted({field.name for field in fields(Result)} - {"stdout_bytes", "stderr_bytes"})
ALWAYS = {"exit_code", "cwd", "duration", "outcome"}
FLAGS = {"state_kept", "ran", "output_kept", "matched", "replayed"}  # sent only if they differ from their default
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
    broken = [header | {name: value} for value in STRANGE if value is not True or name not in FLAGS]
    if name in ALWAYS:
        broken.append({other: value for other, value in header.items() if other != name})
    for one in broken:
        with pytest.raises(ProtocolError, match=f"'{name}'"):
            to_result(one, parts)


def test_an_ordinary_result_is_a_short_header() -> None:
    assert set(from_result(Result(b"out", b"", 0, None, "/", 0.1, "exited"))[0]) == ALWAYS


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
    children = [child for child in root.__subclasses__() if child.__module__ == root.__module__]  # contracts have more
    return [error, *(below for child in children for below in all_errors(child))]


def told(error: ShellSessionError) -> tuple[object, ...]:
    return type(error), str(error), vars(error)


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: error.code)
def test_an_error_comes_out_as_it_went_in(error: ShellSessionError) -> None:
    assert told(to_error(*crossed(*from_error(error)))) == told(error)
    assert told(pickle.loads(pickle.dumps(error))) == told(error)


@pytest.mark.parametrize("code", ["unheard_of", "", "ShellSessionError", "os.system"])
def test_an_unknown_code_is_reported_in_the_message(code: str) -> None:
    error = to_error({"code": code, "message": "what happened"}, ())
    assert told(error) == (ShellSessionError, f"what happened (the peer calls this {code!r})", {})


def test_a_peer_makes_no_error_of_a_class_of_the_program() -> None:
    mine = type("Mine", (ShellSessionError,), {"code": "mine"})
    assert type(to_error({"code": "mine", "message": ""}, ())) is ShellSessionError
    del mine
    gc.collect()  # other tests look at the tree of errors


BROKEN_ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "no code": ({"message": "x"}, "without a valid 'code'"),
    "no message": ({"code": "busy"}, "without a valid 'message'"),
    "a code that is no text": ({"code": ["busy"], "message": "x"}, "without a valid 'code'"),
    "a message that is no text": ({"code": "busy", "message": 1}, "without a valid 'message'"),
    "no result": ({"code": "command_failed", "message": "x"}, "without a valid 'result'"),
    "a result that is none": ({"code": "command_failed", "message": "x", "result": []}, "without a valid 'result'"),
    "half a result": ({"code": "command", "message": "x", "result": {"exit_code": 1}}, "without a valid 'cwd'"),
    "no names": ({"code": "too_many_sessions", "message": "x"}, "a list"),
}


@pytest.mark.parametrize(("header", "reason"), BROKEN_ERRORS.values(), ids=BROKEN_ERRORS)
def test_what_is_no_error_is_refused(header: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        to_error(header, (b"", b""))


@pytest.mark.parametrize("names", [b"", b"{}", b'"one"', b"[1]", b'["one"', b"[" * 100_000, b"\xff"])
def test_what_is_no_list_of_names_is_refused(names: bytes) -> None:
    for parts in ((names,), ()):
        with pytest.raises(ProtocolError, match="list"):
            to_error({"code": "too_many_sessions", "message": "x"}, parts)
