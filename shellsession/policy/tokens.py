"""The pieces that a text of bash is read in, by what is open: ``$(``, ``((``, ``${``, or double quotes.

Law: patterns alone; each takes what is there, and a piece is never empty.
"""

from __future__ import annotations

import re
from typing import Final

_BACKTICKS: Final = r"`(?:[^`\\]|\\.)*`"
_INNER: Final = rf"\\.|{_BACKTICKS}|\$\(\(|\$\(|\$\{{|\""
# In arithmetic a whole expansion, and a whole number, name or base; what may have others in it, is opened.
_IN_ARITHMETIC: Final = r"\$(?:[A-Za-z_][0-9A-Za-z_]*|[0-9@*#?$!-])|[()]|[0-9A-Za-z_@#]+|[^\\\"'`$()0-9A-Za-z_@#]+|."
TOKEN: Final = {
    kind: re.compile(pattern, re.DOTALL)
    for kind, pattern in {
        "command": rf"""{_INNER}|'[^']*'|\$'(?:[^'\\]|\\.)*'|\$"|<<<|<<-?|[<>]\(\(?|\(\(|[()]|\n|[ \t]+|[;&|<>]+?"""
        r"""|[^\S \t\n]+|[^\s\\'"`$<>()#;&|]+|.""",
        '"': rf"""{_INNER}|[^\\"`$]+|.""",
        "${": rf"""{_INNER}|'[^']*'|\$'(?:[^'\\]|\\.)*'|}}|[^\\"'`$}}]+|.""",
        "((": rf"{_INNER}|{_IN_ARITHMETIC}",
    }.items()
}
OPENING: Final = frozenset({"$(", "$((", "${", '"', '$"'})
CLOSING: Final = {'"': '"', "${": "}"}
