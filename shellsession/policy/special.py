"""Commands that start others in a way of their own: shells, what bash has built in, find, at, git.

Law: of ``starters``; here is who does not fit into one of its rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from .findings import Assigns, Finding, Reads, Runs, Starts, Untold, joined
from .git import git
from .words import Word, substitutions

_SHELLS: Final = frozenset(
    {"bash", "sh", "dash", "ash", "zsh", "ksh", "mksh", "rbash", "fish", "csh", "tcsh"}  # all have -c, and words
)
_STDIN: Final = frozenset({"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=(.*)", re.DOTALL)
# An element, by an index that runs something when it is looked at.
_ELEMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[.*(?:\$\(|`)", re.DOTALL)

# With these flags the values of variables are computed, too: numbers, and references to elements.
_COMPUTING: Final = frozenset({"declare", "typeset", "local"})

Special = Callable[[str, tuple[Word, ...]], Iterator[Finding]]


def special_of(name: str) -> Special | None:
    return _SPECIAL.get(name) or (_shell if name in _SHELLS else None)


def _shell(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    rest, has_text = list(words[1:]), False
    word: Word = ""
    while rest:
        word = rest.pop(0)
        if word is None:
            break
        if word in ("--", "-"):
            word = rest.pop(0) if rest else ""
        elif word.startswith("--"):
            if word in ("--rcfile", "--init-file"):
                rest[:1] = []
            word = ""
            continue
        elif word[:1] in ("-", "+") and len(word) > 1:
            has_text = has_text or (word[0] == "-" and "c" in word)
            if word[-1] in "oO":
                rest[:1] = []
            reads, word = "s" in word, ""
            if not reads:
                continue
            rest = []
        if has_text:
            yield Runs(name, word)
            return
        if word and word not in _STDIN:
            return  # the file that it runs is named
        break
    yield Reads(known=word is not None)


def _source(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    for word in words[2:3] if words[1:2] == ("--",) else words[1:2]:
        if word is None or word in _STDIN:
            yield Reads(known=word is not None)


def _alias(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    for word in words[1:]:
        if word is None or "=" in word:
            yield Runs(name, None if word is None else word.partition("=")[2])


def _eval(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    yield joined(name, words[2:] if words[1:2] == ("--",) else words[1:])


def _hash(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    for flag, path in pairwise(words):
        if flag == "-p":  # from here on another name for it
            yield Starts((path,))


def _at(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    if not {"-f", "-l", "-r", "-c"} & set(words):
        yield Reads()


def _trap(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    operands = [word for word in words[1:] if word not in ("--", "-p", "-l")]
    if len(operands) > 1:
        yield Runs(name, operands[0])


def _find(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    for index, word in enumerate(words):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            inner = words[index + 1 :]
            ends = [at for at, one in enumerate(inner) if one in (";", "+")]
            yield Starts(inner[: ends[0]] if ends else inner)


def _fd(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    for index, word in enumerate(words):
        flag, is_here, first = (word or "").partition("=")
        if flag in ("-x", "-X", "--exec", "--exec-batch"):
            inner = ((first,) if is_here else ()) + words[index + 1 :]
            yield Starts(inner[: inner.index(";")] if ";" in inner else inner)


def _variables(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    """Of bash's own that take names of variables: an index in these is computed, and computing can run something."""
    flags = "".join(word for word in words[1:] if word is not None and word.startswith("-"))
    computes = name == "let" or (name in _COMPUTING and ("i" in flags or "n" in flags))
    for before, word in pairwise(words):
        if word is None or (name == "printf" and before != "-v"):
            continue
        if (assigned := _ASSIGNMENT.fullmatch(word)) is not None and name != "test":
            yield Assigns(assigned[1], assigned[2])
        elif word.isidentifier() and name in ("read", "printf", "getopts"):
            yield Assigns(word, None)
        if _ELEMENT.match(word) or computes:
            if (inner := substitutions(word)) is None:
                yield Untold(f"what {name} computes")
            for text in inner or []:
                yield Runs(name, text)


_SPECIAL: Final[dict[str, Special]] = {
    "eval": _eval,
    "source": _source,
    ".": _source,
    "alias": _alias,
    "hash": _hash,
    "at": _at,
    "batch": _at,
    "git": git,
    "trap": _trap,
    "find": _find,
    "fd": _fd,
    "fdfind": _fd,
    **dict.fromkeys(
        (
            "let",
            "test",
            "printf",
            "unset",
            "read",
            "wait",
            "getopts",
            "declare",
            "typeset",
            "local",
            "readonly",
            "export",
        ),
        _variables,
    ),
}
