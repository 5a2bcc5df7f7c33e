"""Variables that make something run: whose value is a text of bash, a command, a prompt, or the name of what is loaded.

Law: bash's own are all here, and of other programs' those that name a pager, an editor, or how another one is reached.
What only interpreters and builders read (``MAKEFLAGS``, ``CC``, ``NODE_OPTIONS``) is theirs, as what they run is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from .findings import Finding, Runs, Untold, reaching
from .git import settings
from .words import Word, substitutions

# Texts of bash, and names of commands.
_RUN: Final = re.compile(
    r"PROMPT_COMMAND|LESSOPEN|LESSCLOSE|BROWSER|VISUAL|FCEDIT|HGMERGE|KUBECTL_EXTERNAL_DIFF|FZF_DEFAULT_COMMAND"
    r"|\w*(?:PAGER|EDITOR|ASKPASS)|GIT_(?:\w*_)?(?:COMMAND|DIFF)"
)
_REACHING: Final = re.compile(r"SVN_SSH|\w*_RSH|GIT_(?:\w*_)?SSH(?:_COMMAND)?")
# What LESSOPEN and `PROMPT_COMMAND+=` may begin with, before a command.
_BEFORE: Final = " \t\n;&|-"
_LOADED: Final = frozenset({"BASH_ENV", "LD_PRELOAD", "LD_AUDIT", "SHELLOPTS", "BASHOPTS"}) | {
    *("BASH_CMDS", "BASH_ALIASES"),
}
# An interactive bash expands these, as in double quotes; and of a file's name (or of who tells of mail) what is in it.
_PROMPTS: Final = frozenset({"PS0", "PS1", "PS2", "PS4"})
_EXPANDED: Final = frozenset({"BASH_ENV", "ENV", "MAILPATH"})
_EXPORTED_FUNCTION: Final = re.compile(r"BASH_FUNC_(.+)(?:%%|\(\))")
# What a backslash means in a prompt, before it is expanded: a character by its number, a backslash, or what bash puts
# there (in quotes of its own). Any other, as before a dollar, still is one then.
_ESCAPED: Final = re.compile(r"\\(?:([0-7]{1,3})|(\\)|D\{[^}]*\}|[]\[adehHjlnrstT@AuvVwW!#])")
_ELEMENT: Final = re.compile(r"\w\[")


def ran_by(name: str, value: Word) -> Iterator[Finding]:
    """What is run because a variable has this value."""
    if name in _LOADED:
        yield Untold(f"what {name} loads")
    if name in _PROMPTS and value is None:
        yield Untold(f"the text that {name} runs")
    elif (name in _PROMPTS or name in _EXPANDED) and value is not None:
        yield from _expanded(name, _ESCAPED.sub(_unescaped, value) if name in _PROMPTS else value)
    elif _REACHING.fullmatch(name):
        yield reaching(name, value)
    elif _RUN.fullmatch(name):
        yield Runs(name, value and value.lstrip(_BEFORE))
    elif _EXPORTED_FUNCTION.fullmatch(name):
        yield Runs(name, value and f"f {value}")
    elif name == "GIT_ALLOW_PROTOCOL" and (value is None or "ext" in value.split(":")):
        yield Untold("what git runs for an address")
    elif name == "GIT_CONFIG_PARAMETERS":
        yield from settings(value)
    elif value is not None and _has_running_index(value):
        yield from _expanded(name, value)


def _expanded(name: str, value: str) -> Iterator[Finding]:
    if (inner := substitutions(value)) is None or "@P}" in value:
        yield Untold(f"what {name} computes")
    yield from (Runs(name, text) for text in inner or [])


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 8) & 0xFF) if found[1] else found[2] or ""


def _has_running_index(value: str) -> bool:
    """Is this an element, by an index that runs something? Arithmetic may look at it, a reference, an indirect name."""
    element, end = _ELEMENT.search(value), max(value.rfind("]"), 0)
    return element is not None and any(value.find(mark, element.end(), end) >= 0 for mark in ("$(", "`"))
