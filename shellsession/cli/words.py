"""What words of the command line mean, where no parser is needed to know it.

Law: what a word means is the same in every locale. Each start of the command line loads this.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final


# What timeout(1) exits with when it fails itself, and a shell after Ctrl-C.
REFUSED: Final = 125
INTERRUPTED: Final = 130

_SAFE: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-")


class Asked:
    """What this call asked for that whoever tells its errors is to know: they come as JSON, too."""

    json = False


def default_agent() -> str:
    return name(os.environ.get("SHELLSESSION_AGENT") or "default")


def name(text: str) -> str:
    """An agent's name is the same text in every locale: what it was written as, where that is UTF-8."""
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        return text


def script(command: Sequence[str]) -> bytes:
    """One word is a script already; several are quoted, so that bash sees the same words. In any locale, its bytes."""
    words = [os.fsencode(word) for word in command]
    return words[0] if len(words) == 1 else b" ".join(map(quoted, words))


def quoted(word: bytes) -> bytes:
    """As ``shlex.quote``, which loads re to find out the same."""
    return word if word and _SAFE.issuperset(word) else b"'%b'" % word.replace(b"'", b"'\"'\"'")
