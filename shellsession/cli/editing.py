"""The characters of attach's prompt: what is typed is bytes, which need not be characters of this locale.

Law: a text here stands for bytes, by UTF-8 and surrogateescape (PEP 383), so that bash gets those that were typed.
"""

from __future__ import annotations

import io
import locale
import sys


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def as_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """Words of ours as the terminal can show them: what is no character there becomes ``\\u65e5``."""
    return text.encode(sys.stdout.encoding, "backslashreplace")


def take_any_character() -> None:
    """From now on ``input`` gives a text as above, and shows every prompt."""
    if isinstance(sys.stdin, io.TextIOWrapper) and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
        sys.stdout.reconfigure(errors="backslashreplace")


def for_readline(text: str) -> str:
    """A text as the functions of Python's module want it: the same bytes in every locale."""
    return as_bytes(text).decode("ascii", "surrogateescape")


def from_readline(text: str) -> str:
    """And as they give it: in the locale of the moment. (LC_ALL=C: in ASCII, while Python's streams are UTF-8 then.)"""
    return as_text(text.encode(locale.getencoding(), "surrogateescape"))
