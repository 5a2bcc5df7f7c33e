"""Starter: how the words of a command that starts another one are read.

Law: where a row is in doubt, it finds a command too many rather than one too few.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Final

ALL: Final = sys.maxsize  # all operands are its own


@dataclass(frozen=True, slots=True)
class Starter:
    """How the words of a starter are read.

    ``options``: letters, and names, of options that take a word. ``operands``: how many words of its own stand before
    the other command. ``assignments``: so may these (``X=1``).
    ``only_looks``: letters of options with which it starts nothing.
    ``texts``: letters, and names, of options whose word is a text of bash; ``reaches``: of those of them behind whose
    text a host and what runs there are put. ``joined``: the words that follow are one
    text, up to a word that begins with ``ends``. ``unless``: options without which all operands are its own.
    ``flags``: names of options that take nothing, and that would pass for the shortened name of one that does.
    ``shell``: it starts a shell, which reads its input, where neither a command nor a text is named.
    ``pairs``: names of options that take two words. ``each``: each operand is a text of its own.
    ``attached``: letters, and names, of options whose word is there only where it is joined to them. ``settings``: of
    options whose word is NAME=VALUE, and ``runs``: the names of those values that are texts, in small letters, or
    patterns of them (of git: ``policy.git`` knows them).
    ``own``: an operand that is known at run time only is taken for one of its own, too.
    ``expands``: of options whose word is expanded. ``splits``: of those whose word is more words in its place.
    ``puts``: of options whose word stands, in the other command, for what is put there; and more words may follow it.
    ``letters``: the first operand may be letters of options, the words of which follow. ``names``: of options whose
    word names the other command, to which the operands behind its own belong. ``begins``: words behind which the other
    command begins, if need be with ``behind`` before it.
    """

    options: str = ""
    operands: int = 0
    assignments: re.Pattern[str] | None = None
    only_looks: str = ""
    texts: str = ""
    reaches: str = ""
    joined: bool = False
    ends: str = ""
    unless: str = ""
    flags: str = ""
    shell: bool = False
    pairs: str = ""
    each: bool = False
    attached: str = ""
    settings: str = ""
    runs: str = ""
    own: bool = False
    expands: str = ""
    splits: str = ""
    puts: str = ""
    letters: bool = False
    names: str = ""
    begins: str = ""
    behind: str = ""


# What programs take for an assignment; to env, a dash is an option.
ANY_ASSIGNMENT: Final = re.compile(r"-|[^=]*=.*", re.DOTALL)
PLAIN: Final = Starter()
