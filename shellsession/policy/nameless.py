"""Commands without a name: of assignments and redirections alone, which the grammar does not know.

Law: of ``lexer``: each token is told once, in its order.
"""

from __future__ import annotations

import re
from typing import Final

_ASSIGNS, _REDIRECTS, _HAS_NAME, _TARGET = 1, 2, 4, 8
_NAMELESS: Final = _ASSIGNS | _REDIRECTS
_ENDS: Final = frozenset({";", "&", "|", "\n", ")", "#"})
_REDIRECTIONS: Final = frozenset({"<", ">", "<<", "<<-", "<<<"})
SIGNS: Final = _ENDS | _REDIRECTIONS
# An assignment, or the descriptor of a redirection.
_NO_NAME: Final = re.compile(r"([A-Za-z_]\w*(?:\[[^]\n]*\])?\+?=)|(?:\d+|\{[A-Za-z_]\w*\})[<>]", re.ASCII)


class Parts:
    """What a command has had so far."""

    __slots__ = ("_had",)

    def __init__(self) -> None:
        self._had = 0

    def begins(self) -> None:
        """What was read is none of it."""
        self._had = 0

    def ends(self) -> bool:
        """Has it had assignments and redirections alone?"""
        had, self._had = self._had, 0
        return had == _NAMELESS

    def takes(self, token: str, text: str, start: int) -> bool:
        """A word of it begins here, or this is one of ``SIGNS``; whether it ends a command without a name."""
        if token in _ENDS:
            is_target = token in "&|" and (text[start - 1 : start] in ("<", ">") or text.startswith("&>", start))
            return not is_target and self.ends()
        if self._had & _HAS_NAME or token == "\\\n":
            return False
        if token in _REDIRECTIONS:
            self._had |= _REDIRECTS | (0 if token.startswith("<<") and token != "<<<" else _TARGET)
        elif self._had & _TARGET:
            self._had -= _TARGET
        else:
            found = _NO_NAME.match(text, start)
            self._had |= _HAS_NAME if found is None else _ASSIGNS * bool(found[1])
        return False
