"""How things are shown: tables, spans of time, colour, and text that comes from others.

Law: no text of a command, an agent or a path does anything to the terminal but appear on it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

# Columns that a cell takes on a terminal at the most, but for the last one's: a name of 256 characters would push all
# others out of sight. On a narrow one it is less, down to what still tells names apart.
_CELL: Final = 40
_LEAST: Final = 8
_COLOURS: Final = {"running": "32", "new": "2", "closed": "2"}


def escaped(text: str) -> str:
    """The text with what does not show (control characters, marks that turn the writing around) as ``\\x1b``."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def span(seconds: float) -> str:
    """A span of time in two or three characters more than its number: 0.3s, 45s, 12m, 3h, 8d."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    for unit, size, most in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if seconds < size * most:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def table(titles: Sequence[str], rows: Iterable[Sequence[object]], state: int | None = None) -> list[str]:
    """Lines with aligned columns, escaped; on a terminal no longer than that is wide.

    ``state``: which column says how something is, and may be coloured.
    """
    cells = [list(titles), *([escaped(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(_columns, column)) for column in zip(*cells, strict=True)]
    if (most := width()) is not None:
        widths = _fitted(widths, most)
        cells = [list(map(_cut, row, widths)) for row in cells]
    lines = []
    for row in cells:
        padded = [cell + " " * (width - _columns(cell)) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(padded).rstrip()
        line = line if most is None else _cut(line, most)
        if state is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
            line = _painted(line, sum(len(cell) + 2 for cell in padded[:state]), row[state])
        lines.append(line)
    return lines


def _columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(one) in ("Mn", "Me") else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def _fitted(widths: Sequence[int], most: int) -> list[int]:
    """The last column is to have a third of a line, if it is as long: the longest of the others give way."""
    *others, last = widths
    others = [min(one, _CELL) for one in others]
    room = most - 2 * len(others)
    while sum(others) > room - min(last, most // 3) and max(others) > _LEAST:
        others[others.index(max(others))] -= 1
    return [*others, min(last, max(1, room - sum(others)))]


def _cut(text: str, most: int) -> str:
    if _columns(text) <= most:
        return text
    text = text[:most]
    while _columns(text) >= most:
        text = text[:-1]
    return text + "…"


def _painted(line: str, start: int, state: str) -> str:
    end = start + len(state)
    colour = _COLOURS.get(state.partition(",")[0])
    if colour is None or line[start:end] != state:
        return line
    return f"{line[:start]}\x1b[{colour}m{state}\x1b[0m{line[end:]}"


def show(*lines: str) -> None:
    """Data: to stdout, in whatever characters that has."""
    encoding = sys.stdout.encoding
    for line in lines:
        print(line.encode(encoding, "backslashreplace").decode(encoding))


def show_json(value: Any) -> None:
    """One JSON value on a line; in ASCII, so that it shows as what it is.

    A byte that is no UTF-8 (of a path, of a command) is U+FFFD: half a surrogate pair, strict readers refuse.
    """
    import json

    text = json.dumps(value)
    if "\\ud" in text:
        whole = json.dumps(value, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
        text = json.dumps(json.loads(whole.decode("utf-16-le", "replace")))
    print(text)


def talk(text: str) -> None:
    """What is said about data: to stderr, on one line; where that cannot be written, the exit status must do."""
    with suppress(OSError):
        print(f"shellsession: {escaped(text)}", file=sys.stderr)


def width() -> int | None:
    """Of the terminal that stdout is; None when it is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None
