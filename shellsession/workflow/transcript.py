"""Compares an output with what is expected of it: lines as they are, as globs, as patterns, or any lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from typing import Final

from ..patterns import compiled
from ..search import search

_ANY: Final = "..."
_GLOB: Final = " (glob)"
_REGEX: Final = (" (regex)", " (re)")
# Lines that are compared with lines, at most: beyond this, a comparison with ``...`` could take long.
_MOST: Final = 4_000_000


def difference(expected: str, output: str) -> str:
    """Return where the output is another one than expected, in words; "" if it is not."""
    wanted, lines = _lines(expected), _lines(output)
    if len(wanted) * len(lines) > _MOST:
        return f"the output has too many lines to compare: {len(lines)}"
    tests = [None if one == _ANY else _test(one) for one in wanted]
    # reached[j]: the first lines wanted match the first j lines.
    reached, last = {0}, 0
    for index, test in enumerate(tests):
        if test is None:
            reached = set(range(min(reached), len(lines) + 1))
            continue
        found = {at + 1 for at in reached if at < len(lines) and test(lines[at])}
        if not found:
            last = max(reached)
            got = repr(lines[last])[:200] if last < len(lines) else "its end"
            return f"line {last + 1} of the output must be {wanted[index]!r:.200}, not {got}"
        reached = found
    if len(lines) in reached:
        return ""
    last = max(reached)
    return f"the output must end before line {last + 1}: {lines[last]!r:.200}"


def check(expected: str) -> None:
    """Raise InvalidRequest for a line that is no regular expression."""
    for line in _lines(expected):
        if line != _ANY:
            _pattern(line)


def _lines(text: str) -> Sequence[str]:
    return text.rstrip("\n").split("\n") if text.strip("\n") else []


def _pattern(line: str) -> re.Pattern[str] | None:
    for end in _REGEX:
        if line.endswith(end):
            return compiled("output", rf"(?:{line.removesuffix(end)})\Z")
    if line.endswith(_GLOB):
        return re.compile(translate(line.removesuffix(_GLOB)))
    return re.compile(".*?".join(map(re.escape, line.split(_ANY))) + r"\Z") if _ANY in line else None


def _test(line: str) -> Callable[[str], bool]:
    pattern = _pattern(line)
    if pattern is None:
        return lambda got: got.rstrip() == line.rstrip()
    # Anchored at both ends; ``search`` bounds its time where that is limited.
    whole = re.compile(rf"\A{pattern.pattern}", pattern.flags)
    return lambda got: search(whole, got) is not None
