"""Nonces: each command gets a fresh one for its mark."""

from __future__ import annotations

import os
from binascii import hexlify
from typing import Final

_NONCES: Final = list[bytes]()
os.register_at_fork(after_in_child=_NONCES.clear)


def fresh_nonce() -> bytes:
    """A nonce for one command: 56 bits that nobody can guess while it runs, and 24 that may become visible.

    From a pool, as a call of getrandom(2) costs as much as reading the clock.
    """
    try:
        return _NONCES.pop()
    except IndexError:
        random = hexlify(os.urandom(640))
        _NONCES.extend(random[at : at + 20] for at in range(0, 1280, 20))
        return _NONCES.pop()
