"""What git runs, by its words: settings that are commands, aliases, and subcommands that start others.

Law: of ``starters``, where the options of its subcommands are; git has more ways than one row can hold.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from .findings import Finding, Runs, Starts, Untold, joined, reaching
from .subcommands import subcommands
from .words import Word, known, single

# Settings whose value is a text; an alias is one after a "!".
_RUNS: Final = re.compile(
    r"(?i)core\.(?:pager|editor|fsmonitor|askpass|gitproxy|alternaterefscommand)|pager\..*|sequence\.editor|diff\.external|gpg\..*program"
    r"|credential\..*helper|.*\.(?:cmd|textconv|command|clean|smudge|process|driver)|.*\.(?:uploadpack|receivepack|packobjectshook|difffilter)"
)
# Settings that make it run what an address says ("ext::rm x").
_TRUSTS: Final = re.compile(r"(?i)protocol\.(?:ext\.)?allow")


def git(name: str, words: tuple[Word, ...]) -> Iterator[Finding]:
    at = subcommands(tuple(map(known, words)), known=True)[0]
    rest = list(words[at:])
    for option, word in pairwise((*words[1:at], "")):
        flag, is_here, value = (option or "").partition("=")
        if flag == "-c":
            text = single(word)
            yield from setting(text and text.partition("=")[0], text and text.partition("=")[2])
        elif flag == "--config-env":  # the value is a variable's
            named = value if is_here else word
            yield from setting(named and named.partition("=")[0], None)
    match rest:
        case ["config", *operands]:
            for key, text in pairwise(operands):
                yield from setting(key, text)
        case ["bisect", "run", *inner] if inner:
            yield Starts(tuple(inner))
        case ["submodule", *_] if "foreach" in rest:
            inner = rest[rest.index("foreach") + 1 :]
            yield joined(name, tuple(inner[inner[:1] == ["--recursive"] :]))


def settings(texts: Word) -> Iterator[Finding]:
    """Of GIT_CONFIG_PARAMETERS: 'name=value', or 'name'='value', one after the other."""
    try:
        words: list[Word] = [None] if texts is None else [*shlex.split(texts)]
    except ValueError:  # a quote without an end
        words = [None]
    for word in words:
        yield from setting(word and word.partition("=")[0], word and word.partition("=")[2])


def setting(name: Word, value: Word) -> Iterator[Finding]:
    """What a setting of git makes it run."""
    name, value = known(name), known(value)
    alias = name is not None and name.lower().startswith("alias.")
    if name is None or (alias and value is None):
        yield Untold("a setting of git")
    elif name.lower() == "core.sshcommand":
        yield reaching("git", value)
    elif (alias and value and value.startswith("!")) or (not alias and _RUNS.fullmatch(name)):
        yield Runs("git", value and value.removeprefix("!"))
    elif _TRUSTS.fullmatch(name) and value != "never":
        yield Untold("what git runs for an address")
    elif alias and value:
        yield Starts(("git", *value.split()))
