"""Small functions for words of the command line that need no parser: agent names, scripts, exit statuses.

A word means the same in every locale. Every start of the command line imports this module.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final


# The exit status of timeout(1) when it fails itself, and of a shell after Ctrl-C.
REFUSED: Final = 125
INTERRUPTED: Final = 130
# The program that leads to a daemon elsewhere, and the name or path of shellsession there.
VIA: Final = "SHELLSESSION_VIA"
REMOTE: Final = "SHELLSESSION_REMOTE"

_SAFE: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-")


class ErrorFormat:
    """Process-wide setting: ``json`` is True if errors are also printed as JSON (``--json``)."""

    json = False


def default_agent() -> str:
    return name(os.environ.get("SHELLSESSION_AGENT") or "default")


def name(text: str) -> str:
    """The agent's name as typed, decoded as UTF-8 if possible, so that it is the same text in every locale."""
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        return text


def script(command: Sequence[str]) -> bytes:
    """The bash text to run. One word is a script already; several are quoted, so that bash sees the same words."""
    words = [os.fsencode(word) for word in command]
    return words[0] if len(words) == 1 else b" ".join(map(quoted, words))


def quoted(word: bytes) -> bytes:
    """As ``shlex.quote``, but for bytes and without importing re."""
    return word if word and _SAFE.issuperset(word) else b"'%b'" % word.replace(b"'", b"'\"'\"'")
