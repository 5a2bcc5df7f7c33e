"""What the words of one command say about what else it runs.

Law: these are told, not followed: who reads a text follows them (``commands``).
"""

from __future__ import annotations

from dataclasses import dataclass

from .words import Word


@dataclass(frozen=True, slots=True)
class Starts:
    """Another command, by its words."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Runs:
    """A text of bash; ``what``: who runs it."""

    what: str
    text: Word


@dataclass(frozen=True, slots=True)
class Reads:
    """A text of bash that comes from its input. ``known``: the command's own, and not a file that nobody knows."""

    known: bool = True


@dataclass(frozen=True, slots=True)
class Assigns:
    """A variable."""

    name: str
    value: Word


@dataclass(frozen=True, slots=True)
class Renames:
    """Another name for the beginning of a command."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Untold:
    """Something that the text does not tell, in words. ``marked``: not even with marks for what is known at run time
    only, if it is found in a text that has these."""

    what: str
    marked: bool = False


Finding = Starts | Runs | Reads | Assigns | Renames | Untold


def joined(name: str, words: tuple[Word, ...]) -> Runs:
    """Words that are one text together."""
    known = [word for word in words if word is not None]
    return Runs(name, " ".join(known) if len(known) == len(words) else None)


def reaching(name: str, text: Word) -> Runs:
    """A text by which another machine is reached: its host, and what runs there, are put behind it."""
    return Runs(name, text and f"{text} host ''")
