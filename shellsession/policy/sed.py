"""What sed runs: the commands in its script (``1e rm x``), and what its substitutions make of its input (``s/a/b/e``).

Law: scripts are read as GNU sed reads them; what it does not take, and what stands where a command or a flag would and
is known at run time only, is untold. An expansion within a pattern or a text is taken for a part of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from .findings import Finding, Runs, Untold
from .started import option_of
from .words import BLANK, HELD, Word

# Options that take a word; those of an edit in place only where it is joined to them.
_TAKES: Final = {"e", "expression", "f", "file", "l", "line-length", "i", "in-place"}
_ATTACHED: Final = frozenset({"i", "in-place"})
# What is open already, or known at run time only: a script that the text does not name.
_OPEN: Final = re.compile(rf".*[{BLANK}{HELD}].*|-|//?(?:dev|proc)/.*", re.DOTALL)
_NUMBER: Final = rf"[0-9{BLANK}]"
_BETWEEN: Final = re.compile(r"[\s;]*", re.ASCII)
_BLANKS: Final = re.compile(r"\s*", re.ASCII)
_LINE: Final = re.compile(r"[^\n]*")
_LABEL: Final = re.compile(r"[^\S\n]*+[^\s;}#]*+(?!#)", re.ASCII)  # by its version, sed has it end there, or not
_COUNT: Final = re.compile(rf"[^\S\n]*{_NUMBER}*", re.ASCII)
_ADDRESS: Final = re.compile(rf"[+~]\s*{_NUMBER}*|{_NUMBER}+\s*(?:~\s*{_NUMBER}*)?|\$", re.ASCII)
_END: Final = re.compile(r"[^\S\n]*(?:[;\n]|(?=[}#])|\Z)", re.ASCII)
# The first character of a text has no meaning of its own, not even as a backslash.
_TEXT: Final = re.compile(
    r"[^\S\n]*(?:\\\n|\\?((?<=\\)[^\n]|[^\\\n]))?((?:[^\\\n]|\\.|\\\Z)*)\n?", re.ASCII | re.DOTALL
)
_FLAGS: Final = re.compile(r"([0-9gpiImMe\s]*)(?:w[^\n]*|(?:[;\n]|(?=[}#])|\Z))", re.ASCII)
_CLASS: Final = re.compile(r"\[\^?\]?(?:\[([.:=])[^\n]{0,64}?\1\]|[^\]\n])*\]")
_REPLACED: Final = re.compile(r"\\(n)|&|\\[0-9]|\\(.)", re.DOTALL)


class _NoScript(Exception):
    """sed does not take this."""


def sed(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    """What the scripts among its words have it run."""
    scripts, early, is_told = _scripts(words)
    if not is_told:
        yield _untold(name)
    for script in scripts:
        yield from _read(name, script)
    for operand in early:  # where it is to be as in POSIX, options end there, and this is the script
        yield from (one for one in _read(name, operand) if not isinstance(one, Untold))


def _scripts(words: tuple[Word, ...]) -> tuple[list[str], list[str], bool]:
    """The scripts, each as far as the next file with more of it; operands before the first one; and is that all?"""
    parts: list[list[Word]] = []
    operands: list[Word] = []
    early: list[Word] = []
    rest, is_told = list(words[1:]), True
    while rest:
        word = rest.pop(0)
        if word == "--":
            operands += rest
            break
        if word is None or word == "-" or not word.startswith("-"):
            operands.append(word)
            continue
        flags, option, value, follows = option_of(word, _TAKES, [])
        is_told = is_told and not {HELD, BLANK} & {*flags}
        if follows and rest and option not in _ATTACHED:
            value = rest.pop(0)
        if option[:1] in ("e", "f") and not parts:
            early, parts = operands[:1], [[]]
        if option[:1] == "e":
            parts[-1].append(value)
        elif option[:1] == "f":
            is_told = is_told and value is not None and not _OPEN.fullmatch(value)
            parts.append([])
    known = [[one for one in part if one is not None and HELD not in one] for part in parts or [operands[:1]]]
    is_told = is_told and sum(map(len, known)) == sum(map(len, parts or [operands[:1]]))
    return ["\n".join(part) for part in known] if is_told else [], [one for one in early if one], is_told


def _read(name: str, script: str) -> list[Finding]:
    """What it runs, whether this sed knows of a delimiter in brackets (``s/[/]/x/``) or not."""
    found: list[Finding] = []
    faults = 0
    for brackets in (True, False):
        try:
            found += (one for one in _Script(name, script, brackets).read() if one not in found)
        except _NoScript:
            faults += 1
    return found if faults < 2 else [_untold(name)]


def _untold(name: str) -> Untold:
    return Untold(f"what {name} runs", marked=True)


class _Script:
    """A script, from left to right."""

    def __init__(self, name: str, text: str, brackets: bool) -> None:
        self._name, self._text, self._brackets = name, text, brackets
        self._at = 0

    def read(self) -> list[Finding]:
        found: list[Finding] = []
        self._take(_BETWEEN)
        while self._at < len(self._text):
            self._addresses()
            found += self._command(self._one())
            self._take(_BETWEEN)
        return found

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        if (match := pattern.match(self._text, self._at)) is None:
            raise _NoScript
        self._at = match.end()
        return match

    def _one(self) -> str:
        self._at += 1
        return self._text[self._at - 1 : self._at]

    def _addresses(self) -> None:
        self._address()
        self._take(_BLANKS)
        if self._text.startswith(",", self._at):
            self._at += 1
            self._take(_BLANKS)
            self._address()
            self._take(_BLANKS)
        while self._text.startswith("!", self._at):
            self._at += 1
            self._take(_BLANKS)

    def _address(self) -> None:
        first = self._text[self._at : self._at + 1]
        if first in ("/", "\\") and first:
            self._at += 1
            self._part(self._one() if first == "\\" else "/", is_pattern=True)
            while self._text[self._at : self._at + 1] in ("I", "M", " ", "\t") and self._at < len(self._text):
                self._at += 1
        elif _ADDRESS.match(self._text, self._at):
            self._take(_ADDRESS)

    def _part(self, delimiter: str, is_pattern: bool) -> str:
        """What stands before the next delimiter."""
        start = self._at
        while (char := self._one()) != delimiter:
            if char in ("", "\n"):
                raise _NoScript
            if char == "\\":
                self._at += 1
            elif char == "[" and is_pattern and self._brackets:
                self._at -= 1
                self._take(_CLASS)
        return self._text[start : self._at - 1]

    def _command(self, letter: str) -> Iterator[Finding]:
        if letter in {*"}=dDFgGhHnNpPxz"}:
            self._take(_END)
        elif letter in {*"lLqQ"}:
            self._take(_COUNT)
            self._take(_END)
        elif letter in {*"btTv"}:
            self._take(_LABEL)
            self._take(_END)
        elif letter == ":":
            self._take(_LABEL)
        elif letter in {*"#rRwW"}:
            self._take(_LINE)
        elif letter in {*"aice"}:
            text = self._take(_TEXT)
            if letter == "e":
                yield from self._runs((text[1] or "") + text[2])
        elif letter in {*"sy"}:
            yield from self._replaces(letter)
        elif letter != "{":
            raise _NoScript

    def _runs(self, text: str) -> Iterator[Finding]:
        """The text of ``e``; without one, what has been read runs."""
        text = text.replace("\\\n", "\n").strip()
        if not text or "\\" in text or BLANK in text:
            yield _untold(self._name)
        if text:
            yield Runs(self._name, text)

    def _replaces(self, letter: str) -> Iterator[Finding]:
        delimiter = self._one()
        if delimiter in ("", "\n", BLANK):
            raise _NoScript
        self._part(delimiter, is_pattern=letter == "s")
        text = self._part(delimiter, is_pattern=False)
        if letter == "y":
            self._take(_END)
        elif "e" in self._take(_FLAGS)[1]:  # what stands around it runs, too
            yield _untold(self._name)
            yield Runs(self._name, _REPLACED.sub(lambda found: "\n" if found[1] else found[2] or BLANK, text))
