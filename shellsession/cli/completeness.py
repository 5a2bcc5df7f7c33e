"""Is what a person typed a whole command, or does bash wait for more of it?

Law: bash itself is asked, which reads it and runs nothing.
"""

from __future__ import annotations

import os
import re
from typing import Final

from .editing import as_bytes, as_text

# What bash says of what is not whole, at the start of a line: further on is what was typed, which may say anything.
_SIGNS: Final = (
    rb"syntax error: unexpected end of file",
    rb"unexpected EOF ",
    rb"unexpected token `EOF'",
    rb"warning: here-document at line \d+ delimited by end-of-file",
)
_WANTS_MORE: Final = re.compile(rb"^bash: line \d+: (?:%b)" % b"|".join(_SIGNS), re.MULTILINE)
# And what it says is missing: a quote or bracket, the end of a here-document.
_MISSING: Final = re.compile(rb"^bash: line \d+: .*(?:looking for matching|\(wanted) `(.*)'\)?$", re.MULTILINE)


class Typed:
    """A command, as it is typed line by line."""

    def __init__(self) -> None:
        self.text = ""
        self._missing: list[str] = []  # bash need not be asked again before one of these: it reads all anew each time

    def add(self, line: str) -> bool:
        """Another line; does bash wait for one more? (Where there is no bash to ask: no.)"""
        continued = self.text.endswith("\\\n")  # what is missing may be in two lines
        self.text += line
        if not self._missing or continued or any(one in line for one in self._missing):
            missing = _asked(self.text)
            if missing is None:
                return False
            self._missing = missing
        self.text += "\n"
        return True


def _asked(text: str) -> list[str] | None:
    """What is missing, as far as bash can tell; None where nothing is."""
    end = len(text) - len(text.rstrip("\\"))
    if end % 2 and _said(text[:-1] + " '") is not None:  # else the backslash is a comment's
        return []
    return _said(text)


def _said(text: str) -> list[str] | None:
    import subprocess  # dear, and not needed by who looks on

    words = ["bash", "--norc", "--noprofile", "-n", "-O", "extglob"]
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}  # no BASH_ENV
    try:
        said = subprocess.run(words, input=as_bytes(text) + b"\n", env=env, capture_output=True, check=False).stderr
    except (OSError, ValueError):
        return None
    return [as_text(one) for one in _MISSING.findall(said)] if _WANTS_MORE.search(said) else None
