"""Caps what an adapter gives to a model, where the document of its tool allows more.

The tool itself keeps the limits and the words of its document. Only what a model reads is cut, in the middle and with a
mark, to ``max_chars`` characters.
"""

from __future__ import annotations

import json
from typing import Any

from ..text import fitted


def capped(payload: Any, max_chars: int) -> Any:
    """Return a payload (a text, or a JSON value with texts) cut to at most ``max_chars`` characters."""
    if isinstance(payload, str):
        return _cut(payload, max_chars)
    made, room = payload, max_chars
    while room and len(json.dumps(made, ensure_ascii=False)) > max_chars:
        made, room = (
            _cut(payload, room),
            room * 7 // 8,
        )  # there may be several texts, and a newline takes two characters
    return made


def _cut(payload: Any, room: int) -> Any:
    """Return the payload with each text in it cut to that many characters."""
    if isinstance(payload, dict):
        return {name: _cut(value, room) for name, value in payload.items()}
    if isinstance(payload, list):
        return [_cut(value, room) for value in payload]
    if isinstance(payload, str) and len(payload) > room:
        return fitted(payload.encode("utf-8", "replace"), 0, 0, room, cleaned=False)
    return payload
