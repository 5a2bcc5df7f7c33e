"""Commands that start others in a way of their own: shells, what bash has built in, find, at, git.

Law: of ``starters``; here is who does not fit into one of its rows.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from .findings import Assigns, Finding, Reads, Renames, Runs, Starts, Untold, joined
from .git import git
from .sed import sed
from .words import BLANK, Word, ansi, known, put, substitutions

_SHELLS: Final = frozenset(
    {"bash", "sh", "dash", "ash", "zsh", "ksh", "mksh", "rbash", "fish", "csh", "tcsh"}  # all have -c, and words
)
# Their long options, which bash also takes with one dash, before all others.
_LONG: Final = frozenset({"init-file", "login", "noediting", "noprofile", "norc", "posix", "rcfile", "restricted"}) | {
    *("debug", "debugger", "dump-po-strings", "dump-strings", "help", "pretty-print", "verbose", "version", "wordexp")
}
_STDIN: Final = re.compile(r"//?(?:dev/stdin|dev/fd/0|proc/self/fd/0)")
# What is open already, by a name that may lead there (cd /dev; bash stdin).
_OPEN: Final = re.compile(r"//?(?:dev/(?!null$)|proc/).*|(?:.*/)?(?:stdin|fd/\d+)", re.DOTALL)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[.*?\])?\+?=(.*)", re.DOTALL)
# The values of an array, whatever its quotes.
_ARRAY: Final = re.compile(rf"\(.*[){BLANK}]", re.DOTALL)
# What stands before the text of `bind -x`.
_BOUND: Final = re.compile(r'\s*(?:"(?:[^"\\]|\\.)*"|[^\s:"]+)\s*:?', re.DOTALL)
# An element, by an index that runs something when it is looked at.
_JOINED: Final = {"printf": re.compile("(-v)(.+)", re.S), "read": re.compile("(-[ers]*a)(.+)", re.S)}
_ELEMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[.*(?:\$\(|`)", re.DOTALL)

# With these flags the values of variables are computed, too: numbers, and references to elements.
_COMPUTING: Final = frozenset({"declare", "typeset", "local"})
_DECLARING: Final = _COMPUTING | {"readonly", "export"}
# These put into variables what only comes out when they run.
_FILLING: Final = frozenset({"read", "printf", "getopts", "mapfile", "readarray"})

Special = Callable[[str, tuple[Word, ...]], Iterator[Finding]]


def special_of(name: str) -> Special | None:
    return _SPECIAL.get(name) or (_shell if name in _SHELLS else None)


def _shell(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    rest, letters = [*map(known, words[1:])], ""
    while rest and rest[0] is not None and rest[0][:1] in ("-", "+"):
        option = rest.pop(0) or ""
        if option in ("-", "--"):
            break
        if option.startswith("--") or (not letters and option[1:] in _LONG):
            if option.lstrip("-") in ("version", "help") and not letters:
                return
            if option.lstrip("-") in ("rcfile", "init-file"):
                yield from _file(rest[:1])
                del rest[:1]
            continue
        letters += option[1:]
        del rest[: sum(letter in "oO" for letter in option)]  # each has a word of its own
    if "c" in letters and rest:
        yield Runs(name, rest[0])
        yield from (Assigns("1", word) for word in rest[1:])
    elif "s" in letters or not rest:
        yield Reads()
        yield from (Assigns("1", word) for word in rest)
    else:
        yield from _file(rest[:1])


def _source(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    yield from _file(words[2:3] if words[1:2] == ("--",) else words[1:2])


def _file(named: Sequence[Word]) -> Iterator[Finding]:
    """A text in the file that these name: what is in it nobody knows, and nobody asks unless it is open already."""
    for word in map(known, named):
        path = None if word is None else posixpath.normpath(word)
        if path is None or _OPEN.fullmatch(path):
            yield Reads(known=path is not None and _STDIN.fullmatch(path) is not None)


def _set(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    yield from (Assigns("1", word) for word in words[1:])


def _alias(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    for word in words[1:]:
        alias, is_text, text = (word or "").partition("=")
        if known(word) is None or is_text:
            yield Runs(name, text if is_text else None)
            if is_text and known(text) is not None:
                yield Renames(alias, text)


def _eval(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    yield joined(name, words[2:] if words[1:2] == ("--",) else words[1:])


def _hash(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    for option, word in pairwise((*words, "")):
        if option and option.startswith("-") and "p" in option:  # from here on another name for it
            yield Starts((option.partition("p")[2] or word,))


def _at(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    if not {"-f", "-l", "-r", "-c"} & set(words):
        yield Reads()


def _jobs(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    for at, word in enumerate(words[1:], 1):
        if word is None or not word.startswith("-"):
            return
        if "x" in word:  # the next words, without their own "--", are a command
            yield Starts(words[at + 1 + (words[at + 1 : at + 2] == ("--",)) :])
            return


def _run_parts(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    if not {"--test", "--list", "--version", "--help", "-V", "-h"} & set(words):
        yield Untold(f"what {name} runs")


def _trap(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    operands = [word for word in words[1:] if word not in ("--", "-p", "-l")]
    if len(operands) > 1:
        yield Runs(name, operands[0])


def _bind(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    for option, word in pairwise(words):
        if option is not None and option.startswith("-") and "x" in option:
            bound = _BOUND.match(word or "")
            yield Runs(name, word and bound and word[bound.end() :])


def _fc(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    flags = "".join(word for word in words[1:] if word is not None and word.startswith("-"))
    if "l" not in flags:
        yield Untold(f"what {name} runs again")  # it may be changed before


def _history(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    if words[1:2] == ("-s",):
        yield joined(name, words[2:])  # which fc may run


def _enable(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    if any(word is None or (word.startswith("-") and "f" in word) for word in map(known, words[1:])):
        yield Untold(f"what {name} loads")


def _find(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    for index, word in enumerate(words):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            inner = words[index + 1 :]
            ends = [at for at, one in enumerate(inner) if one in (";", "+")]
            yield Starts(tuple(put(one, "{}") for one in (inner[: ends[0]] if ends else inner)))


def _fd(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    for index, word in enumerate(words):
        flag, is_here, first = (word or "").partition("=")
        if flag in ("-x", "-X", "--exec", "--exec-batch"):
            inner = ((first,) if is_here else ()) + words[index + 1 :]
            inner = inner[: inner.index(";")] if ";" in inner else inner
            yield Starts((*(put(one, "{}") for one in inner), BLANK))


def _variables(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    """Of bash's own that take names of variables: an index in these is computed, and computing can run something."""
    apart = list(_apart(name, words))
    if name == "getopts" or (name == "printf" and "-v" in apart):
        values = apart[3:] if name == "getopts" else apart[apart.index("-v") + 2 :]
        # what is put together of these: of a format, and of what goes into it, in any order
        yield from (Assigns("1", word) for word in (*values, *_composed(values)))
    flags = "".join(word for word in words[1:] if word is not None and word.startswith("-"))
    computes = name == "let" or (name in _COMPUTING and ("i" in flags or "n" in flags))
    for before, word in pairwise(apart):
        if word is None or (name == "printf" and before != "-v"):
            continue
        if (assigned := _ASSIGNMENT.fullmatch(word)) is not None and name not in ("test", "["):
            yield Assigns(assigned[1], assigned[2])
            if name in _COMPUTING and "n" in flags:  # what is assigned to it from here on is another's
                yield Assigns(assigned[2].partition("[")[0], None)
            if name in _DECLARING and _ARRAY.fullmatch(assigned[2]):
                yield Runs(name, word)
        elif (variable := word.partition("[")[0]).isidentifier() and name in _FILLING:
            yield Assigns(variable, None)
        if _ELEMENT.match(word) or computes:
            if (inner := substitutions(word)) is None:
                yield Untold(f"what {name} computes")
            for text in inner or []:
                yield Runs(name, text)


def _composed(words: Sequence[Word]) -> Iterator[str]:
    """An element whose index runs all that these words may run, if one of them begins an element."""
    texts = [ansi(word) for word in words if word is not None]
    inner = [f"$({text})" for one in texts for text in substitutions(one) or []]
    if inner and any("[" in text for text in texts):
        yield f"a[{''.join(inner)}]"


def _apart(name: str, words: tuple[Word, ...]) -> Iterator[Word]:
    """The words, and apart from its option a variable that is written to it (``printf -vPATH``)."""
    joined = _JOINED.get(name)
    for word in words:
        found = joined.fullmatch(word) if joined is not None and word is not None else None
        yield from found.groups() if found is not None else (word,)


_SPECIAL: Final[dict[str, Special]] = {
    "eval": _eval,
    "source": _source,
    ".": _source,
    "set": _set,
    "alias": _alias,
    "hash": _hash,
    "bind": _bind,
    "fc": _fc,
    "history": _history,
    "enable": _enable,
    "jobs": _jobs,
    "run-parts": _run_parts,
    "at": _at,
    "batch": _at,
    "git": git,
    **dict.fromkeys(("sed", "gsed"), sed),
    "trap": _trap,
    "find": _find,
    "fd": _fd,
    "fdfind": _fd,
    **dict.fromkeys(
        ("let", "test", "[", "unset", "wait", *_FILLING, *_DECLARING),
        _variables,
    ),
}
