"""A part of many cases for `make test`. `make soak` runs all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest
from system import SOAK

T = TypeVar("T")


def sample(values: Iterable[T], one_in: int) -> list[T]:
    """The first of each ``one_in`` values; all in ``make soak``."""
    return list(values)[:: 1 if SOAK else one_in]


def left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests that are marked ``sampled``, and are not in the sample.

    Each value of each parameter is in the sample. Those of the longest list come one after the other, those of the
    others beside them, again and again. Of these ``sampled(3)`` takes every third.
    """
    marks = {item: mark for item in items if not SOAK and (mark := item.get_closest_marker("sampled"))}
    lists: dict[str, list[list[str]]] = {}  # by test: the ids of each parameter
    for item in marks:
        ids = lists.setdefault(_test(item), [[] for _ in _ids(item)])
        for known, new in zip(ids, _ids(item), strict=True):
            if new not in known:
                known.append(new)
    return [item for item, mark in marks.items() if not _is_in(_ids(item), lists[_test(item)], *mark.args)]


def _is_in(ids: list[str], lists: list[list[str]], one_in: int = 1) -> bool:
    longest = max(range(len(lists)), key=lambda place: len(lists[place]))
    number, skipped = divmod(lists[longest].index(ids[longest]), one_in)
    return not skipped and all(
        place == longest or known.index(one) == number % len(known)
        for place, (one, known) in enumerate(zip(ids, lists, strict=True))
    )


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _ids(item: pytest.Item) -> list[str]:
    """One for each parameter, or set of them. (``indices`` counts something else in pytest 9.)"""
    assert isinstance(item, pytest.Function)
    return list(item.callspec._idlist)
