"""Keys by name, as tmux names them, and the bytes that a terminal sends for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .errors import InvalidRequest

_NAMED: Final = {
    **{"Enter": b"\r", "Escape": b"\x1b", "Tab": b"\t", "BTab": b"\x1b[Z", "BSpace": b"\x7f", "Space": b" "},
    **{"IC": b"\x1b[2~", "Insert": b"\x1b[2~", "DC": b"\x1b[3~", "Delete": b"\x1b[3~"},
    **{"PageUp": b"\x1b[5~", "PPage": b"\x1b[5~", "PageDown": b"\x1b[6~", "NPage": b"\x1b[6~"},
    **{f"F{number}": b"\x1bO" + final for number, final in zip(range(1, 5), (b"P", b"Q", b"R", b"S"), strict=True)},
    **{f"F{number + 5}": b"\x1b[%d~" % code for number, code in enumerate((15, 17, 18, 19, 20, 21, 23, 24))},
}
# Full-screen programs switch these to another form ("application mode").
_CURSOR: Final = {"Up": b"A", "Down": b"B", "Right": b"C", "Left": b"D", "Home": b"H", "End": b"F"}
_CONTROL: Final = re.compile(r"C-([a-zA-Z@\[\\\]^_?]|Space)")
KNOWN: Final = f"C-x, M-x (x is a character or a key), {', '.join([*_CURSOR, *_NAMED])}, or one character"


def check_keys(keys: object) -> list[str]:
    """Return the names as a list. Raises InvalidRequest, which lists the names, if one is unknown."""
    if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
        raise InvalidRequest(f'keys is a list of names such as ["C-c", "Up"], not {keys!r:.100}; the names: {KNOWN}')
    bytes_of(keys)
    return list(keys)


def bytes_of(keys: Sequence[str], application: bool = False) -> bytes:
    """Return what a terminal sends for these keys. ``application``: the program has switched the cursor keys.

    Raises InvalidRequest for an unknown name.
    """
    return b"".join(_bytes_of(key, application) for key in keys)


def _bytes_of(key: str, application: bool) -> bytes:
    if key in _CURSOR:
        return (b"\x1bO" if application else b"\x1b[") + _CURSOR[key]
    if key in _NAMED:
        return _NAMED[key]
    if found := _CONTROL.fullmatch(key):
        return {"?": b"\x7f", "Space": b"\0"}.get(found[1]) or bytes([ord(found[1].upper()) & 31])
    if key.startswith("M-") and len(key) > 2:
        return b"\x1b" + _bytes_of(key[2:], application)
    if len(key) == 1 and key.isprintable():
        return key.encode()
    raise InvalidRequest(f"there is no key {key!r:.40}; the names are: {KNOWN}")
