"""Arithmetic, ``((`` to ``))``, and numbers there that are put together (``10#$x``), which the grammar does not know.

Law: of ``lexer``: each token is told once, in its order; what is written in another way runs the same commands.
"""

from __future__ import annotations

import re
from typing import Final

from .keywords import Edit

_PART: Final = re.compile(r"[0-9A-Za-z_@#]")


class Arithmetic:
    """What has been read of one: how many parentheses are open, and whether it is none but a subshell."""

    __slots__ = ("_depth", "_joined", "_part", "edits", "is_subshell")

    def __init__(self) -> None:
        self._depth = 2
        self.is_subshell = False
        self.edits: list[Edit] = []  # where it is arithmetic
        self._part = -1  # where what stands directly before begins: digits or letters
        self._joined = False  # or whether an expansion stands there

    def takes(self, token: str, start: int) -> None:
        """Of what is put together the expansions stay, with an operator between two: digits and letters run nothing."""
        is_expansion = len(token) > 1 and token[0] in "$`"
        is_part = _PART.match(token) is not None
        if is_expansion and self._joined:
            self.edits.append((start, start, "+"))
        elif is_expansion and self._part >= 0:
            self.edits.append((self._part, start, ""))
        elif is_part and self._joined:
            self.edits.append((start, start + len(token), ""))
        self._joined = is_expansion or (is_part and self._joined)
        self._part = start if is_part and not self._joined else -1

    def closes(self, token: str, following: str) -> bool:
        """Is that its end?"""
        self._depth += (token == "(") - (token == ")")
        if self._depth == 1 and token == ")" and following != ")":
            self.is_subshell = True  # bash reads on all the same, and reads again what was none
        return self._depth == 0
