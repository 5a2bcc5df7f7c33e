"""The search for callers' expressions where its time is limited: the same matches, and an end."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from shellsession import search
from shellsession.policy.secrets import Secrets
from shellsession.redact import WITHHELD
from shellsession.search import SearchTooSlow, limit_searches, limited


@pytest.fixture(autouse=True)
def limited_searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = signal.getsignal(signal.SIGVTALRM)
    monkeypatch.setattr(search, "_limited", True)
    limit_searches()
    yield
    signal.signal(signal.SIGVTALRM, before)


_PATTERNS = (r"^b", r"b$", r"\bb", r"(?<=a)b+", r"(?<!a)b", r"b(?!a)", r"\Ab", r"a\Z", r"(?m)^b.*$", "", "a|", r"(b)|a")


@given(st.sampled_from(_PATTERNS), st.text("ab \n", max_size=30), st.integers(1, 5))
def test_search_in_a_long_text_finds_what_re_finds(pattern: str, text: str, step: int) -> None:
    expression = re.compile(pattern)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_SHORT", 0)
        patch.setattr(search, "_CHECK_AFTER", step * len(text))
        found, known = search.search(expression, text), expression.search(text)
    assert (found and (found.span(), found.groups())) == (known and (known.span(), known.groups()))


@pytest.mark.parametrize(("pattern", "text"), [("(a+)+$", "a" * 40 + "!"), (r"\w+:", "a" * 1_000_000)])
def test_search_that_backtracks_ends(pattern: str, text: str) -> None:
    with pytest.raises(SearchTooSlow):
        search.search(re.compile(pattern), text)
    assert search.search(re.compile("b"), "ab") is not None


def test_limit_inside_a_limit_does_not_extend_it() -> None:
    def search_for_ever() -> None:
        with limited():
            while True:
                search.search(re.compile("b"), "ab")

    with pytest.raises(SearchTooSlow):
        search_for_ever()


def test_other_threads_are_not_limited() -> None:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(search.search(re.compile(r"\w+:"), "a" * 20_000)))
    with limited(), suppress(SearchTooSlow):  # the limit of this thread, perhaps before `start` has returned
        thread.start()
        thread.join()
    thread.join()
    assert found == [None]


def test_text_whose_secrets_are_not_found_in_time_is_withheld() -> None:
    secrets = Secrets({}, redact=["(a+)+$", "hunter2"])
    assert secrets.mask("hunter2") == "***"
    assert secrets.mask("a" * 40 + "! hunter2") == WITHHELD
    assert secrets.mask("hunter2 later") == WITHHELD  # these patterns are not tried again


@given(st.integers(0, 30), st.integers(4000, 4200), st.integers(0, 100))
def test_limited_mask_of_a_long_text_shows_no_part_of_a_secret(before: int, between: int, after: int) -> None:
    text = "x" * before + "<" + "s" * 3000 + ">" + "y" * between + "<" + "s" * 3000 + ">" + "z" * after
    shown = Secrets({}, redact=["<s*>"]).mask(text, 20 + before)
    assert "s" not in shown
    assert len(shown) <= 20 + before
