"""What can be counted in the pages and docstrings: no endless sentence, and short ones on average."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import mean
from typing import Final

import pytest
from prose import LONGEST, MEAN, PAGES, TOP, docstrings, sentences, words

# Docstrings with a longer sentence that are still to be rewritten: this number may only become smaller.
_STILL_LONG: Final = 6

# Habits of translated English, each with what to write.
_HABITS: Final = {
    r"\bso many\b": "this many",
    r"\b(?:a|an) [\w`-]+ of (?:its|their|our|your|his|her) own\b": "its own thing",
    r"\bstands? still\b": "is blocked",
}
_JUDGED: Final = re.compile(r"InvalidRequest\(\s*f?\"[^\"\n]* (?:is|are) (?:a|an|the) [^\"\n]*, not \{")


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


@pytest.mark.parametrize("habit", _HABITS)
def test_habit_in_pages_and_package_is_absent(habit: str) -> None:
    paths = [*PAGES, *sorted((TOP / "shellsession").rglob("*.py"))]
    found = [
        f"{path.relative_to(TOP)}: {match[0]}: write {_HABITS[habit]!r}"
        for path in paths
        for match in re.finditer(habit, path.read_text(encoding="utf-8"), re.IGNORECASE)
    ]
    assert found == []


def test_validation_error_says_what_must_be() -> None:
    """Not "x is a list, not 5": x is 5, and must be a list."""
    paths = sorted((TOP / "shellsession").rglob("*.py"))
    assert [m[0] for path in paths for m in _JUDGED.finditer(path.read_text(encoding="utf-8"))] == []


def test_sentences_are_found_as_a_reader_finds_them() -> None:
    page = "# Title\n\nOne `a. B` two.\nThree (four. Five)!\n\n- Six e.g. seven\n- [eight](nine.md)\n\n"
    page += "```bash\nTen.\n```\n"
    page += "| Eleven | Twelve. Thirteen |\n\n<!-- measured -->\n| 1 |\n<!-- /measured -->\n"
    expected = ["One Code two.", "Three (four.", "Five)!", "Six e.g seven", "eight", "Eleven", "Twelve.", "Thirteen"]
    assert sentences(page) == expected
    assert [words(sentence) for sentence in expected[:3]] == [3, 2, 1]
