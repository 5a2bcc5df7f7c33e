"""What a text of bash runs: the commands in it, and those that these start (``env``, ``sudo``, ``bash -c``, ...).

Law: what cannot be known before it runs is said to be unknown, and never taken for nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from .findings import Assigns, Finding, Reads, Renames, Runs, Starts, Untold
from .git import setting
from .grammar import Simple, parse
from .special import special_of
from .started import started
from .subcommands import PATTERN, without_patterns
from .variables import ran_by
from .words import BLANK, ESCAPED, Word, known

# Texts within texts (bash -c 'bash -c ...'): whoever needs more has something else in mind.
_DEEPEST: Final = 8
# Bytes of all texts and words of all commands together: what is within another one is read again.
_MOST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """What a text runs, as far as the text says.

    ``commands``: the words of each; a word that is known at run time only is None. They are also those of a text that
    is known in part (``bash -c "cd $X && rm y"``), by the rest of it. ``unknown``: what cannot be known, in words.
    ``fault``: what of the text is no bash, in words ("" when all of it is). ``unread``: why not all of it was looked at
    ("" when it was). ``renaming``: the variable that makes names mean other programs ("": there is none).
    """

    commands: tuple[tuple[Word, ...], ...]
    unknown: tuple[str, ...] = ()
    fault: str = ""
    unread: str = ""
    renaming: str = ""


# Half of a setting of git: its name or its value, by a number.
_GIT_SETTING: Final = re.compile(r"GIT_CONFIG_(KEY|VALUE)_(\d+)")
_READING: Final = frozenset({"read", "mapfile", "readarray"})
# Those that make names mean other programs: what is allowed by name is not what it was.
_RENAMING: Final = re.compile(r"PATH|LD_\w+|ENV")


def commands(source: bytes) -> Run:
    """What the text runs. Raises InvalidRequest where the parser is missing."""
    reader, marked = _Reader(), _Reader(blanked=True)
    run = reader.read(source)
    if not run.unknown and not reader.doubts:
        return run
    likely = marked.read(source)
    known = set(run.commands)
    more = dict.fromkeys(words for words in likely.commands if words[0] is not None and words not in known)
    doubts = reader.doubts if likely.fault or likely.unread else marked.doubts
    unknown = tuple(dict.fromkeys((*run.unknown, *doubts)))
    return replace(run, commands=(*run.commands, *more), unknown=unknown, unread=run.unread or likely.unread)


class _TooMuch(Exception):
    """So much is not read."""


class _Reader:
    """Reads texts, and the texts in them. ``blanked``: with a mark in place of what is known at run time only, so that
    a text with such a part is read, too; what it would not tell is the other reading's to say."""

    def __init__(self, blanked: bool = False) -> None:
        self._blanked = blanked
        self._spent = 0
        self._started: set[tuple[tuple[Word, ...], str | None]] = set()
        self._of_git: dict[tuple[str, str], Word] = {}
        self._functions: frozenset[str] = frozenset()
        self._aliases: dict[str, str] = {}
        self.commands: list[tuple[Word, ...]] = []
        self.unknown: list[str] = []
        self.doubts: list[str] = []  # which only the reading with marks can tell
        self.fault = ""
        self.unread = ""
        self.renaming = ""

    def read(self, source: bytes) -> Run:
        try:
            self._text(source, 0)
        except _TooMuch:
            self.unread = f"it has over {_MOST} bytes, or so many within others"
        unknown = tuple(dict.fromkeys(self.unknown))
        return Run(tuple(self.commands), unknown, self.fault, self.unread, self.renaming)

    def _spend(self, size: int) -> None:
        self._spent += size
        if self._spent > _MOST:
            raise _TooMuch

    def _text(self, source: bytes, depth: int, fed: str | None = None) -> None:
        """``fed``: what its commands read, as far as that is told, where they have nothing of their own."""
        self._spend(len(source))
        if depth > _DEEPEST:
            self.unread = "a text within too many others"
            return
        text = parse(source, self._blanked)
        self.fault = self.fault or text.fault
        self.unread = self.unread or text.unread
        self.unknown += text.unknown
        self._functions |= text.functions
        for name, value in text.assignments:
            self._follow(Assigns(name, value), Simple(("",)), depth)
        for simple in text.commands:
            passed = replace(simple, fed=fed, live=True) if simple.fed is None and fed is not None else simple
            self._command(passed, depth)

    def _command(self, simple: Simple, depth: int) -> None:
        self._as_aliased(simple, depth)
        todo = [simple.words]
        while todo:
            words = _named(todo.pop() if self._blanked else tuple(map(_told, todo.pop())))
            if not words:
                continue
            given = words = without_patterns(words)
            words = tuple(map(known, words))
            self.commands.append(tuple(map(_told, words)))
            if words[0] is None:
                self.unknown.append("the name of a command")
                continue
            name = words[0].rpartition("/")[2]
            if name in _READING and simple.fed is not None:
                self._assigned(name, simple.fed, depth)
                self._assigned(name, ESCAPED.sub(r"\1", simple.fed), depth)  # as read has it without -r
            for word in words[1:] if name in self._functions else ():
                self._assigned("1", word, depth)
            special = special_of(name)
            for finding in chain(special(name, given) if special is not None else (), started(given)):
                if not isinstance(finding, Starts):
                    self._follow(finding, simple, depth)
                    continue
                inner = _matching(finding.words)
                if (inner, simple.fed) not in self._started:  # find -exec find -exec ... starts each again
                    self._spend(len(inner))
                    self._started.add((inner, simple.fed))
                    todo.append(inner)

    def _as_aliased(self, simple: Simple, depth: int) -> None:
        """What an alias of the text makes of this command, if it does: text, which may begin or end with a part of one
        (``alias n='if a; then b;'``)."""
        name = simple.words[0] if simple.words else None
        if name is None or (text := self._aliases.pop(name, None)) is None:  # in its own text it is none
            return
        rest = shlex.join(BLANK if word is None else word for word in map(known, simple.words[1:]))
        self._script("an alias", f"{text} {rest}", depth, simple.fed)
        self._aliases.setdefault(name, text)

    def _follow(self, finding: Finding, simple: Simple, depth: int) -> None:
        match finding:
            case Runs(what, text):
                self._script(what, text, depth, simple.fed)
            case Untold(what, marked):
                (self.doubts if marked else self.unknown).append(what)
            case Reads(known):
                self._input(simple, known, depth)
            case Assigns(name, value):
                self._assigned(name, value, depth)
            case Renames(name, text):
                self._aliases[name] = text
            case Starts(words):
                self._command(Simple(_matching(words)), depth)

    def _assigned(self, name: str, value: Word, depth: int) -> None:
        value = known(value)
        if _RENAMING.fullmatch(name):
            self.renaming = self.renaming or name
        if (half := _GIT_SETTING.fullmatch(name)) is not None:
            self._of_git[half[1], half[2]] = value
            if ("KEY", half[2]) in self._of_git and ("VALUE", half[2]) in self._of_git:
                for finding in setting(self._of_git["KEY", half[2]], self._of_git["VALUE", half[2]]):
                    self._follow(finding, Simple(("git",)), depth)
        for finding in ran_by(name, value):
            self._follow(finding, Simple((name,)), depth)

    def _script(self, what: str, text: Word, depth: int, fed: str | None = None) -> None:
        if (text := known(text)) is None:
            self.unknown.append(f"the text that {what} runs")
        else:
            self._text(text.encode("utf-8", "surrogateescape"), depth + 1, fed)

    def _input(self, simple: Simple, known: bool, depth: int) -> None:
        """What a shell reads, when it is no file with a name."""
        name = (simple.words[0] or "").rpartition("/")[2]
        if not known or simple.fed is None:
            self.unknown.append(f"what {name} reads")
            return
        self._script(name, simple.fed, depth)
        if simple.live:
            self.unknown.append(f"all that {name} reads")


def _told(word: Word) -> Word:
    return None if word is not None and BLANK in word else word


def _matching(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words; of a name that is a pattern (``env /bin/r? x``) comes out what it is only when it runs."""
    if not words or words[0] is None:
        return words
    return (PATTERN.sub(BLANK, words[0]), *words[1:])


def _named(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words; of a name with a mark only what follows its last slash is known (``$HOME/bin/x``), if that is."""
    if not words or words[0] is None or BLANK not in words[0]:
        return words
    name = words[0].rpartition("/")[2]
    return (None if BLANK in name else name, *words[1:])


def shown(run: Run) -> Iterator[str]:
    """Each command in one line, as it is told to people; a word that is not known is ``?``."""
    for words in run.commands:
        yield " ".join("?" if word is None else word for word in words)
