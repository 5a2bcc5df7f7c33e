"""What git runs, by its words: settings that are commands, aliases, and subcommands that start others.

Law: of ``starters``; git has more ways than one row can hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from .findings import Finding, Runs, Starts, Untold, joined
from .subcommands import subcommands
from .words import Word

# Settings whose value is a text; an alias is one after a "!".
_RUNS: Final = re.compile(
    r"(?i)core\.(?:pager|editor|sshcommand|fsmonitor|askpass)|pager\..*|sequence\.editor|diff\.external|gpg\..*program"
    r"|credential\..*helper|.*\.(?:cmd|textconv|command|clean|smudge|process|driver)"
)
_FILTER: Final = re.compile(r"--(?:setup|subdirectory|env|tree|index|parent|msg|commit|tag-name)-filter")


def git(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    at = subcommands(words, known=True)[0]
    rest = list(words[at:])
    for option, setting in pairwise(words[1:at]):
        if option == "-c":
            yield from _setting(setting and setting.partition("=")[0], setting and setting.partition("=")[2])
    match rest:
        case ["config", *operands]:
            for setting, value in pairwise(operands):
                yield from _setting(setting, value)
        case ["bisect", "run", *inner] if inner:
            yield Starts(tuple(inner))
        case ["submodule", *_] if "foreach" in rest:
            inner = rest[rest.index("foreach") + 1 :]
            yield joined(name, tuple(inner[inner[:1] == ["--recursive"] :]))
        case ["rebase", *options]:
            yield from _texts(options, re.compile("-i?x|--exec"))
        case ["filter-branch", *options]:
            yield from _texts(options, _FILTER)


def _texts(options: list[Word], named: re.Pattern[str]) -> Iterator[Finding]:
    for option, text in pairwise((*options, "")):
        flag, is_here, value = (option or "").partition("=")
        if named.fullmatch(flag):
            yield Runs("git", value if is_here else text)


def _setting(setting: Word, value: Word) -> Iterator[Finding]:
    alias = setting is not None and setting.lower().startswith("alias.")
    if setting is None or (alias and value is None):
        yield Untold("a setting of git")
    elif (alias and value and value.startswith("!")) or (not alias and _RUNS.fullmatch(setting)):
        yield Runs("git", value and value.removeprefix("!"))
    elif alias and value:
        yield Starts(("git", *value.split()))
