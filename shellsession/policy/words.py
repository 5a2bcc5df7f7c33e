"""What a word of bash means, as far as its text alone says.

Values that are known only at run time (``$x``, ``$(date)``) become the character ``UNKNOWN`` in the word.
"""

from __future__ import annotations

import re
from typing import Final

# Stands for text that is known only at run time. To bash and to the grammar it is an ordinary letter, so a text with
# such marks can be read as bash, too.
UNKNOWN: Final = "\ue000"

_ESCAPED: Final = re.compile(r"\\(?:\n|(.))", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = re.compile(r'\\(?:\n|([$`"\\]))')
_ESCAPED_IN_BACKTICKS: Final = re.compile(r"\\([$`\\])")
_BRACES: Final = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_GLOB: Final = re.compile(r"[*?\[]")
_ANSI: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.)|(.))", re.DOTALL
)
_ANSI_LETTERS: Final = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
# Expansions in text where quotes mean nothing, such as the body of a here-document.
_EXPANSION: Final = re.compile(
    r"\\(?:\n|([$`\\]))|`((?:[^`\\]|\\.)*)`|(\$\(\(|\$\{)|([$<>]\()|\$(?:\w+|[@*#?$!-])", re.DOTALL
)
_NESTED: Final = re.compile(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*"|(?<!\S)#[^\n]*|[()]""", re.DOTALL)


def unquoted(text: str, is_name: bool = False) -> str:
    """The value of a part of a word without quotes. ``is_name``: the word names a command, so a pattern is unknown."""
    if ("{" in text and _BRACES.search(text)) or (is_name and _GLOB.search(text)):
        return UNKNOWN
    return _ESCAPED.sub(_first_group, text) if "\\" in text else text


def double_quoted(text: str) -> str:
    """The value of text between double quotes that has no expansions."""
    return _ESCAPED_IN_QUOTES.sub(_first_group, text) if "\\" in text else text


def ansi_quoted(text: str) -> str:
    """The value of the text between ``$'`` and ``'``."""
    value = _ANSI.sub(_ansi_character, text)
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape").partition("\0")[0]


def in_backticks(text: str) -> str:
    """The command text between two backticks."""
    return _ESCAPED_IN_BACKTICKS.sub(_first_group, text) if "\\" in text else text


def expanded(text: str, is_word: bool = False) -> tuple[str, list[str]]:
    """The text with its expansions marked, and the texts of the command substitutions in it.

    Quotes mean nothing in the text. ``is_word``: it is part of a word, where ``<(`` begins a substitution, too.
    """
    pieces: list[str] = []
    inner: list[str] = []
    at = hidden = 0  # up to there the text is part of an expansion: only the substitutions in it matter
    while (found := _EXPANSION.search(text, at)) is not None:
        pieces.append(text[max(at, hidden) : found.start()])
        at = found.end()
        escaped, backticks, opening, substitution = found.groups()
        if found[0][0] == "\\":
            pieces.append(escaped or "" if at > hidden else "")
            continue
        if substitution and substitution[0] != "$" and not is_word:
            pieces.append(substitution if at > hidden else "")
            continue
        if at > hidden:
            pieces.append(UNKNOWN)
        if backticks is not None:
            inner.append(in_backticks(backticks))
        elif substitution:
            end = _closing(text, at - 1)
            inner.append(text[at : end - 1])
            at = end
        elif opening and at > hidden:
            hidden = _closing(text, at - 2) if opening == "$((" else text.find("}", at) + 1 or len(text)
    return "".join([*pieces, text[max(at, hidden) :]]), inner


def _closing(text: str, start: int) -> int:
    """The end of what the parenthesis there opens, or of the text."""
    depth = 0
    for found in _NESTED.finditer(text, start):
        depth += (found[0] == "(") - (found[0] == ")")
        if not depth:
            return found.end()
    return len(text) + 1


def _first_group(found: re.Match[str]) -> str:
    return found[1] or ""


def _ansi_character(found: re.Match[str]) -> str:
    for group, base in ((1, 16), (2, 8)):
        if found[group]:
            return bytes([int(found[group], base) & 0xFF]).decode("utf-8", "surrogateescape")
    if found[3] or found[4]:
        code = int(found[3] or found[4], 16)
        return chr(code) if code < 0xD800 or 0xDFFF < code < 0x110000 else "\ufffd"
    if found[5]:
        return chr(ord(found[5]) & 0x1F)
    return _ANSI_LETTERS.get(found[6], found[6] if found[6] in "\\'\"?" else found[0])
