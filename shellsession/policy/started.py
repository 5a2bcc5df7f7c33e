"""What a command starts, by its words and by its row in ``starters``.

Law: of that table: where it is in doubt, a command too many is found rather than one too few.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Iterator
from typing import Final

from .findings import Assigns, Finding, Reads, Runs, Starts, Untold, joined, reaching
from .git import setting
from .starter import ALL, Starter
from .starters import starter_of
from .words import BLANK, HELD, Word, known, put, single, substitutions

# NAME=VALUE or NAME VALUE, as ssh takes it.
_SETTING: Final = re.compile(r'[\s=]*"?([\w:.-]+)"?(?:\s*=\s*|\s+)(.*)', re.DOTALL)
# After `time` and `coproc` these are no names; of what follows the grammar knows nothing.
_RESERVED: Final = frozenset({"{", "(", "!", "if", "while", "until", "for", "case", "select", "[["})


def started(words: tuple[Word, ...]) -> Iterator[Finding]:
    """What a command by these words starts."""
    starter, named = starter_of(words)
    if starter is not None:
        yield from _Words((words[0] or "").rpartition("/")[2], starter, list(named[1:])).findings()


class _Words:
    """The words of a starter after its name, from left to right."""

    def __init__(self, name: str, starter: Starter, rest: list[Word]) -> None:
        self._name = name
        self._starter = starter
        self._rest = rest
        self._pairs = {*starter.pairs.split()}
        self._texts = {*starter.texts.split()}
        self._settings = {*starter.settings.split()}
        self._expands, self._splits, self._puts = (
            {*options.split()} for options in (starter.expands, starter.splits, starter.puts)
        )
        self._takes = {*starter.options.split(), *starter.unless.split(), *self._texts, *self._pairs, *self._settings}
        self._names = {*starter.names.split()}
        self._named: list[Word] = []
        self._takes |= self._expands | self._splits | self._puts | self._names
        self._mark = "{}"
        self._looks = False
        self._operands = starter.operands
        self._shell = starter.shell
        if starter.unless and not any(self._names_one_of(word, starter.unless) for word in rest):
            self._operands = ALL

    def findings(self) -> Iterator[Finding]:
        if self._starter.letters and self._rest and (letters := known(self._rest[0])) and letters[0] != "-":
            self._rest = _spread(letters, self._rest[1:], self._takes)
        while self._rest:
            given = self._rest.pop(0)
            word = self._read(given)
            if word in self._starter.begins.split():
                yield Starts((*self._starter.behind.split(), *self._rest))
                yield from self._of_named(0)
                return
            if self._named and (word is None or word == "--" or not word.startswith("-")):
                if word is None:  # an option, the image, or more than that
                    yield Untold(f"what {self._name} starts")
                yield from self._of_named(self._operands - (word != "--"))
                return
            if word is not None and word.startswith("-") and len(word) > 1:
                self._looks = self._looks or self._only_looks(word)
                yield from self._option(word)
            elif self._looks:
                continue  # what it would start; options may follow
            elif (assigned := self._assigned(given)) is not None:
                variable, is_assigned, value = assigned[0].partition("=")
                if is_assigned:
                    yield Assigns(variable.removesuffix("+").partition("[")[0], value)
            elif self._operands:
                self._operands -= 1
                if word is None and not self._starter.own:
                    yield Untold(f"what {self._name} starts")
            elif self._name == "coproc" and self._rest and self._rest[0] in ("{", "("):
                self._rest.pop(0)  # it was the name
            else:
                yield from self._other(given)
                return
        yield from self._of_named(0)
        if self._starter.ends:
            yield Untold(f"what {self._name} reads")
        elif self._shell and not self._looks:
            yield Reads()

    def _read(self, given: Word) -> Word:
        """The word. Of one that is known in part only an option is told; and not if it may be more words, in the place
        of the next ones, where these matter."""
        is_option = given is not None and given.startswith("-") and (self._starter.own or single(given) is not None)
        return given if is_option else known(given)

    def _assigned(self, given: Word) -> re.Match[str] | None:
        """Is it an assignment?"""
        word, pattern = single(given), self._starter.assignments
        return pattern.fullmatch(word) if word is not None and pattern is not None else None

    def _of_named(self, own: int) -> Iterator[Finding]:
        """What has been named by an option starts with the words behind these; an empty name is none of it."""
        for name in self._named:
            yield Starts((*([] if name == "" else [name]), *self._rest[max(own, 0) :]))

    def _other(self, word: Word) -> Iterator[Finding]:
        """The other command begins with this word."""
        words = (word, *self._rest)
        if self._starter.each or self._starter.joined:
            words = tuple(map(known, words))
        if self._puts:
            words = (*(put(one, self._mark) for one in words), BLANK)
        if self._starter.each:
            yield from (Runs(self._name, one) for one in words if one is None or not one.startswith("-"))
        elif self._starter.joined:
            yield joined(self._name, _until(words, self._starter.ends))
        elif known(word) is None or word in _RESERVED:
            yield Untold(f"what {self._name} starts")
        else:
            yield Starts(words)

    def _names_one_of(self, word: Word, options: str) -> bool:
        """Is this word one of these options, which take a word?"""
        if word is None or not word.startswith("-"):
            return False
        return option_of(word, self._takes, self._starter.flags.split())[1] in options.split()

    def _only_looks(self, word: str) -> bool:
        flags, option, *_ = option_of(word, self._takes, self._starter.flags.split())
        return bool(set(self._starter.only_looks.split()) & {*flags, option})

    def _option(self, word: str) -> Iterator[Finding]:
        if word == "--":
            self._takes = set()
            return
        flags, option, value, follows = option_of(word, self._takes, self._starter.flags.split())
        if HELD in word and self._is_open(word, flags, value):
            yield Untold(f"what {self._name} starts")
        if follows and self._rest and option not in self._starter.attached.split():
            value = self._rest.pop(0)
        if option in self._pairs:
            self._rest[:1] = []
        if option in self._settings:
            yield from self._set(value)
        if option in self._texts:
            yield (reaching if option in self._starter.reaches.split() else Runs)(self._name, value)
            self._shell = False
        value = known(value)
        if option in self._expands:
            inner = None if value is None else substitutions(value)
            yield from (
                [Untold(f"what {self._name} expands")] if inner is None else [Runs(self._name, one) for one in inner]
            )
        if option in self._splits:
            self._rest = [*_split(value), *self._rest]
        if option in self._names:
            self._named.append(value)
        if option in self._puts:
            self._mark = value or self._mark

    def _is_open(self, word: str, flags: str, value: Word) -> bool:
        """May what is not known of this word make another option of it, or one whose word follows (``-u"$X"``)? Where
        all operands are the starter's own, that matters for an option that has it start something."""
        if not self._starter.own:
            return HELD in flags or (word[1] != "-" and value in (HELD, HELD * 2))
        begun, tells = word.partition(HELD)[0], (self._texts | self._settings | self._expands) & self._takes
        return HELD in flags and any(
            f"--{one}".startswith(begun) or (len(one) == 1 and begun[1:2] != "-") for one in tells
        )

    def _is_run(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name.lower(), one) for one in self._starter.runs.split())

    def _set(self, word: Word) -> Iterator[Finding]:
        if (word := single(word)) is None:
            yield Untold(f"a setting of {self._name}")
        elif self._name == "git":
            yield from setting(*word.partition("=")[::2])
        elif (found := _SETTING.fullmatch(word)) and self._is_run(found[1]):
            text = found[2] or (self._rest[0] if self._rest else "")  # apt takes the next word for it
            yield Runs(self._name, "" if text == "none" else text)  # of ssh: no such command
        elif found and found[2].startswith("--"):  # an option of the program behind (DPkg::Options::=--pre-invoke=x)
            yield from self._set(found[2][2:])
        elif found is None and known(word) is None:
            yield Untold(f"a setting of {self._name}")


def _split(value: Word) -> list[Word]:
    """The words in a word, as env finds them; of the backslashes that it knows only the one that is a blank."""
    text = "" if value is None else value.replace("\\_", " ")
    if value is None or "\\" in text or "${" in text:
        return [None]
    try:
        return [*shlex.split(text)]
    except ValueError:  # a quote without an end
        return [None]


def _spread(letters: str, rest: list[Word], takes: set[str]) -> list[Word]:
    """Letters without a dash, as options: the words that these take follow."""
    found: list[Word] = []
    for letter in letters:
        found += [f"-{letter}", *(rest[:1] if letter in takes else ())]
        rest = rest[letter in takes :]
    return found + rest


def _until(words: tuple[Word, ...], ends: str) -> tuple[Word, ...]:
    """The words before the first one that begins so."""
    for at, word in enumerate(words):
        if ends and word is not None and word.startswith(ends):
            return words[:at]
    return words


def option_of(word: str, takes: set[str], flags: list[str]) -> tuple[str, str, Word, bool]:
    """Of a word: the letters that take nothing, the option after them that takes a word, that word where it is here
    (``--name=`` has one, of no letters), and whether it follows instead. A name that is known in part has ``HELD``
    for letters."""
    if word.startswith("--"):
        name, is_here, value = word[2:].partition("=")
        if HELD in name:
            return HELD, "", "", False
        if name not in takes and name not in flags:  # most programs know it by the beginning of its name, too
            name = min((one for one in takes if len(one) > 1 and one.startswith(name)), default="")
        return ("", name, value, not is_here) if name in takes else ("", "", "", False)
    if len(word) > 2 and word[1:] in takes:
        return "", word[1:], "", True
    for at, letter in enumerate(word[1:], 1):
        if letter in takes:
            return word[1:at], letter, word[at + 1 :], at + 1 == len(word)
    return word[1:], "", "", False
