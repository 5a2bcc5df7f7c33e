"""``redact=``: patterns of secrets that are masked in what models read and what logs keep. Pure.

A pattern finds text that looks like a secret. ``policy.secrets`` masks known values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, Final

from .errors import InvalidRequest
from .patterns import Pattern, as_data, compiled, from_data
from .search import Breaker, SearchTooSlow, limited

# The value of the option: False, True for the built-in set, or patterns to use besides that set.
Redact = bool | Sequence[Pattern]

MASK: Final = "***"
# Shown in place of a text once the search has taken too long.
WITHHELD: Final = "(withheld: the search for secrets takes too long: simplify the patterns of redact=)"
# The built-in set. Of a match, the named group is kept. Each begins with letters of its own, which makes the search
# fast; so what must not precede them is checked behind them.
_SHAPES: Final = (
    r"(?:AKIA|ASIA)(?<!\w.{4})[0-9A-Z]{16}\b",  # AWS
    r"gh[opsur]_[A-Za-z0-9]{36,}|github_pat_\w{22,}",  # GitHub
    r"glpat-[\w-]{20,}",  # GitLab
    r"sk-(?<!\w.{3})[\w-]{20,}",  # OpenAI, Anthropic
    r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}",  # Stripe
    r"xox[abeoprs]-[\w-]{10,}",  # Slack
    r"AIza[\w-]{35}",  # Google
    r"npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}|hf_[A-Za-z0-9]{30,}",  # registries
    r"eyJ(?<![\w-].{3})[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+",  # JSON web tokens
    r"(?P<bearer>[Bb]earer\s+)[\w.~+/=-]{16,}",
    r"(?P<basic>[Aa]uthorization:\s*(?:[Bb]asic|[Tt]oken)\s+)[\w.~+/=-]{8,}",
    r"(?P<url>://[^\s/?#:\"@]*:)[^\s/?#\"@]+(?=@)",  # a password in a URL
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
)


@cache
def _shapes() -> re.Pattern[str]:
    return re.compile("|".join(_SHAPES), re.ASCII)  # takes 10 ms


def redaction(given: object) -> bool | tuple[re.Pattern[str], ...]:
    """Return the value of the option with its patterns compiled. Raises InvalidRequest."""
    if isinstance(given, bool):
        return given
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidRequest(f"redact is True, False or a list of patterns, not {type(given).__name__}")
    found = tuple(compiled("redact", one) for one in given)
    if any(one.pattern == "" for one in found):
        raise InvalidRequest("redact has an empty pattern, which matches everywhere: leave it out")
    return found


def masker(redact: Redact) -> Callable[[str], str] | None:
    """Return the function that masks secrets in a text; None for False. Raises InvalidRequest."""
    found = redaction(redact)
    return None if found is False else _masker(() if found is True else found)


@lru_cache(maxsize=16)
def _masker(patterns: tuple[re.Pattern[str], ...]) -> Callable[[str], str]:
    breaker = Breaker()

    def mask(text: str) -> str:
        text = _shapes().sub(_masked, text)
        if not patterns:
            return text
        if not breaker.is_open:  # many texts may follow, each of which would delay others
            try:
                with limited():
                    for pattern in patterns:
                        text = pattern.sub(MASK, text)
                return text
            except SearchTooSlow:
                breaker.open()
        return WITHHELD

    return mask


def _masked(found: re.Match[str]) -> str:
    return (found[found.lastgroup] if found.lastgroup else "") + MASK


def redact_data(redact: Redact) -> bool | list[str | list[Any]]:
    """Return the value of the option as a value for JSON. Raises InvalidRequest."""
    found = redaction(redact)
    return found if isinstance(found, bool) else [as_data(one) for one in found]


def redact_from(value: object) -> bool | tuple[re.Pattern[str], ...]:
    """Return the value of the option from which ``redact_data`` made this. Raises InvalidRequest."""
    return redaction([from_data("redact", one) for one in value] if isinstance(value, list) else value)
