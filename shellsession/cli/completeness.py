"""Is what a person typed a whole command, or does bash wait for more of it?

Law: bash itself is asked, which reads it and runs nothing.
"""

from __future__ import annotations

import os
import re
from typing import Final

from .editing import as_bytes

# What bash says of what is not whole, at the start of a line: further on is what was typed, which may say anything.
_SIGNS: Final = (
    rb"syntax error: unexpected end of file",
    rb"unexpected EOF ",
    rb"unexpected token `EOF'",
    rb"warning: here-document at line \d+ delimited by end-of-file",
)
_WANTS_MORE: Final = re.compile(rb"^bash: line \d+: (?:%b)" % b"|".join(_SIGNS), re.MULTILINE)


def wants_more(text: str) -> bool:
    """Does bash wait for another line? (Where there is no bash to ask: no.)"""
    end = len(text) - len(text.rstrip("\\"))
    if end % 2 and _is_open(text[:-1] + " '"):  # else the backslash is a comment's
        return True
    return _is_open(text)


def _is_open(text: str) -> bool:
    import subprocess  # dear, and not needed by who looks on

    words = ["bash", "--norc", "--noprofile", "-n", "-O", "extglob"]
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}  # no BASH_ENV
    try:
        said = subprocess.run(words, input=as_bytes(text) + b"\n", env=env, capture_output=True, check=False).stderr
    except (OSError, ValueError):
        return False
    return _WANTS_MORE.search(said) is not None
