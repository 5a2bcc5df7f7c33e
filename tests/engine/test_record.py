"""Records behave like frozen dataclasses."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, fields, is_dataclass, replace
from inspect import signature
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter

from shellsession import Limits, Result
from shellsession.models import Record


class Point(Record, unshown=("note",)):
    x: int
    y: int = 0
    note: str = ""

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("left of all")


class Place(Point):
    name: str = "here"


def test_fields_are_the_annotated_names_in_their_order() -> None:
    assert repr(Place(1, 2, "seen", name="there")) == "Place(x=1, y=2, name='there')"
    assert vars(Place(1)) == {"x": 1, "y": 0, "note": "", "name": "here"}


def test_two_are_equal_where_class_and_fields_are() -> None:
    assert Point(1) == Point(x=1, y=0)
    assert len({Point(1), Point(1), Point(1, note="other"), Place(1)}) == 3
    assert (Point(1) == Place(1), Point(1) == 1) == (False, False)


@pytest.mark.parametrize(
    ("values", "named", "said"),
    [
        ((), {}, "missing 1 required positional argument: 'x'"),
        ((), {"y": 2}, "missing 1 required positional argument: 'x'"),
        ((), {"z": 2}, "unexpected keyword argument 'z'"),
        ((1,), {"z": 2}, "unexpected keyword argument 'z'"),
        ((1,), {"x": 2}, "multiple values for argument 'x'"),
        ((1, 2, "", 4), {}, "takes from 2 to 4 positional arguments but 5 were given"),
    ],
)
def test_what_is_no_such_record_is_reported_as_python_does(values: tuple[Any, ...], named: Any, said: str) -> None:
    with pytest.raises(TypeError, match=rf"^Point\.__init__\(\) .*{said}"):
        Point(*values, **named)


WAYS: dict[str, Callable[[int], Point]] = {
    "itself": Point,
    "its child": Place,
    "replace": lambda x: replace(Point(1), x=x),
    "pydantic": lambda x: TypeAdapter(Point).validate_python({"x": x}),
}


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
def test_each_way_to_make_one_is_checked(make: Callable[[int], Point]) -> None:
    assert make(1).x == 1
    with pytest.raises(ValueError, match="left of all"):
        make(-1)


def test_none_is_changed() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]  # what is tested
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert (replace(point, y=5), point) == (Point(1, 5), Point(1))


def test_one_may_be_copied_and_sent() -> None:
    result = Result(b"out", b"", 3, None, "/", 0.5, "exited", killed=(7,))
    for again in (copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert again == result
        assert again is not result


def test_one_is_a_dataclass_to_whoever_asks() -> None:
    assert [one.name for one in fields(Place) if one.repr] == ["x", "y", "name"]
    assert [one.name for one in fields(Point)] == ["x", "y", "note"]
    assert asdict(Place(1)) == vars(Place(1))
    assert str(signature(Point)) == "(x: 'int', y: 'int' = 0, note: 'str' = '') -> None"
    assert TypeAdapter(Limits).validate_python({"max_output": 5}) == Limits(max_output=5)
    assert TypeAdapter(Limits).dump_python(Limits(max_output=5)) == asdict(Limits(max_output=5))
    assert is_dataclass(Point(1))
    assert list(get_type_hints(Place)) == ["x", "y", "note", "name"]


def test_one_is_taken_apart_by_match() -> None:
    match Place(1, 2, "seen"):
        case Place(x, y, note):
            assert (x, y, note) == (1, 2, "seen")
        case _:
            pytest.fail("no place")
