"""The sentences of the pages and docstrings, counted by words.

``python tests/support/prose.py`` lists the sentences that are too long.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).parent.parent.parent
PAGES: Final = (
    *sorted((TOP / "docs").rglob("*.md")),
    *(TOP / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md")),
)
LONGEST: Final = 35  # words of one sentence
MEAN: Final = 18

_FENCED: Final = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_GENERATED: Final = re.compile(r"^:::.*\n(?: {4}.*\n)*", re.MULTILINE)  # a directive of mkdocstrings
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_MEASURED: Final = re.compile(r"<!-- measured -->.*?<!-- /measured -->", re.DOTALL)
_CODE: Final = re.compile(r"(`+).+?\1", re.DOTALL)
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM: Final = re.compile(r"\s*(?:[-*]|\d+\.)\s+")
_LITERAL: Final = re.compile(r"::[ \t]*\n(?:[ \t]*\n)*((?:[ \t]+\S.*(?:\n|\Z)(?:[ \t]*\n)*)+)")
_RULED: Final = re.compile(r"^(?:=+ +=+.*\n)(?:.+\n)*?(?:=+ +=+.*)$", re.MULTILINE)
_TREE: Final = re.compile(r"^[│├└].*\n?", re.MULTILINE)
_WORD: Final = re.compile(r"\w")
_SHORTENED: Final = re.compile(r"\b(e\.g|i\.e|etc|cf|vs)\.", re.IGNORECASE)
# An end is followed by what may begin a sentence: a capital letter, a number, a bracket, or code.
_END: Final = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_\[]*[A-Z0-9])")


def sentences(text: str) -> list[str]:
    """The sentences of a page. Code blocks, headings and tables of figures hold none; each cell of a table does."""
    text = _GENERATED.sub("\n\n", text)
    text = _FENCED.sub("\n\n", _COMMENT.sub("\n\n", _MEASURED.sub("\n\n", text)))
    found = [part for paragraph in _paragraphs(text) for part in _END.split(_plain(paragraph))]
    return [" ".join(sentence.split()) for sentence in found if words(sentence)]


def words(sentence: str) -> int:
    return sum(_WORD.search(word) is not None for word in sentence.split())


def _plain(paragraph: str) -> str:
    """Its words: code counts as one word, and of a link only its text."""
    return _SHORTENED.sub(r"\1", _LINK.sub(r"\1", _CODE.sub("Code", paragraph)))


def _paragraphs(text: str) -> Iterator[str]:
    lines = list[str]()
    for line in [*text.split("\n"), ""]:
        is_row = line.lstrip().startswith("|")
        if not line.strip() or is_row or line.startswith("#") or _ITEM.match(line):
            yield " ".join(lines)
            lines = []
        if is_row:
            yield from _CODE.sub("Code", line).split("|")
        elif not line.startswith("#"):
            lines.append(_ITEM.sub("", line, count=1) if _ITEM.match(line) else line)
    yield " ".join(lines)


def docstrings() -> Iterator[tuple[str, str]]:
    """Each docstring of the package, with the place where it stands."""
    for path in sorted((TOP / "shellsession").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = getattr(node, "name", "")
                text = ast.get_docstring(node)
                if text:
                    yield f"{path.relative_to(TOP)}:{name}".rstrip(":"), _described(text)


def _described(text: str) -> str:
    """A docstring without its literal blocks, ruled tables and drawn trees."""
    return _TREE.sub("", _RULED.sub("", _LITERAL.sub(".\n\n", textwrap.dedent(text))))


def _report() -> None:
    for place, text in [*((str(path.relative_to(TOP)), path.read_text("utf-8")) for path in PAGES), *docstrings()]:
        for sentence in sentences(text):
            if words(sentence) > LONGEST:
                print(f"{place}: {words(sentence)} words: {sentence}")  # noqa: T201


if __name__ == "__main__":
    _report()
