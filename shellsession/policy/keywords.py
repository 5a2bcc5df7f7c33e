"""Words that begin a command, and others, and how those are written that the grammar does not know.

Law: of ``lexer``: what is written in another way runs the same commands.
"""

from __future__ import annotations

import re
from typing import Final

Edit = tuple[int, int, str]  # from where, to where, and what is put there

# What may stand before the name of a command, or before another keyword.
_BEFORE: Final = frozenset({"{", "!", "if", "then", "elif", "else", "while", "until", "do", "time", "coproc"}) | {
    *("}", "fi", "done", "esac", "function")
}
LISTED: Final = frozenset({"for", "select"})
KEYWORDS: Final = _BEFORE | LISTED | {"case"}
# The body of a function can be one of these; the grammar knows braces, parentheses, tests and `if`.
BODIES: Final = LISTED | {"while", "until", "case"}
NO_BODY: Final = "[[ f ]]; "
# Behind the head of a loop, so that `{` is a command of its own.
NO_LOOP: Final = "do done; "
# `[` is a command as others: the grammar has words of its own there, and takes `[ a || b ]`, which are two, for one.
COMMAND: Final = "'['"
# What turns letters over is not documented: the grammar knows what raises them.
TURNED: Final = re.compile(r"!?\w+(?:\[[\w@*]+\])?(~~?)(?=})", re.ASCII)
_COMPOUND: Final = r"(?=(?:\{|if|while|until|for|case|select|\[\[)[ \t\n]|\()"
_TIMED: Final = re.compile(rf"[ \t]+(?:-p[ \t]+)?{_COMPOUND}")
_NAMED: Final = re.compile(rf"[ \t]+(?:[A-Za-z_]\w*[ \t]+)?{_COMPOUND}")
# What is listed may follow in another line, or not at all (`for x do`).
_HEAD: Final = re.compile(
    r"(?:[ \t]|\\\n)+[A-Za-z_]\w*((?:[ \t]|\\\n|(?:#[^\n]*)?\n)+)(in(?=[ \t\n;])|do(?=[ \t\n]))", re.ASCII
)
_FUNCTION: Final = re.compile(r"""[ \t]+[^\s\\'"`$<>()#;&|]+[ \t]*""")


def respelled(word: str, text: str, start: int, at: int) -> tuple[list[Edit], int, bool]:
    """Of a word, from here to there: what is written otherwise, where the text goes on, and whether a command, or
    another keyword, begins there."""
    begins = word in _BEFORE
    if word == "!" and text[at : at + 1] in (" ", "\t"):
        return [(start, at, "")], at, begins  # what runs is the same
    if word == "time" and (found := _TIMED.match(text, at)) is not None:
        return [(found.end(), found.end(), "; ")], found.end(), begins
    if word == "coproc" and (found := _NAMED.match(text, at)) is not None:
        return [(at, found.end(), "; ")], found.end(), begins
    if word == "function" and (found := _FUNCTION.match(text, at)) is not None:
        return [], found.end(), begins
    if word in LISTED and (found := _HEAD.match(text, at)) is not None:
        is_listed = found[2] == "in"
        return [(*found.span(1), " " if is_listed else "; ")], found.end(1), not is_listed
    return [], at, begins


def descriptor(number: str, text: str, start: int) -> tuple[str, int]:
    """Of a redirection that begins here, behind its number: how that is written, and how many of its signs with it. To
    the grammar none begins with a zero."""
    rest = number.lstrip("0")
    if rest or text[start] == "<":
        return rest, 0
    return ("<", 1) if text.startswith(">&", start) else ("10", 0)  # 0>&3 is <&3
