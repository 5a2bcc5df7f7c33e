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

# Where a function ends in which `-` was made local, an old bash sets all the options anew.
_EDITING_ONCE: Final = re.compile(rb"\blocal[ \t](?:[^\n;&|()]{0,100}?[ \t])?-(?![^\s;&|)}])")
_SETS_ALL_UNTIL: Final = 501  # 5.1

# Wherever such a word stands it may begin something; what ends it stands where a command would.
_OPENING: Final = re.compile(rb"(?<![^\s;&|(){}!`])(?:if|case|for|while|until|select|\{)(?![^\s;&|()])")
_CLOSING: Final = re.compile(
    rb"(?:^|(?<=[\n;&)}])|(?<=fi)|(?<=done)|(?<=esac))[ \t]*+(?:fi|done|esac|\})(?![^\s;&|()<>`\"'])"
)
_OPEN: Final = re.compile(rb"(?:&&|\||\|&|\([ \t]*+\)|\bfunction[ \t]+[^\s()]++)[ \t]*+(?:\\|#.*+)?$")
_UNFINISHED_ENDS: Final = 500  # 5.0

_ERREXIT: Final = re.compile(rb"\bset[ \t]+-\w*e|\berrexit\b")
_NAMES_BUILTINS: Final = re.compile(
    rb"\b(?:builtin|enable)\b|\b(?:declare|eval)[ \t]*\(|\bfunction[ \t]+(?:declare|eval)\b"
)
_RUNS_UNSEEN: Final = re.compile(rb"\b(?:eval|source|trap|PROMPT_COMMAND)\b|(?:\A|[\s;&|({`!])\.[ \t]")
# A text that may change how the next command is to be typed, or needs to be typed in another way itself: it has words
# of the two above, or others by which a text is known to change a shell; it runs nothing, or its end is continued.
UNUSUAL: Final = re.compile(
    rb"\b(?:builtin|enable|alias|eval|source|trap|PROMPT_COMMAND|exec|set|shopt|history|ulimit)\b"
    rb"|\bdeclare[ \t]*\(|(?i:debug)|(?:\A|[\s;&|({`!])\.[ \t]|\A\s*(?:#|\\|\Z)|\\\s*\Z"
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


def switches_editing(text: bytes, version: int) -> bool:
    """May it switch line editing on or off, or tell a later one how (`set +o` prints it, for `eval`, `$line`, `f`)?

    An interactive bash reads on from fd 0 then: it runs the command's own stdin, and ends with that. Not in a file that
    it sources, nor in what is evaluated there.
    """
    return _EDITING.search(text) is not None or (
        version < _SETS_ALL_UNTIL and b"local" in text and _EDITING_ONCE.search(text) is not None
    )


def ends_unfinished(text: bytes, version: int) -> bool:
    """May it end within a compound command (`if true; then`), or behind `&&` or `|`?

    An interactive bash 5.0 ends where such a text is evaluated; not in a file that it sources.
    """
    if version != _UNFINISHED_ENDS:
        return False
    if text.count(b"(") > text.count(b")") or len(_OPENING.findall(text)) > len(_CLOSING.findall(text)):
        return True
    lines = (line.strip() for line in reversed(text.split(b"\n")))
    last = next((line for line in lines if line and not line.startswith(b"#")), b"")
    return _OPEN.search(last) is not None


def sets_errexit(text: bytes) -> bool:
    """May it switch `set -e` on?"""
    return _ERREXIT.search(text) is not None


def closes_descriptors(text: bytes) -> bool:
    """May it close a descriptor whose number it does not show (`eval "exec $n>&-"`)?"""
    return b"&-" in text


def names_builtins(text: bytes) -> bool:
    """May it change what `builtin` or `eval` is, now or when a function of it is called?"""
    return _NAMES_BUILTINS.search(text) is not None


def runs_unseen(text: bytes) -> bool:
    """May it run what it does not show: a file, or words that it puts together?"""
    return _RUNS_UNSEEN.search(text) is not None


def replaces_the_shell(text: bytes) -> bool:
    """May it be replaced by a program (`exec nope`)? Where that fails, a sourced file ends the shell."""
    return b"exec" in text and _REPLACING.search(text) is not None
