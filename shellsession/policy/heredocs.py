"""Here-documents: how their delimiters are written, and which lines are theirs.

Law: a text is read as bash does; what is not certain is said, and never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_BLANKS: Final = re.compile(r"(?:[ \t]|\\\n)*")
_DELIMITER: Final = re.compile(
    r"""(?!\#)((?:[^ \t\n\\'"`$<>()#;&|]|\\[^\n]|'[^'\n]*'|"[^"\\`$\n]*"|#)+)(?=[ \t\n;&|<>)]|$)"""
)
_QUOTES: Final = re.compile(r"""\\(.)|'([^']*)'|"([^"]*)\"""")
_CONTINUED: Final = re.compile(r"\\(\n|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Document:
    """A here-document. ``literal``: its delimiter is quoted, and nothing in it is expanded."""

    body: str
    literal: bool


@dataclass(frozen=True, slots=True)
class Pending:
    """A here-document whose body is to come. ``start``, ``end``: where its operator and its delimiter stand; ``tabs``:
    those before a line of it are none of it."""

    start: int
    end: int
    delimiter: str
    literal: bool
    tabs: bool


def pending(text: str, start: int, operator: str) -> Pending | None:
    """The here-document whose operator begins here; None where its delimiter is not certain."""
    at = start + len(operator)
    blanks = _BLANKS.match(text, at)
    found = _DELIMITER.match(text, blanks.end() if blanks else at)
    if found is None:
        return None
    delimiter = _QUOTES.sub(lambda one: one[1] or one[2] or one[3] or "", found[1])
    literal = any(mark in found[1] for mark in "\\'\"")
    return Pending(start, found.end(), delimiter, literal, operator == "<<-")


def body(text: str, at: int, document: Pending, within: bool) -> tuple[str, int, str]:
    """The body that begins here, where the text goes on, and what is doubtful ("": nothing). ``within``: it stands in a
    substitution."""
    lines: list[str] = []
    while at < len(text):
        line, end = _line(text, at, document.literal)
        line = line.lstrip("\t") if document.tabs else line
        if line.removesuffix("\n") == document.delimiter:
            return "".join(lines), end, ""
        if within and line.startswith(document.delimiter) and ")" in line:
            # what follows the delimiter there is read on, in the newer versions of bash
            rest = line[len(document.delimiter) :]
            certain = rest.lstrip(" \t")[:1] == ")" and text[at:end].endswith(rest)
            return "".join(lines), end - len(rest), "" if certain else "the delimiter of a here-document"
        lines.append(line)
        at = end
    return "".join(lines), at, "a here-document does not end"


def _line(text: str, at: int, literal: bool) -> tuple[str, int]:
    """A line, with those that a backslash joins to it, and where the next one begins."""
    end = text.find("\n", at) + 1 or len(text)
    if literal:
        return text[at:end], end
    last = at
    while end < len(text) and _is_continued(text[last:end]):
        last, end = end, text.find("\n", end) + 1 or len(text)
    joined = _CONTINUED.sub(lambda found: "" if found[1] == "\n" else found[0], text[at:end])
    return joined, end


def _is_continued(line: str) -> bool:
    body = line.removesuffix("\n")
    return line != body and (len(body) - len(body.rstrip("\\"))) % 2 == 1
