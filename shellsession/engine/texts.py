"""What a command's text may do to the bash that runs it, as far as its words show.

Law: pure. Where it is in doubt it may: what follows from that costs a little, and a shell is dear.
"""

from __future__ import annotations

import re
from typing import Final

_BLANK: Final = re.compile(rb"(?:[ \t\n]++|\\\n|#[^\n]*+)*+")
_EXEC: Final = re.compile(rb"exec\b(?:[<>]&|&>|\\\n|[^\n;&|])*+")  # with what is behind it
_NAMED: Final = re.compile(rb"(?<![\w$])1\d(?=[<>])")
# Bounded, or a line of a megabyte with many such words would take seconds.
_EDITING: Final = re.compile(
    rb"set[ \t][^\n;&|()]{0,100}?(?:\+o(?:(?![ \t\w])|[ \t]++(?![\w\"'$]))|[-+]\w*o[ \t]+[\"']?(?:emacs\b|vi\b|[$\\`]))"
    rb"|shopt[ \t](?=[^\n;&|()]{0,100}?-\w*o)[^\n;&|()]{0,100}?(?:-\w*p|[ \t][\"']?(?:emacs\b|vi\b|[$\\`]))"
)

_REPLACING: Final = re.compile(rb"(?:^|[\n;&|({]|\b(?:then|do|else|command|builtin))[ \t]*\\?exec\b")


def is_blank(text: bytes) -> bool:
    """Is there nothing to run: only blanks, empty or continued lines, and comments (which nothing continues)?"""
    return text.lstrip(b" \t\n")[:1] in (b"", b"#", b"\\") and _BLANK.fullmatch(text) is not None


def named_descriptors(text: bytes) -> set[int]:
    """Those that bash would take for itself, and an ``exec`` in the text may mean.

    While a text runs bash keeps its own three at the first numbers from 10 on that are free: what is opened there is
    lost, and what is closed there costs the shell. Other redirections come to an end, and it moves its own meanwhile.
    """
    return {int(number) for words in _EXEC.findall(text) for number in _NAMED.findall(words)}


def switches_editing(text: bytes) -> bool:
    """May it switch line editing on or off, or tell a later one how (`set +o` prints it, for `eval`, `$line`, `f`)?

    An interactive bash reads on from fd 0 then: it runs the command's own stdin, and ends with that. Not in a file that
    it sources, nor in what is evaluated there.
    """
    return _EDITING.search(text) is not None


def replaces_the_shell(text: bytes) -> bool:
    """May it be replaced by a program (`exec nope`)? Where that fails, a sourced file ends the shell."""
    return b"exec" in text and _REPLACING.search(text) is not None
