"""What can be counted in the pages and docstrings: no endless sentence, and short ones on average."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Final

import pytest
from prose import LONGEST, MEAN, PAGES, docstrings, sentences, words

# Docstrings with a longer sentence that are still to be rewritten: this number may only become smaller.
_STILL_LONG: Final = 6


def too_long(text: str) -> list[str]:
    return [sentence for sentence in sentences(text) if words(sentence) > LONGEST]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_short_sentences(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert too_long(text) == []
    assert mean(map(words, sentences(text))) <= MEAN


def test_docstrings_have_short_sentences() -> None:
    found = list(docstrings())
    long = [(place, sentence) for place, text in found for sentence in too_long(text)]
    assert len(long) <= _STILL_LONG, long
    assert mean(words(sentence) for _, text in found for sentence in sentences(text)) <= MEAN


def test_sentences_are_found_as_a_reader_finds_them() -> None:
    page = "# Title\n\nOne `a. B` two.\nThree (four. Five)!\n\n- Six e.g. seven\n- [eight](nine.md)\n\n"
    page += "```bash\nTen.\n```\n"
    page += "| Eleven | Twelve. Thirteen |\n\n<!-- measured -->\n| 1 |\n<!-- /measured -->\n"
    expected = ["One Code two.", "Three (four.", "Five)!", "Six e.g seven", "eight", "Eleven", "Twelve.", "Thirteen"]
    assert sentences(page) == expected
    assert [words(sentence) for sentence in expected[:3]] == [3, 2, 1]
