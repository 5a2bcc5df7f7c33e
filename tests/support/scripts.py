"""The corpus of bash scripts: they are in ``corpus/*.sh`` by theme, each after a line ``### name``.

A line ``#--- next call`` divides a script into several calls of one session.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CORPUS = Path(__file__).with_name("corpus")
THEMES: Final = sorted(path.stem for path in _CORPUS.glob("*.sh"))


@dataclass(frozen=True, slots=True)
class Script:
    """One text, or several that one session runs in order."""

    name: str
    calls: tuple[bytes, ...]

    def __str__(self) -> str:
        return self.name

    @property
    def text(self) -> bytes:
        return b"\n".join(self.calls)


def corpus(*themes: str) -> Iterator[Script]:
    """All scripts, or those of some themes."""
    for theme in themes or THEMES:
        text = (_CORPUS / f"{theme}.sh").read_text(encoding="utf-8")
        for entry in f"\n{text}".split("\n### ")[1:]:
            name, _, text = entry.partition("\n")
            calls = text.removesuffix("\n").split("\n#--- next call\n")
            yield Script(f"{theme}: {name}", tuple(call.encode() for call in calls))
