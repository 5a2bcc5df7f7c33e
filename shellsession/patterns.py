"""Regular expressions that callers pass: their check, and their form as values for JSON. Pure."""

from __future__ import annotations

import re
from typing import Any

from .errors import InvalidRequest

Pattern = str | re.Pattern[str]


def compiled(name: str, pattern: object, flags: int = 0) -> re.Pattern[str]:
    """Return a regular expression for text, compiled. Raises InvalidRequest, which begins with ``name``.

    ``flags``: for a str; an expression that is compiled already keeps its own.
    """
    try:
        found: re.Pattern[str] = re.compile(pattern, flags if isinstance(pattern, str) else 0)  # type: ignore[call-overload]  # a TypeError says what is wrong
        if not isinstance(found.pattern, str):
            raise TypeError("it is one for bytes")
    except (re.error, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"{name}: {pattern!r:.100} is not a regular expression for text: {error}") from None
    return found


def as_data(pattern: Pattern) -> str | list[Any]:
    """Return a pattern as a value for JSON: a text as it is, an expression with its flags."""
    return pattern if isinstance(pattern, str) else [pattern.pattern, pattern.flags]


def from_data(name: str, value: object) -> Pattern:
    """Return the pattern from which ``as_data`` made this. Raises InvalidRequest."""
    match value:
        case str():
            return value
        case [str(pattern), int(flags)]:
            return compiled(name, pattern, flags)
    raise InvalidRequest(f"{name}: {value!r:.100} is no text, nor a regular expression with its flags")
